// Only what went wrong: nacks, overdue holds, expiries, deaths, refusals.

import { choice, field, h } from "../dom.js";
import * as format from "../format.js";
import * as session from "../session.js";
import { cursorOf, heading, pager } from "./shared.js";
import { eventTable } from "./events.js";

export const title = "Failed";
const REFRESH_MS = 5_000;
const AT_ONCE = 100;
const FAILURES = ["dead", "nacked", "overdue", "expired", "refused"];
const SPANS = [["", "as far back as the log"], ["3600", "the last hour"], ["600", "the last 10 minutes"]];

export function show(page) {
  const { query } = page.route;
  const kind = query.get("kind") ?? "", agent = query.get("agent") ?? "", back = query.get("back") ?? "";
  page.every(REFRESH_MS, async () => {
    const found = await page.get("v1/activity", {
      ...session.tenantQuery(), kind: kind || FAILURES.join(","), agent: agent && session.bare(session.whole(agent)),
      since_ms: back && Date.now() - Number(back) * 1_000, cursor: cursorOf(page), limit: AT_ONCE,
    });
    page.render(
      heading("Failed", h("div", { class: "tools" },
        choice("Event", kind, [["", "every failure"], ...FAILURES.map(name => [name, name])], value => page.change({ kind: value, cursor: null })),
        field("Agent", h("input", { value: agent, placeholder: "any", onchange: event => page.change({ agent: event.target.value.trim(), cursor: null }) })),
        choice("When", back, SPANS, value => page.change({ back: value, cursor: null })))),
      h("section", { class: "card flush" }, eventTable(found, "Nothing failed."), pager(page, found.cursor, format.plural(found.events.length, "event"))),
      h("p", { class: "soft small" }, "Dead letters can be revived on the page of their agent; the ", h("a", { href: "#/agents?sort=dead" }, "agents with most"), " come first there."));
  });
}
