// A line chart of the last minutes: axes with units, the current value in words and large, gaps where nothing was measured.

import { el, svg } from "./dom.js";

// Seconds shown: the shortest that all samples fit into. And how far two samples may be apart to be joined by a line.
const SPANS = [60, 120, 240, 480];
export const WINDOW = SPANS.at(-1);
const GAP = 5;
// Labels below, besides "now".
const DIVISIONS = 4;
const HEIGHT = 150;
const MARGIN = { left: 46, right: 8, top: 8, bottom: 22 };

// Steps of 1, 2 or 5 times a power of ten from 0 to at least `most`, three to five of them.
export function ticks(most) {
  const rough = Math.max(most, 1e-9) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * (1 - 1e-9));
  const count = Math.max(1, Math.ceil(most / step - 1e-9));
  return Array.from({ length: count + 1 }, (_, i) => i * step);
}

const amount = (value) =>
  value >= 10_000 ? `${(value / 1000).toFixed(value >= 100_000 ? 0 : 1)}k` : Number(value.toPrecision(3)).toLocaleString("en");

const ago = (seconds) => (seconds % 60 === 0 ? `−${seconds / 60} min` : `−${seconds} s`);

export class LineChart {
  // `series`: names, the first one in the accent colour. `most`: the axis reaches at least this far.
  constructor({ title, unit, series, most = 1 }) {
    this.unit = unit;
    this.series = series;
    this.most = most;
    this.samples = [];
    this.pointed = null;
    this.values = series.map((name, i) => el("span", { class: `value series${i}`, "data-series": name }, "–"));
    const legend = series.map((name, i) =>
      el("span", { class: "legend" }, series.length > 1 ? el("span", { class: `swatch series${i}` }) : null, this.values[i], ` ${series.length > 1 ? name : unit}`),
    );
    this.when = el("span", { class: "muted when" });
    this.plot = svg("svg", { class: "plot", role: "img", height: HEIGHT });
    const heading = el("h3", {}, title, series.length > 1 && unit ? el("span", { class: "muted" }, ` ${unit}`) : null);
    this.element = el("section", { class: "chart" }, heading, el("div", { class: "readout" }, ...legend, this.when), this.plot);
    this.title = title;
    new ResizeObserver(() => this.draw()).observe(this.plot);
    this.plot.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.plot.addEventListener("pointerleave", () => this.point(null));
  }

  // Samples: `{ at: seconds, values: a number or null for each series }`, oldest first.
  update(samples) {
    this.samples = samples;
    this.draw();
  }

  point(x) {
    this.pointed = x;
    this.draw();
  }

  draw() {
    const width = this.plot.clientWidth;
    if (width === 0) return;
    const { samples } = this;
    const now = samples.at(-1)?.at ?? 0;
    this.span = SPANS.find((span) => now - (samples[0]?.at ?? 0) <= span) ?? WINDOW;
    const known = samples.flatMap(({ values }) => values.filter((value) => value !== null));
    const marks = ticks(Math.max(this.most, ...known));
    const top = marks.at(-1);
    const x = (at) => MARGIN.left + (1 - (now - at) / this.span) * (width - MARGIN.left - MARGIN.right);
    const y = (value) => HEIGHT - MARGIN.bottom - (value / top) * (HEIGHT - MARGIN.top - MARGIN.bottom);

    const grid = marks.flatMap((value) => [
      svg("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: MARGIN.left - 6, y: y(value) + 4, "text-anchor": "end" }, amount(value)),
    ]);
    const times = Array.from({ length: DIVISIONS + 1 }, (_, i) => {
      const anchor = i === 0 ? "end" : i === DIVISIONS ? "start" : "middle";
      const seconds = (this.span * i) / DIVISIONS;
      return svg("text", { class: "tick", x: x(now - seconds), y: HEIGHT - 4, "text-anchor": anchor }, i === 0 ? "now" : ago(seconds));
    });
    const lines = this.series.map((_, i) => svg("path", { class: `line series${i}`, d: this.path(i, x, y) })).reverse();

    const shown = this.shown(now, width);
    const cursor = this.pointed !== null && shown ? svg("line", { class: "cursor", x1: x(shown.at), x2: x(shown.at), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }) : "";
    this.plot.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.plot.replaceChildren(...grid, ...times, ...lines, cursor);
    this.values.forEach((node, i) => {
      const value = shown?.values[i] ?? null;
      node.textContent = value === null ? "–" : amount(value);
    });
    this.when.textContent = cursor ? `${Math.round(now - shown.at)} s ago` : "";
    const words = this.series.map((name, i) => `${name}: ${this.values[i].textContent}`).join(", ");
    this.plot.setAttribute("aria-label", `${this.title}, ${this.unit}, last ${this.span / 60} minutes. Now ${words}; largest ${amount(Math.max(0, ...known))}.`);
  }

  // The newest sample, or the one under the pointer.
  shown(now, width) {
    if (this.pointed === null) return this.samples.at(-1);
    const at = now - this.span * (1 - (this.pointed - MARGIN.left) / (width - MARGIN.left - MARGIN.right));
    let best = null;
    for (const sample of this.samples) if (!best || Math.abs(sample.at - at) < Math.abs(best.at - at)) best = sample;
    return best;
  }

  path(i, x, y) {
    let before = null;
    let path = "";
    for (const { at, values } of this.samples) {
      const value = values[i];
      if (value !== null) {
        path += `${before !== null && at - before <= GAP ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
        before = at;
      }
    }
    return path;
  }
}
