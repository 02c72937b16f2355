// Filter, try, then do: revive, drop, re-send or cancel messages. Nothing is done before its dry run was seen.

import { post } from "./api.js";
import { closer, open } from "./dialog.js";
import { choice, field, h, notify, patch, table } from "./dom.js";
import * as format from "./format.js";
import { parse } from "./json.js";
import * as session from "./session.js";

const AT_ONCE = 1_000;
const SHOWN = 50;
const ACTS = {
  revive: { title: "Revive dead letters of", button: "Revive", done: "revived", kind: "main", says: "They start again in the mailbox, with no failed attempts." },
  drop: { title: "Drop dead letters of", button: "Drop", done: "dropped", kind: "danger", says: "They are removed for good." },
  cancel: { title: "Cancel messages of", button: "Cancel", done: "cancelled", kind: "danger", says: "They leave the mailbox. Their senders are not told, but see it when they ask. Held messages stay." },
  resend: { title: "Re-send an edited copy to", button: "Re-send", done: "re-sent", kind: "main", says: "A copy from you goes to the mailbox. The dead letter stays." },
};

// `entries`: these alone; without them the dialog asks for a filter. `letter`: what a copy is made of.
export function openAct(name, address, page, { entries, letter } = {}) {
  const act = ACTS[name];
  const where = entries ? { read: () => ({ entries }), node: null } : filter(name);
  const edit = name === "resend" ? editor(letter) : { read: () => undefined, node: null };
  const outcome = h("div", { class: "stack", "aria-live": "polite" });
  open(`${act.title} ${session.bare(address)}`, dialog => {
    const buttons = h("div", { class: "buttons" });
    const ask = dry_run => post(`v1/agents/${session.inPath(address)}/act`, JSON.stringify({ act: name, where: where.read(), dry_run, limit: AT_ONCE, edit: edit.read() }));
    const guarded = work => async () => { try { await work(); } catch (error) { patch(outcome, problem(error)); } };
    const tryIt = guarded(async () => {
      const found = await ask(true);
      const able = found.messages.filter(one => one.outcome === "would_be_done").length;
      patch(outcome, summary(found, able, `Dry run: ${format.plural(able, "message")} would be ${act.done}.`));
      offer(able);
    });
    const doIt = guarded(async () => {
      const found = await ask(false);
      patch(outcome, summary(found, found.done, `${format.plural(found.done, "message")} ${act.done}.`));
      patch(buttons, closer(dialog, "Close"));
      buttons.firstChild.focus();
      notify(`${format.plural(found.done, "message")} ${act.done}`);
      page.again();
    });
    const offer = able => patch(buttons, closer(dialog),
      h("button", { type: "button", class: able ? "" : "main", onclick: tryIt }, "Dry run"),
      h("button", { type: "button", class: act.kind, disabled: !able, onclick: doIt }, able ? `${act.button} ${format.plural(able, "message")}` : act.button));
    dialog.oninput = () => { patch(outcome); offer(0); }; // another filter needs another dry run
    dialog.onsubmit = event => { event.preventDefault(); tryIt(); };
    offer(0);
    return [h("p", { class: "soft" }, act.says), entries && h("p", {}, `Chosen: ${format.plural(entries.length, "message")}.`), where.node, edit.node, outcome, buttons];
  });
}

const problem = error => h("p", { class: "banner bad", role: "alert" }, h("span", {}, error.message));

function filter(name) {
  const input = (attributes = {}) => h("input", { maxlength: 128, ...attributes });
  const inputs = { from: input({ placeholder: "anybody" }), type: input({ placeholder: "any" }), reason: input({ placeholder: "any" }), older_than_s: input({ type: "number", min: 0, placeholder: "0" }) };
  const given = () => Object.entries(inputs).filter(([, one]) => one.value !== "");
  const node = h("fieldset", { class: "fields bare" }, h("legend", { class: "hidden-text" }, "Which messages"),
    field("From", inputs.from), field("Type", inputs.type),
    name !== "cancel" && field("Reason contains", inputs.reason), field("Older than, in seconds", inputs.older_than_s));
  return { node, read: () => Object.fromEntries(given().map(([key, one]) => [key, one.type === "number" ? Number(one.value) : one.value])) };
}

function editor(letter) {
  const payload = h("textarea", { rows: 8, spellcheck: "false", value: JSON.stringify(letter.payload, null, 2) });
  const type = h("input", { maxlength: 128, value: letter.type ?? "" });
  const priority = choice("Priority", String(letter.priority), [...Array(10).keys()].map(n => [String(n), String(n)]));
  const read = () => {
    try {
      return { payload: parse(payload.value), type: type.value || undefined, priority: Number(priority.querySelector("select").value) };
    } catch {
      throw new Error("The payload is not JSON.");
    }
  };
  return { read, node: h("div", { class: "stack" }, field("Payload (JSON)", payload), h("div", { class: "fields" }, field("Type", type), priority)) };
}

function summary(found, count, text) {
  const rest = [found.matched > count && `${format.number(found.matched - count)} more match and are left as they are.`,
    found.cursor && `More may match than one call takes (${format.number(AT_ONCE)}): do it again for the rest.`].filter(Boolean);
  return [h("p", {}, h("strong", {}, text), " ", rest.join(" ")), found.messages.length > 0 && table({
    caption: "What happens to each message",
    key: one => one.entry,
    rows: found.messages.slice(0, SHOWN),
    columns: [
      { title: "Message", cut: true, cell: one => h("span", { class: "mono" }, one.id) },
      { title: "From", cell: one => session.bare(one.from) },
      { title: "Type", wide: true, cell: one => one.type ?? "" },
      { title: "Reason", wide: true, cut: true, cell: one => one.reason ?? "" },
      { title: "Outcome", cell: one => one.outcome.replaceAll("_", " ") },
    ],
  }), found.messages.length > SHOWN && h("p", { class: "soft" }, `… and ${format.number(found.messages.length - SHOWN)} more.`)];
}
