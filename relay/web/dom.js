// Nodes, and how a page changes in place. Text is only ever text: nothing in the dashboard parses markup.

const SVG = "http://www.w3.org/2000/svg";
const STATES = new Set(["value", "checked", "disabled", "selected"]); // properties, not attributes, say what is shown

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const svg = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) (node.handlers ??= {})[name] = node[name] = value;
    else if (STATES.has(name)) node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...flat(children));
  return node;
}

const flat = children => children.flat(Infinity).filter(one => one !== null && one !== undefined && one !== false);

// Makes what is inside `parent` equal to `children` and keeps what is there already: focus, selection, open details.
export function patch(parent, ...children) {
  const wanted = flat(children).map(one => one instanceof Node ? one : document.createTextNode(String(one)));
  const keyed = new Map([...parent.childNodes].filter(keyOf).map(node => [keyOf(node), node]));
  wanted.forEach((node, place) => {
    const there = parent.childNodes[place];
    if (node.kept) return there !== node.kept && parent.insertBefore(node.kept, there ?? null);
    const old = keyOf(node) ? keyed.get(keyOf(node)) : there;
    if (!old || !isAlike(old, node)) parent.insertBefore(node, there ?? null);
    else {
      if (old !== there) parent.insertBefore(old, there ?? null);
      update(old, node);
    }
  });
  while (parent.childNodes.length > wanted.length) parent.lastChild.remove();
  return parent;
}

// A node that its view goes on to change by itself: it takes the place of any other, and nothing is made equal to it.
let owned = 0;
export function own(node) {
  node.dataset.key = `own ${++owned}`;
  return node;
}

// Stands for such a node where it is in the page already: moving it would cost it the focus.
export const keep = node => node.isConnected ? Object.assign(document.createElement("i"), { kept: node }) : node;

const keyOf = node => node.dataset?.key;
const isAlike = (old, node) => old.nodeName === node.nodeName && keyOf(old) === keyOf(node);

function update(old, node) {
  if (old === node) return;
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== node.data) old.data = node.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!node.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of node.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const name of Object.keys(old.handlers ?? {})) old[name] = null;
  Object.assign(old, node.handlers);
  old.handlers = node.handlers;
  if ("disabled" in node) old.disabled = node.disabled;
  if ("value" in node && old !== document.activeElement) old.value = node.value;
  patch(old, ...node.childNodes);
}

let notices;
export function notify(text) {
  notices ??= document.getElementById("notices");
  const notice = h("div", { class: "notice" }, text);
  notices.append(notice);
  setTimeout(() => notice.remove(), 8000);
}

// What a column is: of numbers, for wide screens alone, cut off at a length or at a larger one, or never squeezed.
export const columnClass = column => ["number", "wide", "cut", "long", "roomy"].filter(name => column[name]).join(" ") || null;

// A table for people: columns are {title, cell, sort?} and what columnClass takes. Rows have keys, so they keep their place.
export function table({ caption, columns, rows, key, empty, sorted, onsort }) {
  if (!rows.length) return h("p", { class: "empty" }, empty ?? "Nothing here.");
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {},
      h("caption", { class: "hidden-text" }, caption),
      h("thead", {}, h("tr", {}, columns.map(column => h("th", {
        scope: "col",
        class: columnClass(column),
        "aria-sort": column.sort && column.sort === sorted ? (column.sort === "name" ? "ascending" : "descending") : null,
      }, column.sort ? h("button", { type: "button", onclick: () => onsort(column.sort) }, column.title) : column.title)))),
      h("tbody", {}, rows.map(row => h("tr", { "data-key": key(row) },
        columns.map(column => h("td", { class: columnClass(column) }, column.cell(row))))))));
}

export const badge = (text, kind = "") => h("span", { class: `badge ${kind}` }, text);

const known = pairs => pairs.filter(([, value]) => value !== undefined && value !== null && value !== false);

export const facts = pairs => h("dl", { class: "facts" }, known(pairs).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

export const inlineFacts = pairs => h("dl", { class: "inline" }, known(pairs).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));

export const field = (label, input) => h("label", {}, label, input);

export const choice = (label, value, options, onchange) => field(label, h("select", { onchange: event => onchange?.(event.target.value) },
  options.map(([name, text]) => h("option", { value: name, selected: name === value }, text))));
