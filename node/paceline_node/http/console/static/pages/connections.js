// Who is connected to the node that shows this page.

import { h } from "../dom.js";
import { bytes, count, duration } from "../format.js";
import { badge, orNothing, pages, quiet, refusal, table, waiting } from "../parts.js";

const LIMIT = 200;

const pathOf = ({ query }) => {
  const said = new URLSearchParams({ limit: LIMIT });
  if (query.after) said.set("after", query.after);
  return `/api/connections?${said}`;
};

export const connections = {
  name: "Connections",
  section: "Connections",
  watch: (context) => [pathOf(context)],

  draw(context) {
    const { get, error, filter, query, nodes } = context;
    const path = pathOf(context);
    const found = get(path);
    if (error(path)) return refusal(error(path));
    if (!found) return waiting();
    const wanted = filter.toLowerCase();
    const rows = found.connections.filter((each) => `${each.protocol} ${each.address} ${each.principal ?? ""}`.toLowerCase().includes(wanted));
    const columns = [
      { name: "id", of: (each) => String(each.id) },
      { name: "protocol", of: (each) => each.protocol },
      { name: "address", of: (each) => h("code", null, each.address) },
      { name: "principal", of: (each) => orNothing(each.principal) },
      { name: "encrypted", of: (each) => (each.encrypted ? badge("ok", "TLS") : quiet("no")) },
      { name: "open for", number: true, of: (each) => duration(each.age_ms / 1000) },
      { name: "held", number: true, of: (each) => bytes(each.held_bytes), title: "of the node's memory, on its behalf" },
    ];
    const others = nodes.filter((each) => each.id !== found.node && each.listeners.http);
    return [
      h(
        "div",
        { class: "top" },
        h("h1", null, `Connections of node ${found.node}`),
        h("input", { class: "filter", type: "search", placeholder: "Filter  ( / )", "aria-label": "Filter" }),
      ),
      h("p", { class: "quiet" }, count(found.connections.length), found.next ? "+" : "", " open. ", others.length ? "Of the other nodes: " : "", others.map((each) => [h("a", { href: `${location.protocol}//${each.listeners.http}/#/connections` }, `node ${each.id}`), " "])),
      table(columns, rows, { key: (each) => `connection-${each.id}`, id: "connections" }),
      pages(found, query, "/connections"),
    ];
  },
};
