"""Time to the first token of a follow-up turn whose conversation is kept, beside the time of reading only its new tokens.

    serve.py [--tokens N] [--new N] [--rounds N] [--bench-rounds N] [--out FILE]

Builds a conversation of about `--tokens` tokens on the reference model, then asks follow-ups of about `--new` new tokens. Every round asks two:
one whose conversation is still in its slot, and one whose slot another conversation has taken since, so that its state comes back
from the cache's pages. Each is compared with the time that the same request's own forward passes took, which is what reading only the new tokens
costs (counted by the server: `busy_seconds` of /v1/status, while nothing else runs). The time to the first token is the client's:
HTTP, the template, tokenizing, the look-up and the restored state are in it. `--bench-rounds` compares with `strata bench -p NEW -d TOKENS`, too, which
reads as many tokens behind as many in a process of its own. Set STRATA to the program (default: target/release/strata)."""

import argparse, asyncio, json, pathlib, statistics, subprocess, sys, time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/serve"))
import wire
from server import MODEL, STRATA, Server


async def first_token(port, messages):
    """Seconds to the first piece of the answer, its text, tokens of the prompt and those of them from the cache."""
    body = {
        "messages": messages,
        "max_tokens": 1,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "logit_bias": {"198": -100},
        "chat_template_kwargs": {"enable_thinking": False},
    }
    reader, writer = await wire.connect(port)
    try:
        start, first, text, usage = time.perf_counter(), None, "", None
        writer.write(wire.encode("POST", "/v1/chat/completions", body, ["connection: close"]))
        status, fields = await wire.head(reader)
        if status != 200:
            raise SystemExit(f"status {status}: {await wire.body(reader, fields)}")
        async for event in wire.events(reader, fields):
            if event == "[DONE]":
                continue
            usage = event.get("usage") or usage
            for c in event["choices"]:
                if c["delta"].get("content") and first is None:
                    first = time.perf_counter() - start
                text += c["delta"].get("content") or ""
        if first is None:
            raise SystemExit("the answer has no text")
        return first, text, usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    finally:
        writer.close()


class Talk:
    """A conversation that grows."""

    def __init__(self, server, prose, at):
        self.server, self.prose, self.at = server, prose, at
        self.messages = []

    def ask(self, characters):
        text = ""
        while len(text) < characters:
            piece = self.prose[self.at % len(self.prose) :][: characters - len(text)]
            self.at += len(piece)
            text += piece
        self.messages.append({"role": "user", "content": text})
        before = self.server.status()["counters"]
        first, answer, prompt, cached = asyncio.run(first_token(self.server.port, self.messages))
        time.sleep(0.05)
        after = self.server.status()["counters"]
        self.messages.append({"role": "assistant", "content": answer})
        return {
            "first_s": first,
            "busy_s": after["busy_seconds"] - before["busy_seconds"],
            "prompt": prompt,
            "cached": cached,
            "read": after["prompt_tokens"] - before["prompt_tokens"],
        }


def bench(new, depth):
    out = subprocess.run(
        [STRATA, "bench", "-m", MODEL, "-p", str(new), "-n", "0", "-d", str(depth), "-r", "1", "--json"], capture_output=True, check=True
    )
    return new / json.loads(out.stdout)["tests"][0]["tok_s_median"]


def show(what, values, form="{:.3f}"):
    f = form.format
    print(f"{what}: median {f(statistics.median(values))}, {f(min(values))} to {f(max(values))}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tokens", type=int, default=30_000)
    p.add_argument("--new", type=int, default=200)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--bench-rounds", type=int, default=0)
    p.add_argument("--out", help="samples, as JSON")
    a = p.parse_args()
    prose = (ROOT / "tests/data/heldout_prose.txt").read_text()
    samples = []
    with Server("--ctx", 32768, "--max-seqs", 1, "--spec", 0) as server:
        ids = len(server.post("/tokenize", {"content": prose[:20_000]})["tokens"])
        per_token = 20_000 / ids
        talk, other = Talk(server, prose, 0), Talk(server, prose, 30_000)
        cold = talk.ask(int(a.tokens * per_token))
        print(
            f"the conversation: {cold['prompt']} tokens, first token after {cold['first_s']:.2f} s, {cold['busy_s']:.2f} s of them in passes"
        )
        for _ in range(a.rounds):
            for way in ("kept in its slot", "from pages"):
                if way == "from pages":
                    other.messages.clear()
                    other.ask(600)
                s = talk.ask(int(a.new * per_token)) | {"way": way}
                samples.append(s)
                if s["cached"] < s["prompt"] - 2 * a.new - 40:
                    raise SystemExit(f"hardly anything was kept: {s}")
                if len(samples) % 2 == 0 and a.bench_rounds * 2 >= len(samples):
                    samples.append(
                        {"way": "bench", "first_s": bench(s["prompt"] - s["cached"], s["cached"]), "read": s["prompt"] - s["cached"]}
                    )
        for way in ("kept in its slot", "from pages"):
            mine = [s for s in samples if s["way"] == way]
            print(f"\nfollow-ups {way}: {len(mine)}, of {mine[0]['prompt']} to {mine[-1]['prompt']} tokens")
            show("  tokens read", [s["read"] for s in mine], "{:.0f}")
            show("  time to the first token, ms", [1e3 * s["first_s"] for s in mine], "{:.1f}")
            show("  of that in passes, ms", [1e3 * s["busy_s"] for s in mine], "{:.1f}")
            show("  ratio of each pair", [s["first_s"] / s["busy_s"] for s in mine])
        benches = [s for s in samples if s["way"] == "bench"]
        if benches:
            print()
            show("strata bench, as many tokens behind as many, ms", [1e3 * s["first_s"] for s in benches], "{:.1f}")
            mine = [s["first_s"] for s in samples if s["way"] == "kept in its slot"]
            show("  ratio of follow-ups kept in their slot", [s / b["first_s"] for s, b in zip(mine, benches)])
    if a.out:
        pathlib.Path(a.out).write_text(json.dumps(samples, indent=1))


if __name__ == "__main__":
    main()
