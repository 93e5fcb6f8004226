// A document after a change, as http/stream/changes.py describes it. What did not change is shared.

export function changed(value, change) {
  if ("to" in change) return change.to;
  if ("in" in change) {
    const next = { ...value };
    for (const name of change.out ?? []) delete next[name];
    for (const [name, part] of Object.entries(change.in)) next[name] = changed(next[name], part);
    return next;
  }
  const next = value.slice(0, change.size);
  for (const [index, part] of Object.entries(change.at)) next[index] = changed(next[index], part);
  return next;
}
