"""The official `anthropic` client against a server with the reference model."""

import json
import anthropic, jsonschema, pytest
from conftest import ADD, FIND, run

ASK = [{"role": "user", "content": "Say these words again: silk, iron, gold."}]
WORDS = "silk, iron, gold."
TOOLS = [{"name": f["name"], "description": f["description"], "input_schema": f["parameters"]} for f in (ADD, FIND)]


@pytest.fixture(scope="module")
def client(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=60, _strict_response_validation=True)


@pytest.fixture(scope="module")
def create(client):
    def make(messages=ASK, **options):
        options = {"max_tokens": 40, "extra_body": {"temperature": 0}} | options
        return client.messages.create(model="m", messages=messages, **options)

    return make


def test_message_is_what_run_says(create):
    got = create()
    alone = run(ASK[0]["content"])
    assert [b.type for b in got.content] == ["text"] and got.content[0].text == alone["text"] == WORDS
    assert got.stop_reason == "end_turn" and got.role == "assistant"
    usage = got.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == alone["prompt_tokens"]
    assert usage.output_tokens == alone["generated_tokens"]


def test_system_and_blocks(create):
    a = create([{"role": "user", "content": [{"type": "text", "text": ASK[0]["content"]}]}], system="Be brief.")
    b = create(system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}])
    assert a.content[0].text == b.content[0].text


def test_streamed(client, create):
    whole = create()
    events = list(create(stream=True))
    kinds = [e.type for e in events if e.type != "ping"]
    assert kinds[:2] == ["message_start", "content_block_start"] and kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert "".join(e.delta.text for e in events if e.type == "content_block_delta") == whole.content[0].text
    delta = next(e for e in events if e.type == "message_delta")
    assert delta.delta.stop_reason == "end_turn" and delta.usage.output_tokens == whole.usage.output_tokens
    with client.messages.stream(model="m", messages=ASK, max_tokens=40, extra_body={"temperature": 0}) as stream:
        assert "".join(stream.text_stream) == WORDS
        assert stream.get_final_message().content[0].text == WORDS


def test_thinking(client, create):
    options = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}
    got = create(**options)
    assert [b.type for b in got.content] == ["thinking", "text"] and got.content[0].thinking and got.content[0].signature
    alone = run(ASK[0]["content"], "--think", "-n", 2000)
    assert got.content[1].text.strip() and got.content[1].text.strip() in alone["text"]
    with client.messages.stream(model="m", messages=ASK, extra_body={"temperature": 0}, **options) as stream:
        final = stream.get_final_message()
    assert [(b.type, getattr(b, "thinking", None) or b.text) for b in final.content] == [
        (b.type, getattr(b, "thinking", None) or b.text) for b in got.content
    ]
    # sent back, it is part of the conversation
    next_turn = create(
        [
            *ASK,
            {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in got.content]},
            {"role": "user", "content": "And again."},
        ]
    )
    assert next_turn.content[0].type == "text"


def test_stops(create):
    got = create(stop_sequences=[" iron", "zebra"])
    assert (got.content[0].text, got.stop_reason, got.stop_sequence) == ("silk,", "stop_sequence", " iron")
    assert create(max_tokens=2).stop_reason == "max_tokens"


@pytest.mark.parametrize("choice, name", [({"type": "any"}, None), ({"type": "tool", "name": "find_city"}, "find_city")])
def test_forced_tools(client, create, choice, name):
    schemas = {f["name"]: f["parameters"] for f in (ADD, FIND)}
    options = {"tools": TOOLS, "tool_choice": choice, "max_tokens": 300, "messages": [{"role": "user", "content": "Where is Paris?"}]}
    got = create(**options)
    calls = [b for b in got.content if b.type == "tool_use"]
    assert got.stop_reason == "tool_use" and calls
    for call in calls:
        assert name in (None, call.name) and call.id
        jsonschema.validate(call.input, schemas[call.name])
    events = list(create(stream=True, **options))
    pieces = [e.delta.partial_json for e in events if e.type == "content_block_delta" and e.delta.type == "input_json_delta"]
    assert len([p for p in pieces if p]) > 1, "the input came at once"
    with client.messages.stream(model="m", extra_body={"temperature": 0}, **options) as stream:
        assert [b.input for b in stream.get_final_message().content if b.type == "tool_use"] == [c.input for c in calls]
    result = [
        {"type": "tool_result", "tool_use_id": c.id, "content": [{"type": "text", "text": "2 km"}], "is_error": i > 0}
        for i, c in enumerate(calls)
    ]
    after = create(
        [
            *options["messages"],
            {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in got.content]},
            {"role": "user", "content": result},
        ],
        tools=TOOLS,
    )
    before, now = ((u.input_tokens + (u.cache_read_input_tokens or 0)) for u in (got.usage, after.usage))
    assert now > before


def test_tools_left_out(create):
    got = create(tools=TOOLS, tool_choice={"type": "none"})
    assert got.content[0].text == WORDS


def test_count_tokens(client, create):
    for options in ({}, {"system": "Be brief."}, {"tools": TOOLS}):
        counted = client.messages.count_tokens(model="m", messages=ASK, **options).input_tokens
        usage = create(max_tokens=1, **options).usage
        assert counted == usage.input_tokens + (usage.cache_read_input_tokens or 0)


@pytest.mark.parametrize(
    "options, field",
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"extra_body": {"temperature": -1}}, "temperature"),
        ({"stop_sequences": [3]}, "stop_sequences"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "role"),
        ({"tools": [{"name": "x"}]}, "input_schema"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}],
                    }
                ]
            },
            "image",
        ),
        ({"tool_choice": {"type": "tool", "name": "none"}, "tools": TOOLS}, "tool_choice"),
        ({"thinking": {"type": "x"}}, "thinking"),
    ],
)
def test_wrong_fields_are_named(create, options, field):
    with pytest.raises(anthropic.BadRequestError) as e:
        create(**options)
    assert e.value.body["type"] == "error" and e.value.body["error"]["type"] == "invalid_request_error" and e.value.request_id
    assert field in e.value.body["error"]["message"], e.value.body


def test_unknown_fields_are_ignored(create):
    got = create(
        metadata={"user_id": "u"},
        extra_body={"temperature": 0, "no_such_field": 1},
        extra_headers={"anthropic-beta": "x-2026-01-01"},
        extra_query={"beta": "true"},
    )
    assert got.content[0].text == WORDS


def test_unknown_models(client):
    with pytest.raises(anthropic.NotFoundError) as e:
        client.messages.create(model="no-such-model", max_tokens=1, messages=ASK)
    assert e.value.body["error"]["type"] == "not_found_error"


def test_keys(keyed):
    for key in ("wrong", "secret-on", "secret-one2"):
        with pytest.raises(anthropic.AuthenticationError) as e:
            anthropic.Anthropic(base_url=keyed.url, api_key=key, max_retries=0).messages.create(model="m", max_tokens=1, messages=ASK)
        assert e.value.body["error"]["type"] == "authentication_error"
    for client in (
        anthropic.Anthropic(base_url=keyed.url, api_key="secret-two", max_retries=0),
        anthropic.Anthropic(base_url=keyed.url, auth_token="secret-one", max_retries=0),
    ):
        assert client.messages.create(model="m", max_tokens=1, messages=ASK).usage.output_tokens == 1
