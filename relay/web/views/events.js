// Events in a table: what happened, to whom, by whom.

import { h, table } from "../dom.js";
import * as format from "../format.js";
import { agentLink, kindBadge, messageLink, when } from "./shared.js";

export const eventColumns = [
  { title: "Time", cell: event => [when(event.at_ms), isToday(event.at_ms) ? null : h("span", { class: "soft small" }, ` ${format.day(event.at_ms)}`)] },
  { title: "Event", cell: event => kindBadge(event.kind) },
  { title: "Message", cut: true, cell: event => event.id ? messageLink(event.id) : "" },
  { title: "From", wide: true, cell: event => event.from ? agentLink(event.from) : "" },
  { title: "To", cell: event => event.to ? agentLink(event.to) : "" },
  { title: "Details", wide: true, long: true, cell: details },
];

const isToday = at_ms => format.day(at_ms) === format.day(Date.now());

export function details(event) {
  const parts = [event.reason, event.attempt > 1 && `attempt ${event.attempt}`, event.kind === "expired" && !event.attempt && "never taken", event.type && `type ${event.type}`,
    event.bytes !== undefined && format.bytes(event.bytes), event.who && `by ${event.who}`].filter(Boolean);
  return h("span", { class: "soft", title: parts.join(" · ") }, parts.join(" · "));
}

export const eventKey = event => [event.at_ms, event.kind, event.entry, event.attempt, event.who, event.id].join(" ");

export function eventTable(found, empty = "Nothing happened that the log still has.") {
  return [table({ caption: "Events, newest first", empty, key: eventKey, rows: found.events, columns: eventColumns }),
    found.note && h("p", { class: "empty small" }, found.note)];
}
