// `dry-run --html`: a replay as a page.

import { h } from "./dom.js";
import { choice, chosenOf, plot, swatch } from "./figure.js";
import { change, compact, duration, fixed, isKnown, percent, significant, whole } from "./format.js";
import { policySections } from "./policy_sections.js";
import { factList, reportData, section, showReport } from "./report_frame.js";
import { byReason, meaningOf, reasonClass } from "./reasons.js";
import { niceCeiling } from "./scale.js";
import { dataTable, shareBar } from "./table.js";

const dryRun = reportData();
const names = Object.keys(dryRun.policies);
const figuresOf = dryRun.policies;
const fixedNames = names.filter((name) => /^fixed-\d+$/.test(name));
const bestFixed = fixedNames.reduce((best, name) => (best === null || figuresOf[name].mean_latency_s < figuresOf[best].mean_latency_s ? name : best), null);
const MAIN = ["adaptive", "least-loaded", "round-robin", bestFixed, "plain", "oracle"].filter((name) => name !== null && names.includes(name));

function policyColour(name) {
  if (name === "adaptive") return "force-line";
  if (name === "oracle") return "p-oracle";
  if (name === "plain") return "plain-line";
  if (name === "least-loaded") return "p-least";
  if (name === "round-robin") return "p-robin";
  return "fixed-line";
}

function dryRunBody(sheet) {
  const load = dryRun.workload;
  return [
    h("div", { class: "lead" }, h("h2", null, `Dry run of ${dryRun.policy.name}`), h("p", { class: "finding" }, headline())),
    h("div", { class: "grid" },
      section("replayed", "What was replayed", "wide", null, factList([
        ["Requests", whole(load.requests)],
        ["Over", duration(load.span_s)],
        ["Rate", isKnown(load.requests_per_second) ? `${significant(load.requests_per_second)} per second (scale ${significant(load.scale)})` : "unknown"],
        ["Output, prompt tokens", `${whole(load.output_tokens)}, ${whole(load.prompt_tokens)}`],
        ["By class", Object.entries(load.requests_by_class).filter(([, count]) => count).map(([name, count]) => `${name} ${whole(count)}`).join(", ")],
        ["Traces", dryRun.sources],
        ["Fleet", fleetWords()],
        ["Seed", String(dryRun.settings.seed)],
        ["Learning", dryRun.settings.learning ? "acceptance seen is fed back" : "off"],
        Object.keys(dryRun.settings.true_acceptance).length ? ["True acceptance", Object.entries(dryRun.settings.true_acceptance).map(([name, [first, plateau]]) => `${name} ${first}, ${plateau}`).join("; ")] : null,
      ])),
      regretSection(sheet),
      distributionSection(sheet),
      timeSection("load", "Load over time", "open", "Requests that have come and are not finished, mean over each bit of time.", "open requests", sheet),
      timeSection("gamma", "Gamma over time", "gamma", "Mean gamma of the sequences being decoded; plain ones count as 0.", "mean gamma", sheet),
      replicaSection(sheet),
      reasonSection(),
      shareSection(),
      whatIfSection(sheet),
      h("h2", { class: "section-title", key: "policy" }, `The policy: ${dryRun.policy.name}`),
      policySections(dryRun.picture, sheet)),
  ];
}

/** What came of it, in a sentence or two that are true whichever way it went. */
function headline() {
  const mine = figuresOf.adaptive;
  if (!mine) return `${whole(dryRun.workload.requests)} requests were replayed under ${names.join(", ")}.`;
  const against = (name) => mine.mean_latency_s / figuresOf[name].mean_latency_s - 1;
  const words = (name, called) => {
    const value = against(name);
    if (Math.abs(value) < 0.005) return `as fast as ${called}`;
    return `${fixed(Math.abs(100 * value), 1)} % ${value < 0 ? "faster" : "slower"} than ${called}`;
  };
  const parts = [];
  if (names.includes("least-loaded")) parts.push(words("least-loaded", "least-loaded routing on the same fleet"));
  if (bestFixed) parts.push(words(bestFixed, `as many replicas at ${bestFixed.replace("fixed-", "gamma ")}, the best fixed gamma`));
  if (names.includes("plain")) parts.push(words("plain", "as many plain replicas"));
  const verdict = bestFixed && against(bestFixed) > 0.02 ? " On this trace a well-chosen fixed gamma serves better than this fleet: see what other sizes of the pools do below." : "";
  return parts.length ? `Mean latency of the decision: ${parts.join("; ")}.${verdict}` : `Mean latency of the decision: ${duration(mine.mean_latency_s)}.`;
}

function fleetWords() {
  const groups = new Map();
  for (const plan of dryRun.fleet) {
    const what = plan.pool === "plain" ? "plain" : Array.isArray(plan.gamma) ? "on a schedule" : `at gamma ${plan.gamma}`;
    groups.set(what, (groups.get(what) || 0) + 1);
  }
  return [...groups].map(([what, count]) => `${whole(count)} ${what}`).join(", ");
}

const FIGURES = [
  ["Latency", "mean_latency_s", duration], ["p99", "p99_latency_s", duration, "Latency"], ["TTFT", "mean_ttft_s", duration], ["p99", "p99_ttft_s", duration, "TTFT"],
  ["TPOT", "mean_tpot_ms", (value) => (isKnown(value) ? duration(value / 1000) : "unknown")], ["Tokens/s", "tokens_per_second", (value) => significant(value, 4)],
  ["Gamma", "mean_gamma", (value) => fixed(value, 2)], ["Busy", "gpu_busy_share", (value) => percent(value)],
];

function regretSection(sheet) {
  const sorted = {
    by: sheet.choices.get("regret-sort") || "",
    down: sheet.choices.get("regret-down") === true,
    set: (by, down) => {
      sheet.choices.set("regret-sort", by);
      sheet.choices.set("regret-down", down);
      sheet.redraw();
    },
  };
  const value = (name) => (sorted.by === "regret" ? figuresOf[name].regret_vs_oracle : sorted.by === "name" ? name : figuresOf[name][sorted.by]);
  const order = sorted.by ? [...names].sort((a, b) => compared(value(a), value(b)) * (sorted.down ? -1 : 1)) : names;
  const most = Math.max(0.01, ...names.map((name) => figuresOf[name].regret_vs_oracle).filter(isKnown));
  return section("regret", "Regret", "wide", null,
    h("p", { class: "note" }, names.includes("oracle")
      ? "Mean latency over that of an oracle that uses at every step the gamma which is best for the batch with the true acceptance."
      : "Regret is unknown: the oracle was not run (--only)."),
    dataTable({
      caption: "Figures of each way to run the fleet", sorted,
      columns: [{ label: "Policy", sort: "name" }, { label: "Over oracle", sort: "regret", numeric: true }, { label: "", before: "Over oracle, as a bar", class: "wide-only" },
        ...FIGURES.map(([label, key, , before]) => ({ label, before, sort: key, numeric: true, title: dryRun.meaning.figures[key], class: ["mean_latency_s", "p99_latency_s"].includes(key) ? "" : "wide-only" }))],
      rows: order.map((name) => ({
        key: name, class: name === "adaptive" ? "strong" : "",
        cells: [h("span", { title: dryRun.meaning.policies[name] }, h("i", { class: `key ${policyColour(name)}`, "aria-hidden": "true" }), name),
          change(figuresOf[name].regret_vs_oracle), regretBar(figuresOf[name].regret_vs_oracle, most),
          ...FIGURES.map(([, key, text]) => text(figuresOf[name][key]))],
      })),
    }));
}

function compared(a, b) {
  if (a === b) return 0;
  if (a === null) return 1;
  if (b === null) return -1;
  return a < b ? -1 : 1;
}

function regretBar(value, most) {
  const width = isKnown(value) ? Math.max((90 * Math.max(value, 0)) / most, value > 0 ? 1 : 0) : 0;
  return h("svg", { width: 92, height: 9, viewBox: "0 0 92 9", "aria-hidden": "true" }, h("rect", { class: "bar-run", x: 0, y: 0, width, height: 9, rx: 2 }));
}

function distributionSection(sheet) {
  const metrics = [["latency_s", "Latency"], ["ttft_s", "TTFT"], ["tpot_s", "TPOT"]];
  const metric = chosenOf(sheet, "metric", metrics, "latency_s");
  const shares = dryRun.percentiles;
  const shown = MAIN.filter((name) => dryRun.plots[name].distributions[metric] !== null);
  const values = shown.map((name) => dryRun.plots[name].distributions[metric]);
  const p99 = shares.indexOf(99);
  const end = niceCeiling(Math.max(1e-6, ...values.map((each) => each[p99])));
  const label = metrics.find(([key]) => key === metric)[1];
  return section("distribution", "Distribution", "wide", choice(sheet, "metric", "What is shown", metrics, "latency_s"),
    h("p", { class: "note" }, "Share of the requests that took at most so long; the axis ends at the 99th percentile of the slowest."),
    h("div", { class: "side-by-side" },
      h("div", null, plot(sheet, {
        id: "distribution", name: `Share of requests by ${label}, a line for each policy`, height: 250,
        draw: () => ({
          x: { domain: [0, end], format: (tick) => (end < 1 ? compact(tick * 1000) : compact(tick)), label: end < 1 ? "ms" : "seconds" },
          y: { domain: [0, 1], ticks: [0, 0.25, 0.5, 0.75, 1], format: (tick) => percent(tick), label: "of the requests" },
          lines: shown.map((name, i) => ({ points: shares.map((share, at) => [values[i][at], share / 100]), class: policyColour(name) })),
        }),
      }), policyLegend(shown)),
      dataTable({
        caption: `Percentiles of ${label}`,
        columns: [{ label: "Policy" }, ...[50, 90, 95, 99, 99.9].map((share) => ({ label: `p${share}`, numeric: true, class: share === 95 || share === 99.9 ? "wide-only" : "" }))],
        rows: shown.map((name, i) => ({ key: name, class: name === "adaptive" ? "strong" : "", cells: [name, ...[50, 90, 95, 99, 99.9].map((share) => duration(values[i][shares.indexOf(share)]))] })),
      })));
}

function policyLegend(shown) {
  return h("ul", { class: "legend spaced" }, shown.map((name) => h("li", { key: name }, h("i", { class: `key ${policyColour(name)}`, "aria-hidden": "true" }), name)));
}

function timeSection(id, title, key, note, label, sheet) {
  const shown = MAIN.filter((name) => dryRun.plots[name]);
  const timelines = shown.map((name) => dryRun.plots[name].timeline);
  const end = Math.max(...timelines.map((each) => each.time_s[each.time_s.length - 1] || 1));
  const unit = end > 7200 ? [3600, "hours"] : end > 180 ? [60, "minutes"] : [1, "seconds"];
  const values = timelines.flatMap((each) => each[key]).filter(isKnown);
  const xs = timelines[0] ? timelines[0].time_s : [];
  return section(id, title, "half", null,
    h("p", { class: "note" }, note),
    plot(sheet, {
      id, name: `${title}, a line for each policy`, height: 250,
      draw: () => ({
        x: { domain: [0, end], format: (tick) => compact(tick / unit[0]), ticks: unitTicks(end, unit[0]), label: unit[1] },
        y: { domain: [0, niceCeiling(Math.max(0.5, ...values))], format: compact, label },
        lines: shown.map((name, i) => ({ points: timelines[i].time_s.map((time, at) => [time, timelines[i][key][at]]), class: `${policyColour(name)} ${name === "adaptive" ? "" : "thin"}` })).reverse(),
      }),
      xs,
      hint: "Point at the plot to read it.",
      readout: (time) => [h("b", null, duration(time)), shown.map((name, i) => {
        const each = timelines[i];
        const at = each.time_s.reduce((best, one, j) => (Math.abs(one - time) < Math.abs(each.time_s[best] - time) ? j : best), 0);
        return swatch(policyColour(name), name, isKnown(each[key][at]) ? significant(each[key][at], 2) : "unknown");
      })],
      tableName: title,
      table: () => dataTable({
        caption: title, dense: true, box: "tall", columns: [{ label: "From the start", numeric: true }, ...shown.map((name) => ({ label: name, numeric: true }))],
        rows: xs.map((time, at) => ({ key: at, cells: [duration(time), ...timelines.map((each) => (isKnown(each[key][at]) ? significant(each[key][at], 3) : "unknown"))] })).filter((_, at) => at % Math.max(1, Math.floor(xs.length / 40)) === 0),
      }),
    }),
    policyLegend(shown));
}

function unitTicks(end, unit) {
  const rough = end / unit / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough * 0.999) * power;
  const ticks = [];
  for (let at = 0; at * unit <= end * 1.0001; at += step) ticks.push(at * unit);
  return ticks;
}

function replicaSection(sheet) {
  const run = dryRun.plots.adaptive;
  if (!run) return null;
  const rows = Object.entries(run.timeline.gamma_by_replica);
  const loads = run.timeline.decoding_by_replica;
  const most = Math.max(1, ...Object.values(loads).flat().filter(isKnown));
  const shares = figuresOf.adaptive.share_per_replica;
  return section("replicas", "Replicas under the decision", "half", null,
    h("p", { class: "note" }, `Sequences decoding on each over time, all on one scale (up to ${significant(most, 2)}), and the mean gamma.`, dryRun.fleet.length > rows.length ? ` The first ${rows.length} of ${dryRun.fleet.length}.` : ""),
    dataTable({
      caption: "Replicas: load over time, gamma and share of the requests", dense: true, box: "tall",
      columns: [{ label: "Replica" }, { label: "Decoding over time" }, { label: "Gamma", numeric: true }, { label: "Requests", numeric: true }],
      rows: rows.map(([name, gammas]) => {
        const weights = loads[name];
        const total = weights.reduce((sum, each) => sum + each, 0);
        const mean = total > 0 ? gammas.reduce((sum, gamma, i) => sum + (gamma || 0) * weights[i], 0) / total : null;
        return { key: name, cells: [name, loadStrip(weights, most), mean === null ? "none" : fixed(mean, 2), percent(shares[name], 1)] };
      }),
    }));
}

function loadStrip(values, most) {
  const width = 220;
  const height = 22;
  const x = (i) => (i * width) / Math.max(values.length - 1, 1);
  const y = (value) => height - 1 - ((height - 3) * Math.min(value, most)) / most;
  const line = values.map((value, i) => `${x(i).toFixed(1)} ${y(value).toFixed(1)}`).join("L");
  return h("svg", { class: "strip", width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    h("path", { class: "area", d: `M0 ${height}L${line}L${width} ${height}Z` }), h("path", { class: "edge", d: `M${line}` }));
}

function shareSection() {
  return section("share", "Share per pool", "half", null,
    dataTable({
      caption: "Share of the requests that went to speculative and to plain replicas", dense: true, hideCaption: true,
      columns: [{ label: "Policy" }, { label: "Speculative", numeric: true }, { label: "", before: "As a bar" }, { label: "Plain", numeric: true }],
      rows: names.map((name) => {
        const { speculative, plain } = figuresOf[name].share_per_pool;
        return { key: name, class: name === "adaptive" ? "strong" : "", cells: [name, percent(speculative), h("span", { class: "pool-bar" }, shareBar([{ value: speculative, class: "spec", name: `speculative ${percent(speculative)}` }, { value: plain, class: "plain", name: `plain ${percent(plain)}` }], { name: `${name}: ${percent(speculative)} speculative`, height: 10 })), percent(plain)] };
      }),
    }));
}

function reasonSection() {
  const mine = figuresOf.adaptive;
  if (!mine) return null;
  const counts = Object.entries(mine.decisions_by_reason);
  const total = counts.reduce((sum, [, count]) => sum + count, 0);
  const reasons = byReason(counts);
  return section("reasons", "Why the decision sent requests where it did", "half", null,
    shareBar(reasons.map(([name, count]) => ({ value: count, class: reasonClass(name), name: `${name}: ${whole(count)}` })), { name: `Reasons: ${reasons.map(([name, count]) => `${name} ${percent(count / total)}`).join(", ")}`, height: 14 }),
    dataTable({
      caption: "Decisions by reason", dense: true,
      columns: [{ label: "Reason" }, { label: "Requests", numeric: true }, { label: "Share", numeric: true }, { label: "The request went to", class: "wrap wide-only" }],
      rows: reasons.map(([name, count]) => ({ key: name, cells: [h("span", null, h("i", { class: `key ${reasonClass(name)}`, "aria-hidden": "true" }), name), whole(count), percent(count / total, 1), meaningOf(name)] })),
    }));
}

function whatIfSection(sheet) {
  const rows = dryRun.what_if;
  if (rows === null) return section("what-if", "Other sizes of the pools", "half", null, h("p", { class: "note" }, "Left out (--no-what-if)."));
  const best = rows.reduce((a, b) => (b.mean_latency_s < a.mean_latency_s ? b : a));
  const count = rows[0].speculative + rows[0].plain;
  const high = niceCeiling(Math.max(...rows.map((row) => row.mean_latency_s)) * 1.02);
  const given = rows.find((row) => row.given);
  return section("what-if", "Other sizes of the pools", "half", null,
    h("p", { class: "note" }, `The same requests through the decision on ${whole(count)} replicas, with other numbers of speculative ones among them. `,
      best.given ? "The fleet given is the best of those tried." : `Best of those tried: ${whole(best.speculative)} speculative and ${whole(best.plain)} plain, mean latency ${change(best.mean_latency_s / given.mean_latency_s - 1)} against the fleet given.`),
    h("div", { class: "stacked" },
      h("div", null, plot(sheet, {
        id: "what-if", name: "Mean latency by number of speculative replicas", height: 230,
        draw: () => ({
          x: { domain: [-0.2, count + 0.2], ticks: rows.map((row) => row.speculative), format: String, label: `speculative replicas of ${count}` },
          y: { domain: [0, high], format: (tick) => (high < 1 ? compact(tick * 1000) : compact(tick)), label: `mean latency, ${high < 1 ? "ms" : "s"}` },
          lines: [{ points: rows.map((row) => [row.speculative, row.mean_latency_s]), class: "force-line" }],
          dots: rows.map((row) => ({ x: row.speculative, y: row.mean_latency_s, class: `force-dot ${row.given ? "pick" : ""}`, size: row.given ? 6 : 4, title: `${row.speculative} speculative: ${duration(row.mean_latency_s)}` })),
          rules: [{ x: given.speculative, label: "as given" }],
        }),
      })),
      dataTable({
        caption: "Figures by size of the pools", dense: true,
        columns: [{ label: "Speculative" }, { label: "Plain", numeric: true }, { label: "Latency", numeric: true }, { label: "p99", numeric: true }, { label: "TPOT", numeric: true, class: "wide-only" }, { label: "Busy", numeric: true, class: "wide-only" }],
        rows: rows.map((row) => ({ key: row.speculative, class: row.given ? "strong" : "", cells: [[whole(row.speculative), row.given ? h("small", { class: "soft" }, " as given") : ""], whole(row.plain), h("span", { class: row === best ? "best" : "" }, duration(row.mean_latency_s)), duration(row.p99_latency_s), isKnown(row.mean_tpot_ms) ? duration(row.mean_tpot_ms / 1000) : "unknown", percent(row.gpu_busy_share)] })),
      })));
}

showReport({ kind: "dry run", name: dryRun.policy.name, version: dryRun.version, body: dryRunBody });
