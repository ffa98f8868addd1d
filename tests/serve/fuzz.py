"""Sends malformed requests and looks at what comes back.

    fuzz.py [--requests N] [--seed S] [--only I,..]

Every request must get an answer that is HTTP, and an error in the shape of the API that was asked; the server must not panic, die, hang
or grow, and a good request in between must be answered as ever. `--only` sends single requests again and prints what was said.
Exit status 1 says that something was wrong."""

import argparse, asyncio, collections, json, statistics, sys, tempfile, time
import malformed, wire
from server import Server

LIMIT_S = 60  # for one answer
GOOD = {
    "messages": [{"role": "user", "content": "What is 3 plus 4?"}],
    "max_tokens": 12,
    "temperature": 0.8,
    "seed": 5,
    "chat_template_kwargs": {"enable_thinking": False},
}


def strict(data):
    """JSON as the standard has it: no NaN."""

    def refuse(name):
        raise ValueError(f"{name} is no JSON")

    return json.loads(data, parse_constant=refuse)


def wrong_error(path, data):
    """Why this is no error of the API that `path` belongs to; `None` if it is one."""
    try:
        body = strict(data)
        error = body["error"]
        if not (isinstance(error["message"], str) and error["message"] and isinstance(error["type"], str)):
            return f"no message or type: {data[:200]!r}"
        if path.startswith("/v1/messages"):
            return None if body.get("type") == "error" else f"not of Anthropic's shape: {data[:200]!r}"
        good = all(k in error and isinstance(error[k], (str, type(None), int)) for k in ("param", "code"))
        return None if good else f"not of OpenAI's shape: {data[:200]!r}"
    except (ValueError, KeyError, TypeError) as e:
        return f"no error object ({type(e).__name__}: {e}): {data[:200]!r}"


def wrong_reply(case, status, fields, data):
    """What is wrong with a reply; `None`: nothing."""
    if status == 500 or not 200 <= status < 600:
        return f"status {status}: {data[:300]!r}"
    if status >= 400:
        return None if not case.http and not data else wrong_error(case.path, data)
    try:
        kind = fields.get("content-type", "")
        if "json" in kind:
            strict(data)
        elif "event-stream" in kind:
            for event in data.split(b"\n\n"):
                for line in event.split(b"\n"):
                    if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
                        strict(line[5:])
    except ValueError as e:
        return f"status {status} with bad JSON ({e}): {data[:200]!r}"
    return None


async def send(writer, case):
    for piece in case.pieces:
        writer.write(piece)
        await writer.drain()
        if case.slow:
            await asyncio.sleep(0.002)


async def receive(reader):
    status, fields = await wire.head(reader)
    return status, fields, await wire.body(reader, fields)


async def shoot(port, case, patience=LIMIT_S):
    """Sends a case. Returns what happened, in a word or a status, and what was wrong with it or `None`."""
    reader, writer = await wire.connect(port)
    # an answer may come, and the connection end, before all is sent
    answer = None if case.leave else asyncio.create_task(receive(reader))
    again = writer.get_extra_info("socket").dup()
    try:
        try:
            await send(writer, case)
        except OSError:
            pass
        if case.leave == "stall":
            start = time.monotonic()
            try:
                while await asyncio.wait_for(reader.read(1 << 16), patience):
                    pass
            except OSError:
                pass
            return f"thrown out after {round((time.monotonic() - start) / 5) * 5} s", None
        if case.leave:
            await asyncio.sleep((case.number * 7919 % 100) / 400)
            wire.reset(writer) if case.leave == "reset" else writer.close()
            return "left", None
        if not case.http:
            await asyncio.sleep(0.02)
            if writer.can_write_eof() and not writer.is_closing():
                writer.write_eof()
        try:
            status, fields, data = await asyncio.wait_for(answer, patience)
        except OSError:
            status, fields, data = await receive(wire.leftover(again))
        return status, wrong_reply(case, status, fields, data)
    except TimeoutError:
        return "no answer", f"nothing within {patience} s"
    except (OSError, wire.Broken) as e:
        # a server may close at once on what is no HTTP
        return "closed", None if not case.http else f"no answer: {e}"
    finally:
        if answer:
            answer.cancel()
        wire.reset(writer)
        again.close()


async def good_answer(port):
    reader, writer = await wire.connect(port)
    try:
        writer.write(wire.encode("POST", "/v1/chat/completions", GOOD, ["connection: close"]))
        status, fields = await asyncio.wait_for(wire.head(reader), LIMIT_S)
        return status, strict(await wire.body(reader, fields)).get("choices")
    finally:
        wire.reset(writer)


async def fuzz(server, seed, numbers, workers=12, say=print):
    """Sends requests; returns counts of what happened and a list of what was wrong."""
    happened, wrong = collections.Counter(), []
    expected = await good_answer(server.port)
    assert expected[0] == 200, expected
    # those that wait to be thrown out begin first
    stalls, rest = [], []
    for i in numbers:
        (stalls if malformed.one(seed, i).leave == "stall" else rest).append(i)
    queue, memory, start = collections.deque(rest), [], time.monotonic()

    async def one(case):
        word, problem = await shoot(server.port, case)
        happened[word] += 1
        if problem:
            wrong.append((case.number, case.kind, case.path, problem))
            say(f"request {case.number} ({case.kind}, {case.path}): {problem}", flush=True)

    async def work():
        while queue and len(wrong) < 50:
            done = len(rest) - len(queue)
            case = malformed.one(seed, queue.popleft())
            await one(case)
            if done % 200 == 0:
                server.check()
                if (now := await good_answer(server.port)) != expected:
                    wrong.append((case.number, "good request", "", f"{now} instead of {expected}"))
            if done % 200 == 0:
                memory.append((done, *server.memory()))
            if done % 1000 == 0:
                say(f"{done} requests, {time.monotonic() - start:.0f} s, {memory[-1][1] >> 10} KiB resident", flush=True)

    patient = [asyncio.create_task(one(malformed.one(seed, i))) for i in stalls]
    await asyncio.gather(*(work() for _ in range(workers)))
    await asyncio.gather(*patient)
    server.check()
    return happened, wrong, memory


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--requests", type=int, default=20_000)
    p.add_argument("--seed", default="1")
    p.add_argument("--only")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as sessions, Server(*FLAGS, "--slot-save-path", sessions) as server:
        if a.only:
            for i in map(int, a.only.split(",")):
                case = malformed.one(a.seed, i)
                print(i, case.kind, b"".join(case.pieces)[:2000])
                print(asyncio.run(shoot(server.port, case)))
            return
        happened, wrong, memory = asyncio.run(fuzz(server, a.seed, range(a.requests)))
        print("answers:", ", ".join(f"{k} {v}" for k, v in sorted(happened.items(), key=str)))
        if len(memory) >= 40:  # fewer are all warm-up
            quarter = len(memory) // 4
            early, late = (statistics.median(m[1] for m in part) for part in (memory[quarter : 2 * quarter], memory[-quarter:]))
            print(f"memory grew by {100 * (late / early - 1):.2f} % from the second quarter to the last, medians of {quarter} samples")
            if late > 1.02 * early:
                wrong.append((0, "memory", "", f"grew from {early} to {late} bytes"))
        print(f"{sum(happened.values())} requests of seed {a.seed}, {len(wrong)} wrong")
    sys.exit(bool(wrong))


FLAGS = ["--ctx", 512, "--max-seqs", 8, "--cache", "16MiB"]

if __name__ == "__main__":
    main()
