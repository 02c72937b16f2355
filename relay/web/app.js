// The frame around the views: signing in, finding the way, and what every view is given.

import { get } from "./api.js";
import { field, h, notify, patch } from "./dom.js";
import { span } from "./format.js";
import { icon } from "./icons.js";
import * as session from "./session.js";
import * as agent from "./views/agent.js";
import * as agents from "./views/agents.js";
import * as anomalies from "./views/anomalies.js";
import * as failed from "./views/failed.js";
import * as instances from "./views/instances.js";
import * as live from "./views/live.js";
import * as message from "./views/message.js";
import * as overview from "./views/overview.js";
import * as send from "./views/send.js";
import { heading } from "./views/shared.js";
import { welcome } from "./views/welcome.js";

const VIEWS = { "": overview, agents, agent, messages: message, live, failed, anomalies, instances, send };
const MENU = [["", "Overview"], ["agents", "Agents"], ["live", "Live"], ["messages", "Messages"], ["failed", "Failed"],
  ["anomalies", "Anomalies"], ["instances", "Instances"], ["send", "Send"]];
const NEEDS = { instances: () => session.may("metrics"), send: () => session.maySend() }; // what not every token opens
const UNDER = { agent: "agents" }; // whose place in the menu a view has
const THEMES = { system: "light", light: "dark", dark: "system" };

const root = document.getElementById("app");
let main, side, current = null, theme = "system";

// Where the address bar says we are: #/view/what?key=value.
function whereWeAre() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [view, ...rest] = path.split("/");
  return { view: view in VIEWS ? view : "", what: decodeURIComponent(rest.join("/")), query: new URLSearchParams(query) };
}

// What a view may do: it is over as soon as somebody goes elsewhere.
class Page {
  #over = new AbortController();

  constructor(route) {
    this.route = route;
    this.signal = this.#over.signal;
  }

  render(...children) {
    if (this.signal.aborted) return;
    patch(main, ...children, this.problem);
    main.removeAttribute("aria-busy");
  }

  get(path, query) { return get(path, query, this.signal); }
  end() { this.#over.abort(); }
  again() { show(); }

  // Does something now and every so often while the page is looked at; what goes wrong is shown, and tried again.
  async every(ms, work) {
    for (; !this.signal.aborted; await pause(ms, this.signal)) {
      if (document.hidden) continue;
      await this.attempt(work);
    }
  }

  async attempt(work) {
    try {
      await work();
      this.#complain(null);
    } catch (error) {
      if (!this.signal.aborted) this.#complain(error);
    }
  }

  #complain(error) {
    this.problem = error && h("p", { class: "banner bad", "data-key": "problem", role: "alert" }, h("span", {}, explain(error)));
    main.querySelector(":scope > [data-key=problem]")?.remove();
    if (this.problem) main.append(this.problem);
    main.removeAttribute("aria-busy");
  }

  // The address bar follows, so that a link leads to what is seen; the view begins anew.
  change(query) {
    for (const [name, value] of Object.entries(query)) value ? this.route.query.set(name, value) : this.route.query.delete(name);
    location.hash = [`#/${this.route.view}`, this.route.what && `/${encodeURIComponent(this.route.what)}`, this.route.query.size ? `?${this.route.query}` : ""].join("");
  }
}

function explain(error) {
  if (error instanceof TypeError) return "The relay cannot be reached. Trying again …";
  return error.status === 403 ? `Your token may not see this: ${error.message}.` : sentence(error.message);
}

const sentence = text => `${text.charAt(0).toUpperCase()}${text.slice(1)}${/[.!?…]$/.test(text) ? "" : "."}`;

const pause = (ms, signal) => new Promise(resolve => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

function show() {
  if (!session.isSignedIn()) return;
  const route = whereWeAre();
  const before = current?.route;
  current?.end();
  const isElsewhere = before?.view !== route.view || before?.what !== route.what;
  const view = VIEWS[route.view];
  if (isElsewhere) main.replaceChildren(heading(route.what || view.title));
  main.setAttribute("aria-busy", "true"); // until there is something to see
  current = new Page(route);
  drawSide(route);
  document.title = `${route.what || view.title} · relay`;
  view.show(current);
  if (isElsewhere && before) main.focus();
}

function drawSide(route) {
  const here = UNDER[route.view] ?? route.view;
  patch(side,
    h("a", { class: "brand", href: "#/" }, h("img", { src: "web/icon.svg", alt: "", width: 28, height: 28 }), "relay"),
    h("nav", { "aria-label": "Views" }, MENU.filter(([name]) => NEEDS[name]?.() ?? true).map(([name, text]) =>
      h("a", { href: `#/${name}`, "aria-current": name === here ? "page" : null }, icon(name), text))),
    h("div", { class: "foot" },
      session.isOperator() && field("Tenant", h("input", { value: session.tenant(), spellcheck: "false", onchange: event => { session.chooseTenant(event.target.value.trim()); show(); } })),
      h("div", { class: "who" }, h("strong", {}, session.agent()),
        h("span", { class: "soft" }, session.isAdmin() ? "may act" : "may look", ` · ${span(session.expiresAt() - Date.now())} left`)),
      h("button", { type: "button", class: "quiet", onclick: changeTheme }, `Theme: ${theme}`),
      h("button", { type: "button", class: "quiet", onclick: () => session.signOut() }, "Sign out")));
}

function changeTheme() {
  theme = THEMES[theme];
  document.documentElement.dataset.theme = theme;
  if (session.isSignedIn()) drawSide(current.route);
}

function enter() {
  side = h("header", { class: "side" });
  main = h("main", { class: "content", tabindex: -1 });
  const skip = h("button", { type: "button", class: "skip", onclick: () => main.focus() }, "Skip to content");
  root.replaceChildren(skip, side, main);
  current = null;
  show();
  main.focus();
}

session.onSignOut(why => {
  current?.end();
  current = null;
  document.querySelectorAll("dialog").forEach(dialog => dialog.remove());
  document.title = "relay";
  root.replaceChildren(welcome(enter, why));
});

addEventListener("hashchange", show);
addEventListener("unhandledrejection", event => {
  if (event.reason?.name === "AbortError") event.preventDefault(); // somebody went elsewhere
  else notify(explain(event.reason));
});
root.replaceChildren(welcome(enter, ""));
