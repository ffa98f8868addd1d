// The monitor: asks for /v1/status every second while it is looked at, and shows it.

import { status as fetchStatus } from "./api.js";
import { LineChart, WINDOW } from "./chart.js";
import { el } from "./dom.js";
import { bytes, count, duration, milliseconds, sample, share } from "./readings.js";

const EVERY = 1000;

const CHARTS = {
  decode: { title: "Decoding, all requests", unit: "tokens/s", series: ["decoding"], most: 10 },
  prefill: { title: "Reading prompts", unit: "tokens/s", series: ["reading"], most: 10 },
  requests: { title: "Requests", unit: "", series: ["running", "waiting"], most: 4 },
  batch: { title: "Tokens in a step of the batch", unit: "tokens", series: ["tokens"], most: 4 },
  cache: { title: "Prompt tokens from the prefix cache", unit: "%", series: ["share"], most: 100 },
  memory: { title: "Memory that cannot be given back", unit: "GiB", series: ["anonymous", "locked files"], most: 0.1 },
};

const fact = ([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value));

const facts = (rows) => el("dl", { class: "facts" }, ...rows.map(fact));

// A table of text; columns named with a trailing # are numbers.
function table(names, rows) {
  const side = names.map((name) => (name.endsWith("#") ? "num" : null));
  const head = names.map((name, i) => el("th", { scope: "col", class: side[i] }, name.replace("#", "")));
  const body = rows.map((row) => el("tr", {}, ...row.map((value, i) => el("td", { class: side[i] }, value))));
  return el("div", { class: "table" }, el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...body)));
}

function slotRow(slot) {
  const name = String(slot.id);
  if (slot.request === null) return [name, slot.state, "", "–", "–"];
  const bar = el("progress", { max: "1", value: slot.prompt > 0 ? slot.read / slot.prompt : 0, "aria-label": `Prompt of slot ${name} read` });
  return [name, slot.state, bar, `${count(slot.read)} / ${count(slot.prompt)}`, count(slot.generated)];
}

const TIMES = { queue: "In the queue", first_token: "To the first token", token: "Between tokens", request: "Whole request" };

function timeRows(times = {}) {
  return Object.entries(times).map(([name, p]) => [TIMES[name] ?? name.replaceAll("_", " "), milliseconds(p?.p50), milliseconds(p?.p90), milliseconds(p?.p99)]);
}

// Rows of what the tiers did, where there are any.
function tierRows({ experts, ngram, measured, plan }) {
  const rows = (plan?.lines ?? []).map((line) => [line.item, bytes(line.bytes), line.kind]);
  if (measured) rows.push(["File pages", bytes(measured.file_bytes), "given back under pressure"]);
  if (measured) rows.push(["Read from storage", bytes(measured.read_bytes), `${count(measured.major_faults)} major faults`]);
  if (experts) {
    rows.push(["Experts resident", share(experts.resident, experts.needed), `${count(experts.needed)} needed`]);
    rows.push(["Others, guessed ahead", share(experts.guessed, experts.streamed), `${bytes(experts.streamed_bytes)} streamed`]);
    rows.push(["Others, in the page cache", share(experts.in_page_cache, experts.probed), `${count(experts.probed)} probed`]);
  }
  if (ngram) rows.push(["Table rows cached", share(ngram.cached, ngram.rows), `${bytes(ngram.read_bytes)} read`]);
  return rows;
}

export class Monitor {
  // `onkey()` asks for the key.
  constructor(root, onkey) {
    this.root = root;
    this.onkey = onkey;
    this.shown = false;
    this.timer = null;
    this.looking = null;
    this.before = null;
    this.samples = [];
    document.addEventListener("visibilitychange", () => this.schedule());
  }

  show(shown) {
    this.shown = shown;
    if (shown && !this.charts) this.build();
    this.schedule();
  }

  build() {
    this.charts = Object.fromEntries(Object.entries(CHARTS).map(([name, options]) => [name, new LineChart(options)]));
    for (const [name, chart] of Object.entries(this.charts)) chart.element.dataset.chart = name;
    this.head = el("section", { class: "wide" });
    this.problem = el("p", { class: "error", role: "alert" });
    this.slots = el("section", { class: "wide" });
    this.tiers = el("section", { class: "wide", hidden: true });
    this.totals = el("section");
    this.times = el("section");
    const charts = Object.values(this.charts).map((chart) => chart.element);
    const all = el("div", { class: "monitor" }, this.head, ...charts, this.totals, this.times, this.slots, this.tiers);
    this.root.replaceChildren(el("h1", { class: "offscreen" }, "Monitor"), all);
    this.head.replaceChildren(el("p", { class: "muted" }, "Waiting for the server"));
  }

  // Looks now and from then on, if the monitor can be seen.
  schedule() {
    clearTimeout(this.timer);
    this.looking = null;
    if (this.shown && document.visibilityState === "visible") this.look();
  }

  async look() {
    const began = performance.now();
    // a look that was overtaken ends by itself
    const mine = Symbol("look");
    this.looking = mine;
    let wait = EVERY;
    try {
      const status = await fetchStatus();
      if (mine === this.looking) this.take(status, performance.now() / 1000);
    } catch (error) {
      this.problem.textContent = error.message;
      this.head.replaceChildren(this.problem);
      this.before = null;
      if (error.status === 401 && !(await this.onkey())) return;
      wait = Math.max(wait, (error.retryAfter ?? 0) * 1000);
    }
    // hidden, or started anew, meanwhile
    if (mine !== this.looking) return;
    this.timer = setTimeout(() => this.look(), Math.max(0, wait - (performance.now() - began)));
  }

  take(status, now) {
    const readings = sample(status, this.before?.status, now - (this.before?.now ?? now));
    this.before = { status, now };
    this.samples = [...this.samples.filter(({ at }) => now - at <= WINDOW), { at: now, readings }];
    for (const [name, chart] of Object.entries(this.charts)) {
      chart.update(this.samples.map((one) => ({ at: one.at, values: one.readings[name] })));
    }
    const { queue = {}, counters = {}, memory } = status;
    this.head.replaceChildren(
      facts([
        ["Model", status.model ?? "–"],
        ["State", status.state ?? "–"],
        ["Up", duration(status.uptime_seconds)],
        ["Context", `${count(status.context)} tokens`],
        ["Slots", `${count(status.batch?.running)} of ${count(status.slots?.length)}`],
        ["Queue", `${count(queue.waiting)} of ${count(queue.limit)}`],
      ]),
    );
    this.totals.replaceChildren(
      el("h3", {}, "Since the start"),
      table(
        ["Count", "Total#"],
        [
          ["Requests completed", count(counters.completed)],
          ["Cancelled", count(counters.cancelled)],
          ["Out of time, failed", `${count(counters.timed_out)}, ${count(counters.failed)}`],
          ["Refused, queue full", count(counters.refused)],
          ["Answer tokens", count(counters.generated_tokens)],
          ["Prompt tokens read", count(counters.prompt_tokens)],
          ["Prompt tokens from the cache", count(counters.cached_tokens)],
          ["Drafted tokens that were right", share(counters.accepted_tokens, counters.drafted_tokens)],
        ],
      ),
    );
    this.times.replaceChildren(el("h3", {}, "Times"), table(["Of requests", "Half within#", "90 %#", "99 %#"], timeRows(status.times_ms)));
    this.slots.replaceChildren(el("h3", {}, "Slots"), table(["Slot", "State", "Prompt", "Read#", "Answer tokens#"], (status.slots ?? []).map(slotRow)));
    const rows = tierRows(memory ?? {});
    this.tiers.hidden = rows.length === 0;
    this.tiers.replaceChildren(el("h3", {}, "Memory and tiers"), table(["What", "Size or share#", "How"], rows));
  }
}
