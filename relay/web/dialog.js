// A question that must be answered before something is done.

import { h } from "./dom.js";

// `build(dialog)` gives what is in the form. The dialog is gone once it is closed, and the focus is where it was.
export function open(title, build) {
  const dialog = h("dialog", { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() });
  dialog.append(h("form", { method: "dialog" }, h("h1", { id: "dialog-title" }, title), build(dialog)));
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

export const closer = (dialog, text = "Cancel") => h("button", { type: "button", onclick: () => dialog.close() }, text);
