// The list of conversations: open, rename, delete, export, import.

import { announce, byId, download, el, iconButton } from "./dom.js";
import * as store from "./store.js";

export class Sidebar {
  // `onopen(conversation)`: it is the current one now. `onremove(conversation)`: it is going.
  constructor({ onopen, onremove }) {
    this.onopen = onopen;
    this.onremove = onremove;
    this.conversations = [];
    this.current = null;
    // what the list shows, and whether a row of it was given up for a field
    this.shown = null;
    this.renamed = false;
    byId("new").addEventListener("click", () => this.create());
    byId("export-all").addEventListener("click", () => download("strata-conversations.json", store.exported(this.conversations)));
    byId("import").addEventListener("click", () => byId("import-input").click());
    byId("import-input").addEventListener("change", (event) => this.import(event.target));
  }

  async start() {
    this.conversations = await store.all();
    const last = store.load("current", null);
    const found = this.conversations.find(({ id }) => id === last);
    if (found) this.select(found);
    else this.create();
  }

  create() {
    this.select(store.fresh());
    byId("input").focus();
  }

  select(conversation) {
    this.current = conversation;
    store.save("current", conversation.id);
    this.show();
    this.onopen(conversation);
  }

  // Stores a conversation that changed; it goes to the top.
  async keep(conversation) {
    // deleted while its answer came
    if (conversation.gone) return;
    this.conversations = [conversation, ...this.conversations.filter((other) => other !== conversation)];
    this.conversations.sort((a, b) => b.changed - a.changed);
    this.show();
    try {
      await store.put(conversation);
    } catch (error) {
      announce(`The browser did not store the conversation: ${error?.message ?? "no space"}`);
    }
  }

  show() {
    const list = byId("conversations");
    // what is shown already keeps its focus, and a name being typed stays
    const key = JSON.stringify([this.current?.id, this.conversations.map(({ id, title }) => [id, title])]);
    if (list.querySelector("input") || (key === this.shown && !this.renamed)) return;
    this.shown = key;
    this.renamed = false;
    list.replaceChildren(...this.conversations.map((conversation) => this.item(conversation)));
  }

  item(conversation) {
    const current = conversation === this.current;
    const open = el(
      "button",
      { type: "button", class: "open", "aria-current": current ? "true" : null, onclick: () => this.select(conversation) },
      conversation.title,
    );
    const row = el("li", { class: current ? "current" : null }, open);
    if (current) {
      row.append(
        iconButton("edit", "Rename", () => this.rename(conversation, row)),
        iconButton("save", "Export", () => download(`${conversation.title.replace(/[^\p{L}\p{N} _-]/gu, "_")}.json`, store.exported([conversation]))),
        iconButton("trash", "Delete", () => this.remove(conversation), { "data-action": "delete" }),
      );
    }
    return row;
  }

  rename(conversation, row) {
    const field = el("input", { type: "text", maxlength: "120", "aria-label": "Name of the conversation" });
    field.value = conversation.title;
    let over = false;
    const end = (keep) => {
      if (over) return;
      over = true;
      field.remove();
      const title = field.value.trim();
      if (keep && title) {
        conversation.title = title;
        conversation.named = true;
        this.keep(conversation);
      }
      this.show();
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") end(true);
      if (event.key === "Escape") {
        event.stopPropagation();
        end(false);
      }
    });
    field.addEventListener("blur", () => end(true));
    this.renamed = true;
    row.replaceChildren(field);
    field.select();
  }

  remove(conversation) {
    const dialog = byId("confirm");
    byId("confirm-text").textContent = `“${conversation.title}” will be deleted from this browser.`;
    dialog.returnValue = "";
    dialog.onclose = async () => {
      if (dialog.returnValue !== "delete") return;
      conversation.gone = true;
      this.onremove(conversation);
      this.conversations = this.conversations.filter((other) => other !== conversation);
      await store.remove(conversation.id);
      this.create();
    };
    dialog.showModal();
  }

  async import(input) {
    const problem = byId("import-problem");
    problem.textContent = "";
    try {
      const found = (await Promise.all([...input.files].map((file) => file.text()))).flatMap(store.imported);
      for (const conversation of found) await this.keep(conversation);
      problem.textContent = `${found.length} imported.`;
      if (found.length > 0) this.select(found[0]);
    } catch (error) {
      problem.textContent = error.message;
    }
    input.value = "";
  }
}
