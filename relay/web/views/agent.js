// One agent: its mailbox, who holds what, its dead letters, and what happened to it.

import { openAct } from "../acts.js";
import { badge, choice, facts, field, h, table } from "../dom.js";
import * as format from "../format.js";
import { pauseAgent, resumeAgent } from "../pausing.js";
import * as session from "../session.js";
import { agentLink, cursorOf, heading, messageLink, online, pager, pausedBanner, payload, since, stateBadge, why } from "./shared.js";
import { eventTable } from "./events.js";

export const title = "Agent";
const REFRESH_MS = 3_000;
const AT_ONCE = 50;
const TABS = { mailbox: ["Mailbox", mailbox], holds: ["Holds and sessions", holds], dead: ["Dead letters", dead], events: ["Events", events] };

export function show(page) {
  const address = session.whole(page.route.what), path = `v1/agents/${session.inPath(address)}`;
  const tab = page.route.query.get("tab") ?? "mailbox";
  const chosen = new Set();
  page.every(REFRESH_MS, async () => {
    const [agent, inside] = await Promise.all([page.get(path), TABS[tab][1]({ page, address, path, chosen })]);
    page.render(
      heading(address, h("div", { class: "tools" },
        session.maySend() && h("a", { class: "button", href: `#/send/${encodeURIComponent(address)}` }, "Send"),
        session.isAdmin() && !agent.paused && h("button", { type: "button", onclick: () => pauseAgent(address, page) }, "Pause"))),
      pausedBanner(agent.paused, agent.paused?.scope === "tenant" ? "the tenant" : "this agent", agent.paused?.scope === "agent" && (() => resumeAgent(address, page))),
      about(agent),
      h("nav", { class: "tabs", "aria-label": "About this agent" }, Object.entries(TABS).map(([name, [text]]) =>
        h("a", { href: `#/agent/${encodeURIComponent(address)}?tab=${name}`, "aria-current": name === tab ? "page" : null }, text, name === "dead" && agent.dead > 0 && [" ", badge(format.number(agent.dead), "bad")]))),
      h("div", { class: "stack", "data-key": tab }, inside));
  });
}

function about(agent) {
  const tile = (name, value, small) => h("div", { class: "card tile" }, h("dt", {}, name), h("dd", {}, value, small && h("small", {}, small)));
  const limit = agent.max_messages ? `of ${format.number(agent.max_messages)}` : "";
  return h("div", { class: "stack" },
    h("p", {}, online(agent), agent.mode && [" ", badge(agent.mode)], agent.key && [" ", badge("has a key")], !agent.registered && [" ", badge("not registered")],
      agent.rate_per_s !== undefined && [" ", badge(`${format.rate(agent.rate_per_s)} messages a second at most`)],
      agent.why && h("span", { class: "soft" }, " · mail waits: ", why(agent))),
    h("dl", { class: "tiles" },
      tile("Waiting", format.number(agent.waiting ?? agent.depth), limit),
      tile("Held", format.number(agent.held)),
      tile("Delayed", format.number(agent.delayed)),
      tile("Oldest", agent.oldest_age_s === null ? "–" : format.span(agent.oldest_age_s * 1_000)),
      tile("Size", format.bytes(agent.bytes)),
      tile("Dead letters", format.number(agent.dead))));
}

// Boxes to choose some messages with, for acts on exactly those.
const chooser = (chosen, page) => ({ title: h("span", { class: "hidden-text" }, "Choose"), cell: row => h("input", {
  type: "checkbox", "aria-label": `Choose ${row.id}`, checked: chosen.has(row.entry),
  onchange: event => { event.target.checked ? chosen.add(row.entry) : chosen.delete(row.entry); },
}) });

async function mailbox({ page, address, path, chosen }) {
  const { query } = page.route;
  const state = query.get("state") ?? "", type = query.get("type") ?? "";
  const found = await page.get(`${path}/messages`, { state, type, cursor: cursorOf(page), limit: AT_ONCE });
  return [
    h("div", { class: "tools" },
      choice("State", state, [["", "any"], ["queued", "queued"], ["held", "held"], ["delayed", "delayed"]], value => page.change({ state: value, cursor: null })),
      field("Type", h("input", { value: type, placeholder: "any", onchange: event => page.change({ type: event.target.value.trim(), cursor: null }) })),
      session.isAdmin() && h("button", { type: "button", onclick: () => openAct("cancel", address, page, chosenOnes(chosen, found.messages)) }, "Cancel messages …")),
    h("section", { class: "card flush" }, table({
      caption: "Messages in the mailbox",
      empty: "The mailbox has nothing like that.",
      key: row => row.entry,
      rows: found.messages,
      columns: [
        ...(session.isAdmin() ? [chooser(chosen, page)] : []),
        { title: "Message", cut: true, cell: row => messageLink(row.id) },
        { title: "From", cell: row => agentLink(row.from) },
        { title: "State", cell: row => stateBadge(row.state) },
        { title: "Why", wide: true, cell: row => h("span", { class: "soft" }, why(row)) },
        { title: "Type", wide: true, cell: row => row.type ?? "" },
        { title: "Priority", number: true, wide: true, cell: row => row.priority },
        { title: "Accepted", cell: row => since(row.sent_at_ms) },
        { title: "Payload", cell: payload },
      ],
    }), pager(page, found.cursor, format.plural(found.messages.length, "message"))),
  ];
}

// Only what is still there can be chosen; without any, a filter is asked for.
function chosenOnes(chosen, rows) {
  const entries = rows.map(row => row.entry).filter(entry => chosen.has(entry));
  return entries.length ? { entries } : {};
}

async function holds({ page, path }) {
  const [agent, held] = await Promise.all([page.get(path), page.get(`${path}/messages`, { state: "held", limit: AT_ONCE, cursor: cursorOf(page) })]);
  return [
    h("section", { class: "card flush" }, h("h2", {}, "Sessions"), table({
      caption: "Sessions of this agent",
      empty: "Nobody is connected.",
      key: one => one.session,
      rows: agent.sessions ?? [],
      columns: [
        { title: "Session", cell: one => h("span", { class: "mono" }, one.session) },
        { title: "Mode", cell: one => one.mode },
        { title: "Holds", number: true, cell: one => `${one.holds}${one.window ? ` of ${one.window}` : ""}` },
        { title: "Instance", cell: one => one.alive ? badge("alive", "good dot") : badge("gone", "bad dot") },
      ],
    })),
    h("section", { class: "card flush" }, h("h2", {}, "Held messages"), table({
      caption: "Held messages",
      empty: "Nothing is held.",
      key: row => row.entry,
      rows: held.messages,
      columns: [
        { title: "Message", cut: true, cell: row => messageLink(row.id) },
        { title: "From", cell: row => agentLink(row.from) },
        { title: "Holder", cell: row => h("span", { class: "mono" }, row.holder ?? "") },
        { title: "Since", cell: row => row.held_since_ms ? since(row.held_since_ms) : "" },
        { title: "Ends", cell: row => row.until_ms ? format.fromNow(row.until_ms) : h("span", { class: "soft" }, "with its session") },
        { title: "Attempt", number: true, wide: true, cell: row => row.attempt },
      ],
    }), pager(page, held.cursor, format.plural(held.messages.length, "message"))),
  ];
}

async function dead({ page, address, path, chosen }) {
  const found = await page.get(`${path}/dead`, { cursor: cursorOf(page), limit: AT_ONCE });
  const act = (name, text) => h("button", { type: "button", disabled: !found.messages.length, onclick: () => openAct(name, address, page, chosenOnes(chosen, found.messages)) }, text);
  const mayManage = session.mayManage(address);
  return [
    mayManage && h("div", { class: "tools" }, act("revive", "Revive …"), act("drop", "Drop …"),
      h("span", { class: "soft small" }, "Chosen messages, or a filter. Each begins with a dry run.")),
    h("section", { class: "card flush" }, table({
      caption: "Dead letters",
      empty: "No dead letters.",
      key: row => row.entry,
      rows: found.messages,
      columns: [
        ...(mayManage ? [chooser(chosen, page)] : []),
        { title: "Message", cut: true, cell: row => messageLink(row.id) },
        { title: "From", cell: row => agentLink(row.from) },
        { title: "Reason", roomy: true, cell: row => [row.reason, history(row)] },
        { title: "Attempts", number: true, wide: true, cell: row => row.attempts },
        { title: "Type", wide: true, cell: row => row.type ?? "" },
        { title: "Died", cell: row => since(row.at_ms) },
        { title: "Payload", cell: payload },
        ...(session.isAdmin() && session.maySend() ? [{ title: h("span", { class: "hidden-text" }, "Acts"), cell: row => row.payload !== undefined && h("button", {
          type: "button", class: "quiet", onclick: () => openAct("resend", address, page, { entries: [row.entry], letter: row }) }, "Edit and re-send") }] : []),
      ],
    }), pager(page, found.cursor, format.plural(found.messages.length, "dead letter"))),
  ];
}

function history(row) {
  if (!row.history?.length) return null;
  return h("details", {}, h("summary", { class: "small soft" }, `${format.plural(row.history.length, "failure")}`),
    facts(row.history.map(one => [`${one.attempt}. ${format.clock(one.at_ms)}`, [one.reason, h("span", { class: "soft mono" }, ` ${one.holder}`)]])));
}

async function events({ page, address }) {
  const found = await page.get("v1/activity", { ...session.tenantQuery(), agent: session.bare(address), limit: AT_ONCE, cursor: cursorOf(page) });
  return h("section", { class: "card flush" }, eventTable(found), pager(page, found.cursor, format.plural(found.events.length, "event")));
}
