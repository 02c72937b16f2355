// The tenant at a glance: rates, depth, latency, who is busy, what looks wrong.

import { Chart, SPANS } from "../chart.js";
import { badge, choice, h, keep, table } from "../dom.js";
import * as format from "../format.js";
import { pauseTenant, resumeTenant } from "../pausing.js";
import * as session from "../session.js";
import { agentLink, heading, pausedBanner, since } from "./shared.js";
import { severity } from "./anomalies.js";

export const title = "Overview";
const REFRESH_MS = 5_000;
const RANGES = [["600", "10 minutes"], ["1800", "30 minutes"], ["3600", "1 hour"]];

export function show(page) {
  const rates = new Chart("Messages a second", format.rate);
  const depth = new Chart("In mailboxes", value => format.number(Math.round(value)));
  const latency = new Chart("Time to ack", format.span, SPANS);
  const oldest = new Chart("Age of the oldest message", format.span, SPANS);
  const range = page.route.query.get("range") ?? RANGES[0][0];

  page.every(REFRESH_MS, async () => {
    const [stats, wrong] = await Promise.all([
      page.get("v1/stats", { ...session.tenantQuery(), history_s: range }),
      page.get("v1/anomalies", { ...session.tenantQuery(), active: true, limit: 5 }),
    ]);
    const history = stats.history ?? [];
    const times = history.map(one => one.at_ms);
    const line = (name, value) => ({ name, values: history.map(one => value(one) ?? null) });
    rates.show(times, [line("accepted", one => one.accepted_per_s), line("acked", one => one.acked_per_s)]);
    depth.show(times, [line("messages", one => one.messages), line("dead letters", one => one.dead)]);
    latency.show(times, ["p50", "p95", "p99"].map(share => line(share, one => one.acked_ms?.[share])));
    oldest.show(times, [line("age", one => one.oldest_age_s === null ? 0 : one.oldest_age_s * 1_000)]);
    page.render(
      heading("Overview", h("div", { class: "tools" },
        choice("Show", range, RANGES, value => page.change({ range: value })),
        session.isAdmin() && !stats.paused && h("button", { type: "button", onclick: () => pauseTenant(stats.tenant, page) }, "Pause all delivery"))),
      pausedBanner(stats.paused, "this tenant", () => resumeTenant(stats.tenant, page)),
      tiles(stats, history.at(-1)),
      h("div", { class: "two" }, [rates, latency, depth, oldest].map(chart => keep(chart.node))),
      h("div", { class: "two" }, busiest(stats.busiest ?? []), wrongNow(wrong.anomalies)));
  });
}

function tiles(stats, latest) {
  const tile = (name, value, small) => h("div", { class: "card tile" }, h("dt", {}, name), h("dd", {}, value, small && h("small", {}, small)));
  const failed = latest ? ["nacked", "overdue", "expired", "dead", "refused"].reduce((sum, kind) => sum + (latest.counts[kind] ?? 0), 0) : null;
  return h("dl", { class: "tiles" },
    tile("Accepted", format.rate(latest?.accepted_per_s), "a second"),
    tile("Acked", format.rate(latest?.acked_per_s), "a second"),
    tile("In mailboxes", format.number(stats.messages), format.bytes(stats.bytes)),
    tile("Oldest", stats.oldest_ms === null ? "–" : format.span(Date.now() - stats.oldest_ms), stats.oldest_ms === null ? "nothing waits" : "waits"),
    tile("Agents online", format.number(stats.online), `of ${format.number(stats.agents)}`),
    tile("Dead letters", format.number(stats.dead), failed === null ? "" : `${format.number(failed)} failed in ${format.span(latest.seconds * 1_000)}`));
}

function busiest(agents) {
  return h("section", { class: "card flush" }, h("div", { class: "card-head" }, h("h2", {}, "Busiest agents"), h("a", { href: "#/agents?sort=rate" }, "All agents")),
    table({
      caption: "Busiest agents",
      empty: "Nobody is busy.",
      key: one => one.agent,
      rows: agents.slice(0, 8),
      columns: [
        { title: "Agent", cell: one => agentLink(one.agent) },
        { title: "In /s", number: true, cell: one => format.rate(one.accepted_per_s) },
        { title: "Acked /s", number: true, cell: one => format.rate(one.acked_per_s) },
        { title: "Sent /s", number: true, cell: one => format.rate(one.sent_per_s) },
        { title: "Depth", number: true, cell: one => format.number(one.depth) },
        { title: "Dead", number: true, wide: true, cell: one => format.number(one.dead) },
      ],
    }));
}

function wrongNow(anomalies) {
  return h("section", { class: "card flush" }, h("div", { class: "card-head" }, h("h2", {}, "What looks wrong now"), h("a", { href: "#/anomalies" }, "All anomalies")),
    table({
      caption: "Active anomalies",
      empty: "Nothing looks wrong.",
      key: one => one.id,
      rows: anomalies,
      columns: [
        { title: "Severity", cell: one => badge(one.severity, severity(one)) },
        { title: "What", cell: one => one.agent ? h("a", { class: "sentence", href: `#/agent/${encodeURIComponent(one.agent)}` }, one.text) : one.text },
        { title: "Since", wide: true, cell: one => since(one.first_ms) },
      ],
    }));
}
