// Who follows whom, and how far behind: a matrix, the partitions that are behind, and elections.

import { h } from "../dom.js";
import { count, plural } from "../format.js";
import { at, empty, happened, link, node, panel, refusal, remark, replicas, table, waiting } from "../parts.js";

const ALL = "/api/partitions?internal=true&limit=1000";
const BEHIND = "/api/partitions?internal=true&limit=200&trouble=under-replicated";

export const replication = {
  name: "Replication",
  section: "Replication",
  watch: () => [ALL, BEHIND],

  draw({ get, error, nodes, events }) {
    const all = get(ALL);
    const behind = get(BEHIND);
    if (error(ALL)) return refusal(error(ALL));
    if (!all || !behind) return waiting();
    const happenings = events.all.filter((each) => each.kind === "election" || each.kind === "isr");
    return [
      h("h1", null, "Replication"),
      remark(all.stale),
      panel(
        "Leader × follower",
        h("p", { class: "quiet" }, "Records that followers lack, of all partitions between two nodes; below it the most that one partition lacks, and how many there are."),
        matrix(all.partitions, nodes),
        all.next ? h("p", { class: "quiet" }, `Of the first ${count(all.partitions.length)} partitions.`) : null,
      ),
      panel("Out of sync", outOfSync(behind, nodes)),
      panel("Elections and replicas in sync, while this page is open", happened(happenings.slice(0, 60), "No leader and no replica in sync has changed.")),
    ];
  },
};

// For each pair of nodes what the follower lacks.
function pairs(partitions) {
  const found = new Map();
  for (const each of partitions) {
    if (each.leader < 0) continue;
    for (const one of each.progress) {
      if (one.node === each.leader) continue;
      const key = `${each.leader}-${one.node}`;
      const pair = found.get(key) ?? { partitions: 0, sum: 0, most: 0, out: 0 };
      const lag = one.log_end_offset < 0 ? 0 : Math.max(0, each.log_end_offset - one.log_end_offset);
      pair.partitions += 1;
      pair.sum += lag;
      pair.most = Math.max(pair.most, lag);
      pair.out += one.in_sync ? 0 : 1;
      found.set(key, pair);
    }
  }
  return found;
}

function matrix(partitions, nodes) {
  const found = pairs(partitions);
  const ids = nodes.length ? nodes.map((each) => each.id) : [...new Set(partitions.flatMap((each) => each.replicas))].sort((a, b) => a - b);
  if (!ids.length) return empty("No node is known.");
  return h(
    "div",
    { class: "wide", tabindex: 0, role: "region", "aria-label": "Leader and follower" },
    h(
      "table",
      { class: "matrix", "data-table": "matrix" },
      h("thead", null, h("tr", null, h("th", { scope: "col" }, "leads ↓ follows →"), ids.map((id) => h("th", { scope: "col" }, node(id, nodes))))),
      h("tbody", null, ids.map((leader) => h("tr", { "data-key": `leader-${leader}` }, h("th", { scope: "row" }, node(leader, nodes)), ids.map((id) => cell(leader, id, found.get(`${leader}-${id}`)))))),
    ),
  );
}

function cell(leader, follower, pair) {
  const place = { "data-pair": `${leader}-${follower}` };
  if (leader === follower) return h("td", { ...place, class: "self" }, "·");
  if (!pair) return h("td", { ...place, class: "none" }, "–");
  const level = pair.out ? "warning" : pair.sum ? "some" : "ok";
  return h(
    "td",
    { ...place, class: level },
    h("b", null, count(pair.sum)),
    h("small", null, `most ${count(pair.most)}, ${plural(pair.partitions, "partition")}`),
    pair.out ? h("small", { class: "bad" }, `${pair.out} out of sync`) : null,
  );
}

function outOfSync(behind, nodes) {
  const columns = [
    { name: "partition", of: (each) => link(at("topics", each.topic), `${each.topic}/${each.partition}`) },
    { name: "leader", of: (each) => node(each.leader, nodes) },
    { name: "replicas", of: replicas },
    { name: "lacks", number: true, of: (each) => count(lagOf(each)), title: "records that the replica furthest behind lacks" },
    { name: "", field: "error", of: (each) => each.error ?? "" },
  ];
  return table(columns, behind.partitions, { key: (each) => `${each.topic}/${each.partition}`, id: "behind", none: "All replicas are in sync." });
}

function lagOf(partition) {
  const ends = partition.progress.filter((each) => each.log_end_offset >= 0).map((each) => each.log_end_offset);
  return ends.length && partition.log_end_offset >= 0 ? Math.max(0, partition.log_end_offset - Math.min(...ends)) : -1;
}
