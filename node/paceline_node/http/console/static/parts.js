// What pages are made of.

import { h } from "./dom.js";
import { NOTHING, clock } from "./format.js";

export const at = (...names) => `#/${names.map(encodeURIComponent).join("/")}`;

export const link = (href, ...text) => h("a", { href }, ...text);

export const badge = (level, text) => h("span", { class: `badge ${level}` }, text);

export const quiet = (...text) => h("span", { class: "quiet" }, ...text);

export const panel = (title, ...content) =>
  h("section", { class: "panel" }, title ? h("h2", null, title) : null, ...content);

export const empty = (...text) => h("p", { class: "empty" }, ...text);

export const waiting = () => h("p", { class: "empty" }, "Asking …");

// Why there is no document, and what to do.
export const refusal = (error) =>
  h("div", { class: "refusal", role: "alert" }, h("strong", null, error.message), error.hint ? h("p", null, error.hint) : null);

export const remark = (text) => (text ? h("p", { class: "remark" }, text) : null);

// A number with a name, and perhaps how it went.
export const tile = (name, value, more = null, level = "") =>
  h(
    "div",
    { class: `tile ${level}`, "data-tile": name },
    h("div", { class: "name" }, name),
    h("div", { class: "value" }, value),
    h("div", { class: "more" }, more),
  );

// Columns: {name, of(row) -> content, number, title}. A row's key keeps it where it is.
export function table(columns, rows, { key, id, none = "There is none.", marks = () => "" } = {}) {
  if (!rows.length) return empty(none);
  const head = columns.map((each) =>
    h("th", { scope: "col", class: each.number ? "number" : "", title: each.title }, each.name),
  );
  const body = rows.map((row) =>
    h(
      "tr",
      { "data-key": key(row), class: marks(row) },
      columns.map((each, index) =>
        h(index ? "td" : "th", { scope: index ? null : "row", class: each.number ? "number" : "", "data-field": each.field ?? each.name }, each.of(row)),
      ),
    ),
  );
  return h(
    "div",
    { class: "wide", tabindex: 0, role: "region", "aria-label": id },
    h("table", { "data-table": id }, h("thead", null, h("tr", null, head)), h("tbody", null, body)),
  );
}

export const facts = (...pairs) =>
  h("dl", { class: "facts" }, pairs.filter(Boolean).map(([name, ...value]) => [h("dt", null, name), h("dd", { "data-fact": name }, ...value)]));

export const node = (id, nodes) => {
  if (id === null || id === undefined || id < 0) return badge("critical", "none");
  const found = nodes?.find((each) => each.id === id);
  return h("span", { class: `node ${found && found.state !== "running" ? "away" : ""}` }, String(id));
};

// The replicas of a partition: who leads, who is in sync.
export const replicas = (partition) =>
  h(
    "span",
    { class: "replicas" },
    partition.replicas.map((id) => {
      const isIn = partition.isr.includes(id);
      const kind = id === partition.leader ? "leader" : isIn ? "in" : "out";
      const said = id === partition.leader ? "leads" : isIn ? "in sync" : "out of sync";
      return h("span", { class: `replica ${kind}`, title: `node ${id}: ${said}` }, String(id));
    }),
  );

export function levelOf(partition) {
  if (partition.leader < 0) return "critical";
  return partition.isr.length < partition.replicas.length ? "warning" : "ok";
}

export const happened = (events, none) =>
  events.length
    ? h(
        "ol",
        { class: "events" },
        events.map((each) =>
          h(
            "li",
            { "data-key": `event-${each.number}`, class: each.level },
            h("time", { datetime: each.at.toISOString() }, clock(each.at)),
            each.link ? h("a", { href: each.link }, each.text) : h("span", null, each.text),
          ),
        ),
      )
    : empty(none);

// Where the next page of a long list is, and the way back.
export const pages = (document, query, path) => {
  const { after, ...others } = query;
  if (!document.next && !after) return null;
  const to = (said) => `#${path}?${new URLSearchParams(said)}`;
  return h(
    "p",
    { class: "pages" },
    after ? link(to(others), "From the start") : null,
    document.next ? link(to({ ...others, after: document.next }), "More") : null,
  );
};

export const orNothing = (value) => (value === null || value === undefined || value === "" ? NOTHING : value);
