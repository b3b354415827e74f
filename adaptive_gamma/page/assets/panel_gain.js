// What is gained against plain decoding and against one gamma everywhere, second by second.

import { h } from "./dom.js";
import { plot, swatch } from "./figure.js";
import { change, compact, duration, isKnown, percent, plural, significant, whole } from "./format.js";
import { WATCHED_S, watchedGains } from "./history.js";
import { niceCeiling } from "./scale.js";
import { dataTable } from "./table.js";

export function gainPanel(view, sheet) {
  const { state, history } = view;
  const { ticks } = history;
  const now = state.time;
  const watched = watchedGains(ticks);
  const best = watched && watched.best !== null ? String(watched.best) : null;
  const series = (value) => withGaps(ticks, now, value);
  const lines = [
    { points: series((tick) => (tick.gains ? tick.gains.plain : null)), class: "plain-line", label: "plain" },
    best === null ? null : { points: series((tick) => (tick.gains ? tick.gains.fixed[best] ?? null : null)), class: "fixed-line", label: `gamma ${best}` },
    { points: series((tick) => (tick.gains ? tick.gains.in_force : null)), class: "force-line", label: "in force" },
  ].filter(Boolean);
  const values = lines.flatMap((line) => line.points.map(([, y]) => y)).filter(isKnown);
  const high = niceCeiling(Math.max(1, ...values) * 1.05);
  const at = (seconds) => ticks.reduce((a, b) => (Math.abs(b.time - now - seconds) < Math.abs(a.time - now - seconds) ? b : a), ticks[0]);
  const gains = state.gains;
  return h("section", { class: "card third", "aria-labelledby": "gain-title" },
    h("header", { class: "card-head" }, h("h2", { id: "gain-title" }, "What acting gains")),
    h("p", { class: "note" }, "Tokens per second as priced at the load of each moment; the alternatives have the same sequences on as many replicas."),
    plot(sheet, {
      id: "gain",
      name: "Tokens per second in force, plain, and with the best fixed gamma, over the time watched",
      height: 220,
      draw: () => ({
        x: { domain: [-WATCHED_S, 0], format: (tick) => (tick === 0 ? "now" : `\u2212${-tick / 60} min`), ticks: [-300, -240, -180, -120, -60, 0], tickRoom: 50 },
        y: { domain: [0, high], format: compact, label: "tokens/s" },
        lines,
      }),
      xs: ticks.map((tick) => tick.time - now),
      hint: values.length ? "Point at the plot to read it." : "",
      readout: (seconds) => {
        const tick = at(seconds);
        return [h("b", null, `${significant(-seconds, 2)} s ago`), tick.gains
          ? [swatch("force-line", "in force", significant(tick.gains.in_force)), swatch("plain-line", "plain", significant(tick.gains.plain)), best ? swatch("fixed-line", `gamma ${best}`, significant(tick.gains.fixed[best] ?? null)) : null]
          : "nothing was decoded"];
      },
      tableName: "tokens per second by gamma",
      table: () => gainTable(gains),
    }),
    gains === null
      ? h("p", { class: "note" }, "Nothing is being decoded, or no load is known: there is nothing to compare.")
      : h("dl", { class: "facts narrow" },
        fact("Now over plain", change(gains.over_plain)),
        fact("Now over the best fixed", gains.best_fixed === null ? "unknown" : `${change(gains.over_best_fixed)} (gamma ${gains.best_fixed})`),
        fact("Observed over predicted", state.observed ? percent(state.observed.ratio) : "unknown"),
        fact("Plain is priced", gains.plain_observed ? "with its observed step time" : "by the policy alone: no plain replica runs")),
    gains !== null && gains.left_out ? h("p", { class: "note" }, `${plural(gains.left_out, "replica is", "replicas are")} left out: load or gamma unknown.`) : null,
    state.mode === "observe" ? observing(state.observations) : null);
}

function fact(term, text) {
  return h("div", { key: term }, h("dt", null, term), h("dd", null, text));
}

function observing(seen) {
  if (seen === null) return h("p", { class: "note" }, "Only observing; no request has ended yet, so what acting would have changed is unknown.");
  return h("p", { class: "note" }, h("b", null, "Only observing. "),
    `Of ${whole(seen.requests)} requests ${percent(seen.elsewhere / seen.requests)} would have gone elsewhere; predicted time per token where they went ${duration(seen.sent_tpot_s)}, where they would have gone ${duration(seen.decided_tpot_s)} (${change(seen.decided_tpot_s / seen.sent_tpot_s - 1)}). adaptive-gamma report says how sure that is.`);
}

function gainTable(gains) {
  const rows = gains === null ? [] : [
    ["in force", gains.in_force], ["plain", gains.plain],
    ...Object.entries(gains.fixed).map(([gamma, rate]) => [`gamma ${gamma} everywhere`, rate]),
  ];
  return dataTable({
    caption: "Tokens per second at the present load, priced", dense: true,
    columns: [{ label: "Fleet" }, { label: "Tokens/s", numeric: true }, { label: "In force over it", numeric: true }],
    rows: rows.map(([name, rate]) => ({ key: name, cells: [name, significant(rate, 4), name === "in force" ? "\u2014" : change(gains.in_force / rate - 1)] })),
    empty: "nothing is being decoded",
  });
}

/** Points by seconds before now; where ticks were missed the line is broken. */
function withGaps(ticks, now, value) {
  const points = [];
  ticks.forEach((tick, i) => {
    if (i && tick.time - ticks[i - 1].time > 5) points.push([ticks[i - 1].time - now + 1, null]);
    points.push([tick.time - now, value(tick)]);
  });
  return points;
}
