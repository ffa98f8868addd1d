"""Many streaming clients for some minutes: cancellations, slow readers, malformed requests. Every whole answer must be the one that
the same request gets alone.

    load.py [--seconds N] [--clients N] [--requests N] [--seed S]

Prints what happened, memory over time and the server's scheduling delays; exit status 1 says that something was wrong."""

import argparse, asyncio, collections, hashlib, itertools, json, random, re, statistics, subprocess, sys, time
import fuzz, malformed, wire
from server import MODEL, ROOT, STRATA, Server

FLAGS = ["--ctx", 4096, "--max-seqs", 8, "--queue", 64, "--cache", "24MiB"]
MALFORMED = 12  # clients that send malformed requests
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def catalogue(seed, size):
    """Requests that differ in everything that may change an answer, many with a common beginning."""
    r = random.Random(seed)
    prose = (ROOT / "tests/data/heldout_prose.txt").read_text()
    questions = [json.loads(line) for line in (ROOT / "tests/data/qa_items.jsonl").read_text().splitlines()]
    free = ["Tell me of the sea.", "What did the king say?", "Write about taxes.", "Who was the captain, and why did he go on?"]
    ask = lambda: r.choice([r.choice(questions)["messages"][0]["content"], r.choice(free)])
    system = "Answer from this text. " + prose[:3000]
    out = []
    for i in range(size):
        body = {
            "stream": True,
            "max_tokens": r.choice([8, 24, 64, 200]),
            "seed": r.randrange(1 << 31),
            "stream_options": {"include_usage": True},
        }
        body |= r.choice(
            [
                {"temperature": 0},
                {"temperature": 0.8},
                {"temperature": 1.2, "top_k": 40},
                {"temperature": 1, "top_p": 0.9, "min_p": 0.02},
                {"temperature": 0.7, "repetition_penalty": 1.1, "presence_penalty": 0.3, "frequency_penalty": 0.1},
            ]
        )
        kind = r.choice(["chat", "chat", "thinking", "system", "turns", "long", "schema", "text", "choices"])
        at = r.randrange(len(prose) - 9000)
        if kind in ("text", "long"):
            path = "/v1/completions"
            body["prompt"] = prose[at : at + (r.randrange(4000, 7000) if kind == "long" else r.randrange(40, 400))]
            body["logprobs"] = 2
        else:
            path = "/v1/chat/completions"
            messages = [{"role": "user", "content": ask()}]
            if kind == "system":
                messages = [{"role": "system", "content": system}, *messages]
            if kind == "turns":
                for _ in range(r.randrange(1, 4)):
                    messages += [{"role": "assistant", "content": prose[at : at + r.randrange(300)]}, {"role": "user", "content": ask()}]
            body |= {"messages": messages, "chat_template_kwargs": {"enable_thinking": kind == "thinking"}}
            if kind == "schema":
                body["response_format"] = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
            if kind == "choices":
                body["n"] = r.choice([2, 3])
            if r.random() < 0.2:
                body["stop"] = r.choice([["the"], [".", "zebra"], ["\n\n"]])
        out.append((path, body))
    return out


def answer(events):
    """What must be equal of a stream's events: texts, calls, probabilities, reasons, numbers of tokens; not how it was cut into events."""
    choices, tokens, ended = {}, None, False
    for event in events:
        if event == "[DONE]":
            ended = True
            continue
        if "error" in event:
            raise wire.Broken(f"error event: {event}")
        for c in event.get("choices", []):
            to = choices.setdefault(c["index"], {"text": "", "thought": "", "calls": {}, "probs": [], "reason": None})
            delta = c.get("delta", {})
            to["text"] += c.get("text") or delta.get("content") or ""
            to["thought"] += delta.get("reasoning_content") or ""
            for call in delta.get("tool_calls") or []:
                to["calls"].setdefault(call["index"], []).append([call.get("function", {}).get(k) or "" for k in ("name", "arguments")])
            probs = c.get("logprobs") or {}
            to["probs"] += probs.get("token_logprobs") or [t["logprob"] for t in probs.get("content") or []]
            to["reason"] = c.get("finish_reason") or to["reason"]
        if usage := event.get("usage"):
            tokens = usage["prompt_tokens"], usage["completion_tokens"]
    for c in choices.values():
        c["calls"] = {i: ["".join(x) for x in zip(*parts)] for i, parts in c["calls"].items()}
    if not ended or tokens is None or not choices or any(c["reason"] is None for c in choices.values()):
        raise wire.Broken("the stream ended before its last events")
    return sorted(choices.items()), tokens


def digest(value):
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


class Retry(Exception):
    """The server is full."""


async def ask(port, path, body, leave_after=None, slow=False):
    """The answer to one request; `None` if the client left before its end."""
    reader, writer = await wire.connect(port, **({"receive": 2048, "limit": 1024} if slow else {}))
    got = []
    try:
        writer.write(wire.encode("POST", path, body, ["connection: close"]))
        status, fields = await wire.head(reader)
        if status in (429, 503):
            await wire.body(reader, fields)
            raise Retry(float(fields["retry-after"]))
        if status != 200:
            raise wire.Broken(f"status {status}: {(await wire.body(reader, fields))[:300]!r}")
        async for event in wire.events(reader, fields):
            got.append(event)
            if leave_after is not None and len(got) > leave_after:
                wire.reset(writer)
                return None
            if slow:
                await asyncio.sleep(0.02)
        return answer(got)
    finally:
        writer.close()


class Load:
    def __init__(self, server, requests, seed):
        self.server, self.requests, self.seed = server, requests, seed
        self.alone, self.wrong, self.happened = [], [], collections.Counter()
        self.first, self.memory = [], []

    def problem(self, text):
        self.wrong.append(text)
        print(text, flush=True)

    async def run_alone(self):
        for path, body in self.requests:
            self.alone.append(digest(await ask(self.server.port, path, body)))

    async def client(self, number, until):
        r = random.Random(f"{self.seed}/client/{number}")
        while time.monotonic() < until:
            i = r.randrange(len(self.requests))
            way = r.random()
            leave, slow = (r.randrange(30) if way < 0.25 else None), way > 0.9
            try:
                got = await asyncio.wait_for(ask(self.server.port, *self.requests[i], leave, slow), 120)
            except Retry as e:
                self.happened["told to wait"] += 1
                await asyncio.sleep(min(e.args[0], 1) * r.random())
                continue
            except TimeoutError:
                self.problem(f"request {i}: not answered within 120 s")
                continue
            except (wire.Broken, OSError, ValueError) as e:
                self.problem(f"request {i}: {type(e).__name__}: {e}")
                continue
            if got is None:
                self.happened["left"] += 1
            else:
                self.happened["whole, read slowly" if slow else "whole"] += 1
                if digest(got) != self.alone[i]:
                    self.problem(f"request {i}: {got} is not the answer it gets alone: {self.requests[i]}")

    async def malformed(self, numbers, until, pause):
        while time.monotonic() < until:
            number = next(numbers)
            _, problem = await fuzz.shoot(self.server.port, malformed.one(self.seed, number))
            self.happened["malformed"] += 1
            if problem:
                self.problem(f"malformed request {number} of seed {self.seed}: {problem}")
            await asyncio.sleep(pause)

    async def watch(self, start, until):
        while time.monotonic() < until:
            self.memory.append((time.monotonic() - start, *self.server.memory()))
            self.server.check()
            await asyncio.sleep(min(1, until - time.monotonic()))

    async def run(self, clients, seconds, pause):
        start = time.monotonic()
        until = start + seconds
        numbers = itertools.count()
        bad = (self.malformed(numbers, until, pause) for _ in range(MALFORMED))
        await asyncio.gather(self.watch(start, until), *(self.client(c, until) for c in range(clients)), *bad)

    def grown(self):
        """Share by which resident and anonymous memory grew from the first fifth's end to the end, medians of ten samples each."""
        n = len(self.memory)
        at = lambda i, column: statistics.median(m[column] for m in self.memory[max(0, i - 5) : i + 5])
        return [at(n - 5, column) / at(n // 5, column) - 1 for column in (1, 2)]


def beside_run(requests, server):
    """The answers of `strata run` to those requests that it can be asked, beside the server's."""
    compared = 0
    for path, body in requests:
        extra = {"stop", "n", "response_format"} & body.keys()
        if path != "/v1/chat/completions" or extra or len(body["messages"]) > 1 or compared == 4:
            continue
        think = ["--think"] if body["chat_template_kwargs"]["enable_thinking"] else []
        names = {
            "temperature": "--temp",
            "top_p": "--top-p",
            "top_k": "--top-k",
            "min_p": "--min-p",
            "repetition_penalty": "--repetition-penalty",
            "presence_penalty": "--presence-penalty",
            "frequency_penalty": "--frequency-penalty",
            "seed": "--seed",
            "max_tokens": "-n",
        }
        body = {"top_p": 1, **body}
        flags = [str(x) for k, flag in names.items() if k in body for x in (flag, body[k])]
        run = subprocess.run(
            [STRATA, "run", "--json", "--model", MODEL, *think, *flags, body["messages"][0]["content"]], capture_output=True, check=True
        )
        run = json.loads(run.stdout)
        got = server.post(path, body | {"stream": False, "stream_options": None, "logprobs": True})
        pieces = got["choices"][0]["message"]
        text = (pieces.get("reasoning_content") or "") + (pieces.get("content") or "")
        bare = lambda t: re.sub(r"\s|</?think>", "", t)
        if bare(text) != bare(run["text"]) or got["usage"]["completion_tokens"] != run["generated_tokens"]:
            raise AssertionError(f"the server says {text!r}, `strata run` {run['text']!r}: {body}")
        compared += 1
    return compared


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seconds", type=float, default=300)
    p.add_argument("--clients", type=int, default=32)
    p.add_argument("--requests", type=int, default=60, help="different requests")
    p.add_argument("--pause", type=float, default=0.1, help="seconds between malformed requests of one client")
    p.add_argument("--seed", default="1")
    a = p.parse_args()
    with Server(*FLAGS) as server:
        load = Load(server, catalogue(a.seed, a.requests), a.seed)
        asyncio.run(load.run_alone())
        print(f"{beside_run(load.requests, server)} answers equal those of `strata run`")
        # the comparison must be able to fail: other seeds give other answers
        path, body = next((p, b) for p, b in load.requests if p == "/v1/completions" and b["temperature"] and b["max_tokens"] > 20)
        assert (
            len({digest(asyncio.run(ask(server.port, path, body | {"seed": s}))) for s in range(4)}) > 1
        ), "answers do not depend on the seed"
        asyncio.run(load.run(a.clients, a.seconds, a.pause))
        status = server.status()
        for second, resident, anonymous in load.memory[:: max(1, len(load.memory) // 10)]:
            print(f"{second:4.0f} s: {resident >> 10} KiB resident, {anonymous >> 10} KiB anonymous")
        print(", ".join(f"{k} {v}" for k, v in sorted(load.happened.items())))
        resident, anonymous = load.grown()
        print(
            f"from {len(load.memory) // 5} s to the end memory grew by {100 * resident:.2f} %, its anonymous part by {100 * anonymous:.2f} %"
        )
        # a short run is all warm-up
        if a.seconds >= 120 and max(resident, anonymous) > 0.02:
            load.problem("memory grew by more than 2 %")
        for name, of in status["delays_ms"].items():
            print(f"delay {name}: " + ", ".join(f"{k} {v:.3g} ms" for k, v in of.items()))
        print("counters:", json.dumps(status["counters"]))
        whole = load.happened["whole"] + load.happened["whole, read slowly"]
        print(f"{whole} whole answers, {len(load.wrong)} problems")
        assert whole >= a.clients, "hardly anything was answered"
    sys.exit(bool(load.wrong))


if __name__ == "__main__":
    main()
