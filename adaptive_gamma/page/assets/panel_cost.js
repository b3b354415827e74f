// Predicted against observed: the time of a step, replica by replica.

import { h } from "./dom.js";
import { plot } from "./figure.js";
import { compact, duration, fixed, isKnown, plural, significant } from "./format.js";
import { gammaClass } from "./gamma_map.js";
import { niceCeiling } from "./scale.js";
import { dataTable, unknownText } from "./table.js";

export function costPanel(view, sheet) {
  const { state } = view;
  const checked = state.replicas.filter((each) => each.step !== null);
  const chosen = sheet.choices.get("replica");
  const values = checked.flatMap((each) => [each.step.observed_s, each.step.predicted_s]);
  const high = niceCeiling(Math.max(0.001, ...values) * 1.05);
  const low = values.length && Math.min(...values) > high * 0.4 ? Math.min(...values) * 0.8 : 0;
  const room = state.flag_above;
  const flagged = checked.filter((each) => each.step.flagged);
  return h("section", { class: "card third", "aria-labelledby": "cost-title" },
    h("header", { class: "card-head" }, h("h2", { id: "cost-title" }, "Predicted against observed")),
    h("p", { class: "note" }, `Seconds of a step over the last half minute of traffic. Within the band the prediction is taken as right (\u00b1${fixed(100 * room, 0)} %).`),
    checked.length
      ? plot(sheet, {
        id: "cost",
        name: "Observed step time against the predicted, a dot for each replica",
        height: 250,
        draw: () => ({
          x: { domain: [low, high], format: (tick) => compact(tick * 1000), label: "predicted, ms" },
          y: { domain: [low, high], format: (tick) => compact(tick * 1000), label: "observed, ms" },
          bands: [{ points: [[low, low * (1 - room), low * (1 + room)], [high, high * (1 - room), high * (1 + room)]] }],
          rules: [{ from: [low, low], to: [high, high], class: "even" }],
          dots: checked.map((each) => ({
            key: each.name, x: each.step.predicted_s, y: each.step.observed_s, shape: each.step.flagged ? "diamond" : "circle", size: each.name === chosen ? 6 : each.step.flagged ? 5 : 3.6,
            class: `${each.step.flagged ? "alarm" : gammaClass(each.pool === "plain" ? "plain" : each.gamma)} ${each.name === chosen ? "pick" : ""}`,
            title: `${each.name}: observed ${duration(each.step.observed_s)}, predicted ${duration(each.step.predicted_s)}`,
          })),
        }),
        tableName: "step times by replica",
        table: () => costTable(checked),
      })
      : h("p", { class: "empty-plot" }, unknownText("Unknown so far: a hundred steps must have been seen, of an engine that counts them.")),
    flagged.length
      ? h("ul", { class: "notes" }, flagged.slice(0, 4).map((each) => h("li", { key: each.name }, h("b", null, each.name), `: ${significant(each.step.observed_s / each.step.predicted_s)} times${each.step.causes.length ? `; ${each.step.causes[0]}` : ""}`)),
        flagged.length > 4 ? h("li", { key: "more" }, `and ${plural(flagged.length - 4, "more replica")}`) : null)
      : null);
}

function costTable(checked) {
  return dataTable({
    caption: "Step time by replica", box: "tall", dense: true,
    columns: [{ label: "Replica" }, { label: "Batch", numeric: true }, { label: "Predicted", numeric: true }, { label: "Observed", numeric: true }, { label: "Ratio", numeric: true }],
    rows: checked.map((each) => ({ key: each.name, cells: [each.name, isKnown(each.step.batch) ? fixed(each.step.batch, 1) : unknownText(), duration(each.step.predicted_s), duration(each.step.observed_s), `${fixed(each.step.observed_s / each.step.predicted_s, 2)}\u00d7`] })),
  });
}
