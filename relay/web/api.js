// Calls of the HTTP API, and the stream that goes on where it broke off.

import { parse } from "./json.js";
import * as session from "./session.js";

export class Refused extends Error {
  constructor(status, error, retryAfterS) {
    super(error?.message ?? `the relay answered ${status}`);
    Object.assign(this, { status, code: error?.code, retryAfterS });
  }
}

const url = (path, query) => {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
};

async function refusal(answer) {
  const body = await answer.json().catch(() => null);
  if (answer.status === 401 && session.isSignedIn()) session.signOut(body?.error?.message ?? "the token is not valid");
  return new Refused(answer.status, body?.error, Number(answer.headers.get("Retry-After")) || null);
}

async function call(method, path, { query, body, signal } = {}) {
  const headers = { Authorization: session.authorization() };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const text = typeof body === "string" || body === undefined ? body : JSON.stringify(body);
  const answer = await fetch(url(path, query), { method, headers, body: text, signal, cache: "no-store" });
  if (!answer.ok && answer.headers.get("Content-Type")?.startsWith("application/json") === false) throw new Refused(answer.status);
  if (!answer.ok && path !== "readyz") throw await refusal(answer);
  return parse(await answer.text());
}

export const get = (path, query, signal) => call("GET", path, { query, signal });
export const post = (path, body, query) => call("POST", path, { body, query });
export const put = (path, body) => call("PUT", path, { body });
export const remove = (path, query) => call("DELETE", path, { query });

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
const SILENT_AFTER_MS = 45_000; // the relay says something every 15 s

const sleep = (ms, signal) => new Promise(resolve => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
});

// Follows a stream until `signal` ends it: after a break it goes on behind the last event that came.
export async function follow(path, query, { onevent, onstate, signal }) {
  let last = "", failures = 0;
  while (!signal.aborted) {
    try {
      onstate(last ? "resuming" : "connecting");
      await readStream(path, query, last, signal, () => { failures = 0; onstate("live"); }, event => {
        if (event.id !== undefined) last = event.id;
        onevent(event);
      });
    } catch (error) {
      if (signal.aborted || !session.isSignedIn()) return;
      failures += 1;
      onstate("away", error.message);
      await sleep(error.retryAfterS * 1_000 || 0, signal);
    }
    await sleep(Math.random() * Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** failures), signal);
  }
}

async function readStream(path, query, last, signal, onopen, onevent) {
  const silence = new AbortController();
  const headers = { Authorization: session.authorization(), Accept: "text/event-stream", ...(last && { "Last-Event-ID": last }) };
  let timer;
  const heard = () => { clearTimeout(timer); timer = setTimeout(() => silence.abort(), SILENT_AFTER_MS); };
  heard();
  try {
    const answer = await fetch(url(path, query), { headers, signal: AbortSignal.any([signal, silence.signal]), cache: "no-store" });
    if (!answer.ok) throw await refusal(answer);
    onopen();
    const events = new EventParser(onevent);
    for await (const text of answer.body.pipeThrough(new TextDecoderStream())) {
      heard();
      events.feed(text);
    }
  } finally {
    clearTimeout(timer);
  }
}

// The format of Server-Sent Events, as far as the relay uses it.
class EventParser {
  #rest = "";
  #event = {};
  #tell;

  constructor(tell) { this.#tell = tell; }

  feed(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    for (const line of lines) this.#line(line);
  }

  #line(line) {
    if (line === "") {
      if (this.#event.data !== undefined) this.#tell({ ...this.#event, data: JSON.parse(this.#event.data) });
      this.#event = {};
      return;
    }
    const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (name === "id" || name === "event" || name === "data") this.#event[name] = value;
  }
}
