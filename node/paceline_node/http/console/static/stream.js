// The one WebSocket: documents of /api as they change, and what to do when it is gone.

import { changed } from "./changes.js";

const FIRST_WAIT_MS = 400;
const LONGEST_WAIT_MS = 5000;
const TOKEN = "paceline.token";

export class Stream {
  // `onDocument(path, document)` hears of each edition, `onChange()` of anything that is to be shown.
  constructor(onDocument, onChange) {
    this.onDocument = onDocument;
    this.onChange = onChange;
    this.state = "connecting";
    this.why = "";
    this.hello = null;
    this.refused = null;
    this.lastAt = 0;
    this.found = new Map();
    this.paths = [];
    this.waitMs = FIRST_WAIT_MS;
    this.open();
  }

  get hasToken() {
    return sessionStorage.getItem(TOKEN) !== null;
  }

  logIn(token) {
    if (token) sessionStorage.setItem(TOKEN, token);
    else sessionStorage.removeItem(TOKEN);
    this.refused = null;
    this.found.clear();
    this.waitMs = FIRST_WAIT_MS;
    this.socket.close();
    this.again(0);
  }

  // Headers for what is asked for by itself.
  get headers() {
    const token = sessionStorage.getItem(TOKEN);
    return token === null ? {} : { Authorization: `Bearer ${token}` };
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}/api/stream`);
    this.socket = socket;
    this.said = "";
    socket.onopen = () => {
      const token = sessionStorage.getItem(TOKEN);
      if (token !== null) socket.send(JSON.stringify({ token }));
      this.say();
    };
    socket.onmessage = (event) => this.hear(JSON.parse(event.data));
    socket.onclose = () => {
      if (this.socket === socket) this.lost();
    };
  }

  watch(paths) {
    this.paths = [...new Set(paths)];
    for (const path of [...this.found.keys()]) {
      if (!this.paths.includes(path)) this.found.delete(path);
    }
    this.say();
  }

  say() {
    const message = JSON.stringify({ watch: this.paths });
    if (this.socket.readyState !== WebSocket.OPEN || message === this.said) return;
    this.said = message;
    this.socket.send(message);
  }

  hear(message) {
    this.lastAt = performance.now();
    if (message.hello) {
      this.hello = message.hello;
      this.state = "live";
      this.why = "";
      this.refused = null;
      this.waitMs = FIRST_WAIT_MS;
    } else if (message.refused) {
      this.refused = message.refused;
    } else if (this.paths.includes(message.path)) {
      const before = this.found.get(message.path);
      if (message.error) this.found.set(message.path, { error: message.error });
      else if (message.document) this.found.set(message.path, { document: message.document });
      else this.found.set(message.path, { document: changed(before.document, message.change) });
      const now = this.found.get(message.path).document;
      if (now) this.onDocument(message.path, now);
    }
    this.onChange();
  }

  get(path) {
    return this.found.get(path)?.document;
  }

  error(path) {
    return this.found.get(path)?.error;
  }

  lost() {
    this.state = "waiting";
    this.tellWhy();
    this.onChange();
    this.again(this.waitMs * (0.75 + Math.random() / 2));
    this.waitMs = Math.min(LONGEST_WAIT_MS, 2 * this.waitMs);
  }

  again(waitMs) {
    clearTimeout(this.timer);
    if (this.refused) return; // nothing changes by itself
    this.timer = setTimeout(() => this.open(), waitMs);
  }

  async tellWhy() {
    try {
      const answer = await fetch("/ready", { headers: this.headers });
      const told = await answer.json();
      this.why = told.failed?.join("; ") ?? told.error?.message ?? "";
    } catch {
      this.why = "this node does not answer";
    }
    this.onChange();
  }

  // One page of the API, once.
  async ask(path) {
    try {
      const answer = await fetch(path, { headers: this.headers });
      return await answer.json();
    } catch {
      return { error: { code: "UNREACHABLE", message: "this node does not answer", hint: null } };
    }
  }
}
