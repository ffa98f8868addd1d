"""The page in a real browser against a real server: `python3 tests/page/page_test.py STRATA` with the path of the binary."""

import json
import os
import sys
import tempfile
import time
import unittest

from proxy import Proxy
from server import Server
from webdriver import Browser

BINARY = None
# for controls: what is replaced in the page, by what; and how often it was found
BROKEN = None
CHANGED = 0
# of texts that grow without end, and whose answers are one
ENDLESS = {"ignore_eos": True}
FIXED = {"temperature": 0, "seed": 7, "max_tokens": 60}
QUESTION = "Say these words again: silk, iron, gold."
CODE = "fn main() {\n\tprintln!(\"<b>& `tabs`</b>\");\n}"
HOSTILE = f"""# Head *with* emphasis

<script>window.hacked = 1</script> <img src=x onerror="window.hacked = 2">
[bad](javascript:window.hacked=3) [data](data:text/html,x) ![image](https://elsewhere.example/i.png) [good](https://elsewhere.example/a_(b))

1. one
   - two
   - [x] three

~~~rust
{CODE}
~~~

| a | b |
|---|--:|
| {"wide " * 40}| {"unbreakable" * 30} |

```
{"long line " * 60}
```

> quoted {"w" * 400}

Last **bold** `code` ~~gone~~ line."""


def contrast(one, other):
    """The contrast of two colours, each a list of red, green, blue: WCAG 2."""

    def light(colour):
        parts = [value / 255 for value in colour]
        return sum(w * (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4) for w, p in zip((0.2126, 0.7152, 0.0722), parts))

    a, b = sorted((light(one), light(other)))
    return (b + 0.05) / (a + 0.05)


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(BINARY)
        cls.addClassCleanup(cls.server.close)
        cls.home = cls.server.origin
        if BROKEN:
            proxy = Proxy(cls.server.port, *BROKEN)
            cls.home = proxy.origin
            cls.addClassCleanup(cls.count, proxy)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.close)
        cls.browser.command("Browser.grantPermissions", {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]})

    @staticmethod
    def count(proxy):
        global CHANGED
        CHANGED = proxy.changed
        proxy.close()

    def setUp(self):
        self.origin = self.home
        # statuses that the test provokes: the browser reports them as errors
        self.provoked = set()
        self.requests = []
        b = self.browser
        b.open("about:blank")
        b.command("Storage.clearDataForOrigin", {"origin": self.origin, "storageTypes": "all"})
        b.command("Emulation.setEmulatedMedia", {"features": []})
        b.resize(1200, 800)
        b.log("browser")
        b.log("performance")
        self.load()

    def tearDown(self):
        self.see_requests()
        for url in self.requests:
            self.assertTrue(url.startswith((self.origin + "/", "data:", "blob:", "about:")), f"a request elsewhere: {url}")
        for entry in self.browser.log("browser"):
            allowed = any(f"status of {code}" in entry["message"] for code in self.provoked)
            self.assertTrue(entry["level"] in ("DEBUG", "INFO") or allowed, f"on the console: {entry['message']}")

    def load(self):
        self.browser.open(self.origin + "/")
        self.ready()

    def ready(self):
        self.browser.wait("the page starts", lambda: self.browser.js("return document.body.dataset.ready"))

    def see_requests(self):
        """Adds what was asked for since the last call; returns the bodies sent to the chat API."""
        bodies = []
        for entry in self.browser.log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                request = message["params"]["request"]
                self.requests.append(request["url"])
                if request["url"].endswith("/v1/chat/completions") and request["method"] == "POST":
                    bodies.append(json.loads(request["postData"]))
        return bodies

    def set(self, **values):
        """Writes fields of the settings dialog."""
        for name, value in values.items():
            self.browser.js(
                "const f = document.getElementById(`settings-${arguments[0]}`); f.value = arguments[1]; f.dispatchEvent(new Event('input'));",
                name,
                value if isinstance(value, str) else json.dumps(value),
            )

    def send(self, text):
        self.browser.find("#input").type(text)
        self.browser.press("enter")

    def running(self):
        return self.browser.find("#stop").shown

    def done(self):
        self.browser.wait("the answer ends", lambda: not self.running())

    def last(self, part=".markdown"):
        """The text of a part of the last answer, visible or not."""
        return self.browser.js(f"return [...document.querySelectorAll('.assistant {part}')].at(-1)?.textContent ?? ''")

    def copied(self, css):
        """What a button puts on the clipboard."""
        self.browser.command("Page.bringToFront", {})
        self.browser.js("await navigator.clipboard.writeText('nothing')")
        self.browser.find(css).click()

        def text():
            found = self.browser.js("return navigator.clipboard.readText()")
            return found if found != "nothing" else None

        return self.browser.wait("a copy", text, 5).replace("\r\n", "\n")

    def take_in(self, content):
        """Imports a conversation with one answer."""
        messages = [{"role": "user", "content": "Show me"}, {"role": "assistant", "content": content, "reasoning": "because"}]
        conversation = {"title": "Imported", "messages": messages}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"format": "strata.conversations.1", "conversations": [conversation]}, file)
            file.flush()
            self.browser.find("#import-input").type(file.name)
            self.browser.wait("the import", lambda: self.last())

    def overflow(self):
        """What reaches past the right edge of the window outside of boxes that scroll."""
        return self.browser.js(
            """
            const scrolls = (n) => n && (["auto", "scroll", "hidden"].includes(getComputedStyle(n).overflowX) && n !== document.body && n.id !== "chat" && n.id !== "monitor" || scrolls(n.parentElement));
            const wide = [...document.querySelectorAll("body *")].filter((n) => n.checkVisibility({ visibilityProperty: true }) && n.getBoundingClientRect().right > innerWidth + 1 && !scrolls(n.parentElement));
            const roots = [document.documentElement, document.body, ...document.querySelectorAll("#chat, #monitor, dialog[open]")];
            return [...wide, ...roots.filter((n) => n.scrollWidth > n.clientWidth)].map((n) => `${n.tagName}#${n.id}.${n.getAttribute("class")}`);
            """
        )

    def test_an_answer_streams_and_is_the_apis(self):
        self.set(thinking="off", extra={**ENDLESS, "max_tokens": 300, "temperature": 0})
        self.browser.js(
            """
            window.lengths = new Set();
            new MutationObserver(() => window.lengths.add(document.querySelector(".markdown")?.textContent.length ?? 0))
                .observe(document.getElementById("messages"), { childList: true, subtree: true, characterData: true });
            """
        )
        self.send(QUESTION)
        self.done()
        self.assertGreaterEqual(len(self.browser.js("return [...window.lengths]")), 4, "the answer came in pieces")
        shown = self.copied(".assistant button[aria-label='Copy answer']")
        body = {"messages": [{"role": "user", "content": QUESTION}], "chat_template_kwargs": {"enable_thinking": False}, **ENDLESS}
        code, text = self.server.ask("POST", "/v1/chat/completions", {**body, "max_tokens": 300, "temperature": 0})
        self.assertEqual(code, 200, text)
        self.assertEqual(shown.strip(), json.loads(text)["choices"][0]["message"]["content"].strip())
        self.assertRegex(self.last(".cost"), r"\d+ tokens? · .*prompt \d+")

    def test_stop_stops_the_page_and_the_server(self):
        self.set(thinking="off", extra=ENDLESS)
        for stop in (lambda: self.browser.find("#stop").click(), lambda: self.browser.press("escape")):
            before = self.server.status()["counters"]["cancelled"]
            self.send(QUESTION)
            self.browser.wait("the answer begins", lambda: len(self.last()) > 20)
            self.assertTrue(self.running())
            stop()
            self.browser.wait("the page stops", lambda: not self.running(), 2)
            text = self.last()
            self.assertEqual(self.last(".note"), "Stopped.")
            self.browser.wait("the server stops", lambda: self.server.status()["counters"]["cancelled"] == before + 1, 3)
            self.browser.wait("the slot is free", lambda: all(s["request"] is None for s in self.server.status()["slots"]), 3)
            self.assertEqual(self.last(), text)

    def test_edit_and_again(self):
        self.set(thinking="off", extra=FIXED)
        self.send(QUESTION)
        self.done()
        first = self.last()
        self.send("And now: red, blue.")
        self.done()
        self.assertEqual(len(self.browser.all(".message")), 4)
        self.see_requests()
        # the first question with other words: what came after it goes
        self.browser.find("[data-action=edit]").click()
        field = self.browser.find("textarea.edit")
        self.assertEqual(field.value, QUESTION)
        self.browser.js("document.querySelector('textarea.edit').select()")
        field.type("Say these words again: iron, silk.")
        self.browser.press("enter")
        self.done()
        self.assertEqual(len(self.browser.all(".message")), 2)
        (body,) = self.see_requests()
        self.assertEqual([m["content"] for m in body["messages"]], ["Say these words again: iron, silk."])
        # back again by the keyboard, then the same answer once more: one seed, one answer
        self.browser.find("#input").click()
        self.browser.press("up")
        self.browser.js("document.querySelector('textarea.edit').select()")
        self.browser.find("textarea.edit").type(QUESTION)
        self.browser.press("enter")
        self.done()
        self.assertEqual(self.last(), first)
        self.browser.find("[data-action=again]").click()
        self.done()
        self.assertEqual(len(self.browser.all(".message")), 2)
        self.assertEqual(self.last(), first)

    def test_thinking_is_folded(self):
        self.set(thinking="on", extra={**FIXED, **ENDLESS})
        self.send(QUESTION)
        self.done()
        (body,) = self.see_requests()
        self.assertEqual(body["chat_template_kwargs"], {"enable_thinking": True})
        thinking = self.browser.find(".thinking")
        self.assertTrue(thinking.shown)
        self.assertRegex(self.browser.find(".thinking summary").text, r"^Thought for \d|^Thinking")
        self.assertFalse(self.browser.find(".thoughts").shown)
        self.browser.find(".thinking summary").click()
        self.assertTrue(self.browser.find(".thoughts").shown)
        self.assertGreater(len(self.browser.find(".thoughts").text), 0)

    def test_code_is_copied_to_the_letter(self):
        self.take_in(HOSTILE)
        self.assertEqual(self.copied(".code button.copy"), CODE)

    def test_text_of_a_model_is_only_text(self):
        self.take_in(HOSTILE)
        self.assertIsNone(self.browser.js("return window.hacked ?? null"))
        self.assertEqual(self.browser.js("return document.querySelectorAll('#messages script, #messages img').length"), 0)
        links = self.browser.js("return [...document.querySelectorAll('.markdown a')].map((a) => [a.getAttribute('href'), a.rel, a.target])")
        self.assertEqual([link[0] for link in links], ["https://elsewhere.example/i.png", "https://elsewhere.example/a_(b)"])
        self.assertTrue(all("noopener" in rel and target == "_blank" for _, rel, target in links))
        tags = self.browser.js("return ['h3 em', 'ol ul li', 'li.task', 'table td.right', 'blockquote', 'strong', 'del', 'pre code'].filter((css) => !document.querySelector(`.markdown ${css}`))")
        self.assertEqual(tags, [])

    def test_markdown_that_grows_is_that_read_at_once(self):
        """Every prefix, shown step by step, against the same prefix shown at once."""
        texts = [HOSTILE, "a\n#\n# b\nc\n===\n- x\n\n1\n1. y\n\n    code\n\n> q\nlazy\n* * *\na|b\n-|-\n1|2\n```js\nx\n```\n***b*** _i_ **a *b** c*\n", "1. a\n\n   b\n2. c\n- d\n  - e\n    - f\n\ng\r\nh\r\n"]
        differing = self.browser.js(
            """
            const { Markdown } = await import(new URL("page/markdown.js", document.baseURI));
            const differing = [];
            for (const text of arguments[0]) {
                const grown = document.createElement("div");
                const growing = new Markdown(grown);
                for (let end = 1; end <= text.length; end += 1) {
                    growing.update(text.slice(0, end));
                    const whole = document.createElement("div");
                    new Markdown(whole).update(text.slice(0, end));
                    if (grown.innerHTML !== whole.innerHTML) differing.push([end, grown.innerHTML, whole.innerHTML]);
                }
            }
            return differing.slice(0, 3);
            """,
            texts,
        )
        self.assertEqual(differing, [])

    def test_hostile_markdown_takes_linear_time(self):
        """A linear reader takes half a second at most for each of these, a quadratic one a minute."""
        seconds = self.browser.js(
            """
            const { Markdown } = await import(new URL("page/markdown.js", document.baseURI));
            const times = {};
            for (const unit of ["[", "[a](", "*a ", "**a", "`", "`a``", "> ", "- ", "<https://a", "_a*", "~~", "|", "https://a.b/)", "&", "\\\\[", "#### ", "a\\n", "a|b\\n", "![", "\\n```\\n"]) {
                const began = performance.now();
                new Markdown(document.createElement("div")).update(unit.repeat(120_000 / unit.length));
                times[unit] = (performance.now() - began) / 1000;
            }
            return times;
            """
        )
        self.assertEqual({unit: t for unit, t in seconds.items() if t > 5}, {})

    def test_settings_last_and_are_sent(self):
        self.browser.find(".foot [data-opens=settings]").click()
        for name, value in {"temperature": "0.25", "top_p": "0.9", "top_k": "40", "min_p": "0.05", "seed": "123", "max_tokens": "5"}.items():
            self.browser.find(f"#settings-{name}").type(value)
        self.browser.find("#settings-system").type("You repeat words.")
        self.browser.find("#settings-top_p").type("9")
        # no probability: it is said, and the last good one stays
        self.browser.js("document.getElementById('settings-min_p').value = '7'; document.getElementById('settings-min_p').dispatchEvent(new Event('input'))")
        self.assertNotEqual(self.browser.find("#settings-min_p-error").text, "")
        self.browser.find("#settings-extra").type("{ broken")
        self.assertIn("JSON", self.browser.find("#settings-extra-error").text)
        self.browser.press("escape")
        self.browser.reload()
        self.ready()
        self.assertEqual(self.browser.find("#settings-temperature").value, "0.25")
        self.assertEqual(self.browser.find("#settings-system").value, "You repeat words.")
        self.send(QUESTION)
        self.done()
        (body,) = self.see_requests()
        sent = {name: body.get(name) for name in ("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "stream")}
        self.assertEqual(sent, {"temperature": 0.25, "top_p": 0.99, "top_k": 40, "min_p": 0.05, "seed": 123, "max_tokens": 5, "stream": True})
        self.assertEqual(body["messages"][0], {"role": "system", "content": "You repeat words."})
        self.assertIn("token limit", self.last(".note"))

    def test_a_wrong_value_is_said(self):
        self.provoked = {400}
        self.set(extra={"top_p": 7})
        self.send(QUESTION)
        self.done()
        self.assertIn("top_p", self.last(".note"))

    def test_conversations_last_are_renamed_exported_deleted(self):
        self.set(thinking="off", extra=FIXED)
        self.send(QUESTION)
        self.done()
        answer = self.last()
        self.browser.reload()
        self.ready()
        self.assertEqual(self.last(), answer)
        self.assertEqual(self.browser.find("#conversations .open").text, QUESTION)
        self.browser.find("#conversations [aria-label=Rename]").click()
        self.browser.js("document.querySelector('#conversations input').select()")
        self.browser.find("#conversations input").type("Metals")
        self.browser.press("enter")
        self.browser.command("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": self.browser.downloads})
        self.browser.find("#conversations [aria-label=Export]").click()
        path = os.path.join(self.browser.downloads, "Metals.json")
        self.browser.wait("the export", lambda: os.path.exists(path))
        with open(path) as file:
            (exported,) = json.load(file)["conversations"]
        self.assertEqual(exported["title"], "Metals")
        self.assertEqual([m["role"] for m in exported["messages"]], ["user", "assistant"])
        self.browser.find("#new").click()
        self.assertEqual(len(self.browser.all(".message")), 0)
        self.browser.find("#conversations .open").click()
        self.assertEqual(self.last(), answer)
        self.browser.find("#conversations [data-action=delete]").click()
        self.browser.find("#confirm .danger").click()
        self.browser.wait("the deletion", lambda: not self.browser.all("#conversations li"))
        self.browser.reload()
        self.ready()
        self.assertEqual(len(self.browser.all("#conversations li, .message")), 0)

    def test_dropped_files_are_sent_in_fences(self):
        self.set(thinking="off", extra=FIXED)
        drop = """
            const transfer = new DataTransfer();
            for (const [name, part] of arguments[0]) transfer.items.add(new File([typeof part === "number" ? new Uint8Array(part) : part], name));
            document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true }));
        """
        self.browser.js(drop, [["notes.md", "a\n```\nb\n```\n"], ["zero.bin", 16], ["large.txt", "x" * ((1 << 20) + 1)]])
        problem = self.browser.wait("what is refused", lambda: self.browser.find("#attach-problem").text)
        self.assertIn("zero.bin", problem)
        self.assertIn("large.txt", problem)
        self.assertEqual([chip.text for chip in self.browser.all("#attached .name")], ["notes.md"])
        self.send("What is this?")
        self.done()
        (body,) = self.see_requests()
        self.assertEqual(body["messages"][0]["content"], "notes.md\n````\na\n```\nb\n```\n````\n\nWhat is this?")
        self.assertEqual(len(self.browser.all(".user .attachment")), 1)

    def test_dark_and_light(self):
        ground = "return getComputedStyle(document.body).backgroundColor"
        seen = {}
        for theme in ("light", "dark"):
            self.browser.command("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
            seen[theme] = self.browser.js(ground)
            # text on what is behind it, by WCAG's AA
            pairs = [("text", "ground"), ("text", "panel"), ("text", "raised"), ("soft", "ground"), ("soft", "panel"), ("soft", "raised")]
            pairs += [("soft", "accent-wash"), ("text", "accent-wash"), ("accent", "ground"), ("on-accent", "accent"), ("bad", "ground"), ("bad", "raised")]
            for front, back in pairs:
                colours = self.browser.js(
                    """
                    const probe = document.body.appendChild(document.createElement("i"));
                    const rgb = (name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color.match(/\\d+/g).slice(0, 3).map(Number); };
                    const found = arguments[0].map(rgb);
                    probe.remove();
                    return found;
                    """,
                    [front, back],
                )
                self.assertGreaterEqual(contrast(*colours), 4.5, f"{front} on {back}, {theme}: {colours}")
        self.assertNotEqual(seen["light"], seen["dark"])
        # the system says dark; the switch says light and is remembered
        self.browser.find("#theme").click()
        self.assertEqual(self.browser.js(ground), seen["light"])
        self.browser.reload()
        self.ready()
        self.assertEqual(self.browser.js(ground), seen["light"])

    def test_a_phone_shows_all_of_it(self):
        self.take_in(HOSTILE)
        for width in (375, 320):
            self.browser.resize(width, 700)
            self.assertEqual(self.overflow(), [], f"{width} pixels, a chat")
            self.browser.js("document.getElementById('settings').showModal()")
            self.assertEqual(self.overflow(), [], f"{width} pixels, settings")
            self.browser.js("document.getElementById('settings').close()")
            self.browser.wait("the drawer is shut", lambda: not self.browser.find("#sidebar").shown, 3)
            self.browser.find("#menu").click()
            self.browser.wait("the drawer is open", lambda: self.browser.find("#sidebar").shown, 3)
            self.browser.press("escape")
            self.browser.find("#to-monitor").click()
            self.browser.wait("numbers", lambda: self.browser.all("#monitor .tick"))
            self.assertEqual(self.overflow(), [], f"{width} pixels, the monitor")
            self.browser.find("#to-chat").click()

    def test_the_monitor_moves_and_rests(self):
        self.set(thinking="off", extra={**ENDLESS, "max_tokens": 4000})
        self.send(QUESTION)
        self.browser.find("#to-monitor").click()
        value = lambda name: self.browser.js("return document.querySelector(`[data-chart=${arguments[0]}] .value`).textContent", name)
        self.browser.wait("decoding", lambda: self.browser.all("[data-chart=decode] .value") and value("decode") not in ("–", "0"))
        self.assertEqual(value("requests"), "1")
        self.assertGreater(self.server.status()["counters"]["generated_tokens"], 0)
        self.browser.wait("a line", lambda: self.browser.js("return document.querySelector('[data-chart=decode] path').getAttribute('d').includes('L')"))
        self.assertRegex(self.browser.js("return document.querySelector('[data-chart=decode] svg').getAttribute('aria-label')"), r"tokens/s.*Now decoding: \d")
        self.browser.find("#to-chat").click()
        self.browser.find("#stop").click()
        self.done()
        self.browser.find("#to-monitor").click()
        self.browser.wait("rest", lambda: value("decode") == "0" and value("requests") == "0", 10)
        # the address says which view it is
        self.browser.reload()
        self.ready()
        self.browser.wait("numbers again", lambda: self.browser.all("#monitor .tick"))
        # nobody looks, nobody asks
        self.browser.find("#to-chat").click()
        time.sleep(0.5)
        self.see_requests()
        self.requests.clear()
        time.sleep(2.5)
        self.see_requests()
        self.assertEqual(self.requests, [])

    def test_everything_has_a_name(self):
        """What can be used can be read out: the browser's own accessibility tree."""
        self.take_in(HOSTILE)
        for opened in (None, "settings", "shortcuts", "key"):
            if opened:
                self.browser.js("document.getElementById(arguments[0]).showModal()", opened)
            nodes = self.browser.command("Accessibility.getFullAXTree", {})["nodes"]
            roles = ("button", "textbox", "link", "combobox", "spinbutton", "dialog", "navigation", "searchbox", "progressbar", "log")
            used = [n for n in nodes if not n["ignored"] and n.get("role", {}).get("value") in roles]
            self.assertGreaterEqual(len(used), 2)
            self.assertEqual([n["role"]["value"] for n in used if not n.get("name", {}).get("value", "").strip()], [])
            if opened:
                self.browser.press("escape")

    def test_a_key_is_asked_for_and_forgotten_with_the_tab(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("a-key-of-this-test\n")
            file.flush()
            guarded = Server(BINARY, "--api-key-file", file.name)
        self.addCleanup(guarded.close)
        self.provoked = {401}
        self.origin = guarded.origin
        self.see_requests()
        self.requests.clear()
        self.load()
        self.browser.wait("the dialog", lambda: self.browser.find("#key").shown)
        self.browser.find("#key-input").type("a-wrong-key")
        self.browser.press("enter")
        self.browser.wait("a refusal", lambda: "did not take" in self.browser.find("#key-problem").text)
        self.browser.find("#key-input").type("a-key-of-this-test")
        self.browser.press("enter")
        self.browser.wait("the model", lambda: "refmodel" in self.browser.find("#model").text)
        self.set(thinking="off", extra=FIXED)
        self.send(QUESTION)
        self.done()
        self.assertNotEqual(self.last(), "")
        self.assertNotIn("a-key-of-this-test", self.browser.js("return JSON.stringify(localStorage)"))
        self.assertIn("a-key-of-this-test", self.browser.js("return JSON.stringify(sessionStorage)"))


if __name__ == "__main__":
    BINARY = os.path.abspath(sys.argv.pop(1))
    unittest.main()
