// How the cluster is, what it does, and what happened.

import { h } from "../dom.js";
import { about, bytesPerSecond, count, duration, isKnown, milliseconds, perSecond, plural } from "../format.js";
import { badge, happened, link, panel, refusal, table, tile, waiting } from "../parts.js";
import { bar, plot, spark } from "../plot.js";
import { lags } from "./groups.js";

const PARTITIONS = "/api/partitions?internal=true&limit=500";

export const overview = {
  name: "Overview",
  section: "Overview",
  watch: (context) => [PARTITIONS, ...lags.watch(context)],
  see: lags.see,

  draw(context) {
    const { get, error, history, events, nodes } = context;
    const health = get("/api/health");
    const partitions = get(PARTITIONS)?.partitions;
    if (error("/api/health")) return refusal(error("/api/health"));
    if (!health) return waiting();
    return [
      h("h1", { class: "unseen" }, "Overview"),
      troubles(health),
      h("div", { class: "tiles" }, tiles(history, partitions, get(PARTITIONS)?.next, nodes, lags.largest(context))),
      h(
        "div",
        { class: "halves" },
        panel(null, plot("Records a second", [
          { label: "written", series: history.of("in"), tone: "a" },
          { label: "read", series: history.of("out"), tone: "b" },
        ], about)),
        panel(null, plot("Time of writes", [
          { label: "p50", series: history.of("writes/0.5"), tone: "a" },
          { label: "p99", series: history.of("writes/0.99"), tone: "b" },
        ], milliseconds, "of the last 15 s")),
      ),
      h("div", { class: "halves" }, panel("Nodes", strip(nodes, history)), panel("While this page is open", happened(events.all.slice(0, 12), "Nothing has changed."))),
    ];
  },
};

function troubles(health) {
  const found = health.checks.filter((each) => each.level !== "ok");
  if (!found.length) {
    return h("section", { class: "panel verdict-line ok" }, badge("ok", "healthy"), " All ", plural(health.checks.length, "check"), " pass.");
  }
  return h(
    "section",
    { class: "panel" },
    h("h2", null, health.healthy ? "Healthy, with remarks" : plural(health.reasons.length, "problem")),
    h(
      "ul",
      { class: "troubles" },
      found.map((each) =>
        h(
          "li",
          { "data-key": `${each.name}-${each.node}-${each.reason}`, class: each.level },
          badge(each.level, each.name),
          h("div", null, h("strong", null, each.reason), each.what_to_do && !each.reason.includes(each.what_to_do) ? h("p", null, each.what_to_do) : null),
        ),
      ),
    ),
  );
}

function tiles(history, partitions, more, nodes, behind) {
  const leaderless = partitions?.filter((each) => each.leader < 0).length;
  const lacking = partitions?.filter((each) => each.isr.length < each.replicas.length).length;
  const level = leaderless ? "critical" : lacking ? "warning" : "";
  const running = nodes.filter((each) => each.state === "running").length;
  return [
    tile("Written", perSecond(history.of("in").last), [bytesPerSecond(history.of("inBytes").last), spark(history.of("in"), "records written")]),
    tile("Read", perSecond(history.of("out").last), [bytesPerSecond(history.of("outBytes").last), spark(history.of("out"), "records read")]),
    tile("Writes, p99", milliseconds(history.of("writes/0.99").last), ["syncs ", milliseconds(history.of("syncs/0.99").last), spark(history.of("writes/0.99"), "time of writes")]),
    tile("Largest lag", behind ? count(behind.lag) : "–", behind ? [link(behind.href, behind.name), spark(history.of(behind.series), "lag")] : "no group reads"),
    tile("Nodes", nodes.length ? `${running} of ${nodes.length}` : "–", "run", running < nodes.length ? "critical" : ""),
    tile("Partitions", partitions ? `${count(partitions.length)}${more ? "+" : ""}` : "–", partitions ? [leaderless ? `${leaderless} without leader` : "all led", lacking ? `, ${lacking} under-replicated` : ", all in sync"] : null, level),
  ];
}

function strip(nodes, history) {
  const columns = [
    { name: "node", of: (each) => h("a", { href: "#/nodes" }, String(each.id), each.role ? h("span", { class: "quiet" }, " leads the quorum") : null) },
    { name: "state", of: (each) => badge(each.state === "running" ? "ok" : each.state === "drained" ? "warning" : "critical", each.state) },
    { name: "written", number: true, of: (each) => perSecond(history.of(`node/${each.id}/in`).last) },
    { name: "disk", of: (each) => (isKnown(each.disk_bytes) ? bar(each.disk_bytes - each.disk_free_bytes, each.disk_bytes, "ok", `${Math.round((100 * (each.disk_bytes - each.disk_free_bytes)) / each.disk_bytes)} % of the disk is used`) : "–") },
    { name: "up", number: true, of: (each) => duration(isKnown(each.uptime_ms) ? each.uptime_ms / 1000 : null) },
  ];
  return table(columns, nodes, { key: (each) => `node-${each.id}`, id: "nodes" });
}
