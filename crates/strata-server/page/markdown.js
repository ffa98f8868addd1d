// Markdown as models write it (CommonMark's and GitHub's common part) to DOM nodes. HTML in it is text.

import { copyButton, el } from "./dom.js";
import { inline } from "./inline.js";

// Lists and quotes within each other; what goes deeper is a paragraph.
const MAX_DEPTH = 8;
// Characters of the line below a table's head.
const MAX_DELIMITERS = 1024;

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+(.*)|)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const UNDERLINE = /^ {0,3}(=+|-+)[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+(?=\S)|[ \t]*$)/;
const DELIMITERS = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

const blank = (line) => line.trim() === "";

// The column where a line begins, tabs being four wide.
function indent(line) {
  let columns = 0;
  for (const c of line) {
    if (c === " ") columns += 1;
    else if (c === "\t") columns += 4;
    else break;
  }
  return columns;
}

// A line without its first `columns` of white space, as far as it has them.
function dedent(line, columns) {
  let left = columns;
  let i = 0;
  for (; left > 0 && (line[i] === " " || line[i] === "\t"); i += 1) left -= line[i] === " " ? 1 : 4;
  return " ".repeat(Math.max(0, -left)) + line.slice(i);
}

// The cells of a table's row.
function cells(line) {
  const inside = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  return inside.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function isTable(lines, i) {
  const [head, below] = [lines[i], lines[i + 1]];
  if (below === undefined || below.length > MAX_DELIMITERS || !head.includes("|")) return false;
  return DELIMITERS.test(below) && cells(head).length === cells(below).length;
}

// Whether line `i` ends the paragraph before it.
function interrupts(lines, i) {
  const line = lines[i];
  const item = ITEM.exec(line);
  const list = item && item[0].length < line.length && (/^[-*+]/.test(item[2]) || parseInt(item[2], 10) === 1);
  return list || FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || isTable(lines, i);
}

function fence(lines, i) {
  const [opening, marks, info] = FENCE.exec(lines[i]);
  const shift = indent(opening);
  let end = i + 1;
  const closes = (line) => indent(line) < 4 && line.trim().startsWith(marks) && line.trim().replaceAll(marks[0], "") === "";
  while (end < lines.length && !closes(lines[end])) end += 1;
  const body = lines.slice(i + 1, end).map((line) => dedent(line, shift));
  return { end: Math.min(end + 1, lines.length), kind: "code", language: info.trim().split(/\s/)[0], text: body.join("\n") };
}

function indented(lines, i) {
  let end = i;
  let last = i;
  while (end < lines.length && (blank(lines[end]) || indent(lines[end]) >= 4)) {
    if (!blank(lines[end])) last = end;
    end += 1;
  }
  return { end: last + 1, kind: "code", language: "", text: lines.slice(i, last + 1).map((line) => dedent(line, 4)).join("\n") };
}

function list(lines, i) {
  const first = ITEM.exec(lines[i]);
  const kind = first[2].at(-1);
  const items = [];
  let loose = false;
  let end = i;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (!item || item[2].at(-1) !== kind || RULE.test(lines[end])) break;
    const base = item[1].length;
    const content = item[0].length === lines[end].length ? base + item[2].length + 1 : Math.min(item[0].length, base + item[2].length + 4);
    const body = [lines[end].slice(content)];
    let next = end + 1;
    for (; next < lines.length; next += 1) {
      const line = lines[next];
      // two columns to the right of the marker are enough: models are not exact here
      if (blank(line)) body.push("");
      else if (indent(line) >= base + 2) body.push(dedent(line, content));
      else if (body.at(-1) !== "" && !interrupts(lines, next) && !ITEM.test(line)) body.push(line.trimStart());
      else break;
    }
    let trailing = 0;
    while (body.length > 1 && body.at(-1) === "") {
      body.pop();
      trailing += 1;
    }
    if (body.includes("", 1)) loose = true;
    items.push(body);
    end = next - trailing;
    const more = next < lines.length && ITEM.exec(lines[next])?.[2].at(-1) === kind && !RULE.test(lines[next]);
    if (!more) break;
    if (trailing > 0) loose = true;
    end = next;
  }
  return { end, kind: "list", ordered: kind === "." || kind === ")", start: parseInt(first[2], 10), items, loose };
}

function table(lines, i) {
  const align = cells(lines[i + 1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : null));
  let end = i + 2;
  while (end < lines.length && !blank(lines[end]) && lines[end].includes("|")) end += 1;
  return { end, kind: "table", align, head: cells(lines[i]), rows: lines.slice(i + 2, end).map(cells) };
}

function quote(lines, i) {
  let end = i;
  while (end < lines.length && QUOTE.test(lines[end])) end += 1;
  return { end, kind: "quote", lines: lines.slice(i, end).map((line) => line.replace(QUOTE, "")) };
}

function paragraph(lines, i) {
  let end = i + 1;
  while (end < lines.length && !blank(lines[end]) && !UNDERLINE.test(lines[end]) && !interrupts(lines, end)) end += 1;
  const text = lines.slice(i, end).map((line) => line.trimStart()).join("\n").trimEnd();
  const underline = end < lines.length && UNDERLINE.exec(lines[end]);
  if (underline) return { end: end + 1, kind: "heading", level: underline[1][0] === "=" ? 1 : 2, text };
  return { end, kind: "paragraph", text };
}

// The block that begins at line `i`, and the line behind it.
function block(lines, i, depth) {
  const line = lines[i];
  if (FENCE.test(line)) return fence(lines, i);
  if (indent(line) >= 4) return indented(lines, i);
  const heading = HEADING.exec(line);
  if (heading) return { end: i + 1, kind: "heading", level: heading[1].length, text: (heading[2] ?? "").replace(/(^|[ \t])#+[ \t]*$/, "") };
  if (RULE.test(line)) return { end: i + 1, kind: "rule" };
  if (depth < MAX_DEPTH && QUOTE.test(line)) return quote(lines, i);
  if (depth < MAX_DEPTH && ITEM.test(line)) return list(lines, i);
  if (isTable(lines, i)) return table(lines, i);
  return paragraph(lines, i);
}

function* blocks(lines, depth) {
  for (let i = 0; i < lines.length; ) {
    if (blank(lines[i])) {
      i += 1;
    } else {
      const found = block(lines, i, depth);
      yield { ...found, begin: i };
      i = found.end;
    }
  }
}

// A block of code with its language and a button that copies it.
export function code(language, text) {
  const body = el("code", {}, text);
  const head = el("div", { class: "code-head" }, el("span", {}, language || "text"), copyButton("Copy code", () => body.textContent));
  return el("div", { class: "code" }, head, el("pre", { tabindex: "0", role: "region", "aria-label": `Code, ${language || "text"}` }, body));
}

function item(lines, loose, depth) {
  const task = /^\[([ xX])\][ \t]+/.exec(lines[0]);
  const body = task ? [lines[0].slice(task[0].length), ...lines.slice(1)] : lines;
  const nodes = [...blocks(body, depth)].flatMap((found) => (found.kind === "paragraph" && !loose ? inline(found.text) : [render(found, depth)]));
  if (!task) return el("li", {}, nodes);
  const done = task[1] !== " ";
  return el("li", { class: "task" }, el("span", { role: "img", "aria-label": done ? "done" : "open" }, done ? "☑ " : "☐ "), nodes);
}

function row(tag, values, align) {
  return el("tr", {}, align.map((side, i) => el(tag, { class: side, scope: tag === "th" ? "col" : null }, inline(values[i] ?? ""))));
}

function render(found, depth = 0) {
  switch (found.kind) {
    case "code":
      return code(found.language, found.text);
    case "heading":
      // the page has its own first levels
      return el(`h${Math.min(found.level + 2, 6)}`, { class: `level${found.level}` }, inline(found.text));
    case "rule":
      return el("hr");
    case "quote":
      return el("blockquote", {}, [...blocks(found.lines, depth + 1)].map((inner) => render(inner, depth + 1)));
    case "list": {
      const start = found.ordered && found.start !== 1 ? found.start : null;
      return el(found.ordered ? "ol" : "ul", { start }, found.items.map((lines) => item(lines, found.loose, depth + 1)));
    }
    case "table": {
      const head = el("thead", {}, row("th", found.head, found.align));
      const body = el("tbody", {}, found.rows.map((values) => row("td", values, found.align)));
      return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, el("table", {}, head, body));
    }
    default:
      return el("p", {}, inline(found.text));
  }
}

// A text that grows, in an element that follows it. Only what may still change is read again: the last two blocks, since the last
// line, while incomplete, may end or continue the block before it.
export class Markdown {
  constructor(root) {
    this.root = root;
    this.source = "";
    this.shown = [];
  }

  update(source) {
    if (!source.startsWith(this.source)) this.shown = [];
    this.source = source;
    const kept = this.shown.slice(0, -2);
    const old = this.shown.slice(-2);
    const offset = old[0]?.offset ?? 0;
    const rest = source.slice(offset).split("\n");
    const lines = rest.map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));
    const starts = [];
    let at = offset;
    for (const line of rest) {
      starts.push(at);
      at += line.length + 1;
    }
    const fresh = [...blocks(lines, 0)].map((found, i) => {
      const before = old[i];
      const raw = lines.slice(found.begin, found.end).join("\n");
      let node = before?.node;
      if (before?.raw !== raw) {
        const same = before?.kind === "code" && found.kind === "code" && before.language === found.language;
        // in place: it keeps its scroll position and the pointer on its button
        if (same) node.querySelector("code").textContent = found.text;
        else node = render(found);
      }
      return { offset: starts[found.begin], raw, node, kind: found.kind, language: found.language };
    });
    this.shown = [...kept, ...fresh];
    const nodes = this.shown.map((part) => part.node);
    for (let i = kept.length; i < nodes.length; i += 1) {
      const present = this.root.childNodes[i];
      if (present === nodes[i]) continue;
      if (present) present.replaceWith(nodes[i]);
      else this.root.append(nodes[i]);
    }
    while (this.root.childNodes.length > nodes.length) this.root.lastChild.remove();
  }
}
