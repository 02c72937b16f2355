// A box to send a message with, as the agent of the token.

import { post } from "../api.js";
import { choice, facts, field, h, own, patch } from "../dom.js";
import { parse } from "../json.js";
import * as session from "../session.js";
import { heading, messageLink, stateBadge } from "./shared.js";

export const title = "Send";
const REPLY_WITHIN_S = 30;

export function show(page) {
  if (!session.maySend()) {
    page.render(heading("Send"), h("p", { class: "card empty" }, "Your token may not send here: it needs the scope send, and sends in its own tenant."));
    return;
  }
  const outcome = h("div", { class: "stack", "aria-live": "polite" });
  const input = (name, attributes = {}) => h("input", { name, autocomplete: "off", ...attributes });
  const form = own(h("form", { class: "card stack", onsubmit: submit },
    h("div", { class: "fields" },
      field("To", input("to", { required: true, value: page.route.what ? session.bare(page.route.what) : "", placeholder: "bob" })),
      field("Type (optional)", input("type", { maxlength: 128, placeholder: "job" })),
      field("Id (optional)", input("id", { maxlength: 128, placeholder: "made by the relay" }))),
    field("Payload: JSON, or any text", h("textarea", { name: "payload", rows: 7, required: true, spellcheck: "false" })),
    h("div", { class: "fields" },
      choice("Priority", "0", [...Array(10).keys()].map(n => [String(n), n ? String(n) : "0, the usual"])),
      field("Delay, in seconds", input("delay_s", { type: "number", min: 0, placeholder: "0" })),
      field("Failed attempts before it is dead", input("max_attempts", { type: "number", min: 0, max: 100, placeholder: "no limit" }))),
    h("label", { class: "check" }, h("input", { type: "checkbox", name: "wait" }), `Ask for a reply and wait up to ${REPLY_WITHIN_S} s for it`),
    h("div", { class: "buttons" }, h("button", { class: "main" }, `Send as ${session.agent()}`)),
    outcome));

  async function submit(event) {
    event.preventDefault();
    const given = new FormData(form);
    const body = { payload: parsed(given.get("payload")), priority: Number(form.querySelector("select").value) };
    for (const name of ["type", "id"]) if (given.get(name)) body[name] = given.get(name);
    for (const name of ["delay_s", "max_attempts"]) if (given.get(name)) body[name] = Number(given.get(name));
    const query = given.get("wait") ? { wait_s: REPLY_WITHIN_S } : {};
    patch(outcome, h("p", { class: "soft" }, given.get("wait") ? "Sent; waiting for the reply …" : "Sending …"));
    try {
      patch(outcome, told(await post(`v1/agents/${session.inPath(given.get("to").trim())}/messages`, body, query)));
    } catch (error) {
      patch(outcome, h("p", { class: "banner bad", role: "alert" }, h("span", {}, error.message)));
    }
  }

  page.render(heading("Send a message"), form);
}

function parsed(text) {
  try { return parse(text); } catch { return text; }
}

function told(answer) {
  return [facts([
    ["Message", messageLink(answer.id)],
    ["State", stateBadge(answer.state)],
    ["Stored", answer.durability && { memory: "in memory", fsync: "on disk", replica: "on a replica" }[answer.durability]],
    ["Before", answer.duplicate && "accepted before: this is the same message"],
  ]), answer.reply !== undefined && h("pre", {}, JSON.stringify(answer.reply, null, 2))];
}
