// Pieces that several views show the same way.

import { badge, h } from "../dom.js";
import * as format from "../format.js";
import * as session from "../session.js";

export const heading = (text, ...beside) => h("div", { class: "head" }, h("h1", {}, text), beside);

export const agentLink = address => h("a", { href: `#/agent/${encodeURIComponent(session.whole(address))}` }, session.bare(address));

export const messageLink = id => h("a", { class: "mono", href: `#/messages/${encodeURIComponent(id)}` }, id);

export const online = agent => agent.online ? badge("online", "good dot") : h("span", { class: "soft nowrap" },
  agent.last_seen_ms ? `seen ${format.ago(agent.last_seen_ms)}` : "never seen");

export const when = at_ms => h("time", { datetime: format.full(at_ms), title: format.full(at_ms), class: "nowrap" }, format.clock(at_ms));

export const since = at_ms => h("time", { datetime: format.full(at_ms), title: format.full(at_ms), class: "nowrap" }, format.ago(at_ms));

const KINDS = {
  accepted: "info", taken: "info", revived: "info", replied: "good", acked: "good", joined: "good", resumed: "good",
  nacked: "warn", overdue: "warn", released: "warn", paused: "warn", replaced: "warn", expired: "bad", dead: "bad", refused: "bad", dropped: "bad", cancelled: "bad", set_aside: "bad",
};
export const EVENT_KINDS = ["accepted", "taken", "acked", "replied", "nacked", "overdue", "released", "expired", "dead", "revived",
  "dropped", "cancelled", "refused", "duplicate", "touched", "joined", "left", "replaced", "paused", "resumed", "changed", "swept", "set_aside"];

export const kindOf = kind => KINDS[kind] ?? "";
export const kindBadge = kind => badge(kind, kindOf(kind));

const STATES = { queued: "info", held: "good", delayed: "warn", acked: "good", dead: "bad", expired: "bad", cancelled: "bad" };
export const stateBadge = state => badge(state, STATES[state] ?? "");

// Why a message or a mailbox waits, in words, and until when.
export function why(row) {
  const until = row.until_ms && h("time", { datetime: format.full(row.until_ms), class: "nowrap" }, format.fromNow(row.until_ms));
  return row.why ? h("span", {}, row.why, until && [", ", until]) : until || "";
}

// What an agent wrote is shown as it is: as text, and only when somebody asks.
export function payload(row) {
  if (row.payload === undefined) return h("span", { class: "soft" }, format.bytes(row.bytes));
  return h("details", {}, h("summary", {}, format.bytes(row.bytes)), h("pre", {}, JSON.stringify(row.payload, null, 2)));
}

// Pages forward and back: the cursors of the pages before are kept in the address.
export function pager(page, cursor, shown) {
  const before = page.route.query.getAll("cursor");
  const go = cursors => {
    page.route.query.delete("cursor");
    cursors.forEach(one => page.route.query.append("cursor", one));
    page.change({});
  };
  if (!cursor && !before.length) return null;
  return h("nav", { class: "pager", "aria-label": "Pages" },
    h("span", { class: "soft small" }, `Page ${before.length + 1}, ${shown}`),
    h("button", { type: "button", disabled: !before.length, onclick: () => go(before.slice(0, -1)) }, "Back"),
    h("button", { type: "button", disabled: !cursor, onclick: () => go([...before, cursor]) }, "Next"));
}

export const cursorOf = page => page.route.query.getAll("cursor").at(-1);

export function pausedBanner(paused, what, resume) {
  if (!paused) return null;
  return h("div", { class: "banner", "data-key": "paused" },
    h("span", {}, h("strong", {}, "Paused"), ` by ${paused.by} ${format.ago(paused.since_ms)}${paused.reason ? `: ${paused.reason}` : ""}. `,
      `Senders are still accepted; nothing of ${what} is delivered.`),
    session.isAdmin() && resume && h("button", { type: "button", onclick: resume }, "Resume"));
}
