// What stays in the browser: conversations in IndexedDB, settings in local storage. Nothing here leaves the machine.

const NAME = "strata";
const TABLE = "conversations";

let opened = null;

function open() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open(NAME, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(TABLE, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

async function run(mode, action) {
  const database = await open();
  return new Promise((resolve, reject) => {
    const transaction = database.transaction(TABLE, mode);
    const request = action(transaction.objectStore(TABLE));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = () => reject(transaction.error);
  });
}

// All conversations, the one changed last first.
export async function all() {
  const found = await run("readonly", (table) => table.getAll());
  return found.sort((a, b) => b.changed - a.changed);
}

export const put = (conversation) => run("readwrite", (table) => table.put(conversation));

export const remove = (id) => run("readwrite", (table) => table.delete(id));

const FORMAT = "strata.conversations.1";

export const exported = (conversations) => JSON.stringify({ format: FORMAT, conversations }, null, 2);

const text = (value) => (typeof value === "string" ? value : "");

function message(value) {
  if (value?.role !== "user" && value?.role !== "assistant") return null;
  const files = Array.isArray(value.files) ? value.files.map((file) => ({ name: text(file?.name), text: text(file?.text) })) : [];
  if (value.role === "user") return { role: "user", content: text(value.content), files };
  return { role: "assistant", content: text(value.content), reasoning: text(value.reasoning), note: text(value.note) };
}

// The conversations of an exported file, under new ids. Throws an Error with words if it is none.
export function imported(source) {
  let file;
  try {
    file = JSON.parse(source);
  } catch {
    throw new Error("This file is not JSON.");
  }
  if (file?.format !== FORMAT || !Array.isArray(file.conversations)) throw new Error(`This file is not an export of this page (format: ${FORMAT}).`);
  return file.conversations.map((conversation) => ({
    id: crypto.getRandomValues(new Uint32Array(4)).join("-"),
    title: text(conversation?.title) || "Untitled",
    changed: Number(conversation?.changed) || Date.now(),
    messages: (Array.isArray(conversation?.messages) ? conversation.messages : []).map(message).filter(Boolean),
  }));
}

// An empty conversation, not stored yet.
export const fresh = () => ({ id: crypto.getRandomValues(new Uint32Array(4)).join("-"), title: "New chat", changed: Date.now(), messages: [] });

export function load(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`strata.${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

export function save(name, value) {
  try {
    localStorage.setItem(`strata.${name}`, JSON.stringify(value));
  } catch {
    // no storage: it holds until the page is left
  }
}
