"""One `strata serve` process: started, watched, stopped."""

import collections, http.client, json, os, pathlib, re, signal, subprocess, sys, threading, time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STRATA = os.environ.get("STRATA", str(ROOT / "target/release/strata"))
MODEL = os.environ.get("STRATA_TEST_MODEL", str(ROOT / "models/refmodel-q8_0.gguf"))


class Server:
    """A server on a port that the system chose. As a context manager it must end by itself, with status 0 and without a panic."""

    def __init__(self, *flags, ready=60.0, env=None):
        command = [STRATA, "serve", "--model", MODEL, "--port", "0", *map(str, flags)]
        env = {k: v for k, v in os.environ.items() if not k.startswith("STRATA_")} | {"RUST_BACKTRACE": "1"} | (env or {})
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env)
        # all of a panic's lines and none of a long access log
        self.said, self.panics = collections.deque(maxlen=400), []
        self.port, self._heard = None, threading.Event()
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()
        until = time.monotonic() + ready
        while not self._heard.wait(0.005) or self.get("/health")[0] != 200:
            if self.process.poll() is not None or time.monotonic() > until:
                self.kill()
                raise RuntimeError("the server did not become ready:\n" + self.tail())

    def _listen(self):
        for line in self.process.stdout:
            line = line.decode("utf-8", "replace").rstrip()
            self.said.append(line)
            if "panicked at" in line or "RUST_BACKTRACE" in line:
                self.panics.append(line)
            if self.port is None and (found := re.search(r"https?://(?:127\.0\.0\.1|localhost):(\d+)", line)):
                self.port = int(found[1])
                self._heard.set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def tail(self, lines=40):
        return "\n".join(list(self.said)[-lines:])

    def request(self, method, path, body=None, headers=None, timeout=60):
        """Status, fields and body of one request on a connection of its own; status 0 where nothing listens."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = None if body is None else json.dumps(body).encode()
            c.request(method, path, data, {"content-type": "application/json"} | (headers or {}) if data else headers or {})
            r = c.getresponse()
            return r.status, dict(r.getheaders()), r.read()
        except ConnectionError:
            return 0, {}, b""
        finally:
            c.close()

    def get(self, path):
        status, _, body = self.request("GET", path)
        return status, body

    def post(self, path, body, timeout=60):
        """The JSON answer, which must be one of success."""
        status, _, data = self.request("POST", path, body, timeout=timeout)
        if status != 200:
            raise RuntimeError(f"{path}: status {status}: {data[:500]!r}")
        return json.loads(data)

    def status(self):
        return json.loads(self.get("/v1/status")[1])

    def memory(self):
        """Bytes of memory: all that is resident, and the anonymous part of it, which a leak adds to."""
        with open(f"/proc/{self.process.pid}/status") as f:
            kib = {n: int(v.split()[0]) for n, _, v in (line.partition(":") for line in f) if n in ("VmRSS", "RssAnon")}
        return kib["VmRSS"] << 10, kib["RssAnon"] << 10

    def check(self):
        """It lives and nothing in it panicked."""
        assert self.process.poll() is None, f"the server died with {self.process.returncode}:\n{self.tail()}"
        assert not self.panics, f"panics: {self.panics[:5]}\n{self.tail()}"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._reader.join(5)

    def stop(self, within=60):
        """Asks it to end, and waits."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(within)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the server did not stop within {within} s:\n{self.tail()}") from None
        self._reader.join(5)
        assert code == 0 and not self.panics, f"the server ended with {code}; panics: {self.panics[:5]}\n{self.tail()}"

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.stop()
        else:
            self.kill()
            print(self.tail(), file=sys.stderr)
