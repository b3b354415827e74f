// Dark and light: as the system has it, or as chosen here.

import { h } from "./dom.js";

const THEME_KEY = "adaptive-gamma-theme";
const THEMES = [["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]];

export function storedTheme() {
  try {
    const found = localStorage.getItem(THEME_KEY);
    return THEMES.some(([name]) => name === found) ? found : "auto";
  } catch {
    return "auto"; // storage is shut off, or the page is a file
  }
}

export function applyTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

function keepTheme(theme) {
  try {
    localStorage.setItem(THEME_KEY, theme);
  } catch {
    return; // it holds until the page is left
  }
}

export function themeSwitch(theme, changed) {
  return h("fieldset", { class: "choice theme" },
    h("legend", { class: "unseen" }, "Colours"),
    THEMES.map(([value, label]) =>
      h("label", { key: value, class: value === theme ? "chosen" : "" },
        h("input", {
          type: "radio", name: "theme", value, checked: value === theme,
          onchange: () => {
            keepTheme(value);
            applyTheme(value);
            changed(value);
          },
        }), label)));
}
