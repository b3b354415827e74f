// One kind of chart for everything with two axes: bands, lines, dots and rules, drawn as SVG.

import { h } from "./dom.js";
import { scaleOf } from "./scale.js";

const LABEL_HEIGHT = 13;
const LETTER = 6.9;

/**
 * The chart as an `svg` element, with `toX(pixel)`, the x value under a pixel of its width.
 *
 * lines: {points: [[x, y or null]], class, label}. A null breaks the line; labels stand at its end, moved apart.
 * bands: {points: [[x, low, high]], class}. dots: {x, y, class, shape, size, title, error: [low, high]}.
 * rules: {x or y or both ends (from, to), class, label}. cursor: an x value, or null.
 */
export function chart(options) {
  const { width, height, name, lines = [], bands = [], dots = [], rules = [] } = options;
  const right = labelRoom(lines, options.maxLabel);
  const yTexts = axisTexts(options.y, height);
  const left = Math.max(...yTexts.map(([, text]) => text.length), 1) * LETTER + 10;
  const top = options.y.label ? 24 : 10;
  const bottom = options.x.label ? 36 : 22;
  const inner = { left, right: Math.max(width - right, left + 40), top, bottom: height - bottom };
  const x = scaleOf(options.x.scale || "linear", options.x.domain, [inner.left, inner.right]);
  const y = scaleOf(options.y.scale || "linear", options.y.domain, [inner.bottom, inner.top]);
  const clip = `clip-${options.id}`;
  const node = h(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name, class: "chart" },
    h("defs", null, h("clipPath", { id: clip }, h("rect", {
      x: inner.left - 1, y: inner.top - 6, width: inner.right - inner.left + 2, height: inner.bottom - inner.top + 7,
    }))),
    yAxis(y, yTexts, inner, options.y.label),
    xAxis(x, options.x, inner, width),
    h("g", { "clip-path": `url(#${clip})` },
      bands.map((band) => h("path", { class: `band ${band.class || ""}`, d: bandPath(band.points, x, y) })),
      rules.map((rule) => ruleLine(rule, x, y, inner)),
      lines.map((line, i) => h("path", { key: `line-${i}`, class: `line ${line.class || ""}`, d: linePath(line.points, x, y) })),
    ),
    h("g", null, dots.map((dot, i) => dotMark(dot, i, x, y, inner))),
    rules.filter((rule) => rule.label).map((rule, i) => ruleLabel(rule, i, x, y, inner)),
    endLabels(lines, x, y, inner, options.maxLabel),
    options.cursor !== null && options.cursor !== undefined
      ? h("line", { class: "cursor", x1: x.at(options.cursor), x2: x.at(options.cursor), y1: inner.top, y2: inner.bottom })
      : null,
  );
  return { node, toX: (pixel) => x.invert(Math.min(Math.max(pixel, inner.left), inner.right)) };
}

function axisTexts(axis, height) {
  const y = scaleOf(axis.scale || "linear", axis.domain, [0, 1]);
  return (axis.ticks || y.ticks(Math.max(2, Math.round(height / 48)))).map((tick) => [tick, axis.format(tick)]);
}

function yAxis(y, texts, inner, label) {
  return h("g", { class: "axis", "aria-hidden": "true" },
    texts.map(([tick, text]) => {
      const at = Math.round(y.at(tick)) + 0.5;
      return [
        h("line", { class: "grid", x1: inner.left, x2: inner.right, y1: at, y2: at }),
        h("text", { x: inner.left - 6, y: at + 3.5, "text-anchor": "end" }, text),
      ];
    }),
    label ? h("text", { class: "axis-label", x: 0, y: 11 }, label) : null,
  );
}

function xAxis(x, axis, inner, width) {
  const ticks = axis.ticks || x.ticks(Math.max(2, Math.floor((inner.right - inner.left) / (axis.tickRoom || 62))));
  return h("g", { class: "axis", "aria-hidden": "true" },
    h("line", { class: "base", x1: inner.left, x2: inner.right, y1: inner.bottom + 0.5, y2: inner.bottom + 0.5 }),
    ticks.map((tick) => {
      const text = axis.format(tick);
      const half = (text.length * LETTER) / 2;
      const at = Math.min(Math.max(x.at(tick), half), width - half);
      return [
        h("line", { class: "base", x1: x.at(tick), x2: x.at(tick), y1: inner.bottom, y2: inner.bottom + 4 }),
        h("text", { x: at, y: inner.bottom + 16, "text-anchor": "middle" }, text),
      ];
    }),
    axis.label ? h("text", { class: "axis-label", x: inner.right, y: inner.bottom + 31, "text-anchor": "end" }, axis.label) : null,
  );
}

export function linePath(points, x, y) {
  let path = "";
  let pen = "M";
  for (const [px, py] of points) {
    if (py === null || py === undefined || !Number.isFinite(py)) pen = "M";
    else {
      path += `${pen}${x.at(px).toFixed(1)} ${y.at(py).toFixed(1)}`;
      pen = "L";
    }
  }
  return path || "M0 0";
}

function bandPath(points, x, y) {
  if (points.length < 2) return "M0 0";
  const over = points.map(([px, , high]) => `${x.at(px).toFixed(1)} ${y.at(high).toFixed(1)}`);
  const under = points.map(([px, low]) => `${x.at(px).toFixed(1)} ${y.at(low).toFixed(1)}`).reverse();
  return `M${over.join("L")}L${under.join("L")}Z`;
}

function ruleLine(rule, x, y, inner) {
  const ends = rule.from
    ? { x1: x.at(rule.from[0]), y1: y.at(rule.from[1]), x2: x.at(rule.to[0]), y2: y.at(rule.to[1]) }
    : rule.x !== undefined
      ? { x1: x.at(rule.x), x2: x.at(rule.x), y1: inner.top, y2: inner.bottom }
      : { x1: inner.left, x2: inner.right, y1: y.at(rule.y), y2: y.at(rule.y) };
  return h("line", { class: `rule ${rule.class || ""}`, ...ends });
}

function ruleLabel(rule, i, x, y, inner) {
  if (rule.x !== undefined) {
    const at = x.at(rule.x);
    const room = rule.label.length * LETTER;
    const before = at + room + 6 > inner.right;
    return h("text", {
      class: `rule-label ${rule.class || ""}`, x: before ? at - 4 : at + 4, y: inner.top + 8 + LABEL_HEIGHT * (rule.row || 0),
      "text-anchor": before ? "end" : "start",
    }, rule.label);
  }
  const at = rule.from ? y.at(rule.to[1]) : y.at(rule.y);
  return h("text", { class: `rule-label ${rule.class || ""}`, x: inner.right - 4, y: Math.max(at - 4, inner.top + 8), "text-anchor": "end" }, rule.label);
}

function dotMark(dot, i, x, y, inner) {
  const px = x.at(dot.x);
  const py = y.at(dot.y);
  if (px < inner.left - 8 || px > inner.right + 8 || py < inner.top - 8 || py > inner.bottom + 8) return null;
  const size = dot.size || 4;
  const title = dot.title ? h("title", null, dot.title) : null;
  const shared = { class: `dot ${dot.shape || "circle"} ${dot.class || ""}` };
  let mark;
  if (dot.shape === "cross") {
    mark = h("path", { ...shared, d: `M${px - size} ${py - size}L${px + size} ${py + size}M${px - size} ${py + size}L${px + size} ${py - size}` }, title);
  } else if (dot.shape === "diamond") {
    mark = h("path", { ...shared, d: `M${px} ${py - size}L${px + size} ${py}L${px} ${py + size}L${px - size} ${py}Z` }, title);
  } else mark = h("circle", { ...shared, cx: px.toFixed(1), cy: py.toFixed(1), r: size }, title);
  if (!dot.error) return h("g", { key: dot.key ?? `dot-${i}` }, mark);
  const [low, high] = dot.error.map((value) => y.at(value));
  return h("g", { key: dot.key ?? `dot-${i}` },
    h("path", { class: `whisker ${dot.class || ""}`, d: `M${px} ${low}V${high}M${px - 3} ${low}h6M${px - 3} ${high}h6` }), mark);
}

function labelRoom(lines, maxLabel) {
  const longest = Math.max(0, ...lines.filter((line) => line.label).map((line) => cut(line.label, maxLabel).length));
  return longest ? longest * LETTER + 12 : 12;
}

function cut(label, most = 18) {
  return label.length > most ? `${label.slice(0, most - 1)}\u2026` : label;
}

/** The names of lines at their right ends, moved apart so that none lies over another. */
function endLabels(lines, x, y, inner, maxLabel) {
  const labels = [];
  for (const line of lines) {
    if (!line.label) continue;
    const known = line.points.filter(([px, py]) => py !== null && Number.isFinite(py) && px <= x.domain[1] * (1 + 1e-9) && px >= x.domain[0]);
    if (!known.length) continue;
    const [, last] = known[known.length - 1];
    const wanted = Math.min(Math.max(y.at(last), inner.top), inner.bottom);
    labels.push({ text: cut(line.label, maxLabel), class: line.class || "", at: wanted });
  }
  labels.sort((a, b) => a.at - b.at);
  for (let i = 1; i < labels.length; i += 1) labels[i].at = Math.max(labels[i].at, labels[i - 1].at + LABEL_HEIGHT);
  let most = inner.bottom + 4;
  for (let i = labels.length - 1; i >= 0; i -= 1) {
    labels[i].at = Math.min(labels[i].at, most);
    most = labels[i].at - LABEL_HEIGHT;
  }
  return labels.map((label, i) =>
    h("text", { key: `label-${i}`, class: `line-label ${label.class}`, x: inner.right + 6, y: label.at + 4 }, label.text));
}
