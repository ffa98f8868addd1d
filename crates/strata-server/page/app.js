// Puts the page together: views, dialogs, theme, keys.

import * as api from "./api.js";
import { Chat } from "./chat.js";
import { byId } from "./dom.js";
import * as files from "./files.js";
import { Monitor } from "./monitor.js";
import * as settings from "./settings.js";
import { Sidebar } from "./sidebar.js";
import * as theme from "./themes.js";

// Milliseconds until a server that is not ready is asked again.
const RETRY = 3000;

// Asks for the key; true once one was given. Two that need it at once get one dialog.
let asking = null;
function askKey(refused = true) {
  asking ??= new Promise((resolve) => {
    const dialog = byId("key");
    const field = byId("key-input");
    field.value = "";
    byId("key-problem").textContent = refused ? (api.hasKey() ? "The server did not take the key." : "This server asks for a key.") : "";
    dialog.returnValue = "";
    dialog.onclose = () => {
      asking = null;
      const given = dialog.returnValue === "save" && field.value.trim() !== "";
      if (given) api.setKey(field.value.trim());
      if (given) loadModels();
      resolve(given);
    };
    dialog.showModal();
  });
  return asking;
}

async function loadModels() {
  try {
    const found = await api.models();
    byId("model").textContent = settings.offerModels(found.map(({ id }) => id));
    byId("model").classList.remove("error");
  } catch (error) {
    byId("model").textContent = error.message;
    byId("model").classList.add("error");
    if (error.status === 401) askKey();
    // not there yet, or loading the model
    else setTimeout(loadModels, RETRY);
  }
}

const drawer = (open) => {
  document.body.classList.toggle("drawer", open);
  byId("menu").setAttribute("aria-expanded", String(open));
};

const sidebar = new Sidebar({
  onopen(conversation) {
    chat.open(conversation);
    drawer(false);
    // at the start the address says what to show
    if (document.body.dataset.ready && location.hash) location.hash = "";
  },
  onremove: (conversation) => chat.forget(conversation),
});
const chat = new Chat({ onchange: (conversation) => sidebar.keep(conversation), onkey: askKey });
const monitor = new Monitor(byId("monitor"), askKey);

function showView() {
  const monitoring = location.hash === "#monitor";
  byId("chat-view").hidden = monitoring;
  byId("monitor").hidden = !monitoring;
  byId("to-chat").setAttribute("aria-current", monitoring ? "false" : "page");
  byId("to-monitor").setAttribute("aria-current", monitoring ? "page" : "false");
  monitor.show(monitoring);
}

const describe = () => {
  const text = settings.summary();
  byId("settings-summary").textContent = text;
  byId("settings-summary").hidden = !text;
};

// Every button with data-opens opens that dialog; buttons with a value in a dialog close it with that value.
for (const button of document.querySelectorAll("[data-opens]")) {
  button.addEventListener("click", () => byId(button.dataset.opens).showModal());
}
for (const dialog of document.querySelectorAll("dialog")) {
  for (const button of dialog.querySelectorAll("button[value]")) button.addEventListener("click", () => dialog.close(button.value));
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close(""));
}
byId("change-key").addEventListener("click", () => askKey(false));
byId("key-input").addEventListener("keydown", (event) => event.key === "Enter" && byId("key").close("save"));

const byAlt = {
  KeyN: () => sidebar.create(),
  KeyR: () => chat.again(),
  KeyM: () => {
    location.hash = location.hash === "#monitor" ? "" : "#monitor";
  },
  KeyS: () => byId("settings").showModal(),
  KeyT: () => theme.flip(),
};

function onKey(event) {
  if (document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input, textarea, select");
  const alone = !event.ctrlKey && !event.metaKey && !event.altKey;
  if (event.altKey && !event.ctrlKey && !event.metaKey && byAlt[event.code]) {
    event.preventDefault();
    byAlt[event.code]();
  } else if (event.key === "Escape") {
    if (document.body.classList.contains("drawer")) drawer(false);
    else chat.stop();
  } else if (event.key === "/" && alone && !typing) {
    event.preventDefault();
    byId("input").focus();
  } else if (event.key === "?" && alone && !typing) {
    byId("shortcuts").showModal();
  }
}

document.addEventListener("keydown", onKey);
window.addEventListener("hashchange", showView);
byId("menu").addEventListener("click", () => drawer(!document.body.classList.contains("drawer")));
byId("shade").addEventListener("click", () => drawer(false));
theme.start();
settings.start(describe);
describe();
files.start();
showView();
loadModels();
await sidebar.start();
document.body.dataset.ready = "true";
