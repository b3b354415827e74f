// `policy show --html`: a policy as a page.

import { h } from "./dom.js";
import { whole } from "./format.js";
import { policySections } from "./policy_sections.js";
import { factList, reportData, section, showReport } from "./report_frame.js";

const policyData = reportData();

function policyBody(sheet) {
  const { policy } = policyData;
  return [
    h("div", { class: "lead" }, h("h2", null, policy.name), policy.description ? h("p", null, policy.description) : null),
    h("div", { class: "grid" },
      section("facts", "What it is for", "wide", null, factList(policyData.facts)),
      policySections(policy, sheet),
      section("origin", "Where its numbers come from", "wide", null,
        ["measured", "assumed", "sources"].map((kind) => policyData[kind].length
          ? [h("h3", null, { measured: "Measured", assumed: "Assumed", sources: "Sources" }[kind]), h("ul", { class: "notes plain-list" }, policyData[kind].map((text) => h("li", { key: text }, text)))]
          : null),
        policyData.measured.length + policyData.assumed.length + policyData.sources.length ? null : h("p", { class: "note" }, "The policy does not say."),
        policyData.points === null ? null : h("p", { class: "note" }, `Dots with whiskers: ${whole(policyData.points)} points measured in a sweep, each against the plain arm at the same load.`))),
  ];
}

showReport({ kind: "policy", name: policyData.policy.name, version: policyData.version, body: policyBody });
