// The settings dialog: each field is stored as it is typed and sent with the next message. An empty field is not sent: the server's default.

import { byId } from "./dom.js";
import { load, save } from "./store.js";

// Fields by the name the API gives them; `settings-NAME` is the element.
const NUMBERS = ["temperature", "top_p", "top_k", "min_p", "seed", "max_tokens"];
const TEXTS = ["system", "thinking", "effort", "model", "extra"];

let values = load("settings", {});

function problem(field) {
  if (field.id === "settings-extra" && field.value.trim()) {
    try {
      const extra = JSON.parse(field.value);
      if (typeof extra !== "object" || extra === null || Array.isArray(extra)) return "Expected a JSON object: { … }";
    } catch (error) {
      return `Not JSON: ${error.message}`;
    }
  }
  return "";
}

function changed(field) {
  field.setCustomValidity(problem(field));
  const good = field.validity.valid;
  field.setAttribute("aria-invalid", String(!good));
  const error = byId(`${field.id}-error`);
  if (error) error.textContent = good ? "" : field.validationMessage;
  if (good) values = { ...values, [field.id.slice("settings-".length)]: field.value };
  save("settings", values);
}

// Connects the fields. `onchange` hears of every change.
export function start(onchange) {
  for (const name of [...NUMBERS, ...TEXTS]) {
    const field = byId(`settings-${name}`);
    field.value = values[name] ?? "";
    field.addEventListener("input", () => {
      changed(field);
      onchange();
    });
  }
  byId("settings-reset").addEventListener("click", () => {
    for (const name of [...NUMBERS, ...TEXTS]) {
      const field = byId(`settings-${name}`);
      field.value = "";
      changed(field);
    }
    onchange();
  });
}

// The models to choose from; returns the id of the one in use.
export function offerModels(ids) {
  const select = byId("settings-model");
  select.replaceChildren(...ids.map((id) => new Option(id, id)));
  select.value = ids.includes(values.model) ? values.model : (ids[0] ?? "");
  byId("settings-model-row").hidden = ids.length < 2;
  return select.value;
}

// What the settings add to a request. Fields of the free JSON come last and win.
export function requestFields() {
  const fields = {};
  for (const name of NUMBERS) {
    const text = values[name];
    if (text) fields[name] = Number(text);
  }
  if (values.thinking) fields.chat_template_kwargs = { enable_thinking: values.thinking === "on" };
  if (values.effort && values.thinking !== "off") fields.reasoning_effort = values.effort;
  const model = byId("settings-model").value;
  if (model) fields.model = model;
  return { ...fields, ...(values.extra?.trim() ? JSON.parse(values.extra) : {}) };
}

export const systemPrompt = () => values.system?.trim() ?? "";

// What differs from the server's defaults, in a few words.
export function summary() {
  const parts = [];
  if (values.thinking) parts.push(`thinking ${values.thinking}`);
  if (values.effort && values.thinking !== "off") parts.push(`effort ${values.effort}`);
  for (const name of NUMBERS) if (values[name]) parts.push(`${name} ${values[name]}`);
  if (systemPrompt()) parts.push("system prompt");
  if (values.extra?.trim()) parts.push("extra fields");
  return parts.join(" · ");
}
