import json, subprocess
import pytest
from server import MODEL, STRATA, Server

NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
ADD = {
    "name": "add",
    "description": "Adds two whole numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}
FIND = {
    "name": "find_city",
    "description": "Says where a city is.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["km", "mile"]}},
        "required": ["city", "unit"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="session")
def server():
    with Server("--ctx", 4096, "--max-seqs", 4, "--alias", "m") as s:
        yield s


@pytest.fixture(scope="session")
def keyed(tmp_path_factory):
    """A server that wants a key: `secret-one` or `secret-two`."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("secret-one\nsecret-two\n")
    with Server("--ctx", 512, "--alias", "m", "--api-key-file", keys) as s:
        yield s


def run(prompt, *flags):
    """The object that `strata run --json` prints."""
    out = subprocess.run([STRATA, "run", "--json", "--model", MODEL, *map(str, flags), prompt], capture_output=True, check=True)
    return json.loads(out.stdout)
