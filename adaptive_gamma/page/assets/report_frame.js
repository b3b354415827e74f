// What all reports have in common: their bar, their sections, and being drawn anew when a width or a choice changes.

import { h, patch } from "./dom.js";
import { newSheet, watchPlots } from "./figure.js";
import { applyTheme, storedTheme, themeSwitch } from "./theme.js";

/** The JSON that stands in the document. */
export function reportData() {
  return JSON.parse(document.getElementById("data").textContent);
}

/** Draw `body(sheet)` under a bar that says what it is a report of. */
export function showReport({ kind, name, version, body }) {
  const root = document.getElementById("app");
  root.classList.add("report");
  let theme = storedTheme();
  let scheduled = false;
  const sheet = newSheet(() => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(draw);
  });
  function draw() {
    scheduled = false;
    patch(root, [
      h("header", { class: "top" }, h("h1", null, "adaptive-gamma"), h("span", { class: "version" }, version), h("span", { class: "chip" }, kind),
        h("span", { class: "policy-name" }, name), h("span", { class: "spring" }),
        themeSwitch(theme, (chosen) => {
          theme = chosen;
          sheet.redraw();
        })),
      h("main", { id: "main" }, body(sheet)),
      h("footer", null, h("p", null, "Made by adaptive-gamma. The figures stand in this file as JSON, in the element with the id \u201cdata\u201d; nothing is fetched.")),
    ]);
    watchPlots(sheet, root);
  }
  applyTheme(theme);
  draw();
}

export function section(id, title, width, head, ...content) {
  return h("section", { class: `card ${width}`, key: id, "aria-labelledby": `${id}-title` },
    h("header", { class: "card-head" }, h("h2", { id: `${id}-title` }, title), head), content);
}

export function factList(facts) {
  return h("dl", { class: "facts" }, facts.filter(Boolean).map(([term, text]) => h("div", { key: term }, h("dt", null, term), h("dd", null, text))));
}
