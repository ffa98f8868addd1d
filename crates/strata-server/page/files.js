// Text files dropped on the page, pasted or chosen, until they are sent.

import { announce, byId, el, iconButton } from "./dom.js";

export const MAX_FILE = 1 << 20;
export const MAX_FILES = 16;

let attached = [];

export const size = (bytes) => (bytes < 1024 ? `${bytes} B` : bytes < 1 << 20 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / (1 << 20)).toFixed(1)} MiB`);

function show(problems = []) {
  const chips = attached.map((file) => {
    const drop = iconButton("close", `Remove ${file.name}`, () => {
      attached = attached.filter((other) => other !== file);
      show();
    });
    return el("li", {}, el("span", { class: "name" }, file.name), el("span", { class: "muted" }, size(file.bytes)), drop);
  });
  byId("attached").replaceChildren(...chips);
  byId("attach-problem").textContent = problems.join(" ");
}

// The text of a file. Throws an Error with words if it is too large or not text.
async function read(file) {
  if (file.size > MAX_FILE) throw new Error(`${file.name} has ${size(file.size)}; the limit is ${size(MAX_FILE)}.`);
  const bytes = new Uint8Array(await file.arrayBuffer());
  try {
    if (bytes.includes(0)) throw new Error("a zero byte");
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error(`${file.name} is not a UTF-8 text file.`);
  }
}

export async function attach(files) {
  const problems = [];
  for (const file of files) {
    if (attached.length >= MAX_FILES) {
      problems.push(`${MAX_FILES} files at most.`);
      break;
    }
    try {
      attached.push({ name: file.name, text: await read(file), bytes: file.size });
    } catch (error) {
      problems.push(error.message);
    }
  }
  show(problems);
  announce(`${attached.length} files attached. ${problems.join(" ")}`);
}

// Hands over what is attached.
export function take() {
  const files = attached.map(({ name, text }) => ({ name, text }));
  attached = [];
  show();
  return files;
}

export const any = () => attached.length > 0;

// A message with its files as the model reads them: each in a fence longer than any in it.
export function asPrompt(message) {
  const parts = (message.files ?? []).map(({ name, text }) => {
    const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((run) => run[0].length));
    const fence = "`".repeat(longest + 1);
    return `${name}\n${fence}\n${text}${text.endsWith("\n") ? "" : "\n"}${fence}\n`;
  });
  return [...parts, message.content].filter(Boolean).join("\n");
}

// Files dropped anywhere on the page, or chosen with the button.
export function start() {
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  let depth = 0;
  const mark = (change) => {
    depth = Math.max(0, depth + change);
    document.body.classList.toggle("dropping", depth > 0);
  };
  document.addEventListener("dragenter", (event) => hasFiles(event) && mark(1));
  document.addEventListener("dragleave", (event) => hasFiles(event) && mark(-1));
  document.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    mark(-depth);
    attach([...event.dataTransfer.files]);
  });
  byId("attach").addEventListener("click", () => byId("attach-input").click());
  byId("attach-input").addEventListener("change", async (event) => {
    await attach([...event.target.files]);
    event.target.value = "";
    byId("input").focus();
  });
  byId("input").addEventListener("paste", (event) => {
    if (event.clipboardData.files.length === 0) return;
    event.preventDefault();
    attach([...event.clipboardData.files]);
  });
}
