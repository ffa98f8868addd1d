// The chat view: shows a conversation, sends, stops, edits, answers again. Answers go on while another conversation is looked at.

import { announce, byId } from "./dom.js";
import { answer } from "./answer.js";
import * as files from "./files.js";
import { Answer, Question } from "./message.js";

// Milliseconds between two paints of an answer, and between two copies of it in the store.
const PAINT = 50;
const KEEP = 1000;
// Distance from the end, in pixels, within which the view follows an answer.
const NEAR = 60;
const TITLE = 60;

const scroller = () => byId("chat");

export class Chat {
  // `onchange(conversation)`: it is to be stored. `onkey()` asks for the key; true: there is a new one.
  constructor({ onchange, onkey }) {
    this.onchange = onchange;
    this.onkey = onkey;
    this.conversation = null;
    this.running = new Map();
    this.views = new Map();
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
    byId("stop").addEventListener("click", () => this.stop());
    const input = byId("input");
    input.addEventListener("input", () => this.fit());
    input.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const input = event.target;
    // on a touch keyboard Enter is the only way to a new line
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !matchMedia("(pointer: coarse)").matches) {
      event.preventDefault();
      this.submit();
    } else if (event.key === "ArrowUp" && input.value === "" && !this.state()) {
      const questions = byId("messages").querySelectorAll("[data-action=edit]");
      if (questions.length === 0) return;
      event.preventDefault();
      questions[questions.length - 1].click();
    }
  }

  fit() {
    const input = byId("input");
    input.style.height = "auto";
    input.style.height = `${Math.min(input.scrollHeight + 2, innerHeight * 0.4)}px`;
  }

  state() {
    return this.running.get(this.conversation?.id);
  }

  open(conversation) {
    this.conversation = conversation;
    this.show();
    scroller().scrollTop = scroller().scrollHeight;
  }

  // Makes the views anew, keeping those of messages that stay.
  show() {
    const { messages } = this.conversation;
    const before = this.views;
    this.views = new Map(messages.map((message, i) => [message, before.get(message) ?? this.view(message, i)]));
    byId("messages").replaceChildren(...[...this.views.values()].map((view) => view.element));
    byId("welcome").hidden = messages.length > 0;
    this.controls();
  }

  view(message, i) {
    if (message.role === "user") return new Question(message, (text) => this.resend(i, text));
    return new Answer(message, () => this.again(i));
  }

  controls() {
    const state = this.state();
    byId("stop").hidden = !state;
    byId("send").hidden = Boolean(state);
    this.views.get(state?.message)?.update(state);
  }

  submit() {
    const input = byId("input");
    const content = input.value.trim();
    if (this.state() || (!content && !files.any())) return;
    input.value = "";
    this.fit();
    this.conversation.messages.push({ role: "user", content, files: files.take() });
    this.ask();
  }

  // Sends the question at `i` again with other words; what came after it goes.
  resend(i, content) {
    this.stop();
    const { messages } = this.conversation;
    messages.splice(i, messages.length - i, { ...messages[i], content });
    this.ask();
    byId("input").focus();
  }

  again(i = this.conversation.messages.length - 1) {
    if (this.state() || this.conversation.messages[i]?.role !== "assistant") return;
    this.conversation.messages.length = i;
    this.ask();
  }

  stop() {
    const state = this.state();
    if (!state) return false;
    state.controller.abort();
    return true;
  }

  forget(conversation) {
    this.running.get(conversation.id)?.controller.abort();
  }

  async ask() {
    const { conversation } = this;
    const { messages } = conversation;
    const first = messages[0];
    if (!conversation.named) conversation.title = (first.content.split("\n")[0] || first.files?.[0]?.name || "New chat").slice(0, TITLE);
    const message = { role: "assistant", content: "", reasoning: "", note: "" };
    const state = { controller: new AbortController(), message, progress: null };
    const questions = [...messages];
    messages.push(message);
    this.running.set(conversation.id, state);
    this.show();
    scroller().scrollTop = scroller().scrollHeight;
    this.keep(conversation);
    announce("Answering");

    let timer = null;
    let kept = performance.now();
    const show = (running) => {
      const box = scroller();
      const follow = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
      this.views.get(message)?.update(running);
      if (follow && conversation === this.conversation) box.scrollTop = box.scrollHeight;
    };
    const paint = () => {
      timer = null;
      show(state);
      if (performance.now() - kept > KEEP) {
        kept = performance.now();
        this.onchange(conversation);
      }
    };
    const error = await answer(questions, message, state, () => {
      timer ??= setTimeout(paint, PAINT);
    });
    clearTimeout(timer);
    if (this.running.get(conversation.id) === state) this.running.delete(conversation.id);
    show(null);
    this.controls();
    this.keep(conversation);
    announce(message.note || "The answer is complete");
    if (error?.status === 401 && (await this.onkey()) && conversation === this.conversation) this.again(messages.indexOf(message));
  }

  keep(conversation) {
    conversation.changed = Date.now();
    this.onchange(conversation);
  }
}
