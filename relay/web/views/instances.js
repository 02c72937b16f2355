// The processes: instances, workers, and the store beneath them.

import { badge, facts, h, table } from "../dom.js";
import * as format from "../format.js";
import { heading, since } from "./shared.js";

export const title = "Instances";
const REFRESH_MS = 5_000;

export function show(page) {
  page.every(REFRESH_MS, async () => {
    const [ready, processes] = await Promise.all([page.get("readyz"), page.get("v1/instances")]);
    page.render(heading("Instances"), readiness(ready), instances(processes.instances), workers(processes.workers));
  });
}

function readiness(ready) {
  const { memory } = ready;
  return h("section", { class: "card stack" },
    h("div", { class: "card-head" }, h("h2", {}, "This instance and the store"), ready.status === "ready" ? badge("ready", "good dot") : badge("not ready", "bad dot")),
    facts([
      ["Why not", ready.reason],
      ["Instance", h("span", { class: "mono" }, ready.instance)],
      ["Sessions here", format.number(ready.sessions)],
      ["Messages in the store", format.number(ready.messages)],
      ["Accepted means", { memory: "in the memory of the store", fsync: "on the disk of the store", replica: "on a replica too" }[ready.durability] ?? "not known yet"],
      ["Memory of the store", `${format.bytes(memory.used_bytes)}${memory.max_bytes ? ` of ${format.bytes(memory.max_bytes)}` : ", no limit set"}`],
    ]),
    (ready.warnings ?? []).map(text => h("p", { class: "banner" }, h("span", {}, text))));
}

function instances(rows) {
  return h("section", { class: "card flush" }, h("h2", {}, "Instances"), table({
    caption: "Instances",
    key: one => one.instance,
    rows,
    columns: [
      { title: "Instance", cell: one => [h("span", { class: "mono" }, one.instance), one.this && [" ", badge("answers you")]] },
      { title: "State", cell: one => one.alive ? badge("alive", "good dot") : badge("gone", "bad dot") },
      { title: "Believed alive", cell: one => format.fromNow(one.until_ms).replace("in", "for another") },
    ],
  }));
}

function workers(rows) {
  return h("section", { class: "card flush" }, h("h2", {}, "Workers"), table({
    caption: "Workers",
    empty: "No worker has reported. Without workers nothing expires, and what dead instances held stays held.",
    key: one => one.worker,
    rows,
    columns: [
      { title: "Worker", cell: one => one.worker },
      { title: "State", cell: one => one.error ? badge(one.error, "bad dot") : one.late ? badge("late", "warn dot") : badge("works", "good dot") },
      { title: "Last round", cell: one => one.last_round_ms ? since(one.last_round_ms) : "–" },
      { title: "Every", number: true, wide: true, cell: one => format.span(one.every_s * 1_000) },
      { title: "Took", number: true, wide: true, cell: one => one.took_ms === undefined || one.took_ms === null ? "–" : format.span(one.took_ms) },
      { title: "Did", number: true, wide: true, cell: one => format.number(one.done) },
      { title: "Process", wide: true, cell: one => h("span", { class: "mono" }, one.holder ?? "") },
    ],
  }));
}
