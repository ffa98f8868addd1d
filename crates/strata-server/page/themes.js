// The theme: the system's, light or dark. theme.js puts the stored one in place before the first paint.

import { byId } from "./dom.js";

const KEY = "strata.theme";

function set(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  byId("settings-theme").value = name;
  try {
    if (name) localStorage.setItem(KEY, name);
    else localStorage.removeItem(KEY);
  } catch {
    // no storage: it holds until the page is left
  }
}

// From what is seen to the other one.
export function flip() {
  const chosen = byId("settings-theme").value;
  const dark = chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  set(dark ? "light" : "dark");
}

export function start() {
  byId("settings-theme").value = document.documentElement.dataset.theme ?? "";
  byId("theme").addEventListener("click", flip);
  byId("settings-theme").addEventListener("input", (event) => set(event.target.value));
}
