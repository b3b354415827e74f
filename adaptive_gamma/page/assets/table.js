// Tables: with a caption, a head and, where they are wide or long, a box of their own that scrolls.

import { h } from "./dom.js";

/**
 * columns: {label, before (words of the label that are only heard), numeric, title, sort (a key), class}. rows: {key, cells, class}; the first cell heads its row.
 * With `sorted` ({by, down, set}) the heads of columns with a `sort` are buttons.
 */
export function dataTable({ caption, columns, rows, hideCaption = true, sorted = null, box = null, empty = "nothing yet", dense = false }) {
  const table = h("table", { class: dense ? "dense" : "" },
    h("caption", { class: hideCaption ? "unseen" : "" }, caption),
    h("thead", null, h("tr", null, columns.map((column, i) => headCell(column, i, sorted)))),
    h("tbody", null,
      rows.length
        ? rows.map((row) => h("tr", { key: row.key, class: row.class || "" }, row.cells.map((cell, i) => bodyCell(cell, columns[i], i))))
        : h("tr", null, h("td", { colspan: columns.length, class: "empty" }, empty))),
  );
  return h("div", { class: `table-box ${box || ""}`, tabindex: 0, role: "region", "aria-label": caption }, table);
}

function headCell(column, i, sorted) {
  const attributes = { key: `c${i}`, scope: "col", class: cellClass(column), title: column.title || null };
  const label = [column.before ? h("span", { class: "unseen" }, `${column.before} `) : null, column.label];
  if (!sorted || !column.sort) return h("th", attributes, label);
  const mine = sorted.by === column.sort;
  return h("th", { ...attributes, "aria-sort": mine ? (sorted.down ? "descending" : "ascending") : null },
    h("button", { type: "button", class: "sort", onclick: () => sorted.set(column.sort, mine ? !sorted.down : Boolean(column.numeric)) },
      label, h("i", { class: `arrow ${mine ? (sorted.down ? "down" : "up") : ""}`, "aria-hidden": "true" })));
}

function bodyCell(cell, column, i) {
  const attributes = { class: cellClass(column) };
  return i === 0 ? h("th", { scope: "row", ...attributes }, cell) : h("td", attributes, cell);
}

function cellClass(column) {
  return `${column.numeric ? "number" : ""} ${column.class || ""}`.trim();
}

export function unknownText(text = "unknown") {
  return h("span", { class: "unknown" }, text);
}

/** A share of a whole as a bar with its parts; `parts`: {value, class, name}. */
export function shareBar(parts, { name, height = 12 }) {
  const total = parts.reduce((sum, part) => sum + part.value, 0);
  let at = 0;
  return h("svg", { class: "share-bar", width: "100%", height, role: "img", "aria-label": name, preserveAspectRatio: "none", viewBox: "0 0 100 1" },
    total > 0
      ? parts.map((part, i) => {
        const size = (100 * part.value) / total;
        const bar = h("rect", { key: i, class: part.class, x: at, y: 0, width: size, height: 1 }, h("title", null, part.name));
        at += size;
        return bar;
      })
      : h("rect", { class: "nothing", x: 0, y: 0, width: 100, height: 1 }));
}
