// At a glance: the few figures that say whether all is well, and what needs a look.

import { h } from "./dom.js";
import { change, isKnown, listed, passed, percent, plural, significant, whole } from "./format.js";
import { recentDecisions, watchedGains } from "./history.js";

export function overview(view) {
  const { state, history } = view;
  const replicas = state.replicas;
  const up = replicas.filter((each) => each.healthy && !each.leaving);
  const batches = replicas.map((each) => each.batch).filter(isKnown);
  const waiting = replicas.map((each) => each.waiting).filter(isKnown);
  const watched = watchedGains(history.ticks);
  const recent = recentDecisions(history.ticks, 60);
  const made = recent.rows.reduce((sum, row) => sum + row[3], 0);
  const speculative = recent.rows.filter((row) => row[1] === "speculative").reduce((sum, row) => sum + row[3], 0);
  const observed = state.observed;
  return h("section", { class: "overview", "aria-labelledby": "overview-title" },
    h("h2", { id: "overview-title", class: "unseen" }, "At a glance"),
    h("dl", { class: "tiles" },
      tile("Replicas up", [whole(up.length), h("small", null, ` of ${whole(replicas.length)}`)], stateWords(replicas)),
      tile("Sequences decoding", batches.length ? whole(total(batches)) : null,
        [waiting.length ? plural(total(waiting), "waits in an engine", "wait in engines") : "waiting unknown",
          state.queued ? `, ${whole(state.queued)} here` : ""]),
      tile("Tokens per second", observed ? significant(observed.tokens_per_s, 4) : null,
        observed ? `observed; ${percent(observed.ratio)} of the predicted` : "no engine shows it yet"),
      tile("Gain over plain", watched ? change(watched.overPlain) : null,
        watched ? `priced, last ${passed(watched.seconds)} watched` : idleWords(state), tone(watched && watched.overPlain)),
      tile("Over best fixed gamma", watched && watched.overBest !== null ? change(watched.overBest) : null,
        watched && watched.best !== null ? `gamma ${watched.best}, with hindsight` : idleWords(state),
        tone(watched && watched.overBest)),
      tile("Sent to speculative", made ? percent(speculative / made) : null,
        recent.seconds > 0 ? `${significant(made / recent.seconds)} decisions per second` : "decisions per second: unknown"),
    ));
}

function tile(name, value, words, toneClass = "") {
  return h("div", { class: "tile" }, h("dt", null, name),
    h("dd", { class: `figure ${value === null ? "unknown" : toneClass}` }, value === null ? "unknown" : value),
    h("dd", { class: "words" }, words));
}

function tone(value) {
  if (!isKnown(value) || Math.abs(value) < 0.0005) return "";
  return value > 0 ? "good" : "bad";
}

function total(values) {
  return values.reduce((sum, value) => sum + value, 0);
}

function idleWords(state) {
  return state.gains === null ? "nothing is being decoded" : "watched too briefly";
}

function stateWords(replicas) {
  const counts = [
    [replicas.filter((each) => !each.healthy).length, "down"],
    [replicas.filter((each) => each.draining && !each.leaving).length, "draining"],
    [replicas.filter((each) => each.leaving).length, "leaving"],
    [replicas.filter((each) => !each.fresh).length, "not read lately"],
  ].filter(([count]) => count);
  return counts.length ? counts.map(([count, word]) => `${whole(count)} ${word}`).join(", ") : "all read lately";
}

/** What needs a look: {kind: "bad" | "warn", what, who}. */
export function troubles(view) {
  const { state, learned } = view;
  const replicas = state.replicas;
  const found = [];
  const add = (kind, what, who) => who.length && found.push({ kind, what, who: listed(who) });
  const names = (wanted) => replicas.filter(wanted).map((each) => each.name);
  if (state.draining) found.push({ kind: "warn", what: "The proxy is draining", who: "it takes no new connections and stops when what is open has ended" });
  else if (!state.ready) found.push({ kind: "bad", what: "Not ready", who: state.not_ready_because || "" });
  add("bad", "Down", names((each) => !each.healthy && !each.asleep));
  add("warn", "Asleep", names((each) => each.asleep));
  add("bad", "Load unknown, the last reading is too old", names((each) => each.healthy && !each.fresh && each.age_s !== null));
  add("warn", "Never read", names((each) => each.age_s === null && each.error === null));
  for (const reason of new Set(replicas.map((each) => each.error).filter(Boolean))) {
    add("warn", `Metrics cannot be read (${reason})`, names((each) => each.error === reason && each.healthy));
  }
  add("bad", "Speculation loses: fewer tokens per second than plain decoding is priced at", names((each) => each.pool === "speculative" && each.step !== null && isKnown(each.step.gain_over_plain) && each.step.gain_over_plain < 0));
  add("warn", "Steps do not take the predicted time", replicas.filter((each) => each.step && each.step.flagged).map((each) =>
    `${each.name} (${significant(each.step.observed_s / each.step.predicted_s)} times${each.step.causes.length ? `: ${each.step.causes[0]}` : ""})`));
  add("warn", "Near the limit of the KV cache", names((each) => isKnown(each.kv_usage) && isKnown(state.kv_usage_limit) && each.kv_usage >= state.kv_usage_limit));
  add("warn", "Gamma cannot be set", names((each) => each.set_gamma !== null && each.set_gamma.problem !== null));
  const told = new Set(["steps take", "gamma cannot be set", "the engine sleeps"]);
  const notes = replicas.flatMap((each) => each.notes.filter((note) => ![...told].some((start) => note.startsWith(start))).map((note) => [note, each.name]));
  for (const note of new Set(notes.map(([text]) => text))) add("warn", note[0].toUpperCase() + note.slice(1), notes.filter(([text]) => text === note).map(([, name]) => name));
  for (const place of state.discovery) if (place.error) found.push({ kind: "warn", what: `Discovery of ${place.name} gets no answer`, who: `${place.error}; the last list is in force` });
  if (learned) {
    const known = learned.drafters[learned.drafter] || {};
    add("warn", "Acceptance has left what the policy leaves room for", Object.keys(known).filter((name) => known[name].drifted));
  }
  return found;
}

export function attention(view) {
  const found = troubles(view);
  return h("section", { class: `attention ${found.length ? "" : "calm"}`, "aria-labelledby": "attention-title" },
    h("h2", { id: "attention-title" }, found.length ? "Needs a look" : "Nothing needs a look"),
    found.length
      ? h("ul", null, found.map((each) => h("li", { key: each.what, class: each.kind },
        h("span", { class: "mark", "aria-hidden": "true" }, each.kind === "bad" ? "\u25cf" : "\u25b2"),
        h("span", null, h("b", null, each.what), each.who ? `: ${each.who}` : ""))))
      : null);
}
