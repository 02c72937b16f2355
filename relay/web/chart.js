// Lines over time, drawn as SVG at the size that the page gives them.

import { h, own, patch, svg } from "./dom.js";
import { clock } from "./format.js";

const LEFT = 50, RIGHT = 8, TOP = 8, BOTTOM = 22, HEIGHT = 152;

// Spans that are round numbers to people, in milliseconds: from a minute on, tens are not.
export const SPANS = [1, 2, 5, 10, 20, 30, 60, 120, 240, 360, 720, 1_440, 2_880, 7_200, 14_400, 43_200].map(minutes => minutes * 60_000);

// A round number at or above a value: of the steps, if it is that large; else 1, 2 or 5 times a power of ten.
function ceiling(value, steps) {
  const step = value > steps[0] / 2 ? steps.find(one => one >= value) : undefined;
  if (step) return step;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map(n => n * power).find(round => round >= value * 0.999);
}

// series: [{name, values}], each as long as `times`; null is a hole. `unit` writes a value.
export class Chart {
  constructor(name, unit, steps = []) {
    this.unit = unit;
    this.steps = steps;
    this.name = name;
    this.times = [];
    this.series = [];
    this.at = null; // which point the pointer is at
    this.picture = svg("svg", { role: "img", height: HEIGHT });
    this.legend = h("div", { class: "legend" });
    this.numbers = h("details", { ontoggle: () => this.#list() }, h("summary", {}, "Numbers"), h("div", { class: "scroll", tabindex: 0 }));
    this.node = own(h("section", { class: "card chart" },
      h("div", { class: "card-head" }, h("h2", {}, name), this.legend), this.picture, this.numbers));
    this.picture.onpointermove = event => this.#point(event.clientX - this.picture.getBoundingClientRect().left);
    this.picture.onpointerleave = () => this.#point(null);
    new ResizeObserver(() => this.#draw()).observe(this.picture);
  }

  show(times, series) {
    Object.assign(this, { times, series });
    this.#draw();
    this.#list();
  }

  #list() {
    if (!this.numbers.open) return;
    const rows = this.times.map((at_ms, n) => h("tr", {}, h("td", {}, clock(at_ms, false)),
      this.series.map(one => h("td", { class: "number" }, one.values[n] === null ? "–" : this.unit(one.values[n]))))).reverse();
    patch(this.numbers.lastChild, h("table", {},
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Time"), this.series.map(one => h("th", { scope: "col", class: "number" }, one.name)))),
      h("tbody", {}, rows)));
  }

  #point(x) {
    const at = x === null || !this.times.length ? null : this.times.reduce((best, _, n) =>
      Math.abs(this.#x(n) - x) < Math.abs(this.#x(best) - x) ? n : best, 0);
    if (at !== this.at) { this.at = at; this.#draw(); }
  }

  #x(n) {
    const [first, last] = [this.times[0], this.times.at(-1)];
    return LEFT + (this.width - LEFT - RIGHT) * (last > first ? (this.times[n] - first) / (last - first) : 1);
  }

  #y(value) { return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / this.top); }

  #draw() {
    this.width = Math.max(200, this.picture.getBoundingClientRect().width || 400);
    const known = this.series.flatMap(one => one.values).filter(value => value !== null);
    this.top = ceiling(Math.max(...known, 0) || 1, this.steps);
    this.picture.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    this.picture.setAttribute("aria-label", this.#inWords());
    patch(this.legend, this.at !== null && h("span", {}, clock(this.times[this.at], false)), this.series.map((one, n) => {
      const value = one.values.at(this.at ?? -1);
      return h("span", {}, h("i", { class: `s${n + 1}` }), one.name, h("b", {}, value === null || value === undefined ? "–" : this.unit(value)));
    }));
    this.picture.replaceChildren(...this.#grid(), ...this.series.flatMap((one, n) => this.#line(one, n)), ...this.#cursor());
  }

  #inWords() {
    if (!this.times.length) return `${this.name}: no history yet`;
    return `${this.name}: ${this.series.map(one => `${one.name} ${one.values.at(-1) === null ? "unknown" : this.unit(one.values.at(-1))}`).join(", ")}`;
  }

  #grid() {
    if (this.times.length < 2) return [svg("text", { x: this.width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "waiting for history …")];
    const isWhole = this.unit(this.top / 2) !== this.unit(this.top); // half of 1 is no number of messages
    const lines = (isWhole ? [0, 0.5, 1] : [0, 1]).map(share => share * this.top).flatMap(value => [
      svg("line", { class: "grid", x1: LEFT, x2: this.width - RIGHT, y1: this.#y(value), y2: this.#y(value) }),
      svg("text", { x: LEFT - 8, y: this.#y(value) + 4, "text-anchor": "end" }, value ? this.unit(value) : "0"),
    ]);
    const ends = [[0, "start"], [this.times.length - 1, "end"]];
    return [...lines, ...ends.map(([n, anchor]) => svg("text", { x: this.#x(n), y: HEIGHT - 4, "text-anchor": anchor }, clock(this.times[n], false)))];
  }

  #line(one, n) {
    const runs = [[]];
    one.values.forEach((value, at) => value === null ? runs.push([]) : runs.at(-1).push([this.#x(at), this.#y(value)]));
    return runs.filter(run => run.length).flatMap(run => {
      const path = run.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
      const floor = this.#y(0).toFixed(1);
      const area = `${path}L${run.at(-1)[0].toFixed(1)} ${floor}L${run[0][0].toFixed(1)} ${floor}Z`;
      const alone = run.length === 1 && svg("circle", { class: `dot-mark s${n + 1}`, cx: run[0][0], cy: run[0][1], r: 3 });
      return [n === 0 && svg("path", { class: `area s${n + 1}`, d: area }), svg("path", { class: `line s${n + 1}`, d: path }), alone].filter(Boolean);
    });
  }

  #cursor() {
    if (this.at === null) return [];
    const x = this.#x(this.at);
    const marks = this.series.map((one, n) => one.values[this.at] === null ? null
      : svg("circle", { class: `dot-mark s${n + 1}`, cx: x, cy: this.#y(one.values[this.at]), r: 4 }));
    return [svg("line", { class: "cursor", x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }), ...marks.filter(Boolean)];
  }
}
