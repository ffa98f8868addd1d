"""The server under test: a process of `strata serve` with the reference model, and its API as a client sees it."""

import http.client
import json
import os
import socket
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "models", "refmodel-q8_0.gguf")
SLOTS = 4


class Server:
    """Of the program `binary`, on a free port; `more` words for its command line."""

    def __init__(self, binary, *more):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.origin = f"http://127.0.0.1:{self.port}"
        words = [binary, "serve", "--model", MODEL, "--port", str(self.port), "--max-seqs", str(SLOTS), *more]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 120
        while not self.ready():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise AssertionError(f"{' '.join(words)}: not ready: {self.process.stderr.read()}")
            time.sleep(0.1)

    def ready(self):
        try:
            return self.ask("GET", "/health")[0] == 200
        except OSError:
            return False

    def ask(self, method, path, body=None, key=None):
        """Status and body of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        return response.status, text.decode()

    def status(self):
        return json.loads(self.ask("GET", "/v1/status")[1])

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.process.stderr.close()
