// Each node as it says itself.

import { h } from "../dom.js";
import { bytes, count, duration, isKnown, milliseconds, perSecond } from "../format.js";
import { badge, facts, orNothing, panel, refusal, waiting } from "../parts.js";
import { bar, spark } from "../plot.js";

export const nodes = {
  name: "Nodes",
  section: "Nodes",

  draw({ get, error, history }) {
    const found = get("/api/nodes");
    if (error("/api/nodes")) return refusal(error("/api/nodes"));
    if (!found) return waiting();
    const loads = new Map((get("/api/load")?.nodes ?? []).map((each) => [each.node, each]));
    return [
      h("h1", null, "Nodes"),
      h("div", { class: "cards" }, found.nodes.map((each) => card(each, loads.get(each.id), history))),
      h("p", { class: "quiet" }, "Cluster ", h("code", null, found.cluster_id)),
    ];
  },
};

function card(node, load, history) {
  const used = node.disk_bytes - node.disk_free_bytes;
  const level = node.state === "running" ? "ok" : node.state === "drained" ? "warning" : "critical";
  const of = (name) => history.of(`node/${node.id}/${name}`);
  const shown = panel(
    null,
    h("header", null, h("h2", null, `Node ${node.id}`), badge(level, node.state), node.role ? badge("main", node.role) : null),
    node.reason ? h("p", { class: "remark" }, node.reason) : null,
    h("div", { class: "pair" }, h("div", null, h("div", { class: "name" }, "written"), h("div", { class: "value" }, perSecond(of("in").last))), spark(of("in"), "records written")),
    facts(
      ["leads", `${count(node.leads)} of ${count(node.hosts)} partitions here`],
      ["read", perSecond(of("out").last)],
      ["requests", perSecond(of("requests").last)],
      ["writes, p99", milliseconds(of("writes").last)],
      ["syncs, p99", milliseconds(of("syncs").last)],
      ["connections", count(load?.connections)],
      ["held for clients", bytes(load?.client_memory_bytes)],
      ["longest standstill", isKnown(node.loop_delay_ms) ? `${count(node.loop_delay_ms)} ms in the last minute` : "–"],
      ["disk", isKnown(node.disk_bytes) ? [bar(used, node.disk_bytes, node.disk_free_bytes < node.disk_bytes / 20 ? "critical" : "ok", "disk used"), ` ${bytes(node.disk_free_bytes)} free of ${bytes(node.disk_bytes)}`] : "–"],
      ["up", duration(isKnown(node.uptime_ms) ? node.uptime_ms / 1000 : null)],
      ["software", orNothing(node.software)],
      ["process", orNothing(node.pid)],
    ),
    h(
      "details",
      { "data-key": `addresses-${node.id}` },
      h("summary", null, "Addresses"),
      facts(...Object.entries(node.listeners).map(([name, address]) => [name, h("code", null, address)])),
    ),
  );
  shown.dataset.key = `node-${node.id}`;
  shown.dataset.node = node.id;
  return shown;
}
