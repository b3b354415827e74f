// The replicas as a table, and one of them in full.

import { h } from "./dom.js";
import { change, duration, fixed, isKnown, percent, significant, whole } from "./format.js";
import { gammaClass } from "./gamma_map.js";
import { dataTable, unknownText } from "./table.js";

const COLUMNS = [
  { label: "Replica", sort: "name" },
  { label: "State", sort: "state" },
  { label: "Gamma", sort: "gamma", numeric: true, title: "draft tokens per step now" },
  { label: "Load", sort: "load", title: "sequences in the engine's batch, and those that wait there" },
  { label: "Last minute", class: "wide-only", title: "the batch, second by second" },
  { label: "Open here", sort: "open", numeric: true, class: "wide-only", title: "requests this proxy has open there" },
  { label: "KV", sort: "kv", numeric: true, class: "wide-only", title: "share of the KV cache in use" },
  { label: "Read", sort: "age", numeric: true, class: "wide-only", title: "since the metrics were last read" },
  { label: "Tokens/step", sort: "tokens", numeric: true, class: "wide-only", title: "tokens a sequence gets from a step, observed" },
  { label: "Step time", sort: "step", numeric: true, class: "wide-only", title: "observed over predicted" },
  { label: "Over plain", sort: "gain", numeric: true, title: "observed tokens per second over what plain decoding is priced at" },
];

export function replicasPanel(view, sheet) {
  const { state } = view;
  const most = Math.max(8, ...state.replicas.map((each) => (each.batch || 0) + (each.waiting || 0)));
  const sorted = {
    by: sheet.choices.get("replica-sort") || "",
    down: sheet.choices.get("replica-sort-down") === true,
    set: (by, down) => {
      sheet.choices.set("replica-sort", by);
      sheet.choices.set("replica-sort-down", down);
      sheet.redraw();
    },
  };
  const wanted = (sheet.choices.get("replica-filter") || "").toLowerCase();
  const shown = ordered(state.replicas.filter((each) => matches(each, wanted)), sorted);
  return h("section", { class: "card wide", id: "replicas", "aria-labelledby": "replicas-title" },
    h("header", { class: "card-head" },
      h("h2", { id: "replicas-title" }, "Replicas"),
      h("span", { class: "count" }, shown.length === state.replicas.length ? whole(shown.length) : `${shown.length} of ${state.replicas.length}`),
      h("label", { class: "find" }, h("span", { class: "unseen" }, "Show only replicas whose name, engine, pool or state has"),
        h("input", {
          type: "search", placeholder: "Find", autocomplete: "off", spellcheck: "false",
          oninput: (event) => {
            sheet.choices.set("replica-filter", event.currentTarget.value);
            sheet.redraw();
          },
        }))),
    dataTable({
      caption: "Replicas: load, gamma, staleness and health",
      columns: COLUMNS,
      rows: shown.map((each) => replicaRow(each, view, sheet, most)),
      sorted,
      box: "tall",
      dense: true,
      empty: state.replicas.length ? "no replica is called so" : "no replica has been found yet",
    }),
    detail(view, sheet));
}

function replicaRow(each, view, sheet, most) {
  const chosen = sheet.choices.get("replica") === each.name;
  const choose = () => {
    sheet.choices.set("replica", chosen ? null : each.name);
    sheet.redraw();
  };
  const [word, kind] = stateOf(each);
  const step = each.step;
  const ratio = step ? step.observed_s / step.predicted_s : null;
  return {
    key: each.name,
    class: `${chosen ? "chosen" : ""} ${each.fresh ? "" : "stale"}`,
    cells: [
      h("button", { type: "button", class: "name", "aria-pressed": chosen ? "true" : "false", title: each.name, onclick: choose },
        h("span", null, each.name)),
      h("span", { class: `state ${kind}` }, h("i", { class: `dot-mark ${kind}`, "aria-hidden": "true" }), h("span", { class: "state-word" }, word)),
      gammaCell(each),
      loadBar(each, most),
      spark(view.history.loads.get(each.name) || [], most),
      each.max_in_flight === null ? whole(each.in_flight) : `${whole(each.in_flight)}/${whole(each.max_in_flight)}`,
      isKnown(each.kv_usage) ? percent(each.kv_usage) : unknownText(),
      each.age_s === null ? unknownText("never") : h("span", { class: each.fresh ? "" : "bad" }, age(each.age_s)),
      step && isKnown(step.tokens) ? fixed(step.tokens, 2) : unknownText(),
      ratio === null ? unknownText() : h("span", { class: step.flagged ? "bad" : "" }, `${fixed(ratio, 2)}\u00d7`),
      gainCell(each),
    ],
  };
}

export function stateOf(each) {
  if (each.leaving) return ["leaving", "soft"];
  if (each.asleep) return ["asleep", "soft"];
  if (!each.healthy) return ["down", "bad"];
  if (each.draining) return ["draining", "warn"];
  if (!each.fresh) return ["not read", "warn"];
  if (each.ramping) return ["easing in", "warn"];
  return ["up", "good"];
}

function gammaCell(each) {
  if (each.pool === null) return unknownText();
  if (each.pool === "plain") return h("span", { class: "chip g-plain" }, "plain");
  if (each.gamma === null) return unknownText();
  const scheduled = each.setting !== null && each.setting.includes("-");
  return h("span", { class: `chip ${gammaClass(each.gamma || 0)}`, title: scheduled ? "of a schedule, at the present batch" : null }, each.gamma, scheduled ? "*" : "");
}

function gainCell(each) {
  if (each.pool === "plain") return h("span", { class: "soft" }, "\u2014");
  if (!each.step || !isKnown(each.step.gain_over_plain)) return unknownText();
  return h("span", { class: each.step.gain_over_plain < 0 ? "bad" : "" }, change(each.step.gain_over_plain, 0));
}

function age(seconds) {
  return seconds < 10 ? `${seconds.toFixed(1)} s` : duration(seconds);
}

/** Running and waiting on one scale for all replicas. */
function loadBar(each, most) {
  if (each.running === null) return unknownText();
  const waiting = each.waiting || 0;
  return h("span", { class: "load" },
    h("svg", { width: 64, height: 9, viewBox: "0 0 64 9", "aria-hidden": "true" },
      h("rect", { class: "bar-back", x: 0, y: 0, width: 64, height: 9, rx: 2 }),
      h("rect", { class: "bar-run", x: 0, y: 0, width: (64 * each.running) / most, height: 9, rx: 2 }),
      waiting ? h("rect", { class: "bar-wait", x: (64 * each.running) / most, y: 0, width: (64 * waiting) / most, height: 9 }) : null),
    h("span", { class: "load-text" }, whole(each.running), waiting ? h("small", null, ` +${whole(waiting)}`) : null,
      each.waiting === null ? h("small", null, " +?") : null,
      h("span", { class: "unseen" }, waiting ? " running, the others waiting" : " running")));
}

function spark(values, most) {
  const width = 72;
  const height = 16;
  let path = "";
  let pen = "M";
  values.forEach((value, i) => {
    if (value === null) pen = "M";
    else {
      path += `${pen}${(((60 - values.length + i) * width) / 59).toFixed(1)} ${(height - 1.5 - ((height - 3) * Math.min(value, most)) / most).toFixed(1)}`;
      pen = "L";
    }
  });
  return h("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, h("path", { d: path || "M0 0" }));
}

function matches(each, wanted) {
  return !wanted || [each.name, each.engine, each.pool || "unknown", stateOf(each)[0]].some((text) => text.toLowerCase().includes(wanted));
}

function ordered(replicas, sorted) {
  const value = {
    name: (each) => each.name,
    state: (each) => stateOf(each)[0],
    gamma: (each) => (each.pool === "plain" ? -1 : each.gamma),
    load: (each) => (each.running === null ? null : each.running + (each.waiting || 0)),
    open: (each) => each.in_flight,
    kv: (each) => each.kv_usage,
    age: (each) => each.age_s,
    tokens: (each) => each.step && each.step.tokens,
    step: (each) => each.step && each.step.observed_s / each.step.predicted_s,
    gain: (each) => each.step && each.step.gain_over_plain,
  }[sorted.by];
  if (!value) return replicas;
  const sign = sorted.down ? -1 : 1;
  return [...replicas].sort((a, b) => {
    const [left, right] = [value(a), value(b)];
    if (left === right) return a.name.localeCompare(b.name, "en", { numeric: true });
    if (left === null || left === undefined) return 1; // what is not known comes last, whichever way
    if (right === null || right === undefined) return -1;
    return sign * (typeof left === "string" ? left.localeCompare(right, "en", { numeric: true }) : left - right);
  });
}

function detail(view, sheet) {
  const name = sheet.choices.get("replica");
  if (!name) return h("p", { class: "note" }, "Choose a replica to see all of it, and its own curve above.");
  const each = view.state.replicas.find((one) => one.name === name);
  if (!each) return h("p", { class: "note" }, `${name} is no longer part of the fleet.`);
  const step = each.step;
  const facts = [
    ["Address", each.url],
    ["Engine", each.engine],
    ["Pool", each.pool || unknownText()],
    ["Gamma in force", each.setting === null ? unknownText() : each.setting === "plain" ? "plain, no drafter" : each.setting],
    ["Running, waiting", `${whole(each.running)}, ${whole(each.waiting)}`],
    ["Open here", whole(each.in_flight)],
    ["KV cache", isKnown(each.kv_usage) ? percent(each.kv_usage) : unknownText()],
    ["Read", each.age_s === null ? unknownText("never") : `${age(each.age_s)} ago${each.error ? `, last try: ${each.error}` : ""}`],
    ["Acceptance by position", each.acceptance === null ? unknownText(each.pool === "plain" ? "none, it drafts nothing" : "unknown") : each.acceptance.map((rate) => fixed(rate, 2)).join("  ")],
    ["Accepted over expected", isKnown(each.acceptance_ratio) ? `${fixed(each.acceptance_ratio, 2)}\u00d7` : unknownText()],
    ["Step, observed", step ? `${duration(step.observed_s)} at a mean batch of ${significant(step.batch)}` : unknownText()],
    ["Step, predicted", step ? duration(step.predicted_s) : unknownText()],
    ["Tokens per step", step && isKnown(step.tokens) ? `${fixed(step.tokens, 2)}, ${fixed(step.predicted_tokens, 2)} predicted` : unknownText()],
    ["Time per token now", each.tau_s === null ? unknownText() : Object.entries(each.tau_s).map(([kind, tau]) => `${kind} ${duration(tau)}`).join(", ")],
    ["Gamma is set", each.set_gamma === null ? "no, it is the engine\u2019s own" : `best ${each.set_gamma.best === null ? "unknown" : each.set_gamma.best}, ${whole(each.set_gamma.changes)} changes${each.set_gamma.problem ? `; ${each.set_gamma.problem}` : ""}`],
    ["Restarts seen", whole(each.restarts)],
  ];
  return h("div", { class: "detail", role: "group", "aria-label": `All of ${name}` },
    h("h3", null, name),
    h("dl", { class: "facts" }, facts.map(([term, text]) => h("div", { key: term }, h("dt", null, term), h("dd", null, text)))),
    each.notes.length || (step && step.causes.length)
      ? h("ul", { class: "notes" }, each.notes.map((note) => h("li", { key: note }, note)), step ? step.causes.map((cause) => h("li", { key: `c-${cause}` }, `likely: ${cause}`)) : null)
      : null);
}
