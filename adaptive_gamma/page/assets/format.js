// Numbers as people read them. What is not known is said so.

export const UNKNOWN = "unknown";

const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

export function isKnown(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** With so many significant digits, thousands grouped. */
export function significant(value, digits = 3) {
  if (!isKnown(value)) return UNKNOWN;
  if (value === 0) return "0";
  const magnitude = Math.floor(Math.log10(Math.abs(value)));
  if (magnitude >= digits - 1) return GROUPED.format(value);
  return value.toFixed(Math.min(Math.max(digits - 1 - magnitude, 0), 6));
}

export function whole(value) {
  return isKnown(value) ? GROUPED.format(value) : UNKNOWN;
}

export function fixed(value, digits) {
  return isKnown(value) ? value.toFixed(digits) : UNKNOWN;
}

/** Seconds in the unit that suits them. */
export function duration(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  const size = Math.abs(seconds);
  if (size < 0.001) return `${significant(seconds * 1e6)} \u00b5s`;
  if (size < 1) return `${significant(seconds * 1000)} ms`;
  if (size < 120) return `${significant(seconds)} s`;
  if (size < 7200) return `${significant(seconds / 60)} min`;
  return `${significant(seconds / 3600)} h`;
}

/** Seconds that have passed, without parts of one. */
export function passed(seconds) {
  if (!isKnown(seconds)) return UNKNOWN;
  return seconds < 120 ? `${Math.round(seconds)} s` : `${Math.round(seconds / 60)} min`;
}

export function percent(share, digits = 0) {
  return isKnown(share) ? `${(100 * share).toFixed(digits)} %` : UNKNOWN;
}

/** A change: with its sign, and no sign on what is nothing. */
export function change(share, digits = 1) {
  if (!isKnown(share)) return UNKNOWN;
  const text = (100 * share).toFixed(digits);
  if (Number(text) === 0) return `0 %`;
  return `${share > 0 ? "+" : "\u2212"}${text.replace("-", "")} %`;
}

/** 1.2k, 3.4M: for axes. */
export function compact(value) {
  if (!isKnown(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size >= 1e6) return `${trimmed(value / 1e6)}M`;
  if (size >= 1e4) return `${trimmed(value / 1e3)}k`;
  if (size >= 1000) return GROUPED.format(value);
  return trimmed(value);
}

export function plural(count, one, many = `${one}s`) {
  return `${whole(count)} ${count === 1 ? one : many}`;
}

/** The first few of a list and how many more there are. */
export function listed(names, most = 5) {
  const shown = names.slice(0, most).join(", ");
  return names.length > most ? `${shown} and ${names.length - most} more` : shown;
}

export function gammaName(gamma) {
  if (gamma === null || gamma === undefined) return UNKNOWN;
  return gamma === "plain" ? "plain" : `gamma ${gamma}`;
}

function trimmed(value) {
  return String(Number(value.toPrecision(3)));
}
