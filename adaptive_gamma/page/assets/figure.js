// A chart with its heading, what lies under the pointer, and the same figures as a table.

import { chart } from "./chart.js";
import { h } from "./dom.js";

/** What figures remember from one drawing to the next: their widths, and where the pointer is. */
export function newSheet(redraw) {
  const sheet = { widths: new Map(), cursors: new Map(), choices: new Map(), redraw, observer: null };
  sheet.observer = new ResizeObserver((entries) => {
    let changed = false;
    for (const entry of entries) {
      const width = Math.floor(entry.contentRect.width);
      const id = entry.target.dataset.plot;
      if (width > 0 && sheet.widths.get(id) !== width) {
        sheet.widths.set(id, width);
        changed = true;
      }
    }
    if (changed) redraw();
  });
  sheet.watched = new Map();
  return sheet;
}

/** After each drawing: watch the widths of the plots that are there, and forget those that are not. */
export function watchPlots(sheet, root) {
  const there = new Map();
  for (const element of root.querySelectorAll("[data-plot]")) there.set(element.dataset.plot, element);
  for (const [id, element] of sheet.watched) {
    if (there.get(id) !== element) {
      sheet.observer.unobserve(element);
      sheet.watched.delete(id);
    }
  }
  let changed = false;
  for (const [id, element] of there) {
    if (!sheet.watched.has(id)) {
      sheet.watched.set(id, element);
      sheet.observer.observe(element);
      const width = Math.floor(element.clientWidth);
      if (width > 0 && sheet.widths.get(id) !== width) {
        sheet.widths.set(id, width);
        changed = true;
      }
    }
  }
  if (changed) sheet.redraw();
}

/**
 * A plot: `draw(width, cursor)` gives the options of `chart`. With `xs` and `readout(x)` the values nearest to the
 * pointer are told below; `table()` gives them all.
 */
export function plot(sheet, { id, name, height = 260, draw, xs = null, readout = null, hint = "", table = null, tableName = "" }) {
  const width = sheet.widths.get(id) || 560;
  const index = sheet.cursors.get(id);
  const at = xs && index !== undefined && index < xs.length ? xs[index] : null;
  const drawn = chart({ id, name, width, height, cursor: at, ...draw(width) });
  const move = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const nearest = nearestIndex(xs, drawn.toX(event.clientX - box.left));
    if (sheet.cursors.get(id) !== nearest) {
      sheet.cursors.set(id, nearest);
      sheet.redraw();
    }
  };
  const leave = () => {
    if (sheet.cursors.delete(id)) sheet.redraw();
  };
  const follows = xs && xs.length > 1 && readout;
  return [
    h("div", { class: "plot", "data-plot": id, onpointermove: follows ? move : null, onpointerleave: follows ? leave : null },
      drawn.node),
    follows
      ? h("p", { class: "readout", "aria-hidden": "true" }, at === null ? h("span", { class: "hint" }, hint) : readout(at))
      : null,
    table ? moreTable(sheet, id, tableName || name, table) : null,
  ];
}

/** A table that is made once it is opened. */
export function moreTable(sheet, id, name, table) {
  const key = `table-${id}`;
  const open = sheet.choices.get(key) === true;
  return h("details", {
    class: "more",
    open,
    ontoggle: (event) => {
      if (sheet.choices.get(key) !== event.currentTarget.open) {
        sheet.choices.set(key, event.currentTarget.open);
        sheet.redraw();
      }
    },
  }, h("summary", null, "As a table", h("span", { class: "unseen" }, `: ${name}`)), open ? table() : null);
}

/** One of a few: radio buttons that look like one bar. */
export function choice(sheet, id, name, options, fallback) {
  const chosen = chosenOf(sheet, id, options, fallback);
  return h("fieldset", { class: "choice" },
    h("legend", { class: "unseen" }, name),
    options.map(([value, label]) =>
      h("label", { key: value, class: value === chosen ? "chosen" : "" },
        h("input", {
          type: "radio", name: id, value, checked: value === chosen,
          onchange: () => {
            sheet.choices.set(id, value);
            sheet.redraw();
          },
        }), label)));
}

export function chosenOf(sheet, id, options, fallback) {
  const chosen = sheet.choices.get(id);
  return options.some(([value]) => value === chosen) ? chosen : fallback;
}

function nearestIndex(xs, value) {
  let best = 0;
  for (let i = 1; i < xs.length; i += 1) if (Math.abs(xs[i] - value) < Math.abs(xs[best] - value)) best = i;
  return best;
}

/** A word with the colour of a line before it. */
export function swatch(colour, label, value = null) {
  return h("span", { class: "swatch" }, h("i", { class: `key ${colour}`, "aria-hidden": "true" }), label,
    value === null ? null : [" ", h("b", null, value)]);
}
