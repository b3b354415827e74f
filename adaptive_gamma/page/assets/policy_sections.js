// A policy in pictures: its map, speed-up over plain with the crossings, and what it believes of acceptance.

import { h } from "./dom.js";
import { choice, chosenOf, moreTable, plot, swatch } from "./figure.js";
import { duration, fixed, isKnown, percent, whole } from "./format.js";
import { gammaClass, gammaLegend, gammaMap, mapTable } from "./gamma_map.js";
import { section } from "./report_frame.js";
import { niceCeiling } from "./scale.js";
import { dataTable } from "./table.js";

/** policy: {name, classes, contexts, max_batch, gammas, batches, cells: {class: [cell by context]}, acceptance}. */
export function policySections(policy, sheet) {
  const contexts = policy.contexts.map((context) => [String(context), `${whole(context)} tokens`]);
  const context = chosenOf(sheet, "context", contexts, String(policy.context));
  const index = contexts.findIndex(([value]) => value === context);
  const pick = contexts.length > 1 ? choice(sheet, "context", "Context length", contexts, String(policy.context)) : null;
  return [
    mapSection(policy, index, pick, sheet),
    h("h2", { class: "section-title", key: "speedups" }, "Speed-up over plain decoding"),
    policy.classes.map((name, i) => speedupSection(policy, name, i, index, contexts[index][1], sheet)),
    acceptanceSection(policy, sheet),
  ];
}

function mapSection(policy, index, pick, sheet) {
  const rows = policy.classes.map((name) => ({ name, ranges: policy.cells[name][index].best_gamma, plainFrom: policy.cells[name][index].plain_wins_from }));
  const gammas = [...new Set(rows.flatMap((row) => row.ranges.map(([, , gamma]) => gamma)))].filter((gamma) => gamma > 0).sort((a, b) => a - b);
  return section("map", "Policy map", "wide", pick,
    h("p", { class: "note" }, "Best gamma by class and batch. Hatched: plain decoding wins."),
    h("div", { class: "plot", "data-plot": "map" }, gammaMap({ id: "map", width: sheet.widths.get("map") || 560, name: "Best gamma by class and batch; the same as a table below", rows, maxBatch: policy.max_batch, present: null })),
    gammaLegend(gammas),
    moreTable(sheet, "map", "best gamma by class and batch", () => mapTable(rows)));
}

function speedupSection(policy, name, i, index, contextName, sheet) {
  const cell = policy.cells[name][index];
  const lines = policy.gammas.flatMap((gamma, g) => speedupLines(policy, cell, gamma, g));
  const measured = cell.measured || [];
  const dots = [
    ...measured.map((each) => ({ x: each.batch, y: each.speedup, error: [each.low, each.high], class: gammaClass(each.gamma), size: 4, title: `measured, gamma ${each.gamma} at batch ${fixed(each.batch, 1)}: ${fixed(each.speedup, 2)}` })),
    ...cell.crossings.filter((each) => each.gamma !== null).map((each) => ({ x: each.batch, y: each.speedup, shape: "diamond", size: 4, class: "pick", title: `gamma ${each.gamma} is best from batch ${each.batch}` })),
    ...cell.crossings.filter((each) => each.gamma === null).map((each) => ({ x: each.batch, y: 1, shape: "cross", size: 5, class: "pick", title: `plain wins from batch ${each.batch}` })),
  ];
  const values = [...lines.flatMap((line) => line.points.map(([, y]) => y)), ...measured.map((each) => each.high)].filter(isKnown);
  const low = Math.max(0, Math.min(0.8, Math.floor(Math.min(...values, 1) * 5) / 5));
  const crossings = cell.crossings.map((each) => `${each.gamma === null ? "plain" : `gamma ${each.gamma}`} from ${each.batch}`);
  const plain = cell.plain_wins_from;
  const id = `speedup-${i}`;
  return section(id, name, policy.classes.length % 3 === 0 ? "third" : "half", null,
    h("p", { class: "note" }, `Predicted tokens per second over plain decoding at the same batch, context of ${contextName}. `,
      plain === null ? "Plain wins at no batch of the table." : `Plain wins from batch ${whole(plain)}.`,
      cell.extrapolated ? " Dashed: extrapolated beyond what was measured." : ""),
    plot(sheet, {
      id, name: `Speed-up over plain by batch for class ${name}, a line for each gamma`, height: 290,
      draw: () => ({
        x: { domain: [1, policy.max_batch], scale: "log2", format: whole, label: "sequences in the batch" },
        y: { domain: [low, niceCeiling(Math.max(...values, 1.05))], format: (tick) => fixed(tick, 1), label: "times plain" },
        rules: [{ y: 1, class: "one" }, ...(cell.within_slo && cell.within_slo[0] > 0 && cell.within_slo[0] < policy.max_batch ? [{ x: cell.within_slo[0], label: `${duration(policy.slo_tpot_s)} a token` }] : [])],
        lines, dots,
      }),
      xs: policy.batches,
      hint: crossings.length ? `Best gamma changes: ${crossings.join(", ")}.` : "One gamma is best at every batch.",
      readout: (batch) => [h("b", null, `batch ${batch}`), policy.gammas.map((gamma, g) => {
        const value = cell.speedup[g][policy.batches.indexOf(batch)];
        return isKnown(value) ? swatch(gammaClass(gamma), `${gamma}`, `${fixed(value, 2)}\u00d7`) : null;
      })],
      tableName: `speed-up of ${name}`,
      table: () => dataTable({
        caption: `Speed-up over plain of ${name} by batch and gamma`, dense: true, box: "tall",
        columns: [{ label: "Batch", numeric: true }, ...policy.gammas.map((gamma) => ({ label: `gamma ${gamma}`, numeric: true }))],
        rows: policy.batches.map((batch, b) => {
          const best = Math.max(...policy.gammas.map((_, g) => cell.speedup[g][b] ?? -Infinity));
          return { key: batch, cells: [whole(batch), ...policy.gammas.map((_, g) => {
            const value = cell.speedup[g][b];
            return isKnown(value) ? h("span", { class: value === best ? "best" : "" }, fixed(value, 3)) : "\u2014";
          })] };
        }),
      }),
    }));
}

/** Whole where it rests on measurements (or nothing was measured), dashed where it is extrapolated. */
function speedupLines(policy, cell, gamma, g) {
  const far = cell.extrapolated ? cell.extrapolated[g] : null;
  const points = (wanted) => policy.batches.map((batch, b) => [batch, wanted(b) ? cell.speedup[g][b] : null]);
  const label = `gamma ${gamma}`;
  if (far === null || !far.includes(true)) return [{ points: points(() => true), class: gammaClass(gamma), label }];
  if (!far.includes(false)) return [{ points: points(() => true), class: `${gammaClass(gamma)} dashed`, label }];
  return [
    { points: points((b) => !far[b]), class: gammaClass(gamma), label },
    // The first point on the other side closes the gap between the two parts.
    { points: points((b) => far[b] || far[b - 1] === true || far[b + 1] === true), class: `${gammaClass(gamma)} dashed` },
  ];
}

function acceptanceSection(policy, sheet) {
  const classes = Object.entries(policy.acceptance);
  const positions = policy.positions;
  const colours = ["g4", "g1", "g7", "g-plain", "g9", "g2"];
  return section("acceptance", "Acceptance it believes", "wide", null,
    h("p", { class: "note" }, "Conditional acceptance by position, and the tokens per step that follow from it."),
    h("div", { class: "multiples" },
      h("div", { class: "multiple" }, plot(sheet, {
        id: "acceptance", name: "Conditional acceptance by position, a line for each class", height: 220,
        draw: () => ({
          x: { domain: [1, positions], ticks: Array.from({ length: positions }, (_, i) => i + 1).filter((at) => positions <= 10 || at % 2), format: String, label: "position" },
          y: { domain: [0, 1], ticks: [0, 0.25, 0.5, 0.75, 1], format: (tick) => percent(tick), label: "accepted" },
          lines: classes.map(([name, each], i) => ({ points: each.conditional.map((rate, at) => [at + 1, rate]), class: colours[i % colours.length], label: name })),
        }),
      })),
      h("div", { class: "multiple" }, plot(sheet, {
        id: "tokens", name: "Tokens per step by gamma, a line for each class", height: 220,
        draw: () => ({
          x: { domain: [0, positions], ticks: Array.from({ length: positions + 1 }, (_, i) => i).filter((at) => positions <= 10 || at % 2 === 0), format: String, label: "gamma" },
          y: { domain: [1, niceCeiling(Math.max(...classes.flatMap(([, each]) => each.tokens)))], format: (tick) => fixed(tick, 1), label: "tokens per step" },
          lines: classes.map(([name, each], i) => ({ points: each.tokens.map((tokens, gamma) => [gamma, tokens]), class: colours[i % colours.length], label: name })),
        }),
        tableName: "acceptance and tokens per step",
        table: () => dataTable({
          caption: "Conditional acceptance by position, and tokens per step with a gamma of as many", dense: true,
          columns: [{ label: "Position", numeric: true }, ...classes.flatMap(([name]) => [{ label: `${name}, accepted`, numeric: true }, { label: `${name}, tokens`, numeric: true }])],
          rows: Array.from({ length: positions }, (_, at) => ({ key: at, cells: [at + 1, ...classes.flatMap(([, each]) => [fixed(each.conditional[at], 3), fixed(each.tokens[at + 1], 3)])] })),
        }),
      }))));
}
