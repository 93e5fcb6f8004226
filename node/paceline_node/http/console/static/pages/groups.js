// Consumer groups, and how far they are behind.

import { h } from "../dom.js";
import { about, count, duration, perSecond } from "../format.js";
import { at, badge, link, orNothing, pages, panel, refusal, remark, table, tile, waiting } from "../parts.js";
import { bar, plot, spark } from "../plot.js";

const LIMIT = 100;
const FOLLOWED = 12;
const SPAN_MS = 20_000;

const listPath = ({ query }) => {
  const said = new URLSearchParams({ limit: LIMIT });
  if (query.after) said.set("after", query.after);
  return `/api/groups?${said}`;
};

function pathOf({ family, group, subject, query }) {
  const said = new URLSearchParams({ family, limit: 500 });
  if (subject) said.set("subject", subject);
  if (query?.after) said.set("after", query.after);
  return `/api/groups/${encodeURIComponent(group)}?${said}`;
}

const place = (each) => at("groups", each.family, each.group, ...(each.subject ? [each.subject] : []));
const nameOf = ({ family, group, subject }) => `${family}/${group}/${subject}`;
const lagOf = (document) => document.partitions.reduce((sum, each) => sum + (each.lag ?? 0), 0);
const readOf = (document) => document.partitions.reduce((sum, each) => sum + (each.committed ?? 0), 0);

function remember(history, document) {
  const now = Date.now();
  history.of(`lag/${nameOf(document)}`).add(now, lagOf(document));
  history.of(`read/${nameOf(document)}`).add(now, readOf(document));
}

// How long until nothing is left, if it goes on as in the last 20 seconds.
function clears(history, document) {
  const lag = lagOf(document);
  if (!lag) return 0;
  const slope = history.of(`lag/${nameOf(document)}`).slope(SPAN_MS);
  if (slope === undefined) return undefined;
  return slope < -0.01 ? lag / -slope : slope > 0.01 ? Infinity : NaN;
}

const LEVELS = { Stable: "ok", Empty: "", Dead: "" };

function seen(path, document, { history }) {
  if (path.startsWith("/api/groups/") && document.partitions) remember(history, document);
}

// Those whose lags are followed while the list is shown: the first that the filter leaves.
function followed(context) {
  const found = context.get(listPath(context));
  return shownOf(found, context.filter).slice(0, FOLLOWED).map((each) => pathOf(each));
}

function shownOf(found, filter) {
  const wanted = filter.toLowerCase();
  return (found?.groups ?? []).filter((each) => `${each.group} ${each.subject}`.toLowerCase().includes(wanted));
}

const FIRST = "/api/groups?limit=8";

// For the overview: the first few groups, and which of them is furthest behind.
export const lags = {
  watch: ({ get }) => [FIRST, ...(get(FIRST)?.groups ?? []).map((each) => pathOf(each))],
  see: seen,
  largest({ get }) {
    const found = (get(FIRST)?.groups ?? []).map((each) => get(pathOf(each))).filter(Boolean);
    if (!found.length) return null;
    const most = found.reduce((a, b) => (lagOf(b) > lagOf(a) ? b : a));
    return { lag: lagOf(most), name: most.group, href: place(most), series: `lag/${nameOf(most)}` };
  },
};

export const groups = {
  name: "Groups",
  section: "Groups",
  watch: (context) => [listPath(context), ...followed(context)],
  see: seen,

  draw(context) {
    const { get, error, history, filter, query } = context;
    const path = listPath(context);
    const found = get(path);
    if (error(path)) return refusal(error(path));
    if (!found) return waiting();
    const rows = shownOf(found, filter);
    const told = new Map(rows.map((each) => [nameOf(each), get(pathOf(each))]));
    const of = (each) => told.get(nameOf(each));
    const columns = [
      { name: "group", of: (each) => [link(place(each), each.group), each.subject ? ` of ${each.subject}` : ""] },
      { name: "protocol", of: (each) => each.family },
      { name: "state", of: (each) => badge(LEVELS[each.state] ?? "warning", each.state) },
      { name: "members", number: true, of: (each) => count(each.members) },
      { name: "lag", number: true, of: (each) => (of(each) ? count(lagOf(of(each))) : "–") },
      { name: "", field: "graph", of: (each) => spark(history.of(`lag/${nameOf(each)}`), `lag of ${each.group}`) },
      { name: "reads", number: true, of: (each) => perSecond(history.of(`read/${nameOf(each)}`).slope(SPAN_MS)) },
      { name: "clear in", number: true, of: (each) => (of(each) ? ofClearing(clears(history, of(each))) : "–") },
    ];
    return [
      h(
        "div",
        { class: "top" },
        h("h1", null, "Groups"),
        h("input", { class: "filter", type: "search", placeholder: "Filter by name  ( / )", "aria-label": "Filter by name" }),
      ),
      remark(found.stale),
      remark(found.hidden),
      table(columns, rows, { key: nameOf, id: "groups", none: filter ? "No group's name has that in it." : "No group has read anything yet." }),
      rows.length > FOLLOWED ? h("p", { class: "quiet" }, `Lags are followed of the first ${FOLLOWED}: filter for others.`) : null,
      pages(found, query, "/groups"),
    ];
  },
};

function ofClearing(seconds) {
  if (seconds === undefined) return "…";
  if (Number.isNaN(seconds)) return "it stands";
  if (seconds === Infinity) return "it grows";
  return seconds === 0 ? "–" : duration(seconds);
}

export const group = {
  name: "Group",
  section: "Groups",
  title: ({ group }) => group,
  watch: (context) => [pathOf(context)],
  see: seen,

  draw(context) {
    const { get, error, history, group, family, query } = context;
    const path = pathOf(context);
    const found = get(path);
    if (error(path)) return refusal(error(path));
    if (!found) return waiting();
    const name = nameOf(found);
    const members = found.members.length;
    return [
      h("div", { class: "top" }, h("h1", null, link("#/groups", "Groups"), " / ", group), badge("main", family), badge(LEVELS[found.state] ?? "warning", found.state)),
      h(
        "div",
        { class: "tiles" },
        tile("Lag", count(lagOf(found)), spark(history.of(`lag/${name}`), "lag")),
        tile("Reads", perSecond(history.of(`read/${name}`).slope(SPAN_MS))),
        tile("Clear in", ofClearing(clears(history, found)), "at this pace"),
        tile("Members", count(members), found.protocol || null),
        tile("Coordinator", `node ${found.coordinator}`, `generation ${found.generation}`),
      ),
      panel(null, plot("Lag, records", [{ label: "all partitions shown", series: history.of(`lag/${name}`), tone: "b" }], about)),
      panel("Partitions", progress(found), pages(found, query, place(found).slice(1))),
      panel("Members", list(found)),
      h("p", { class: "quiet" }, h("code", null, `paceline group offsets reset ${group} --family ${family} --to-earliest`), " shows what it would change; with --execute it does."),
    ];
  },
};

function progress(found) {
  const most = Math.max(1, ...found.partitions.map((each) => each.lag ?? 0));
  const columns = [
    { name: "partition", of: (each) => link(at("topics", each.topic), `${each.topic}/${each.partition}`) },
    { name: "committed", number: true, of: (each) => count(each.committed) },
    { name: "end", number: true, of: (each) => count(each.end) },
    { name: "lag", number: true, of: (each) => count(each.lag) },
    { name: "", field: "share", of: (each) => bar(each.lag ?? 0, most, "warning", "share of the largest lag") },
    { name: "read by", of: (each) => orNothing(found.members.find((one) => one.member === each.member)?.client ?? each.member) },
  ];
  return table(columns, found.partitions, { key: (each) => `${each.topic}/${each.partition}`, id: "progress", none: "Nothing is committed." });
}

function list(found) {
  const columns = [
    { name: "client", of: (each) => orNothing(each.client) },
    { name: "member", of: (each) => h("code", null, each.member) },
    { name: "instance", of: (each) => orNothing(each.instance) },
    { name: "host", of: (each) => orNothing(each.host) },
    { name: "partitions", number: true, of: (each) => count(each.partitions) },
    { name: "silent for", number: true, of: (each) => duration(each.silent_ms / 1000) },
    { name: "", field: "leads", of: (each) => (each.leader ? badge("main", "deals them out") : "") },
  ];
  return table(columns, found.members, { key: (each) => `member-${each.member}`, id: "members", none: "It has no members now." });
}
