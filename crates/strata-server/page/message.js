// How a message looks. A view reads its message again at every update; the message itself is plain data that the store keeps.

import { copyButton, el, iconButton } from "./dom.js";
import { size } from "./files.js";
import { code, Markdown } from "./markdown.js";

function attachment({ name, text }) {
  const bytes = new TextEncoder().encode(text).length;
  const details = el("details", { class: "attachment" }, el("summary", {}, el("span", { class: "name" }, name), el("span", { class: "muted" }, size(bytes))));
  // long files cost nothing until they are looked at
  details.addEventListener("toggle", () => details.open && details.children.length === 1 && details.append(code("", text)));
  return details;
}

// What the user wrote. `onedit(text)`: it was changed and is to be sent again.
export class Question {
  constructor(message, onedit) {
    this.message = message;
    this.onedit = onedit;
    this.element = el("article", { class: "message user", "aria-label": "You" });
    this.show();
  }

  show() {
    const { content, files = [] } = this.message;
    const actions = el(
      "div",
      { class: "actions" },
      copyButton("Copy message", () => content),
      iconButton("edit", "Edit and send again", () => this.edit(), { "data-action": "edit" }),
    );
    const bubble = el("div", { class: "bubble" }, ...files.map(attachment), content ? el("div", { class: "plain" }, content) : null);
    this.element.replaceChildren(bubble, actions);
  }

  edit() {
    const field = el("textarea", { class: "edit", rows: "3", "aria-label": "Edit message" });
    field.value = this.message.content;
    const done = () => {
      if (field.value.trim() || this.message.files?.length) this.onedit(field.value.trim());
    };
    const cancel = () => {
      this.show();
      this.element.querySelector("[data-action=edit]").focus();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        cancel();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        done();
      }
    });
    const send = el("button", { type: "button", class: "primary", onclick: done }, "Send");
    const buttons = el("div", { class: "edit-buttons" }, el("button", { type: "button", onclick: cancel }, "Cancel"), send);
    this.element.replaceChildren(el("div", { class: "bubble editing" }, field, buttons));
    field.style.height = `${Math.min(field.scrollHeight + 4, innerHeight / 2)}px`;
    field.focus();
  }
}

const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

// What an answer cost, in words.
function cost({ usage, seconds, seed }) {
  if (!usage) return "";
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  const parts = [plural(usage.completion_tokens, "token")];
  if (seconds > 0 && usage.completion_tokens > 1) parts.push(`${((usage.completion_tokens - 1) / seconds).toFixed(1)} tokens/s`);
  parts.push(`prompt ${usage.prompt_tokens.toLocaleString("en")}${cached ? ` (${cached.toLocaleString("en")} cached)` : ""}`);
  if (seed !== undefined) parts.push(`seed ${seed}`);
  return parts.join(" · ");
}

// What the model wrote: progress while it reads, thinking folded, the answer, calls of tools, what went wrong, what it cost.
export class Answer {
  constructor(message, onagain) {
    this.message = message;
    this.running = null;
    this.bar = el("progress", { max: "1", "aria-label": "Reading the prompt" });
    this.read = el("span", { class: "muted" });
    this.progress = el("div", { class: "progress", hidden: true }, this.bar, this.read);
    this.summary = el("summary");
    this.thoughts = el("div", { class: "thoughts plain" });
    this.thinking = el("details", { class: "thinking", hidden: true }, this.summary, this.thoughts);
    this.body = el("div", { class: "markdown", "aria-live": "polite", "aria-atomic": "false" });
    this.text = new Markdown(this.body);
    this.calls = el("div", { class: "calls" });
    this.note = el("p", { class: "note", role: "status" });
    this.cost = el("span", { class: "muted cost" });
    this.again = iconButton("again", "Answer again", onagain, { "data-action": "again" });
    this.actions = el("div", { class: "actions" }, copyButton("Copy answer", () => this.message.content), this.again, this.cost);
    this.element = el(
      "article",
      { class: "message assistant", "aria-label": "Answer" },
      this.progress,
      this.thinking,
      this.body,
      this.calls,
      this.note,
      this.actions,
    );
    // thoughts are written only while they are looked at
    this.thinking.addEventListener("toggle", () => this.update());
    this.update();
  }

  // `running`: what is known of the answer while it comes, null when it is complete.
  update(running = this.running) {
    const { message } = this;
    this.running = running;
    this.element.classList.toggle("running", Boolean(running));
    // a screen reader waits for the whole answer instead of hearing each piece
    this.body.setAttribute("aria-busy", String(Boolean(running)));
    const reading = running?.progress;
    this.progress.hidden = !(running && !message.content && !message.reasoning);
    if (reading) {
      this.bar.value = reading.processed / Math.max(1, reading.total);
      this.read.textContent = `Reading the prompt: ${reading.processed.toLocaleString("en")} of ${plural(reading.total, "token")}${reading.cache ? `, ${reading.cache.toLocaleString("en")} cached` : ""}`;
    } else {
      this.bar.removeAttribute("value");
      this.read.textContent = running ? "Waiting for the server" : "";
    }
    this.thinking.hidden = !message.reasoning;
    if (message.reasoning) {
      const words = plural(message.reasoning.trim().split(/\s+/).length, "word");
      this.summary.textContent = running && !message.content ? `Thinking… ${words}` : `Thought for ${words}`;
      if (this.thinking.open) this.thoughts.textContent = message.reasoning.trim();
    }
    this.text.update(message.content);
    this.calls.replaceChildren(...(message.calls ?? []).map((call) => code(`call of ${call.name}`, call.arguments)));
    this.note.textContent = message.note ?? "";
    this.note.hidden = !message.note;
    this.note.classList.toggle("error", Boolean(message.failed));
    this.actions.hidden = Boolean(running);
    this.cost.textContent = cost(message);
  }
}
