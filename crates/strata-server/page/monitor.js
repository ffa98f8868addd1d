// The monitor: asks for /v1/status every second while it is looked at, and shows it.

import { status as fetchStatus } from "./api.js";
import { LineChart, WINDOW } from "./chart.js";
import { el } from "./dom.js";
import { bytes, count, duration, sample, share } from "./readings.js";

const EVERY = 1000;

const CHARTS = {
  decode: { title: "Decoding, all requests", unit: "tokens/s", series: ["decoding"], most: 10 },
  prefill: { title: "Reading prompts", unit: "tokens/s", series: ["reading"], most: 10 },
  requests: { title: "Requests", unit: "", series: ["running", "waiting"], most: 4 },
  cache: { title: "Prompt tokens from the prefix cache", unit: "%", series: ["share"], most: 100 },
  memory: { title: "Memory that cannot be given back", unit: "GiB", series: ["anonymous", "locked files"], most: 0.1 },
};

const facts = (rows) => el("dl", { class: "facts" }, ...rows.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));

function table(head, rows) {
  const cell = (tag) => (value, i) => el(tag, { class: i > 0 && typeof value === "string" && /^[\d–]/.test(value) ? "num" : null }, value);
  const top = el("tr", {}, ...head.map(([name, numeric]) => el("th", { scope: "col", class: numeric ? "num" : null }, name)));
  return el("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Table" }, el("table", {}, el("thead", {}, top), el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map(cell("td")))))));
}

function slotRow(slot, i) {
  if (slot.request === null) return [String(i), "free", "", "–", "–"];
  const reading = slot.read < slot.prompt;
  const bar = el("progress", { max: "1", value: slot.prompt > 0 ? slot.read / slot.prompt : 0, "aria-label": `Prompt of slot ${i} read` });
  return [String(i), reading ? "reading" : "answering", bar, `${count(slot.read)} / ${count(slot.prompt)}`, count(slot.generated)];
}

function slotTable(status) {
  const head = [["Slot"], ["State"], ["Prompt read"], ["Tokens", true], ["Answer tokens", true]];
  return table(head, (status.slots ?? []).map(slotRow));
}

// Rows of what the tiers did, where there are any.
function tierRows({ experts, ngram }) {
  const rows = [];
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
    this.totals = el("section", {});
    const charts = Object.values(this.charts).map((chart) => chart.element);
    this.root.replaceChildren(el("h1", { class: "offscreen" }, "Monitor"), el("div", { class: "monitor" }, this.head, ...charts, this.totals, this.slots, this.tiers));
    this.head.replaceChildren(el("p", { class: "muted" }, "Waiting for the server"));
  }

  // Looks now and from then on, if the monitor can be seen.
  schedule() {
    clearTimeout(this.timer);
    this.timer = null;
    if (this.shown && document.visibilityState === "visible") this.look();
  }

  async look() {
    const began = performance.now();
    this.timer = setTimeout(() => {}, 0);
    const mine = this.timer;
    let wait = EVERY;
    try {
      const status = await fetchStatus();
      if (mine === this.timer) this.take(status, performance.now() / 1000);
    } catch (error) {
      this.problem.textContent = error.message;
      this.head.replaceChildren(this.problem);
      this.before = null;
      if (error.status === 401 && !(await this.onkey())) return;
      wait = Math.max(wait, (error.retryAfter ?? 0) * 1000);
    }
    // hidden, or started anew, meanwhile
    if (mine !== this.timer) return;
    this.timer = setTimeout(() => this.look(), Math.max(0, wait - (performance.now() - began)));
  }

  take(status, now) {
    const readings = sample(status, this.before?.status, now - (this.before?.now ?? now));
    this.before = { status, now };
    this.samples = [...this.samples.filter(({ at }) => now - at <= WINDOW), { at: now, readings }];
    for (const [name, chart] of Object.entries(this.charts)) {
      chart.update(this.samples.map((one) => ({ at: one.at, values: one.readings[name] })));
    }
    const { queue = {}, counters = {}, memory = {} } = status;
    this.head.replaceChildren(
      facts([
        ["Model", status.model ?? "–"],
        ["Up", duration(status.uptime_seconds)],
        ["Context", `${count(status.context)} tokens`],
        ["Slots", count(status.slots?.length)],
        ["Queue", `${count(queue.waiting)} of ${count(queue.limit)}`],
      ]),
    );
    this.totals.replaceChildren(
      el("h3", {}, "Since the start"),
      table(
        [["Count"], ["Total", true]],
        [
          ["Requests completed", count(counters.completed)],
          ["cancelled, timed out, failed", [counters.cancelled, counters.timed_out, counters.failed].map(count).join(", ")],
          ["refused: queue full", count(counters.refused)],
          ["Answer tokens", count(counters.generated_tokens)],
          ["Prompt tokens read", count(counters.prompt_tokens)],
          ["Prompt tokens from the cache", count(counters.cached_tokens)],
          ["Drafted tokens that were right", share(counters.accepted_tokens, counters.drafted_tokens)],
        ],
      ),
    );
    this.slots.replaceChildren(el("h3", {}, "Slots"), slotTable(status));
    const rows = tierRows(memory);
    this.tiers.hidden = rows.length === 0;
    this.tiers.replaceChildren(el("h3", {}, "Tiers"), table([["What"], ["Share", true], ["Of"]], rows));
  }
}
