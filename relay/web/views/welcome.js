// What a visitor without a token sees.

import { get } from "../api.js";
import { h } from "../dom.js";
import * as session from "../session.js";

const MAKE_ONE = `relay token --agent demo/admin --scope "inspect admin send receive metrics"
relay token --agent demo/viewer --scope inspect    # may only look`;

export function welcome(enter, why) {
  const problem = h("p", { class: "banner bad", role: "alert", hidden: !why }, h("span", {}, why && `Signed out: ${why}.`));
  const token = h("input", { id: "token", type: "text", class: "secret", autocomplete: "off", autocapitalize: "off", spellcheck: "false", required: true });
  const button = h("button", { class: "main" }, "Sign in");

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    try {
      session.signIn(token.value.trim());
      await get("v1/stats").catch(error => { if (error.status !== 403) throw error; }); // valid, whatever it may see
      enter();
    } catch (error) {
      if (session.isSignedIn()) session.signOut(error.message);
      else {
        problem.hidden = false;
        problem.firstChild.textContent = error.message;
      }
    }
    button.disabled = false;
  }

  return h("main", { class: "welcome" },
    h("h1", {}, h("img", { src: "web/icon.svg", alt: "", width: 44, height: 44 }), "relay"),
    h("p", { class: "lead" }, "A durable store-and-forward relay for agents. “Accepted” means stored; an agent that was offline ",
      "finds everything, in order; the sender learns how each message ended."),
    problem,
    h("form", { class: "card", onsubmit: submit },
      h("h2", {}, "Look inside"),
      h("div", { class: "row" }, h("label", {}, "Token", token), button),
      h("p", { class: "small soft" }, "The token stays in the memory of this page. It is never stored and never part of an address; a reload forgets it.")),
    h("section", { class: "card stack" },
      h("h2", {}, "How to get a token"),
      h("p", {}, h("code", {}, "./run"), " prints one when it starts. Otherwise make one where the relay's secret is, or ask whoever runs this relay:"),
      h("pre", {}, MAKE_ONE)),
    h("section", { class: "card stack" },
      h("h2", {}, "Or without this page"),
      h("ul", {},
        h("li", {}, h("a", { href: "docs" }, "The HTTP API"), ", with a form to try each call (", h("a", { href: "openapi.json" }, "OpenAPI"), ")"),
        h("li", {}, "Agents connect to ", h("code", {}, "/v1/ws"), " by WebSocket"),
        h("li", {}, h("a", { href: "readyz" }, "Is this instance ready?")))));
}
