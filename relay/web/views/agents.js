// The agents of a tenant: searched, sorted and served in pages by the relay.

import { badge, choice, field, h, svg, table } from "../dom.js";
import * as format from "../format.js";
import * as session from "../session.js";
import { agentLink, cursorOf, heading, online, pager, why } from "./shared.js";

export const title = "Agents";
const REFRESH_MS = 5_000;
const TYPING_MS = 250;
const AT_ONCE = 50;
const SORTS = [["name", "Name"], ["depth", "Depth"], ["oldest", "Oldest message"], ["rate", "Rate"], ["dead", "Dead letters"]];

export function show(page) {
  const { query } = page.route;
  const sort = query.get("sort") ?? "name", search = query.get("search") ?? "";
  let typing;
  const find = event => {
    clearTimeout(typing);
    typing = setTimeout(() => page.change({ search: event.target.value.trim(), cursor: null }), TYPING_MS);
  };

  page.every(REFRESH_MS, async () => {
    const found = await list(page, search, sort);
    page.render(
      heading("Agents", h("div", { class: "tools" }, field("Find", h("input", { type: "search", value: search, placeholder: "part of a name", oninput: find })),
        choice("Sort by", sort, SORTS, value => page.change({ sort: value, cursor: null })))),
      h("section", { class: "card flush" }, listing(found.agents, sort, page),
        pager(page, found.cursor, format.plural(found.agents.length, "agent"))),
      sort !== "name" && h("p", { class: "soft small" }, "The first 100 as of the latest snapshot. Sorted by name, all are there."));
  });
}

// A search looks at a part of the names at a time: the relay is asked again until a page is full.
async function list(page, search, sort) {
  const agents = [];
  let cursor = cursorOf(page);
  do {
    const found = await page.get("v1/agents", { ...session.tenantQuery(), search, sort, cursor, limit: AT_ONCE - agents.length });
    agents.push(...found.agents);
    cursor = found.cursor;
  } while (cursor && agents.length < AT_ONCE);
  return { agents, cursor };
}

function listing(agents, sort, page) {
  return table({
    caption: "Agents",
    empty: sort === "name" ? "No agent here. One appears when it connects, is registered, or is sent to." : "The latest snapshot has nobody by that order.",
    key: agent => agent.agent,
    rows: agents,
    sorted: sort,
    onsort: name => page.change({ sort: name, cursor: null }),
    columns: [
      { title: "Agent", sort: "name", cell: agent => [agentLink(agent.agent), agent.paused && [" ", badge("paused", "warn")]] },
      { title: "Online", cell: online },
      { title: "Depth", sort: "depth", number: true, cell: agent => [format.number(agent.depth), depthBar(agent)] },
      { title: "Oldest", sort: "oldest", number: true, cell: agent => agent.oldest_age_s === null ? "–" : format.span(agent.oldest_age_s * 1_000) },
      { title: "In /s", sort: "rate", number: true, wide: true, cell: agent => format.rate(agent.accepted_per_s) },
      { title: "Acked /s", number: true, wide: true, cell: agent => format.rate(agent.acked_per_s) },
      { title: "Dead", sort: "dead", number: true, cell: agent => agent.dead ? h("a", { href: `#/agent/${encodeURIComponent(agent.agent)}?tab=dead` }, format.number(agent.dead)) : "0" },
      { title: "Why it waits", wide: true, cell: agent => h("span", { class: "soft" }, agent.why ? why(agent) : parts(agent)) },
    ],
  });
}

const PARTS = ["waiting", "held", "delayed"];
const parts = agent => PARTS.filter(part => agent[part]).map(part => `${format.number(agent[part])} ${part}`).join(", ");

export function depthBar(agent) {
  if (!agent.depth) return null;
  const inWords = parts(agent);
  let x = 0;
  return svg("svg", { class: "bar", viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": inWords },
    svg("title", {}, inWords),
    PARTS.filter(part => agent[part]).map(part => {
      const width = 100 * agent[part] / agent.depth;
      x += width;
      return svg("rect", { class: part, x: x - width, width, height: 6 });
    }));
}
