// The policy's map with the present batch, and acceptance by position with what the policy believed of it.

import { h } from "./dom.js";
import { choice, chosenOf, moreTable, plot, swatch } from "./figure.js";
import { fixed, isKnown, percent, significant, whole } from "./format.js";
import { gammaLegend, gammaMap, mapTable } from "./gamma_map.js";
import { dataTable } from "./table.js";

export function policyPanel(view, sheet) {
  const { policy, state, learned } = view;
  const options = policy.contexts.map((context) => [String(context), context === null ? "any context" : `${whole(context)} tokens`]);
  const chosen = chosenOf(sheet, "map-context", options, options[0][0]);
  const index = options.findIndex(([value]) => value === chosen);
  const rows = policy.classes.map((name) => ({ name, ranges: policy.map[name][index].ranges, plainFrom: policy.map[name][index].plain_wins_from }));
  const present = state.replicas.filter((each) => each.batch).map((each) => ({ batch: each.batch, speculative: each.pool === "speculative", title: `${each.name}: ${each.batch}` }));
  const width = sheet.widths.get("policy-map") || 560;
  const gammas = [...new Set(rows.flatMap((row) => row.ranges.map(([, , gamma]) => gamma)))].filter((gamma) => gamma > 0).sort((a, b) => a - b);
  return h("section", { class: "card wide", "aria-labelledby": "policy-title" },
    h("header", { class: "card-head" }, h("h2", { id: "policy-title" }, "Policy map"),
      options.length > 1 ? choice(sheet, "map-context", "Context length", options, options[0][0]) : null),
    h("p", { class: "note" }, `Best gamma by class and batch of ${policy.name}`,
      learned && learned.table_from === "learned" ? ", its table built anew from learned acceptance" : "",
      ". Dots: where replicas are now, filled where they speculate. Hatched: plain decoding wins."),
    h("div", { class: "plot", "data-plot": "policy-map" },
      gammaMap({ id: "policy-map", width, name: "Best gamma by class and batch; the same as a table below", rows, maxBatch: policy.max_batch, present })),
    gammaLegend(gammas),
    moreTable(sheet, "policy-map", "best gamma by class and batch", () => mapTable(rows)));
}

export function acceptancePanel(view, sheet) {
  const { learned, state } = view;
  const body = learned === null
    ? h("p", { class: "note" }, "Learning is off (learn.enabled), so acceptance by class is unknown. Choose a replica above for what its own counters say.")
    : learnedPlots(learned, sheet, state);
  return h("section", { class: "card wide", "aria-labelledby": "acceptance-title" },
    h("header", { class: "card-head" }, h("h2", { id: "acceptance-title" }, "Acceptance by position"),
      learned !== null && Object.keys(learned.drafters).length > 1
        ? choice(sheet, "drafter", "Drafter", Object.keys(learned.drafters).map((name) => [name, name]), learned.drafter) : null),
    body);
}

function learnedPlots(learned, sheet) {
  const drafters = Object.keys(learned.drafters).map((name) => [name, name]);
  const drafter = chosenOf(sheet, "drafter", drafters, learned.drafter);
  const classes = Object.entries(learned.drafters[drafter]);
  return [
    h("p", { class: "note" }, "Conditional: accepted at a position, given that the one before was."),
    h("p", { class: "legend" }, swatch("prior-line", "what the policy believes"), swatch("band-key", "the room it leaves"), swatch("force-line", "learned, with its standard error")),
    h("div", { class: "multiples" }, classes.map(([name, each], i) => h("div", { key: name, class: "multiple" }, acceptancePlot(name, each, i, drafter, sheet)))),
  ];
}

function acceptancePlot(name, each, i, drafter, sheet) {
  const seen = each.trials.length;
  const positions = Math.max(seen, each.prior.conditional.length, 4);
  const prior = curvePoints(each.prior, positions);
  const known = each.learned.conditional.slice(0, seen).map((rate, at) => [at + 1, each.trials[at] > 0 ? rate : null]);
  const trials = each.trials[0] || 0;
  return [
    h("h3", null, name, each.drifted ? h("span", { class: "chip warn" }, "drifted") : null),
    plot(sheet, {
      id: `acceptance-${i}`,
      name: `Acceptance by position of class ${name} under ${drafter}`,
      height: 170,
      draw: () => ({
        x: { domain: [0.7, positions + 0.3], ticks: steps(positions), format: (tick) => String(tick), label: "position" },
        y: { domain: [0, 1], ticks: [0, 0.25, 0.5, 0.75, 1], format: (tick) => percent(tick) },
        bands: each.interval.length ? [{ points: each.interval.map(([low, high], at) => [at + 1, low, high]) }] : [],
        lines: [{ points: prior, class: "prior-line" }, { points: known, class: "force-line" }],
        dots: known.filter(([, rate]) => rate !== null).map(([at, rate]) => ({ x: at, y: rate, class: "force-dot", size: 3.2, error: [Math.max(rate - each.error[at - 1], 0), Math.min(rate + each.error[at - 1], 1)], title: `position ${at}: ${fixed(rate, 3)}` })),
      }),
      tableName: `acceptance of ${name}`,
      table: () => dataTable({
        caption: `Conditional acceptance of ${name}`, dense: true,
        columns: [{ label: "Position", numeric: true }, { label: "Believed", numeric: true }, { label: "Learned", numeric: true }, { label: "Error", numeric: true }, { label: "Drafts", numeric: true }],
        rows: prior.map(([at, rate]) => ({ key: at, cells: [at, fixed(rate, 3), known[at - 1] && known[at - 1][1] !== null ? fixed(known[at - 1][1], 3) : "unknown", isKnown(each.error[at - 1]) ? `\u00b1${fixed(each.error[at - 1], 3)}` : "unknown", isKnown(each.trials[at - 1]) ? whole(each.trials[at - 1]) : "0"] })),
      }),
    }),
    h("p", { class: "note tight" }, trials > 0 ? `worth ${significant(trials)} drafts${each.inferred ? ", inferred from counters" : ""}` : "nothing learned yet: unknown beyond the prior"),
  ];
}

function curvePoints(curve, positions) {
  return steps(positions).map((at) => [at, at <= curve.conditional.length ? curve.conditional[at - 1] : curve.plateau]);
}

function steps(count) {
  return Array.from({ length: count }, (_, i) => i + 1);
}

