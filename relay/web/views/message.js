// One message's life: where it is, why, and everything that happened to it.

import { openAct } from "../acts.js";
import { badge, field, h, inlineFacts } from "../dom.js";
import * as format from "../format.js";
import * as session from "../session.js";
import { agentLink, heading, kindBadge, kindOf, stateBadge, why } from "./shared.js";
import { eventTable } from "./events.js";

export const title = "Messages";
const REFRESH_MS = 2_000;
const MOST_EVENTS = 500;
const AT_ONCE = 50;

export function show(page) {
  return page.route.what ? one(page, page.route.what) : search(page);
}

const finder = id => h("form", { class: "tools", onsubmit: event => {
  event.preventDefault();
  const wanted = event.target.elements.id.value.trim();
  if (wanted) location.hash = `#/messages/${encodeURIComponent(wanted)}`;
} }, field("Message id", h("input", { name: "id", value: id, class: "mono", spellcheck: "false", autocomplete: "off", placeholder: "as its sender chose it" })), h("button", {}, "Trace"));

function search(page) {
  page.every(REFRESH_MS, async () => {
    const found = await page.get("v1/activity", { ...session.tenantQuery(), kind: "accepted", limit: AT_ONCE });
    page.render(heading("Messages", finder("")), h("section", { class: "card flush" }, h("h2", {}, "Accepted last"), eventTable(found, "No message was accepted lately.")));
  });
}

function one(page, id) {
  page.every(REFRESH_MS, async () => {
    const found = await page.get("v1/activity", { ...session.tenantQuery(), message: id, limit: MOST_EVENTS });
    const lives = await Promise.all(byLife(found.events).map(async life => ({ ...life, now: await whereIs(page, life, id) })));
    page.render(heading(id, finder(id)),
      lives.map(life => showLife(life, page)),
      !lives.length && h("p", { class: "card empty" }, "The log has no message with this id."),
      found.note && h("p", { class: "soft small" }, found.note));
  });
}

// An id is its sender's: two senders, or two recipients, may have the same. Each is a story of its own.
function byLife(events) {
  const lives = new Map();
  for (const event of [...events].reverse()) {
    const key = `${event.from} ${event.to}`;
    if (!lives.has(key)) lives.set(key, { key, from: event.from, to: event.to, events: [] });
    lives.get(key).events.push(event);
  }
  return [...lives.values()];
}

async function whereIs(page, life, id) {
  try {
    return await page.get(`v1/agents/${session.inPath(life.to)}/messages/${encodeURIComponent(id)}`, { from: life.from });
  } catch (error) {
    if (error.status === 404 || error.status === 403) return null; // ended long ago, or not ours to ask
    throw error;
  }
}

function showLife(life, page) {
  const first = life.events.find(event => event.type !== undefined || event.bytes !== undefined) ?? life.events[0];
  const { now } = life;
  const mayCancel = session.isAdmin() && (now?.state === "queued" || now?.state === "delayed");
  return h("section", { class: "card stack", "data-key": life.key },
    h("div", { class: "card-head" }, h("h2", {}, agentLink(life.from), " → ", agentLink(life.to)), now && stateBadge(now.state),
      mayCancel && h("button", { type: "button", onclick: () => openAct("cancel", session.whole(life.to), page, { entries: [now.entry] }) }, "Cancel …"),
      now?.state === "dead" && h("a", { href: `#/agent/${encodeURIComponent(session.whole(life.to))}?tab=dead` }, "Dead letters")),
    inlineFacts([
      ["Why", now?.why && why(now)],
      ["Holder", now?.holder && h("span", { class: "mono" }, now.holder)],
      ["Type", first.type], ["Thread", first.thread],
      ["Priority", first.priority || null],
      ["Size", first.bytes !== undefined && format.bytes(first.bytes)],
      ["Whole life", now && isOver(now) && format.span(now.at_ms - life.events[0].at_ms)],
    ]),
    h("ol", { class: "life" }, life.events.map((event, n) => step(event, life.events[n - 1], n)), now && !isOver(now) && nowStep(now)));
}

const isOver = now => ["acked", "dead", "expired", "cancelled"].includes(now.state);

function step(event, before, n) {
  return h("li", { class: kindOf(event.kind), "data-key": `${n} ${event.kind}` },
    h("time", { datetime: format.full(event.at_ms), title: format.full(event.at_ms) }, format.clock(event.at_ms),
      h("small", {}, before ? ` +${format.span(event.at_ms - before.at_ms)}` : ` ${format.day(event.at_ms)}`)),
    h("div", { class: "body" }, kindBadge(event.kind), event.attempt > 1 && [" ", badge(`attempt ${event.attempt}`)],
      event.reason && h("div", {}, event.reason),
      h("div", { class: "soft small" }, [event.who && ["by ", h("span", { class: "mono" }, event.who)], event.instance && [" on ", h("span", { class: "mono" }, event.instance)], event.entry && event.entry !== before?.entry && [" · entry ", h("span", { class: "mono" }, event.entry)]])));
}

function nowStep(now) {
  return h("li", { class: "now", "data-key": "now" }, h("time", {}, "now"), h("div", { class: "body" }, stateBadge(now.state), " ", why(now)));
}
