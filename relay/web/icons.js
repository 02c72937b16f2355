// Small pictures beside words; whoever does not see them misses nothing.

import { svg } from "./dom.js";

const PATHS = {
  "": "M3 12a9 9 0 1 1 18 0M12 12l4-4M5 17h14",
  agents: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7ZM2.5 20a6.5 6.5 0 0 1 13 0M16 4.5a3.5 3.5 0 0 1 0 6.5M18 14a6.5 6.5 0 0 1 3.5 6",
  live: "M2 12h4l3-8 5 16 3-8h5",
  messages: "M3 6h18v12H3zM3 7l9 6 9-6",
  failed: "M12 3 2 20h20L12 3ZM12 10v4M12 17.2v.1",
  anomalies: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14ZM16 16l5 5M11 8v4M11 14.2v.1",
  instances: "M4 4h16v6H4zM4 14h16v6H4zM8 7v.1M8 17v.1",
  send: "M21 3 10 14M21 3l-7 18-4-7-7-4 18-7Z",
};

export const icon = name => svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
