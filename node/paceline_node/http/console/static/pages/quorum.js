// Who votes about the metadata, and how far each is.

import { h } from "../dom.js";
import { count } from "../format.js";
import { badge, happened, node, panel, refusal, table, tile, waiting } from "../parts.js";

const PATH = "/api/quorum";

export const quorum = {
  name: "Quorum",
  section: "Quorum",
  watch: () => [PATH],

  draw({ get, error, nodes, events }) {
    const found = get(PATH);
    if (error(PATH)) return refusal(error(PATH));
    if (!found) return waiting();
    const newest = Math.max(...found.nodes.map((each) => each.commit_offset ?? -1));
    const voters = found.nodes.filter((each) => each.vote === "voter");
    const answering = voters.filter((each) => each.role !== null).length;
    const needed = Math.floor(voters.length / 2) + 1;
    const columns = [
      { name: "node", of: (each) => node(each.node, nodes) },
      { name: "vote", of: (each) => each.vote },
      { name: "role", of: (each) => (each.role === "leader" ? badge("main", "leader") : (each.role ?? "–")) },
      { name: "state", of: (each) => badge(each.state === "running" ? "ok" : each.state === "drained" ? "warning" : "critical", each.state) },
      { name: "term", number: true, of: (each) => count(each.term) },
      { name: "committed", number: true, of: (each) => count(each.commit_offset), title: "metadata records that it knows to be committed" },
      { name: "applied", number: true, of: (each) => count(each.image_offset), title: "metadata records that its image has" },
      { name: "behind", number: true, of: (each) => (each.image_offset === null ? "–" : count(Math.max(0, newest - each.image_offset))) },
    ];
    return [
      h("h1", null, "Quorum"),
      h(
        "div",
        { class: "tiles" },
        tile("Leader", found.leader === null ? "none" : `node ${found.leader}`, "of the metadata", found.leader === null ? "critical" : ""),
        tile("Term", count(found.term)),
        tile("Voters", `${answering} of ${voters.length}`, `answer; ${needed} are needed`, answering < needed ? "critical" : answering < voters.length ? "warning" : ""),
        tile("Committed", count(newest), "metadata records"),
      ),
      panel("Nodes", table(columns, found.nodes, { key: (each) => `voter-${each.node}`, id: "quorum" })),
      panel("Elections, while this page is open", happened(events.all.filter((each) => each.kind === "election" && each.link === "#/quorum"), "The quorum's leader has not changed.")),
    ];
  },
};
