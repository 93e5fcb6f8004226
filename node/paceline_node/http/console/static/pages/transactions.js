// Transactional ids of all protocols.

import { h } from "../dom.js";
import { count, duration } from "../format.js";
import { badge, pages, refusal, table, waiting } from "../parts.js";

const LIMIT = 200;
const LEVELS = { ongoing: "main", prepare_commit: "warning", prepare_abort: "warning" };

const pathOf = ({ query }) => {
  const said = new URLSearchParams({ limit: LIMIT });
  if (query.after) said.set("after", query.after);
  return `/api/transactions?${said}`;
};

export const transactions = {
  name: "Transactions",
  section: "Transactions",
  watch: (context) => [pathOf(context)],

  draw(context) {
    const { get, error, filter, query } = context;
    const path = pathOf(context);
    const found = get(path);
    if (error(path)) return refusal(error(path));
    if (!found) return waiting();
    const rows = found.transactions.filter((each) => each.id.toLowerCase().includes(filter.toLowerCase()));
    const columns = [
      { name: "id", of: (each) => each.id },
      { name: "protocol", of: (each) => each.family },
      { name: "state", of: (each) => badge(LEVELS[each.state] ?? "", each.state.replace("_", " ")) },
      { name: "open for", number: true, of: (each) => duration(each.open_s) },
      { name: "partitions", number: true, of: (each) => count(each.partitions) },
      { name: "producer", number: true, of: (each) => String(each.producer_id) },
      { name: "epoch", number: true, of: (each) => String(each.epoch) },
    ];
    return [
      h(
        "div",
        { class: "top" },
        h("h1", null, "Transactions"),
        h("input", { class: "filter", type: "search", placeholder: "Filter by id  ( / )", "aria-label": "Filter by id" }),
      ),
      table(columns, rows, { key: (each) => `${each.family}/${each.id}`, id: "transactions", none: filter ? "No id has that in it." : "Nobody has used a transactional id yet." }),
      pages(found, query, "/transactions"),
      h("p", { class: "quiet" }, h("code", null, "paceline transaction abort ID"), " ends one that hangs, and fences its producer."),
    ];
  },
};
