// Numbers, spans and times, as people read them.

const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1_000]];

export function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1_000) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 60_000) return `${Number((ms / 1_000).toFixed(ms < 10_000 ? 1 : 0))} s`;
  const n = UNITS.findIndex(([, size]) => ms >= size);
  const [[unit, size], [next, small]] = [UNITS[n], UNITS[n + 1]];
  const rest = Math.floor((ms % size) / small);
  return rest ? `${Math.floor(ms / size)}${unit} ${rest}${next}` : `${Math.floor(ms / size)}${unit}`;
}

export const ago = at_ms => at_ms === null || at_ms === undefined ? "–" : `${span(Date.now() - at_ms)} ago`;

export function fromNow(at_ms) {
  const ms = at_ms - Date.now();
  return ms >= 0 ? `in ${span(ms)}` : `${span(-ms)} ago`;
}

const two = number => String(number).padStart(2, "0");

export function clock(at_ms, withMs = true) {
  const at = new Date(at_ms);
  const time = [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
  return withMs ? `${time}.${String(at.getMilliseconds()).padStart(3, "0")}` : time;
}

export const day = at_ms => new Date(at_ms).toLocaleDateString(undefined, { day: "numeric", month: "short" });
export const full = at_ms => new Date(at_ms).toISOString();

export const number = value => value === null || value === undefined ? "–" : value.toLocaleString("en");

export function rate(per_s) {
  if (per_s === null || per_s === undefined) return "–";
  if (per_s >= 10_000) return `${(per_s / 1_000).toFixed(1)} k`;
  if (per_s >= 100 || per_s === 0) return number(Math.round(per_s));
  return String(Number(per_s.toFixed(per_s >= 10 ? 1 : 2)));
}

export function bytes(count) {
  if (count === null || count === undefined) return "–";
  if (count < 1_024) return `${count} B`;
  const power = Math.min(4, Math.floor(Math.log2(count) / 10));
  return `${(count / 1_024 ** power).toFixed(1)} ${["", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
