"""Kills the server at random moments while it writes its cache to disk, and starts it again on what is left.

    kill.py [--times N] [--seed S] [--keep DIR]

After every kill the next server must become ready and give each answer that a server without a cache gives. At the end a file is
damaged on purpose: it must be refused. Exit status 1 says that something was wrong."""

import argparse, asyncio, collections, os, pathlib, random, shutil, sys, tempfile, time
import load, wire
from server import ROOT, Server

FLAGS = ["--ctx", 2048, "--max-seqs", 4]


def cached(folder):
    return [*FLAGS, "--cache", "64MiB", "--cache-dir", folder, "--cache-disk", "64MiB"]


def conversations(seed, number):
    """Requests that leave states worth keeping: long prompts, several turns each that begin with the last."""
    r = random.Random(f"{seed}/talk")
    prose = (ROOT / "tests/data/heldout_prose.txt").read_text()
    out = []
    for c in range(number):
        messages = [{"role": "system", "content": "Read this. " + prose[c * 2500 : c * 2500 + r.randrange(600, 2200)]}]
        for turn in range(3):
            messages.append({"role": "user", "content": f"Say these words again: {r.choice(['silk, iron', 'letter', 'gold, summer'])}."})
            out.append(
                (
                    "/v1/chat/completions",
                    {
                        "messages": list(messages),
                        "max_tokens": 12,
                        "temperature": 0.9,
                        "seed": c * 10 + turn,
                        "stream": True,
                        "stream_options": {"include_usage": True},
                        "chat_template_kwargs": {"enable_thinking": False},
                    },
                )
            )
            messages.append({"role": "assistant", "content": prose[9000 + c * 300 : 9000 + c * 300 + r.randrange(20, 300)]})
    return out


class Kills:
    def __init__(self, folder, seed):
        self.folder, self.random = pathlib.Path(folder), random.Random(f"{seed}/kill")
        self.talks = conversations(seed, 12)
        self.wrong, self.happened = [], collections.Counter()
        self.expected = []

    def problem(self, text):
        self.wrong.append(text)
        print(text, flush=True)

    async def check(self, server, i, how):
        """Asks request `i` and compares; true if its prompt came from the cache in part."""
        path, body = self.talks[i]
        cached = 0
        reader, writer = await wire.connect(server.port)
        try:
            writer.write(wire.encode("POST", path, body, ["connection: close"]))
            status, fields = await wire.head(reader)
            assert status == 200, status
            events = [e async for e in wire.events(reader, fields)]
            usage = next(e["usage"] for e in reversed(events) if e != "[DONE]" and e.get("usage"))
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            if load.digest(load.answer(events)) != self.expected[i]:
                self.problem(f"request {i}, {how}, {cached} tokens from the cache: {load.answer(events)} is not the right answer")
        finally:
            writer.close()
        return cached

    def temporary(self):
        """Files that are being written."""
        return [n for n in os.listdir(self.folder) if n.endswith(".new")] if self.folder.exists() else []

    async def disturb(self, server):
        """Asks as fast as it can, until the server is killed at a random moment, half of the times within the writing of a file."""
        moment = time.monotonic() + self.random.uniform(0.02, 0.6)
        wait_for_file = self.random.random() < 0.5
        asks = self.random.sample(range(len(self.talks)), 4)
        later = self.random.uniform(0, 0.002)

        async def client(mine):
            for i in mine:
                try:
                    await self.check(server, i, "before a kill")
                    # what was never asked is written
                    path, body = self.talks[i]
                    first, *rest = body["messages"]
                    new = first | {"content": f"{self.random.random()} {first['content']}"}
                    await load.ask(server.port, path, body | {"messages": [new, *rest]})
                except (OSError, wire.Broken, StopIteration):
                    return  # killed

        def killer():
            until = moment + 1.5
            while time.monotonic() < moment:
                time.sleep(0.0005)
            # files are written in milliseconds: no sleep between looks
            while wait_for_file and not self.temporary() and time.monotonic() < until:
                pass
            time.sleep(later)
            server.process.kill()

        await asyncio.gather(asyncio.to_thread(killer), *(client(asks[n::2]) for n in range(2)))
        server.kill()

    def round(self, number):
        server = Server(*cached(self.folder))
        try:
            hits = 0
            for i in self.random.sample(range(len(self.talks)), 3):
                hits += asyncio.run(self.check(server, i, f"after kill {number}")) > 0
            self.happened["answers after a kill"] += 3
            self.happened["of them with states from disk"] += hits
            server.check()
            asyncio.run(self.disturb(server))
        finally:
            server.kill()
        self.happened["kills"] += 1
        self.happened["kills within the writing of a file"] += bool(self.temporary())
        if server.panics:
            self.problem(f"panics: {server.panics}\n{server.tail()}")

    def damaged(self):
        """Bytes of all files are changed: all must be refused, and the answers right. The control of the comparison: an answer of another
        seed is not taken for the right one."""
        files = [f for f in self.folder.rglob("*") if f.is_file()]
        for f in files:
            data = bytearray(f.read_bytes())
            for _ in range(3):
                data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            f.write_bytes(data)
        with Server(*cached(self.folder)) as server:
            for i in range(0, len(self.talks), 3):
                if (hit := asyncio.run(self.check(server, i, "damaged files"))) > 0:
                    self.problem(f"request {i}: {hit} tokens of a damaged file were used")
            path, body = self.talks[0]
            other = [load.digest(asyncio.run(load.ask(server.port, path, body | {"seed": 1000 + s, "temperature": 1.5}))) for s in range(4)]
            if set(other) == {self.expected[0]}:
                self.problem("answers of other seeds are equal: the comparison sees nothing")
        return len(files)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--times", type=int, default=200)
    p.add_argument("--seed", default="1")
    p.add_argument("--keep", help="folder of the cache, which stays")
    a = p.parse_args()
    folder = a.keep or tempfile.mkdtemp(prefix="strata-kill-")
    try:
        kills = Kills(folder, a.seed)
        with Server(*FLAGS) as server:
            kills.expected = [load.digest(asyncio.run(load.ask(server.port, *t))) for t in kills.talks]
        for number in range(a.times):
            kills.round(number)
            if number % 20 == 19:
                print(dict(kills.happened), flush=True)
        files = kills.damaged()
        print(", ".join(f"{k} {v}" for k, v in kills.happened.items()) + f"; {files} damaged files; {len(kills.wrong)} problems")
        if a.times >= 8:
            assert kills.happened["of them with states from disk"], "no state ever came from disk: nothing was tested"
            assert files, "nothing was ever written"
    finally:
        if not a.keep:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(bool(kills.wrong))


if __name__ == "__main__":
    main()
