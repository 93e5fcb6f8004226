// What the page remembers since it was opened: what nodes have counted, as rates, and lags.

const KEPT_S = 600;
const WINDOW_MS = 3000;
const SPREAD_MS = 15000;

class Series {
  constructor() {
    this.points = [];
  }

  add(at, value) {
    this.points.push([at, value]);
    while (this.points.length && at - this.points[0][0] > KEPT_S * 1000) this.points.shift();
  }

  get last() {
    return this.points.at(-1)?.[1];
  }

  // The change a second over the last `spanMs`.
  slope(spanMs) {
    const end = this.points.at(-1);
    const begin = this.points.find(([at]) => end && end[0] - at <= spanMs);
    if (!begin || begin === end) return undefined;
    return (1000 * (end[1] - begin[1])) / (end[0] - begin[0]);
  }
}

export class History {
  constructor() {
    this.series = new Map();
    this.samples = new Map();
  }

  of(name) {
    let found = this.series.get(name);
    if (!found) this.series.set(name, (found = new Series()));
    return found;
  }

  // A document of /api/load. A node's own clock says how far apart two of its answers are.
  load(document) {
    const now = Date.now();
    const sums = { in: 0, inBytes: 0, out: 0, outBytes: 0, requests: 0 };
    const writes = [];
    const syncs = [];
    let known = false;
    for (const node of document.nodes) {
      const kept = this.kept(node);
      if (kept.length < 2) continue;
      known = true;
      const rates = ratesOf(within(kept, WINDOW_MS), node);
      for (const name of Object.keys(sums)) {
        sums[name] += rates[name];
        this.of(`node/${node.node}/${name}`).add(now, rates[name]);
      }
      const [first] = within(kept, SPREAD_MS);
      for (const [which, name] of [[writes, "writes"], [syncs, "syncs"]]) {
        const spread = spreadOf(first[name], node[name]);
        which.push(spread);
        const at = quantile(spread, 0.99);
        if (at !== undefined) this.of(`node/${node.node}/${name}`).add(now, at);
      }
    }
    if (!known) return;
    for (const [name, value] of Object.entries(sums)) this.of(name).add(now, value);
    for (const [name, spreads] of [["writes", writes], ["syncs", syncs]]) {
      for (const part of [0.5, 0.99]) {
        const at = quantile(together(spreads), part);
        if (at !== undefined) this.of(`${name}/${part}`).add(now, at);
      }
    }
  }

  kept(node) {
    let kept = this.samples.get(node.node) ?? [];
    // Silent, or started anew: what it counted before is of no use.
    if (node.uptime_ms === null || node.uptime_ms < (kept.at(-1)?.uptime_ms ?? 0)) kept = [];
    if (node.uptime_ms !== null && node.uptime_ms !== kept.at(-1)?.uptime_ms) kept.push(node);
    while (kept.length && node.uptime_ms - kept[0].uptime_ms > 2 * SPREAD_MS) kept.shift();
    this.samples.set(node.node, kept);
    return kept;
  }
}

function within(kept, spanMs) {
  const end = kept.at(-1).uptime_ms;
  const at = kept.findIndex((each) => end - each.uptime_ms <= spanMs);
  return kept.slice(Math.min(at, kept.length - 2));
}

function ratesOf([first], node) {
  const seconds = (node.uptime_ms - first.uptime_ms) / 1000;
  const rate = (name) => (node[name] - first[name]) / seconds;
  return {
    in: rate("appended_records"),
    inBytes: rate("appended_bytes"),
    out: rate("fetched_records"),
    outBytes: rate("fetched_bytes"),
    requests: rate("requests"),
  };
}

const spreadOf = (before, now) => ({
  bounds: now.up_to_ms,
  counts: now.counts.map((each, index) => each - before.counts[index]),
});

function together(spreads) {
  const [first] = spreads;
  if (!first) return { bounds: [], counts: [] };
  const counts = first.counts.map((_, index) => spreads.reduce((sum, each) => sum + each.counts[index], 0));
  return { bounds: first.bounds, counts };
}

// As precise as the bounds of what the node counts: between two of them it is a guess.
export function quantile({ bounds, counts }, part) {
  const total = counts.reduce((sum, each) => sum + each, 0);
  if (!total) return undefined;
  let seen = 0;
  for (const [index, each] of counts.entries()) {
    if (each && seen + each >= part * total) {
      const low = index ? bounds[index - 1] : 0;
      const high = bounds[index] ?? low;
      return low + ((high - low) * (part * total - seen)) / each;
    }
    seen += each;
  }
  return undefined;
}
