// Building elements. Text only ever becomes text nodes: nothing in this page parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  // one by one: a call takes only so many arguments, and a text may have more nodes
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

// An element; attributes named on... are listeners, those undefined, null or false are left out. Children may be lists.
export function el(tag, attributes = {}, ...children) {
  return build(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return build(document.createElementNS(SVG, tag), attributes, children);
}

export const byId = (id) => document.getElementById(id);

const PATHS = {
  plus: "M8 3v10M3 8h10",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  check: "M3 8.5l3.5 3.5L13 4.5",
  edit: "M3 13l.7-3L10.8 2.9l2.3 2.3L6 12.3zM9.3 4.4l2.3 2.3",
  again: "M13 8a5 5 0 1 1-1.6-3.7M13 2v3h-3",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.6 9h5.8l.6-9",
  save: "M8 2.5v7.5M5 7.5l3 3 3-3M3 13.5h10",
  close: "M4 4l8 8M12 4l-8 8",
};

export function icon(name) {
  return svg("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
}

// A button that shows an icon; its label is read and shown as a tooltip.
export function iconButton(name, label, onclick, attributes = {}) {
  return el("button", { type: "button", class: "quiet", "aria-label": label, title: label, onclick, ...attributes }, icon(name));
}

// Puts text on the clipboard; the second way is for pages over plain HTTP, where the first does not exist.
export async function copyText(text) {
  if (navigator.clipboard) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // not allowed: the other way
    }
  }
  const area = el("textarea", { class: "offscreen", "aria-hidden": "true" });
  area.value = text;
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return done;
}

// A button that copies what `text()` gives and says so for a moment.
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    const done = await copyText(text());
    button.replaceChildren(icon(done ? "check" : "close"));
    announce(done ? "Copied" : "The browser did not allow copying");
    setTimeout(() => button.replaceChildren(icon("copy")), 1200);
  });
  button.classList.add("copy");
  return button;
}

// Says something to screen readers.
export function announce(text) {
  byId("announcer").textContent = text;
}

// Offers `text` as a file.
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
