// Pausing and resuming delivery. What a pause would stop is shown before it is made.

import { get, put, remove } from "./api.js";
import { closer, open } from "./dialog.js";
import { field, h, notify, patch } from "./dom.js";
import * as format from "./format.js";
import * as session from "./session.js";

const agentPath = address => `v1/agents/${session.inPath(address)}/pause`;
const tenantPath = tenant => `v1/tenants/${encodeURIComponent(tenant)}/pause`;

export const pauseAgent = (address, page) => ask(session.bare(address), agentPath(address), page, async () => {
  const agent = await get(`v1/agents/${session.inPath(address)}`);
  return [`${format.plural(agent.waiting, "message")} waiting and ${format.number(agent.delayed)} delayed would stay in the mailbox.`,
    `${format.plural(agent.held, "message")} held now can still be settled.`,
    agent.online ? "It is online: it stays connected and receives nothing." : "It is not online."];
});

export const pauseTenant = (tenant, page) => ask(`all of ${tenant}`, tenantPath(tenant), page, async () => {
  const stats = await get("v1/stats", { ...session.tenantQuery(), history_s: 0 });
  return [`${format.plural(stats.messages, "message")} in the mailboxes of ${format.plural(stats.agents, "agent")} would stay there.`,
    `${format.plural(stats.online, "agent")} online would stay connected and receive nothing.`];
});

function ask(what, path, page, foresee) {
  const reason = h("input", { maxlength: 200 });
  const preview = h("ul", { "aria-live": "polite" }, h("li", { class: "soft" }, "Looking …"));
  open(`Pause ${what}?`, dialog => {
    const pause = h("button", { type: "button", class: "main", disabled: true, onclick: () => done(dialog, page, () => put(path, reason.value ? { reason: reason.value } : {}), `Paused ${what}`) }, "Pause");
    foresee().then(lines => {
      patch(preview, [...lines, "Senders are still accepted until mailboxes are full."].map(line => h("li", {}, line)));
      pause.disabled = false;
    }, error => patch(preview, h("li", {}, error.message)));
    return [h("p", {}, "What would happen:"), preview, field("Reason, for whoever looks later", reason),
      h("div", { class: "buttons" }, closer(dialog), pause)];
  });
}

export const resumeAgent = (address, page) => resume(agentPath(address), page, session.bare(address));
export const resumeTenant = (tenant, page) => resume(tenantPath(tenant), page, `all of ${tenant}`);

const resume = (path, page, what) => done(null, page, () => remove(path), `Resumed ${what}`);

async function done(dialog, page, act, text) {
  try {
    await act();
    dialog?.close();
    notify(text);
    page.again();
  } catch (error) {
    notify(error.message);
  }
}
