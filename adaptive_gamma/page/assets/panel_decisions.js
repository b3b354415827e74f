// The last decisions, and how their reasons were shared out.

import { h } from "./dom.js";
import { change, duration, passed, percent, plural, whole } from "./format.js";
import { gammaClass } from "./gamma_map.js";
import { recentDecisions } from "./history.js";
import { byReason, meaningOf, reasonClass } from "./reasons.js";
import { dataTable, shareBar, unknownText } from "./table.js";

const COLUMNS = [
  { label: "Time", class: "wide-only" },
  { label: "Class" },
  { label: "Sent to" },
  { label: "Gamma", numeric: true },
  { label: "Reason" },
  { label: "Time per token", numeric: true, class: "wide-only", title: "predicted there" },
  { label: "Next best", class: "wide-only", title: "and what it would have cost, the delay of others counted, against the one chosen" },
  { label: "Outcome", class: "wide-only" },
];

export function decisionsPanel(view) {
  const { decisions, history, state } = view;
  const recent = recentDecisions(history.ticks, 60);
  const counts = new Map();
  for (const [, , reason, count] of recent.rows) counts.set(reason, (counts.get(reason) || 0) + count);
  const made = [...counts.values()].reduce((sum, count) => sum + count, 0);
  const reasons = byReason(counts);
  return h("section", { class: "card two-thirds", "aria-labelledby": "decisions-title" },
    h("header", { class: "card-head" }, h("h2", { id: "decisions-title" }, "Last decisions"),
      h("span", { class: "count" }, recent.seconds > 0 ? `${whole(made)} in the last ${passed(recent.seconds)}` : "")),
    made
      ? h("div", { class: "reason-share" },
        shareBar(reasons.map(([name, count]) => ({ value: count, class: reasonClass(name), name: `${name}: ${whole(count)}` })), { name: `Reasons of the last ${whole(made)} decisions: ${reasons.map(([name, count]) => `${name} ${percent(count / made)}`).join(", ")}` }),
        h("ul", { class: "legend" }, reasons.map(([name, count]) => h("li", { key: name, title: meaningOf(name) }, h("i", { class: `key ${reasonClass(name)}`, "aria-hidden": "true" }), h("b", null, name), ` ${percent(count / made)} `, h("span", { class: "soft wide-only" }, meaningOf(name))))))
      : null,
    dataTable({
      caption: "The last decisions, newest first", columns: COLUMNS, box: "middle", dense: true,
      rows: decisions.map((each, i) => decisionRow(each, i, state)),
      empty: "no request has come yet",
    }));
}

function decisionRow(each, i, state) {
  const elsewhere = each.sent_to !== each.decided;
  const next = each.next[0];
  return {
    key: `${each.id}-${each.time}-${each.sent_to}-${i}`,
    class: "",
    cells: [
      h("span", { title: `request ${each.id}` }, timeOfDay(each.time)),
      each.class,
      elsewhere ? [each.sent_to, h("small", { class: "soft" }, ` not ${each.decided}`)] : each.sent_to,
      each.gamma === null ? unknownText() : h("span", { class: `chip ${gammaClass(each.gamma || "plain")}` }, each.pool === "plain" ? "plain" : each.gamma),
      h("span", { title: meaningOf(each.reason) }, h("i", { class: `key ${reasonClass(each.reason)}`, "aria-hidden": "true" }), each.reason),
      duration(each.tpot_s),
      next
        ? [next.replica, h("small", { class: "soft" }, each.cost_s > 0 ? ` ${change(next.cost_s / each.cost_s - 1)}` : "")]
        : h("span", { class: "soft" }, each.excluded ? `none: ${plural(each.excluded, "replica")} ruled out` : "none"),
      outcome(each, state),
    ],
  };
}

function outcome(each) {
  if (each.outcome === null) return h("span", { class: "soft" }, "under way");
  const fine = each.outcome === "ok" || each.outcome === "client_closed";
  return h("span", { class: fine ? "" : "bad" }, each.outcome.replaceAll("_", " "), each.status !== null && !fine ? ` (${each.status})` : "");
}

function timeOfDay(text) {
  const moment = new Date(text);
  if (Number.isNaN(moment.getTime())) return text;
  return moment.toLocaleTimeString("en-GB", { hour12: false });
}
