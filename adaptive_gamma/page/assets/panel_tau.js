// tau(n): seconds per output token against the batch, for each replica, with where it is now.

import { h } from "./dom.js";
import { choice, chosenOf, plot, swatch } from "./figure.js";
import { compact, duration, gammaName, isKnown, significant, whole } from "./format.js";
import { gammaClass } from "./gamma_map.js";
import { niceCeiling } from "./scale.js";
import { dataTable, unknownText } from "./table.js";

export function tauPanel(view, sheet) {
  const { state, curves, policy } = view;
  const options = policy.classes.map((name) => [name, name]);
  const kind = chosenOf(sheet, "tau-class", options, policy.default_class);
  const chosen = sheet.choices.get("replica");
  const priced = state.replicas.filter((each) => each.setting !== null && curves.curves[each.setting]);
  const most = Math.max(8, ...priced.map((each) => Math.max(each.batch || 0, each.step ? each.step.batch : 0)));
  const end = Math.min(policy.max_batch, 2 ** Math.ceil(Math.log2(most * 2)));
  const batches = curves.batches.filter((batch) => batch <= end);
  const settings = [...new Set(["plain", ...priced.map((each) => each.setting)])].filter((key) => curves.curves[key]);
  const shared = settings.length <= 10 ? settings : settings.slice(0, 10);
  const lines = priced
    .filter((each) => each.name !== chosen)
    .map((each) => ({ points: batches.map((batch, i) => [batch, tauOf(curves.curves[each.setting], i, kind, each)]), class: `faint ${curveClass(curves.curves[each.setting])}` }));
  for (const key of shared) {
    const curve = curves.curves[key];
    const owners = priced.filter((each) => each.setting === key);
    if (key !== "plain" && !owners.length) continue;
    lines.push({ points: batches.map((batch, i) => [batch, tauOf(curve, i, kind, middle(owners))]), class: curveClass(curve), label: settingName(key) });
  }
  const own = priced.find((each) => each.name === chosen);
  if (own) lines.push({ points: batches.map((batch, i) => [batch, tauOf(curves.curves[own.setting], i, kind, own)]), class: "strong", label: own.name });
  const dots = [];
  for (const each of priced) {
    const now = each.tau_s ? each.tau_s[kind] : null;
    const pick = each.name === chosen;
    if (each.step && isKnown(each.step.tokens)) {
      dots.push({ key: `o-${each.name}`, x: each.step.batch, y: each.step.observed_s / each.step.tokens, shape: "ring", class: `${curveClass(curves.curves[each.setting])} ${pick ? "pick" : ""}`, size: 3.2, title: `${each.name}, observed: ${duration(each.step.observed_s / each.step.tokens)} per token at ${significant(each.step.batch)}` });
    }
    if (isKnown(now) && each.batch) dots.push({ key: `n-${each.name}`, x: each.batch, y: now, class: `${curveClass(curves.curves[each.setting])} ${pick ? "pick" : ""}`, size: pick ? 6 : 4, title: `${each.name}: ${duration(now)} per token at ${each.batch}` });
  }
  // Solid dots lie over rings, and the chosen one over all.
  dots.sort((a, b) => Number((a.class || "").includes("pick")) - Number((b.class || "").includes("pick")));
  const values = [...lines.flatMap((line) => line.points.map(([, y]) => y)), ...dots.map((dot) => dot.y)].filter(isKnown);
  const high = niceCeiling(Math.max(0.001, ...values) * 1.02);
  const idle = state.replicas.length - priced.filter((each) => each.batch).length;
  return h("section", { class: "card two-thirds", "aria-labelledby": "tau-title" },
    h("header", { class: "card-head" }, h("h2", { id: "tau-title" }, "Time per output token"), choice(sheet, "tau-class", "Class", options, policy.default_class)),
    h("p", { class: "note" }, "tau(n) = t_step(n, gamma) / E: what the decision prices. Dots are where replicas are now, rings what was observed of all their traffic."),
    plot(sheet, {
      id: "tau",
      name: `Time per output token of class ${kind} against the batch, for each replica`,
      height: 350,
      draw: () => ({
        x: { domain: [1, end], scale: "log2", format: (tick) => whole(tick), label: "sequences in the batch" },
        y: { domain: [0, high], format: (tick) => compact(tick * 1000), label: "ms per output token" },
        lines, dots,
      }),
      xs: batches,
      hint: "Point at the plot to read the curves.",
      readout: (batch) => [h("b", null, `batch ${batch}`), shared.filter((key) => key === "plain" || priced.some((each) => each.setting === key)).map((key) =>
        swatch(curveClass(curves.curves[key]), settingName(key), duration(tauOf(curves.curves[key], batches.indexOf(batch), kind, middle(priced.filter((each) => each.setting === key))))))],
      tableName: "replicas by time per token",
      table: () => dataTable({
        caption: `Time per output token now, class ${kind}`, box: "tall", dense: true,
        columns: [{ label: "Replica" }, { label: "Gamma", numeric: true }, { label: "Batch", numeric: true }, { label: "Priced", numeric: true }, { label: "Observed", numeric: true }],
        rows: state.replicas.map((each) => ({
          key: each.name,
          cells: [each.name, each.setting === null ? unknownText() : settingName(each.setting), isKnown(each.batch) ? whole(each.batch) : unknownText(),
            each.tau_s && each.batch ? duration(each.tau_s[kind]) : unknownText(each.batch === 0 ? "idle" : "unknown"),
            each.step && isKnown(each.step.tokens) ? duration(each.step.observed_s / each.step.tokens) : unknownText()],
        })),
      }),
    }),
    idle ? h("p", { class: "note" }, `${whole(idle)} of ${whole(state.replicas.length)} run nothing now, or what they run is not known: no dot.`) : null);
}

/** Seconds per token of a replica at the i-th batch; see what the server says of its curves. */
function tauOf(curve, i, kind, ratios) {
  const tokens = curve.tokens[kind];
  const expected = typeof tokens === "number" ? tokens : tokens[i];
  return (curve.step_s[i] * (ratios.step_time_ratio ?? 1)) / (1 + (expected - 1) * (ratios.acceptance_ratio ?? 1));
}

function middle(owners) {
  return { step_time_ratio: median(owners.map((each) => each.step_time_ratio ?? 1)), acceptance_ratio: median(owners.map((each) => each.acceptance_ratio ?? 1)) };
}

function median(values) {
  if (!values.length) return 1;
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function curveClass(curve) {
  return gammaClass(Array.isArray(curve.gamma) ? curve.gamma[0] : curve.gamma);
}

function settingName(key) {
  return key.includes("-") ? "schedule" : gammaName(key);
}
