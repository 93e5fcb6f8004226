// All topics, by name.

import { h } from "../dom.js";
import { count } from "../format.js";
import { at, badge, link, pages, refusal, remark, table, waiting } from "../parts.js";

const LIMIT = 200;

const pathOf = ({ query }) => {
  const said = new URLSearchParams({ limit: LIMIT });
  if (query.internal) said.set("internal", "true");
  if (query.after) said.set("after", query.after);
  return `/api/topics?${said}`;
};

export const topics = {
  name: "Topics",
  section: "Topics",
  watch: (context) => [pathOf(context)],

  draw(context) {
    const { get, error, filter, query } = context;
    const path = pathOf(context);
    const found = get(path);
    if (error(path)) return refusal(error(path));
    if (!found) return waiting();
    const wanted = filter.toLowerCase();
    const rows = found.topics.filter((each) => each.name.toLowerCase().includes(wanted));
    const columns = [
      { name: "topic", of: (each) => link(at("topics", each.name), each.name) },
      { name: "state", of: stateOf },
      { name: "kind", of: (each) => each.kind },
      { name: "partitions", number: true, of: (each) => count(each.partitions) },
      { name: "replicas", number: true, of: (each) => count(each.replication_factor) },
    ];
    return [
      h(
        "div",
        { class: "top" },
        h("h1", null, "Topics"),
        h("input", { class: "filter", type: "search", placeholder: "Filter by name  ( / )", "aria-label": "Filter by name" }),
        query.internal ? link("#/topics", "Without the cluster's own") : link("#/topics?internal=true", "The cluster's own, too"),
      ),
      remark(found.stale),
      remark(found.hidden),
      table(columns, rows, {
        key: (each) => `topic-${each.name}`,
        id: "topics",
        none: filter ? "No topic's name has that in it." : "There is no topic yet: 'paceline topic create NAME' makes one.",
      }),
      pages(found, query, "/topics"),
    ];
  },
};

function stateOf(topic) {
  if (topic.leaderless) return badge("critical", `${topic.leaderless} without leader`);
  if (topic.under_replicated) return badge("warning", `${topic.under_replicated} under-replicated`);
  return badge("ok", "in sync");
}
