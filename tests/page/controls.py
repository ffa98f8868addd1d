"""Controls of the page's test: `python3 tests/page/controls.py STRATA`. Each breaks the page in one place; the test named has to fail.
First all tests have to pass with the same server in front that breaks nothing."""

import io
import os
import sys
import unittest

import page_test

# what is replaced in the page's files and headers, by what, and who has to notice
CONTROLS = [
    ("script-src 'self'", "script-src 'none'", "test_an_answer_streams_and_is_the_apis"),
    ("<body>", "<body><script>window.inline = 1</script>", "test_code_is_copied_to_the_letter"),
    ("<body>", '<body><link rel="stylesheet" href="http://localhost:1/a.css">', "test_code_is_copied_to_the_letter"),
    ("state.controller.abort();", "", "test_stop_stops_the_page_and_the_server"),
    ("setTimeout(paint, PAINT)", "1", "test_an_answer_streams_and_is_the_apis"),
    ("messages.splice(i, messages.length - i,", "messages.splice(i, 1,", "test_edit_and_again"),
    ('el("details", { class: "thinking"', 'el("details", { open: true, class: "thinking"', "test_thinking_is_folded"),
    ("copyButton(\"Copy code\", () => body.textContent)", "copyButton(\"Copy code\", () => body.textContent.trim().replaceAll(\"\\t\", \" \"))", "test_code_is_copied_to_the_letter"),
    ('save("settings", values);', "", "test_settings_last_and_are_sent"),
    ("await store.put(conversation);", "", "test_conversations_last_are_renamed_exported_deleted"),
    ("localStorage.setItem(KEY, name);", "", "test_dark_and_light"),
    ("--soft: #5d6164;", "--soft: #8d9194;", "test_dark_and_light"),
    (".code pre { margin: 0; padding: 12px; overflow-x: auto;", ".code { overflow: visible !important } .code pre {", "test_a_phone_shows_all_of_it"),
    ("this.shown.slice(0, -2)", "this.shown.slice(0, -1)", "test_markdown_that_grows_is_that_read_at_once"),
    ('url.protocol !== "https:" && url.protocol !== "http:"', "false", "test_text_of_a_model_is_only_text"),
    ("if (this.shown && document", "if (document", "test_the_monitor_moves_and_rests"),
    ('"aria-label": label, title: label', "", "test_everything_has_a_name"),
]


def main():
    page_test.BINARY = os.path.abspath(sys.argv[1])
    page_test.BROKEN = ("nothing broken", "nothing broken")
    out = io.StringIO()
    if not unittest.TextTestRunner(out).run(unittest.defaultTestLoader.loadTestsFromTestCase(page_test.PageTest)).wasSuccessful():
        sys.exit(out.getvalue())
    print("all pass with nothing broken", flush=True)
    unnoticed = []
    for old, new, test in CONTROLS:
        page_test.BROKEN = (old, new)
        suite = unittest.defaultTestLoader.loadTestsFromName(test, page_test.PageTest)
        out = io.StringIO()
        result = unittest.TextTestRunner(out).run(suite)
        # an error of the test itself is no finding
        noticed = bool(result.failures) and page_test.CHANGED > 0
        print("noticed" if noticed else "NOT NOTICED", test, repr(old), flush=True)
        if not noticed:
            unnoticed.append(test)
            print(out.getvalue())
    sys.exit(len(unnoticed) > 0)


if __name__ == "__main__":
    main()
