// The live page: what the event stream tells, drawn anew when something has changed.

import { openConnection } from "./connection.js";
import { h, patch } from "./dom.js";
import { newSheet, watchPlots } from "./figure.js";
import { passed, plural } from "./format.js";
import { heldHistory, newHistory, remember } from "./history.js";
import { costPanel } from "./panel_cost.js";
import { decisionsPanel } from "./panel_decisions.js";
import { gainPanel } from "./panel_gain.js";
import { attention, overview, troubles } from "./panel_overview.js";
import { acceptancePanel, policyPanel } from "./panel_policy.js";
import { replicasPanel } from "./panel_replicas.js";
import { tauPanel } from "./panel_tau.js";
import { applyTheme, storedTheme, themeSwitch } from "./theme.js";

const root = document.getElementById("app");
const sections = { policy: null, curves: null, learned: null, decisions: [], state: null };
const history = newHistory();
const page = { theme: storedTheme(), connection: { state: "connecting", retryAt: null, why: "" }, heardAt: null, held: null, faults: new Set() };
let scheduled = false;

const sheet = newSheet(redraw);

function redraw() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(draw);
}

function draw() {
  scheduled = false;
  const view = page.held || { ...sections, history };
  const whole = view.state !== null && view.policy !== null && view.curves !== null;
  patch(root, [
    h("a", { class: "skip", href: "#replicas" }, "Skip to the replicas"),
    topBar(view),
    banner(),
    h("main", { id: "main", class: page.connection.state === "live" || page.held ? "" : "old" }, whole ? body(view) : waitingForData()),
    h("p", { class: "unseen", role: "status" }, announcement(view, whole)),
    h("footer", null, h("p", null, "Figures are this process\u2019s own: what is not known is called unknown. ",
      ["status", "policy", "decisions", "metrics"].map((name) => [h("a", { href: name }, `/${name}`), " "]))),
  ]);
  watchPlots(sheet, root);
}

const PANELS = [
  ["Time per output token", "two-thirds", tauPanel], ["What acting gains", "third", gainPanel], ["Replicas", "wide", replicasPanel],
  ["Policy map", "wide", policyPanel], ["Acceptance by position", "wide", acceptancePanel], ["Last decisions", "two-thirds", decisionsPanel],
  ["Predicted against observed", "third", costPanel],
];

function body(view) {
  return [
    guarded("At a glance", "", overview, view),
    guarded("What needs a look", "", attention, view),
    h("div", { class: "grid" }, PANELS.map(([title, width, panel]) => guarded(title, width, panel, view))),
  ];
}

/** A panel; where it meets a fault of ours that is told in its place, and the others go on. */
function guarded(title, width, panel, view) {
  try {
    return panel(view, sheet);
  } catch (fault) {
    if (!page.faults.has(title)) console.error(title, fault);
    page.faults.add(title);
    return h("section", { class: `card ${width}` }, h("h2", null, title), h("p", { class: "note" }, `This part cannot be drawn now: ${fault.message}`));
  }
}

function topBar(view) {
  const state = view.state;
  return h("header", { class: "top" },
    h("h1", null, "adaptive-gamma"),
    state ? h("span", { class: "version" }, state.version) : null,
    state ? h("span", { class: `chip mode ${state.mode}` }, state.mode === "act" ? "acting" : "only observing") : null,
    view.policy ? h("span", { class: "policy-name", title: view.policy.source || null }, `policy ${view.policy.name}`) : null,
    h("span", { class: "spring" }),
    h("span", { class: `link ${page.held ? "held" : page.connection.state}` }, h("i", { "aria-hidden": "true" }), linkWords()),
    h("button", { type: "button", class: "quiet", "aria-pressed": page.held ? "true" : "false", disabled: state === null, onclick: hold }, page.held ? "Go on" : "Hold still"),
    themeSwitch(page.theme, (theme) => {
      page.theme = theme;
      redraw();
    }));
}

function linkWords() {
  if (page.held) return "held still";
  return { connecting: "connecting", live: "live", lost: "connection lost", asleep: "asleep" }[page.connection.state];
}

function banner() {
  const { state, retryAt, why } = page.connection;
  if (state !== "lost") return null;
  const seconds = retryAt === null ? null : Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
  const old = page.heardAt === null ? "" : ` The figures below are ${passed((Date.now() - page.heardAt) / 1000)} old.`;
  return h("section", { class: "banner", "aria-label": "Connection" },
    h("b", null, "Connection lost"), `: ${why}.${old} `,
    h("span", { "aria-hidden": "true" }, seconds === null ? "Trying now \u2026 " : `Trying again in ${seconds} s. `),
    h("button", { type: "button", onclick: () => connection.retry() }, "Try now"));
}

function waitingForData() {
  return h("p", { class: "waiting" }, page.connection.state === "lost" ? "Nothing has been heard yet." : "Waiting for the first figures \u2026");
}

/** Said to those who hear the page: changes that matter, not the figures of each second. */
function announcement(view, whole) {
  if (page.connection.state === "lost") return "Connection lost";
  if (!whole) return "Connecting";
  if (page.held) return "Held still";
  let count = 0;
  try {
    count = troubles(view).length;
  } catch {
    return "Live";
  }
  return `Live. ${count ? `${plural(count, "matter needs", "matters need")} a look` : "Nothing needs a look"}`;
}

function hold() {
  page.held = page.held ? null : { ...sections, history: heldHistory(history) };
  redraw();
}

function took(section, data) {
  if (section === "decisions") sections.decisions = data.decisions;
  else if (section === "learned") sections.learned = data.learned;
  else sections[section] = data;
  if (section === "state") {
    remember(history, data);
    page.heardAt = Date.now();
    redraw();
  }
}

applyTheme(page.theme);
const connection = openConnection("ui/events", took, (status) => {
  const before = page.connection;
  page.connection = status;
  if (status.state !== before.state || status.state === "lost") redraw();
});
setInterval(() => page.connection.state === "lost" && redraw(), 1000);
redraw();
