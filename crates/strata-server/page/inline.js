// Markdown within a paragraph: text to DOM nodes. Linear in the text: delimiters are matched ahead in one pass, nesting is bounded.

import { el } from "./dom.js";

// Emphasis open at a time; what goes deeper is plain text.
const MAX_OPEN = 16;
const MAX_ADDRESS = 2048;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", "#39": "'" };
const SPACE = /\s/u;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const ADDRESS = /https?:\/\/[^\s<>"`]+/y;

// A link, if the address is one of the web; else its text.
function link(address, children) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return children;
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") return children;
  return [el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer nofollow" }, children)];
}

// For each backtick run that opens a code span, the start of the run that closes it.
function codeSpans(text) {
  const runs = [...text.matchAll(/\\`|`+/g)].filter((run) => run[0][0] === "`");
  const next = new Map();
  const closes = new Map();
  for (const run of runs.reverse()) {
    const length = run[0].length;
    if (next.has(length)) closes.set(run.index, { close: next.get(length), length });
    next.set(length, run.index);
  }
  return closes;
}

// For each [ the ] that belongs to it, outside of code.
function brackets(text, spans) {
  const open = [];
  const pairs = new Map();
  for (let i = 0; i < text.length; i += 1) {
    const span = spans.get(i);
    if (span) i = span.close + span.length - 1;
    else if (text[i] === "\\") i += 1;
    else if (text[i] === "`") while (text[i + 1] === "`") i += 1;
    else if (text[i] === "[") open.push(i);
    else if (text[i] === "]" && open.length > 0) pairs.set(open.pop(), i);
  }
  return pairs;
}

// The address in the parentheses that begin at `at`, and where they end.
function destination(text, at) {
  if (text[at] !== "(") return null;
  let depth = 0;
  for (let i = at; i < text.length && i - at < MAX_ADDRESS; i += 1) {
    if (text[i] === "\\") i += 1;
    else if (text[i] === "(") depth += 1;
    else if (text[i] === ")") {
      depth -= 1;
      if (depth === 0) {
        const inside = text.slice(at + 1, i).trim();
        const address = inside.startsWith("<") ? inside.slice(1).split(">")[0] : inside.split(/\s/)[0];
        return { address, end: i + 1 };
      }
    }
  }
  return null;
}

// An address in running text ends before punctuation and before a parenthesis it did not open.
function bare(text, at) {
  ADDRESS.lastIndex = at;
  let found = ADDRESS.exec(text)?.[0];
  if (!found) return null;
  found = found.slice(0, MAX_ADDRESS).replace(/[.,;:!?'*_~\]]+$/, "");
  const count = (c) => found.split(c).length - 1;
  const surplus = Math.max(0, count(")") - count("("));
  const trailing = found.length - found.replace(/\)+$/, "").length;
  return found.slice(0, found.length - Math.min(surplus, trailing));
}

// A run of * _ or ~ at `at`: its length, and whether it can open or close, by CommonMark's rules of flanking.
function delimiter(text, at) {
  const mark = text[at];
  let end = at + 1;
  while (text[end] === mark) end += 1;
  const before = at === 0 ? " " : text[at - 1];
  const after = end >= text.length ? " " : text[end];
  const left = !SPACE.test(after) && (!PUNCTUATION.test(after) || SPACE.test(before) || PUNCTUATION.test(before));
  const right = !SPACE.test(before) && (!PUNCTUATION.test(before) || SPACE.test(after) || PUNCTUATION.test(after));
  const word = mark === "_";
  return {
    mark,
    count: end - at,
    end,
    opens: left && (!word || !right || PUNCTUATION.test(before)),
    closes: right && (!word || !left || PUNCTUATION.test(after)),
  };
}

const isPair = (open, close) =>
  open.mark === close.mark &&
  (open.mark !== "~" || open.count === close.count) &&
  !((open.closes || close.opens) && (open.full + close.full) % 3 === 0 && (open.full % 3 !== 0 || close.full % 3 !== 0));

// Nodes under construction: a stack of open delimiters, each with the nodes behind it.
class Emphasis {
  constructor() {
    this.stack = [{ children: [] }];
  }

  add(nodes) {
    const { children } = this.stack.at(-1);
    for (const node of nodes) children.push(node);
  }

  // The innermost frame turns into plain text and what it held.
  collapse() {
    const frame = this.stack.pop();
    this.add([frame.mark.repeat(frame.count)]);
    this.add(frame.children);
  }

  close(run) {
    while (run.count > 0) {
      let at = this.stack.length - 1;
      while (at > 0 && !isPair(this.stack[at], run)) at -= 1;
      if (at === 0) return;
      while (this.stack.length - 1 > at) this.collapse();
      const frame = this.stack[at];
      const used = run.mark === "~" ? run.count : Math.min(2, run.count, frame.count);
      const tag = run.mark === "~" ? "del" : used === 2 ? "strong" : "em";
      const node = el(tag, {}, frame.children);
      run.count -= used;
      frame.count -= used;
      frame.children = [node];
      if (frame.count === 0) {
        this.stack.pop();
        this.add([node]);
      }
    }
  }

  take(run) {
    run.full = run.count;
    if (run.mark === "~" && run.count > 2) run.opens = run.closes = false;
    if (run.closes) this.close(run);
    if (run.count === 0) return;
    if (run.opens && this.stack.length <= MAX_OPEN) this.stack.push({ ...run, children: [] });
    else this.add([run.mark.repeat(run.count)]);
  }

  finish() {
    while (this.stack.length > 1) this.collapse();
    return this.stack[0].children;
  }
}

// The nodes of `text`; `links` false inside of links.
export function inline(text, links = true) {
  const spans = codeSpans(text);
  const pairs = links ? brackets(text, spans) : new Map();
  const out = new Emphasis();
  let plain = "";
  const flush = (nodes = []) => {
    if (plain) out.add([plain]);
    plain = "";
    out.add(nodes);
  };
  for (let i = 0; i < text.length; ) {
    const c = text[i];
    if (c === "\n") {
      plain = plain.trimEnd();
      flush([el("br")]);
      i += 1;
    } else if (c === "\\" && text[i + 1] === "\n") {
      i += 1;
    } else if (c === "\\" && i + 1 < text.length && /[!-/:-@[-`{-~]/.test(text[i + 1])) {
      plain += text[i + 1];
      i += 2;
    } else if (c === "`") {
      const span = spans.get(i);
      if (span) {
        const inside = text.slice(i + span.length, span.close).replaceAll("\n", " ");
        const padded = inside.length > 2 && inside.startsWith(" ") && inside.endsWith(" ") && inside.trim() !== "";
        flush([el("code", {}, padded ? inside.slice(1, -1) : inside)]);
        i = span.close + span.length;
      } else {
        while (text[i] === "`") {
          plain += "`";
          i += 1;
        }
      }
    } else if ((c === "[" && pairs.has(i)) || (c === "!" && pairs.has(i + 1))) {
      const from = c === "!" ? i + 1 : i;
      const to = destination(text, pairs.get(from) + 1);
      if (to) {
        // an image would be a request to elsewhere: it is shown as a link to it
        flush(link(to.address, inline(text.slice(from + 1, pairs.get(from)), false)));
        i = to.end;
      } else {
        plain += c;
        i += 1;
      }
    } else if (c === "<" && links && /^<https?:\/\/[^\s<>]+>/.test(text.slice(i, i + MAX_ADDRESS))) {
      const address = text.slice(i + 1, text.indexOf(">", i));
      flush(link(address, [address]));
      i += address.length + 2;
    } else if (c === "h" && links && !/\w/.test(text[i - 1] ?? " ") && bare(text, i)) {
      const address = bare(text, i);
      flush(link(address, [address]));
      i += address.length;
    } else if (c === "*" || c === "_" || c === "~") {
      const run = delimiter(text, i);
      i = run.end;
      flush();
      out.take(run);
    } else if (c === "&") {
      const name = /^&(#?\w{2,5});/.exec(text.slice(i, i + 8))?.[1];
      const found = Object.hasOwn(ENTITIES, name ?? "") ? ENTITIES[name] : null;
      plain += found ?? "&";
      i += found ? name.length + 2 : 1;
    } else {
      plain += c;
      i += 1;
    }
  }
  flush();
  return out.finish();
}
