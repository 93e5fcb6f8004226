// Records of a partition: from an offset, a time, the last ones, or as they come.

import { h } from "../dom.js";
import { bytes, count } from "../format.js";
import { at, badge, link, quiet, refusal, remark, table, waiting } from "../parts.js";

const LIMIT = 100;
const TAIL = 50;
const SHOWN_CHARACTERS = 2000;
const FORMS = ["text", "json", "hex"];

// What was asked once, by path; only of the page that is shown.
const told = new Map();

const place = ({ topic, partition }) => at("topics", topic, "records", partition);

function pathOf({ topic, partition, query }) {
  const said = new URLSearchParams();
  const isTail = query.from === "tail";
  if (isTail) said.set("last", TAIL);
  else if (query.from === "offset") said.set("offset", query.at || "0");
  else if (query.from === "time") said.set("time", String(Date.parse(query.at) || 0));
  else said.set("last", query.at || LIMIT);
  said.set("limit", isTail ? TAIL : LIMIT);
  if (query.contains) said.set("contains", query.contains);
  return `/api/topics/${encodeURIComponent(topic)}/partitions/${partition}/records?${said}`;
}

const topicPath = ({ topic }) => `/api/topics/${encodeURIComponent(topic)}?limit=1000`;

export const records = {
  name: "Records",
  section: "Topics",
  title: ({ topic, partition }) => `${topic}/${partition}`,
  watch: (context) => [topicPath(context), ...(context.query.from === "tail" ? [pathOf(context)] : [])],

  draw(context) {
    const { topic, query, get, error } = context;
    const path = pathOf(context);
    const isTail = query.from === "tail";
    if (!isTail) askOnce(context, path);
    const found = isTail ? get(path) : told.get(path);
    const failed = isTail ? error(path) : found?.error;
    const form = FORMS.includes(query.form) ? query.form : "text";
    return [
      h("div", { class: "top" }, h("h1", null, link("#/topics", "Topics"), " / ", link(at("topics", topic), topic), " / Records"), isTail ? badge("ok", "live") : null),
      choice(context),
      failed ? refusal(failed) : !found ? waiting() : list(context, found, form),
    ];
  },
};

async function askOnce({ stream, redraw }, path) {
  if (told.has(path)) return;
  told.clear();
  told.set(path, null);
  told.set(path, await stream.ask(path));
  redraw();
}

function choice(context) {
  const { topic, partition, query, get } = context;
  const partitions = get(topicPath(context))?.partitions ?? [{ partition: Number(partition) }];
  const option = (value, text, chosen) => h("option", { value, selected: value === chosen }, text);
  return h(
    "form",
    { class: "choice", "data-go": place(context).slice(1), "data-key": `choice-${topic}-${partition}-${JSON.stringify(query)}` },
    h(
      "span",
      { class: "replicas" },
      partitions.slice(0, 64).map((each) =>
        h("a", { class: `replica ${String(each.partition) === partition ? "leader" : "in"}`, href: at("topics", topic, "records", String(each.partition)) }, String(each.partition)),
      ),
    ),
    h(
      "label",
      null,
      "from ",
      h("select", { name: "from" }, option("last", "the last", query.from ?? "last"), option("offset", "offset", query.from), option("time", "time", query.from), option("tail", "as they come", query.from)),
    ),
    h("input", { name: "at", value: query.at ?? "", placeholder: "100, or 2026-05-01T12:00", "aria-label": "How many, which offset, or what time" }),
    h("input", { name: "contains", value: query.contains ?? "", placeholder: "has in key, value, headers", "aria-label": "Text in key, value or headers" }),
    h("label", null, "as ", h("select", { name: "form" }, FORMS.map((each) => option(each, each, query.form)))),
    h("button", { class: "main" }, "Show"),
  );
}

function list(context, found, form) {
  const { query } = context;
  const rows = query.from === "tail" ? found.records.toReversed() : found.records;
  const columns = [
    { name: "offset", of: (each) => count(each.offset) },
    { name: "time", of: (each) => (each.timestamp < 0 ? "–" : new Date(each.timestamp).toISOString().replace("T", " ").slice(0, 23)) },
    { name: "key", of: (each) => shown(each.key, form, each.key_bytes) },
    { name: "value", of: (each) => shown(each.value, form, each.value_bytes) },
    { name: "headers", of: (each) => each.headers.map(([name, value]) => h("div", null, quiet(`${plain(name)}: `), shown(value, form, -1))) },
    { name: "size", number: true, of: (each) => bytes(Math.max(0, each.key_bytes) + Math.max(0, each.value_bytes)) },
  ];
  const more = new URLSearchParams({ ...query, from: "offset", at: String(found.next) });
  return [
    h("p", { class: "quiet" }, `Offsets ${count(found.log_start_offset)} to ${count(found.end)}. `, rows.length ? `${count(rows.length)} shown.` : ""),
    query.contains && found.next < found.end ? remark(`Looked at up to offset ${count(found.next)} so far.`) : null,
    table(columns, rows, { key: (each) => `record-${each.offset}`, id: "records", none: query.contains ? "None of those that were looked at has that in it." : "There are no records there." }),
    query.from !== "tail" && found.next < found.end ? h("p", null, link(`${place(context)}?${more}`, "Go on")) : null,
  ];
}

const plain = (value) => (value === null ? "null" : typeof value === "string" ? value : value.base64);

const bytesOf = (value) => (typeof value === "string" ? new TextEncoder().encode(value) : Uint8Array.from(atob(value.base64), (each) => each.charCodeAt(0)));

function shown(value, form, size) {
  if (value === null) return quiet("null");
  const data = form === "text" && typeof value === "string" ? null : bytesOf(value);
  let text;
  if (form === "hex" || typeof value !== "string") text = [...data].map((each) => each.toString(16).padStart(2, "0")).join(" ");
  else if (form === "json") text = pretty(value);
  else text = value;
  const isCut = size > (data ?? bytesOf(value)).length || text.length > SHOWN_CHARACTERS;
  return [h(form === "json" ? "pre" : "code", { class: "bytes" }, text.slice(0, SHOWN_CHARACTERS)), isCut ? quiet(" …") : null];
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
