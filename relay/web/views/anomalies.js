// What looks wrong, how badly, and by what evidence.

import { badge, choice, h, inlineFacts } from "../dom.js";
import * as format from "../format.js";
import * as session from "../session.js";
import { agentLink, cursorOf, heading, messageLink, pager, since } from "./shared.js";

export const title = "Anomalies";
const REFRESH_MS = 5_000;
const AT_ONCE = 50;
const SEVERITIES = { critical: "bad", warning: "warn", info: "info" };

export const severity = one => SEVERITIES[one.severity] ?? "";

export function show(page) {
  const { query } = page.route;
  const level = query.get("severity") ?? "", active = query.get("active") ?? "";
  page.every(REFRESH_MS, async () => {
    const found = await page.get("v1/anomalies", { ...session.tenantQuery(), severity: level, active, cursor: cursorOf(page), limit: AT_ONCE });
    page.render(
      heading("Anomalies", h("div", { class: "tools" },
        choice("Severity", level, [["", "any"], ...Object.keys(SEVERITIES).map(name => [name, name])], value => page.change({ severity: value, cursor: null })),
        choice("When", active, [["", "now and before"], ["true", "now"], ["false", "before"]], value => page.change({ active: value, cursor: null })))),
      found.anomalies.map(card),
      !found.anomalies.length && h("p", { class: "card empty" }, "Nothing looks wrong."),
      pager(page, found.cursor, format.plural(found.anomalies.length, "anomaly").replace("anomalys", "anomalies")));
  });
}

function card(one) {
  return h("article", { class: "card stack", "data-key": one.id },
    h("div", { class: "card-head" }, h("h2", {}, one.text), badge(one.severity, severity(one)), one.active ? badge("now", "info dot") : badge("over")),
    inlineFacts([
      ["Kind", one.kind.replaceAll("_", " ")],
      ["Agent", one.agent && agentLink(one.agent)],
      ["Message", one.message && messageLink(one.message)],
      ["Session", one.session && h("span", { class: "mono" }, one.session)],
      ["Instance", one.instance && h("span", { class: "mono" }, one.instance)],
      ["Seen", [`${format.number(one.count)} ×, first `, since(one.first_ms), ", last ", since(one.last_ms)]],
    ]),
    inlineFacts(Object.entries(one.evidence ?? {}).map(([name, value]) => measured(name, value))));
}

// Names of numbers end with their unit.
function measured(name, value) {
  const [, words, unit] = /^(.*?)(?:_(ms|s|bytes))?$/.exec(name);
  const shown = { ms: () => format.span(value), s: () => format.span(value * 1_000), bytes: () => format.bytes(value) };
  const text = typeof value === "number" ? (shown[unit] ?? (() => format.number(value)))() : typeof value === "object" ? JSON.stringify(value) : String(value);
  return [words.replaceAll("_", " "), text];
}
