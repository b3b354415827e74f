// The policy's map: a row for each class, batches along it, coloured by the best gamma; above it where replicas are now.

import { h } from "./dom.js";
import { whole } from "./format.js";
import { scaleOf } from "./scale.js";
import { dataTable } from "./table.js";

const ROW = 28;
const GAP = 6;
const STRIP = 44;

export function gammaClass(gamma) {
  if (gamma === "plain" || gamma === 0 || gamma === null || gamma === undefined) return "g-plain";
  return `g${Math.min(Math.max(gamma, 1), 9)}`;
}

/**
 * rows: {name, ranges: [[first, last, gamma]], plainFrom (a batch or null)}; present: {batch, speculative, title} of each
 * replica that runs something.
 */
export function gammaMap({ id, width, name, rows, maxBatch, present }) {
  const aside = width >= 560;
  const left = aside ? Math.min(Math.max(...rows.map((row) => row.name.length), 6), 20) * 6.6 + 14 : 0;
  const each = ROW + GAP + (aside ? 0 : 16);
  const strip = present ? STRIP : 0;
  const height = strip + rows.length * each + 22;
  const x = scaleOf("log2", [1, maxBatch + 1], [left, width - 1]);
  const hatch = `hatch-${id}`;
  const bottom = strip + rows.length * each;
  const ticks = x.ticks(Math.floor((width - left) / 56));
  return h("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name, class: "chart gamma-map" },
    h("defs", null, h("pattern", { id: hatch, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      h("line", { class: "hatch", x1: 0, y1: 0, x2: 0, y2: 6 }))),
    present ? presentDots(present, x, left, aside, width) : null,
    rows.map((row, i) => mapRow(row, strip + i * each, x, { left, aside, hatch, maxBatch, width })),
    h("g", { class: "axis", "aria-hidden": "true" }, ticks.map((tick) => [
      h("line", { class: "base", x1: x.at(tick), x2: x.at(tick), y1: bottom - GAP, y2: bottom - GAP + 4 }),
      h("text", { x: Math.min(Math.max(x.at(tick), String(tick).length * 3.3), width - String(tick).length * 3.3), y: bottom + 12, "text-anchor": "middle" }, tick),
    ])),
  );
}

function mapRow(row, top, x, place) {
  const at = top + (place.aside ? 0 : 16);
  return h("g", { key: row.name },
    place.aside
      ? h("text", { class: "map-name", x: place.left - 10, y: at + ROW / 2 + 4, "text-anchor": "end" }, shortened(row.name, 20))
      : h("text", { class: "map-name", x: 0, y: at - 5 }, shortened(row.name, 40)),
    row.ranges.map(([first, last, gamma]) => {
      const from = x.at(first);
      const size = Math.max(x.at(last + 1) - from - 1, 0.5);
      const text = gamma ? String(gamma) : "plain";
      return h("g", null,
        h("rect", { class: `cell ${gammaClass(gamma)}`, x: from, y: at, width: size, height: ROW, rx: Math.min(3, size / 2) },
          h("title", null, `${row.name}, batch ${first === last ? first : `${first} to ${last}`}: ${gamma ? `gamma ${gamma}` : "no gamma allowed, plain"}`)),
        size > text.length * 7 + 6 ? h("text", { class: `cell-text ${gammaClass(gamma)}`, x: from + size / 2, y: at + ROW / 2 + 4, "text-anchor": "middle" }, text) : null);
    }),
    plainArea(row, at, x, place));
}

/** Where plain decoding wins although a gamma is the best of those allowed. */
function plainArea(row, at, x, place) {
  if (row.plainFrom === null || row.plainFrom === undefined) return null;
  const from = x.at(Math.min(row.plainFrom, place.maxBatch + 1));
  const size = place.width - 1 - from;
  if (size <= 0) return null;
  return h("g", { class: "plain-area" },
    h("rect", { x: from, y: at, width: size, height: ROW, fill: `url(#${place.hatch})` },
      h("title", null, `${row.name}: plain decoding wins from batch ${row.plainFrom}`)),
    h("path", { class: "plain-edge", d: `M${from} ${at - 2}v${ROW + 4}` }));
}

function presentDots(present, x, left, aside, width) {
  const columns = new Map();
  for (const each of present) {
    const column = Math.round(x.at(Math.min(Math.max(each.batch, 1), x.domain[1])) / 8);
    if (!columns.has(column)) columns.set(column, []);
    columns.get(column).push(each);
  }
  const base = STRIP - 11;
  const marks = [];
  for (const [column, stack] of columns) {
    const px = Math.min(Math.max(column * 8, 4), width - 5);
    stack.slice(0, 4).forEach((each, i) => {
      const crowd = i === 3 && stack.length > 4;
      marks.push(crowd
        ? h("text", { class: "more-dots", x: Math.min(Math.max(px, 13), width - 13), y: base - i * 8 + 1, "text-anchor": "middle" }, `+${stack.length - 3}`)
        : h("circle", { class: `now ${each.speculative ? "spec" : "plain"}`, cx: px, cy: base - i * 8, r: 3.4 }, h("title", null, each.title)));
    });
  }
  return h("g", null,
    aside ? h("text", { class: "map-name soft", x: left - 10, y: base + 3, "text-anchor": "end" }, "now") : null,
    h("line", { class: "grid", x1: left, x2: width, y1: STRIP - 4.5, y2: STRIP - 4.5 }),
    marks);
}

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}\u2026` : text;
}

/** The colours and what they stand for. */
export function gammaLegend(gammas) {
  return h("ul", { class: "legend" },
    h("li", null, h("i", { class: "key g-plain", "aria-hidden": "true" }), "plain"),
    gammas.map((gamma) => h("li", { key: gamma }, h("i", { class: `key ${gammaClass(gamma)}`, "aria-hidden": "true" }), `gamma ${gamma}`)));
}

export function mapTable(rows) {
  return dataTable({
    caption: "Best gamma by class and batch", dense: true,
    columns: [{ label: "Class" }, { label: "Batches and their best gamma" }, { label: "Plain wins from", numeric: true }],
    rows: rows.map((row) => ({ key: row.name, cells: [row.name,
      row.ranges.map(([first, last, gamma]) => `${first === last ? first : `${first}\u2013${last}`}: ${gamma || "plain"}`).join(", "),
      row.plainFrom === null ? "nowhere" : `batch ${whole(row.plainFrom)}`] })),
  });
}
