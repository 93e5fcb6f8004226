// Which page is where.

import { connections } from "./pages/connections.js";
import { group, groups } from "./pages/groups.js";
import { nodes } from "./pages/nodes.js";
import { overview } from "./pages/overview.js";
import { quorum } from "./pages/quorum.js";
import { records } from "./pages/records.js";
import { replication } from "./pages/replication.js";
import { topic } from "./pages/topic.js";
import { topics } from "./pages/topics.js";
import { transactions } from "./pages/transactions.js";
import { empty, link } from "./parts.js";

export const PAGES = [
  { ...overview, path: "/", key: "o" },
  { ...nodes, path: "/nodes", key: "n" },
  { ...topics, path: "/topics", key: "t" },
  { ...groups, path: "/groups", key: "g" },
  { ...replication, path: "/replication", key: "r" },
  { ...quorum, path: "/quorum", key: "q" },
  { ...transactions, path: "/transactions", key: "x" },
  { ...connections, path: "/connections", key: "c" },
];

const MISSING = {
  name: "No such page",
  draw: () => empty("There is no such page. ", link("#/", "To the overview")),
};

export function find(names) {
  const [first, name, second, third] = names;
  if (first === "topics" && second === "records" && third !== undefined) return { page: records, topic: name, partition: third };
  if (first === "topics" && name && second === undefined) return { page: topic, topic: name };
  if (first === "groups" && name && second && names.length <= 4) return { page: group, family: name, group: second, subject: third ?? "" };
  const page = PAGES.find((each) => each.path === `/${first ?? ""}` && names.length <= 1);
  return { page: page ?? MISSING };
}
