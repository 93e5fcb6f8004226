// A topic: its partitions as a grid and as a list, and what is set for it.

import { h } from "../dom.js";
import { bytes, count, perSecond } from "../format.js";
import { at, badge, facts, levelOf, link, node, pages, panel, refusal, remark, replicas, table, tile, waiting } from "../parts.js";
import { plot } from "../plot.js";

const LIMIT = 200;

const pathOf = ({ topic, query }) => {
  const said = new URLSearchParams({ limit: LIMIT });
  if (query.after) said.set("after", query.after);
  return `/api/topics/${encodeURIComponent(topic)}?${said}`;
};
const ends = (topic, partition) => `end/${topic}/${partition}`;
const rate = (topic) => `rate/${topic}`;

export const topic = {
  name: "Topic",
  section: "Topics",
  title: ({ topic }) => topic,
  watch: (context) => [pathOf(context)],

  see(path, document, context) {
    if (path !== pathOf(context)) return;
    const now = Date.now();
    let sum = 0;
    for (const each of document.partitions) {
      if (each.log_end_offset < 0) continue;
      const series = context.history.of(ends(document.name, each.partition));
      series.add(now, each.log_end_offset);
      sum += series.slope(3000) ?? 0;
    }
    context.history.of(rate(document.name)).add(now, sum);
  },

  draw(context) {
    const { topic, get, error, history, nodes, query } = context;
    const path = pathOf(context);
    const found = get(path);
    if (error(path)) return refusal(error(path));
    if (!found) return waiting();
    return [
      h("div", { class: "top" }, h("h1", null, link("#/topics", "Topics"), " / ", topic), badge("main", found.kind), link(at("topics", topic, "records", "0"), "Records")),
      remark(found.stale),
      h("div", { class: "tiles" }, tiles(found, history)),
      panel(null, plot("Records written a second", [{ label: "all partitions shown", series: history.of(rate(topic)), tone: "a" }], perSecond)),
      panel("Partitions", grid(found), list(found, history, nodes), pages(found, query, `/topics/${encodeURIComponent(topic)}`)),
      panel("Settings", settings(found)),
    ];
  },
};

function tiles(found, history) {
  const known = found.partitions.filter((each) => each.high_watermark >= 0);
  const sum = (of) => known.reduce((all, each) => all + of(each), 0);
  const led = found.partitions.filter((each) => each.leader >= 0).length;
  const inSync = found.partitions.filter((each) => levelOf(each) === "ok").length;
  const all = found.partitions.length;
  return [
    tile("Records", count(sum((each) => each.high_watermark - each.log_start_offset)), "offsets from start to high watermark"),
    tile("Written", perSecond(history.of(rate(found.name)).last)),
    tile("Size", bytes(sum((each) => each.size_bytes)), "of the leaders' logs"),
    tile("Led", `${led} of ${all}`, "partitions", led < all ? "critical" : ""),
    tile("In sync", `${inSync} of ${all}`, "partitions with all replicas", inSync < all ? "warning" : ""),
  ];
}

const grid = (found) =>
  h(
    "div",
    { class: "grid-of" },
    found.partitions.map((each) =>
      h(
        "span",
        {
          class: `cell ${levelOf(each)} lead-${each.leader < 0 ? "none" : each.leader % 6}`,
          "data-key": `cell-${each.partition}`,
          title: `partition ${each.partition}: ${each.leader < 0 ? "no leader" : `node ${each.leader} leads`}, ${each.isr.length} of ${each.replicas.length} in sync`,
        },
        String(each.partition),
      ),
    ),
  );

function list(found, history, nodes) {
  const columns = [
    { name: "partition", of: (each) => String(each.partition) },
    { name: "leader", of: (each) => [node(each.leader, nodes), each.pinned ? [" ", badge("main", "pinned")] : null] },
    { name: "epoch", number: true, of: (each) => count(each.leader_epoch) },
    { name: "replicas", of: replicas, title: "filled: in sync; ringed: leads; dashed: out of sync" },
    { name: "start", field: "log_start_offset", number: true, of: (each) => count(each.log_start_offset) },
    { name: "high watermark", field: "high_watermark", number: true, of: (each) => count(each.high_watermark) },
    { name: "end", field: "log_end_offset", number: true, of: (each) => count(each.log_end_offset) },
    { name: "written", number: true, of: (each) => perSecond(history.of(ends(found.name, each.partition)).slope(3000)) },
    { name: "lag", number: true, of: (each) => count(lagOf(each)), title: "records that the replica furthest behind lacks" },
    { name: "size", number: true, of: (each) => bytes(each.size_bytes) },
    { name: "segments", number: true, of: (each) => count(each.segments) },
    { name: "", field: "records", of: (each) => each.error ?? link(at("topics", found.name, "records", String(each.partition)), "records") },
  ];
  return table(columns, found.partitions, {
    key: (each) => `partition-${each.partition}`,
    id: "partitions",
    marks: (each) => levelOf(each),
  });
}

function lagOf(partition) {
  const ends = partition.progress.filter((each) => each.log_end_offset >= 0).map((each) => each.log_end_offset);
  return ends.length ? Math.max(0, partition.log_end_offset - Math.min(...ends)) : -1;
}

function settings(found) {
  if (found.settings === null) {
    return h("p", { class: "empty" }, "Who you are here may not see them: that takes ", h("code", null, "describe-configs"), ".");
  }
  const own = found.settings.filter((each) => each.source === "topic");
  const others = found.settings.filter((each) => each.source !== "topic");
  const shown = (some) => facts(...some.map((each) => [each.name, h("code", null, each.value), each.source === "topic" ? null : h("span", { class: "quiet" }, ` ${each.source}`)]));
  return [
    own.length ? shown(own) : h("p", { class: "empty" }, "Nothing is set for this topic."),
    h("details", { "data-key": "defaults" }, h("summary", null, "What else holds for it"), shown(others)),
    h("p", { class: "quiet" }, "Id ", h("code", null, found.topic_id), ". ", h("code", null, `paceline topic alter ${found.name}`), " changes settings."),
  ];
}
