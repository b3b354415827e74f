// The reasons of decisions, in words and in an order that is always the same.

const MEANINGS = new Map([
  ["low_load", "a speculative replica, as every class would at these loads"],
  ["class", "its class tipped it: another class would go to the other pool"],
  ["high_load", "a plain replica, although it would speculate on an idle fleet"],
  ["cached", "a replica that has the prompt\u2019s beginning or the session cached"],
  ["capability", "the cheapest replica cannot serve it"],
  ["balance", "the least loaded: all replicas are of one pool"],
  ["only_replica", "the only one that could take it"],
  ["fallback", "every replica is marked down; one is tried all the same"],
  ["observe", "the least loaded, while only observing"],
]);

export function meaningOf(reason) {
  return MEANINGS.get(reason) || "";
}

export function reasonClass(reason) {
  const index = [...MEANINGS.keys()].indexOf(reason);
  return `reason-${index < 0 ? "other" : index}`;
}

/** Counts by reason, in the usual order, the unusual ones last. */
export function byReason(counts) {
  const order = [...MEANINGS.keys()];
  const place = (name) => (order.includes(name) ? order.indexOf(name) : order.length);
  return [...counts].sort(([a], [b]) => place(a) - place(b) || a.localeCompare(b));
}
