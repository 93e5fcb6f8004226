// What has happened while the page was open, seen from one document to the next.

import { plural } from "./format.js";

const KEPT = 300;
const NAMED = 3;
const SAME_MS = 4000;

export class Events {
  constructor() {
    this.all = [];
    this.before = new Map();
  }

  add(kind, level, text, link) {
    // Two documents may show the same.
    const at = Date.now();
    if (this.all.some((each) => each.text === text && at - each.at < SAME_MS)) return;
    this.all.unshift({ at: new Date(), number: (this.all[0]?.number ?? 0) + 1, kind, level, text, link });
    this.all.length = Math.min(this.all.length, KEPT);
  }

  see(path, document) {
    const before = this.before.get(path);
    this.before.set(path, document);
    if (!before) return;
    if (path === "/api/health") this.health(before, document);
    else if (path === "/api/nodes") this.nodes(before, document);
    else if (document.partitions && !document.members) this.partitions(before, document);
  }

  health(before, now) {
    const failed = (document) => new Set(document.checks.filter((each) => each.level !== "ok").map((each) => each.reason));
    const [was, is] = [failed(before), failed(now)];
    // Counts in a sentence change all the time: what is told is that it began, and that it is over.
    const kindsOf = (document) =>
      new Map(document.checks.filter((each) => each.level !== "ok").map((each) => [`${each.name} ${each.node}`, each]));
    const [wasKinds, isKinds] = [kindsOf(before), kindsOf(now)];
    if ([...was].join() === [...is].join()) return;
    for (const [key, each] of isKinds) {
      if (!wasKinds.has(key)) this.add("health", each.level, each.reason);
    }
    for (const [key, each] of wasKinds) {
      if (!isKinds.has(key)) this.add("health", "ok", `over: ${each.reason}`);
    }
  }

  nodes(before, now) {
    const was = new Map(before.nodes.map((each) => [each.id, each]));
    for (const node of now.nodes) {
      const old = was.get(node.id);
      if (!old) this.add("node", "ok", `node ${node.id} is registered`, "#/nodes");
      else if (old.state !== node.state) {
        const level = node.state === "running" ? "ok" : node.state === "drained" ? "warning" : "critical";
        this.add("node", level, `node ${node.id} is ${node.state}, was ${old.state}`, "#/nodes");
      }
      was.delete(node.id);
    }
    for (const id of was.keys()) this.add("node", "warning", `node ${id} is registered no more`, "#/nodes");
    if (before.controller !== now.controller && now.controller !== null) {
      this.add("election", "warning", `node ${now.controller} leads the quorum, before ${before.controller ?? "nobody"}`, "#/quorum");
    } else if (before.controller !== now.controller) {
      this.add("election", "critical", `the quorum has no leader, before node ${before.controller}`, "#/quorum");
    }
  }

  partitions(before, now) {
    const name = (each) => `${each.topic ?? now.name}/${each.partition}`;
    const was = new Map(before.partitions.map((each) => [name(each), each]));
    const elected = new Causes();
    const left = new Causes();
    const joined = new Causes();
    for (const each of now.partitions) {
      const old = was.get(name(each));
      if (!old) continue;
      const one = { name: name(each), link: `#/topics/${encodeURIComponent(each.topic ?? now.name)}` };
      if (old.leader !== each.leader) elected.add(`${each.leader} ${old.leader}`, one);
      for (const node of old.isr) if (!each.isr.includes(node)) left.add(node, one);
      for (const node of each.isr) if (!old.isr.includes(node)) joined.add(node, one);
    }
    elected.tell((key, what, link) => {
      const [leader, old] = key.split(" ").map(Number);
      const [level, who] = leader < 0 ? ["critical", "nobody"] : ["warning", `node ${leader}`];
      this.add("election", level, `${who} leads ${what}, before ${old < 0 ? "nobody" : `node ${old}`}`, link);
    });
    left.tell((node, what, link) => this.add("isr", "warning", `node ${node} is out of sync in ${what}`, link));
    joined.tell((node, what, link) => this.add("isr", "ok", `node ${node} is in sync again in ${what}`, link));
  }
}

// Partitions by what befell them: one line for a cause, however many they are.
class Causes {
  constructor() {
    this.found = new Map();
  }

  add(cause, one) {
    const key = String(cause);
    this.found.set(key, [...(this.found.get(key) ?? []), one]);
  }

  tell(say) {
    for (const [key, some] of this.found) {
      if (some.length > NAMED) say(key, plural(some.length, "partition"), "#/replication");
      else say(key, some.map((each) => each.name).join(", "), some[0].link);
    }
  }
}
