// What was seen since the page was opened, as much as is shown and no more.

export const WATCHED_S = 300;
const LOADS_KEPT = 60;

export function newHistory() {
  return { ticks: [], loads: new Map() };
}

/** A tick is kept as a few numbers; replicas that are gone are forgotten. */
export function remember(history, state) {
  const { ticks, loads } = history;
  const last = ticks[ticks.length - 1];
  if (last && state.time < last.time) ticks.length = 0; // the clock was set back, or another process answers
  ticks.push({
    time: state.time,
    gains: state.gains ? { in_force: state.gains.in_force, plain: state.gains.plain, fixed: state.gains.fixed } : null,
    observed: state.observed ? state.observed.tokens_per_s : null,
    decisions: state.decisions,
  });
  while (ticks.length && (ticks[0].time < state.time - WATCHED_S || ticks.length > WATCHED_S + 10)) ticks.shift();
  const here = new Set();
  for (const replica of state.replicas) {
    here.add(replica.name);
    let row = loads.get(replica.name);
    if (!row) loads.set(replica.name, (row = []));
    row.push(replica.batch);
    if (row.length > LOADS_KEPT) row.shift();
  }
  for (const name of loads.keys()) if (!here.has(name)) loads.delete(name);
}

/** A picture of it that stands still. */
export function heldHistory(history) {
  return { ticks: history.ticks.slice(), loads: new Map([...history.loads].map(([name, row]) => [name, row.slice()])) };
}

/**
 * Tokens over the watched time, by what would have served the load of each moment: as it is, plain, and the one fixed
 * gamma that does best over the whole of it. Null before there were two ticks with a load.
 */
export function watchedGains(ticks) {
  let inForce = 0;
  let plain = 0;
  let seconds = 0;
  let common = null;
  const fixed = new Map();
  for (let i = 1; i < ticks.length; i += 1) {
    const gains = ticks[i].gains;
    const passed = Math.min(ticks[i].time - ticks[i - 1].time, 5);
    if (!gains || passed <= 0) continue;
    seconds += passed;
    inForce += gains.in_force * passed;
    plain += gains.plain * passed;
    const names = Object.keys(gains.fixed);
    common = common === null ? new Set(names) : new Set(names.filter((name) => common.has(name)));
    for (const name of names) fixed.set(name, (fixed.get(name) || 0) + gains.fixed[name] * passed);
  }
  if (!seconds || !plain) return null;
  let best = null;
  for (const name of common) if (best === null || fixed.get(name) > fixed.get(best)) best = name;
  return {
    seconds,
    overPlain: inForce / plain - 1,
    best: best === null ? null : Number(best),
    overBest: best === null || !fixed.get(best) ? null : inForce / fixed.get(best) - 1,
  };
}

/** Decisions of the last so many seconds: [class, pool, reason, count] each, those that were made. */
export function recentDecisions(ticks, seconds) {
  const last = ticks[ticks.length - 1];
  if (!last) return { rows: [], seconds: 0 };
  const first = ticks.find((tick) => tick.time >= last.time - seconds);
  const before = new Map(first.decisions.map(([name, pool, reason, count]) => [`${name}\n${pool}\n${reason}`, count]));
  const rows = [];
  for (const [name, pool, reason, count] of last.decisions) {
    const made = count - (before.get(`${name}\n${pool}\n${reason}`) || 0);
    if (made > 0) rows.push([name, pool, reason, made]);
  }
  return { rows, seconds: last.time - first.time };
}
