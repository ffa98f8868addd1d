// What the monitor shows, taken from two answers of /v1/status. Rates come from counters that only grow, so that none is lost between
// two looks.

const GIB = 2 ** 30;

const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : null);

// `part` of `whole` in percent, null of nothing.
const percent = (part, whole) => (whole > 0 ? (100 * part) / whole : null);

// The values of a counter `name` of the runner, now and since `before`.
const grown = (status, before, name) => Math.max(0, (number(status.counters?.[name]) ?? 0) - (number(before.counters?.[name]) ?? 0));

// One sample for each chart; `before` is the last status, `seconds` the time between them.
export function sample(status, before, seconds) {
  const rate = (name) => (before && seconds > 0 ? grown(status, before, name) / seconds : null);
  const cached = before ? grown(status, before, "cached_tokens") : 0;
  const read = before ? grown(status, before, "prompt_tokens") : 0;
  const measured = status.memory?.measured ?? {};
  const gib = (value) => (number(value) === null ? null : value / GIB);
  return {
    decode: [rate("generated_tokens")],
    prefill: [rate("prompt_tokens")],
    requests: [number(status.batch?.running), number(status.queue?.waiting)],
    batch: [before && grown(status, before, "steps") > 0 ? (read + grown(status, before, "generated_tokens")) / grown(status, before, "steps") : null],
    cache: [percent(cached, cached + read)],
    memory: [gib(measured.anonymous_bytes), gib(measured.locked_bytes)],
  };
}

export function bytes(value) {
  if (number(value) === null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = value < 1024 ? 0 : Math.min(4, Math.floor(Math.log2(value) / 10));
  return `${(value / 1024 ** power).toFixed(power === 0 ? 0 : 1)} ${units[power]}`;
}

export function duration(seconds) {
  if (number(seconds) === null) return "–";
  const [d, h, m, s] = [Math.floor(seconds / 86_400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60, Math.floor(seconds) % 60];
  if (d > 0) return `${d} d ${h} h`;
  if (h > 0) return `${h} h ${m} min`;
  return m > 0 ? `${m} min ${s} s` : `${s} s`;
}

export const count = (value) => (number(value) === null ? "–" : value.toLocaleString("en"));

export const share = (part, whole) => {
  const value = percent(part, whole);
  return value === null ? "–" : `${value.toFixed(1)} %`;
};

export const milliseconds = (value) => {
  if (number(value) === null) return "–";
  return value < 10 ? `${value.toFixed(2)} ms` : value < 1000 ? `${value.toFixed(0)} ms` : `${(value / 1000).toFixed(2)} s`;
};
