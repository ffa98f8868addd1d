"""A WebDriver client for a headless Chromium: the part of the protocol that the page's test needs, standard library only."""

import json
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"enter": "\ue007", "escape": "\ue00c", "shift": "\ue008", "alt": "\ue00a", "up": "\ue013", "null": "\ue000"}
# no window, no traffic of the browser's own
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
]


class Element:
    """An element of the page."""

    def __init__(self, browser, id):
        self.browser, self.id = browser, id

    def _call(self, method, path, body=None):
        return self.browser.call(method, f"/element/{self.id}{path}", body)

    def click(self):
        self._call("POST", "/click", {})

    def type(self, text):
        self._call("POST", "/value", {"text": text})

    @property
    def text(self):
        return self._call("GET", "/text")

    @property
    def value(self):
        return self._call("GET", "/property/value")

    @property
    def shown(self):
        return self._call("GET", "/displayed")


class Browser:
    """A fresh Chromium of its own profile, and the driver that it hangs on."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="page-test-")
        self.downloads = tempfile.mkdtemp(prefix="page-test-")
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            for line in self.driver.stdout:
                if "started successfully on port" in line:
                    self.base = "http://127.0.0.1:" + line.split()[-1].rstrip(".")
                    break
            options = {
                "args": [*FLAGS, f"--user-data-dir={self.profile}"],
                "prefs": {"download.default_directory": self.downloads},
                # all requests, for the check that none goes elsewhere
                "perfLoggingPrefs": {"enableNetwork": True},
            }
            capabilities = {
                "browserName": "chrome",
                "goog:chromeOptions": options,
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
                "timeouts": {"script": 60_000},
            }
            self.session = ""
            self.session = "/session/" + self.call("POST", "/session", {"capabilities": {"alwaysMatch": capabilities}})["sessionId"]
        except BaseException:
            self.close()
            raise

    def close(self):
        try:
            if getattr(self, "session", ""):
                self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait()
            self.driver.stdout.close()
            for path in (self.profile, self.downloads):
                shutil.rmtree(path, ignore_errors=True)

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + self.session + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=90) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            value = json.load(error)["value"]
            raise AssertionError(f"{method} {path}: {value['error']}: {value['message'].splitlines()[0]}") from None

    def open(self, url):
        self.call("POST", "/url", {"url": url})

    def reload(self):
        self.call("POST", "/refresh", {})

    def resize(self, width, height):
        """Sets the size of what is seen, which may be narrower than the narrowest window."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.command("Emulation.setDeviceMetricsOverride", size)

    def command(self, name, params):
        """A command of the DevTools protocol."""
        return self.call("POST", "/goog/cdp/execute", {"cmd": name, "params": params})

    def find(self, css):
        return Element(self, self.call("POST", "/element", {"using": "css selector", "value": css})[ELEMENT])

    def all(self, css):
        found = self.call("POST", "/elements", {"using": "css selector", "value": css})
        return [Element(self, value[ELEMENT]) for value in found]

    def js(self, script, *args):
        """The value of a function body; `await` may be used in it."""
        wrapped = f"return (async () => {{ {script} }}).apply(null, arguments)"
        return self.call("POST", "/execute/sync", {"script": wrapped, "args": list(args)})

    def press(self, *names):
        """Keys pressed together."""
        down = [{"type": "keyDown", "value": KEYS.get(name, name)} for name in names]
        up = [{"type": "keyUp", "value": KEYS.get(name, name)} for name in reversed(names)]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": down + up}]})

    def wait(self, what, condition, seconds=30):
        """The first true value of `condition()`; an assertion with `what` if there is none in time."""
        end = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            time.sleep(0.05)

    def log(self, kind):
        """Entries since the last call: "browser" is the console, "performance" the DevTools events."""
        return self.call("POST", "/se/log", {"type": kind})

    def screenshot(self):
        """PNG, in base64."""
        return self.call("GET", "/screenshot")
