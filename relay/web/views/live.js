// What happens now: a tail that goes on where it broke off.

import { follow } from "../api.js";
import { badge, choice, columnClass, field, h, own, patch } from "../dom.js";
import * as format from "../format.js";
import * as session from "../session.js";
import { EVENT_KINDS, heading } from "./shared.js";
import { eventColumns } from "./events.js";

export const title = "Live";
const MOST_ROWS = 300;
const DRAW_MS = 200;
const STATES = { live: ["live", "good dot"], connecting: ["connecting …", "dot"], resuming: ["resuming …", "warn dot"], away: ["cut off, trying again …", "bad dot"] };

export function show(page) {
  const { query } = page.route;
  const kind = query.get("kind") ?? "", agent = query.get("agent") ?? "";
  const nothing = h("tr", {}, h("td", { colspan: eventColumns.length, class: "empty" }, "Nothing has happened since you came."));
  const rows = own(h("tbody", {}, nothing)), state = own(h("span", { role: "status" })), counts = own(h("span", { class: "soft small" }));
  let waiting = [], isPaused = false, drawing = null, seen = 0;
  const tell = name => patch(state, badge(...STATES[name]));
  const hold = own(h("button", { type: "button", onclick: () => {
    isPaused = !isPaused;
    hold.textContent = isPaused ? "Go on" : "Pause the view";
    if (!isPaused) draw();
  } }, "Pause the view"));

  function draw() {
    drawing = null;
    if (isPaused || !waiting.length) return;
    nothing.remove();
    rows.prepend(...waiting.reverse().map(row));
    while (rows.childElementCount > MOST_ROWS) rows.lastChild.remove();
    waiting = [];
    patch(counts, `${format.plural(seen, "event")} since you came`);
  }

  function onevent({ event, data }) {
    if (event === "counters") return;
    if (event !== "gap" && event !== "end") seen += 1;
    waiting.push({ event, data });
    if (waiting.length > MOST_ROWS) waiting.shift(); // while the view is paused only the latest are kept
    drawing ??= setTimeout(draw, DRAW_MS);
  }

  page.render(
    heading("Live", state, counts, h("div", { class: "tools" },
      choice("Event", kind, [["", "every kind"], ...EVENT_KINDS.map(name => [name, name])], value => page.change({ kind: value })),
      field("Agent", h("input", { value: agent, placeholder: "any", onchange: event => page.change({ agent: event.target.value.trim() }) })),
      hold)),
    h("section", { class: "card flush" }, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Events, newest first" },
      h("table", {}, h("caption", { class: "hidden-text" }, "Events, newest first"),
        h("thead", {}, h("tr", {}, eventColumns.map(column => h("th", { scope: "col", class: columnClass(column) }, column.title)))), rows))));
  follow("v1/events", { ...session.tenantQuery(), kind, agent: agent && session.bare(session.whole(agent)) }, { onevent, onstate: tell, signal: page.signal });
}

function row({ event, data }) {
  if (event === "gap") return h("tr", {}, h("td", { colspan: eventColumns.length, class: "soft" }, `Not shown here: ${data.reason}, ${format.clock(data.from_ms)} – ${format.clock(data.to_ms)}.`));
  if (event === "end") return h("tr", {}, h("td", { colspan: eventColumns.length, class: "soft" }, `The relay ended the stream: ${data.reason}.`));
  return h("tr", { class: "fresh" }, eventColumns.map(column => h("td", { class: columnClass(column) }, column.cell(data))));
}
