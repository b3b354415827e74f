// From values to pixels, and which values stand at an axis.

/** A scale with `at(value)`, `invert(pixel)` and `ticks(count)`; `kind` is `linear` or `log2`. */
export function scaleOf(kind, domain, range) {
  const [low, high] = domain;
  const [from, to] = range;
  const forth = kind === "log2" ? (value) => Math.log2(Math.max(value, 1e-12)) : (value) => value;
  const back = kind === "log2" ? (value) => 2 ** value : (value) => value;
  const start = forth(low);
  const span = forth(high) - start || 1;
  return {
    kind,
    domain,
    at: (value) => from + ((forth(value) - start) / span) * (to - from),
    invert: (pixel) => back(start + ((pixel - from) / (to - from || 1)) * span),
    ticks: (count) => (kind === "log2" ? powerTicks(low, high, count) : niceTicks(low, high, count)),
  };
}

/** A round value not below `value`, for the end of an axis. */
export function niceCeiling(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]) if (step * power >= value * 0.9999) return step * power;
  return 10 * power;
}

export function niceTicks(low, high, count) {
  const step = niceStep((high - low) / Math.max(count, 1));
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i += 1) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough || 1));
  for (const step of [1, 2, 2.5, 5, 10]) if (step * power >= rough * 0.9999) return step * power;
  return 10 * power;
}

function powerTicks(low, high, count) {
  const first = Math.ceil(Math.log2(low) - 1e-9);
  const last = Math.floor(Math.log2(high) + 1e-9);
  const step = Math.max(1, Math.ceil((last - first + 1) / Math.max(count, 1)));
  const ticks = [];
  for (let power = first; power <= last; power += step) ticks.push(2 ** power);
  return ticks;
}
