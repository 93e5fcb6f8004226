// The frame: which page is shown, the head that is the same on all, keys, and what is redrawn when.

import { h, morphChildren } from "./dom.js";
import { Events } from "./events.js";
import { plural } from "./format.js";
import { History } from "./history.js";
import { badge, refusal } from "./parts.js";
import { find, PAGES } from "./routes.js";
import { Stream } from "./stream.js";

const ALWAYS = ["/api/health", "/api/nodes", "/api/load"];
const THEME = "paceline.theme";
const SLOW_MS = 4000;
const UNSEEN_MS = 60_000;

const history = new History();
const events = new Events();
const stream = new Stream(
  (path, document) => {
    if (path === "/api/load") history.load(document);
    events.see(path, document);
    current().page.see?.(path, document, context());
  },
  () => draw(),
);
let drawing = false;
let filter = "";

function current() {
  const [path, query = ""] = (location.hash.slice(1) || "/").split("?");
  const names = path.split("/").filter(Boolean).map(decodeURIComponent);
  return { path, names, query: Object.fromEntries(new URLSearchParams(query)), ...find(names) };
}

function context() {
  const where = current();
  return {
    ...where,
    stream,
    history,
    events,
    filter,
    get: (path) => stream.get(path),
    error: (path) => stream.error(path),
    nodes: stream.get("/api/nodes")?.nodes ?? [],
    redraw: draw,
  };
}

function head() {
  const health = stream.get("/api/health");
  const nodes = stream.get("/api/nodes");
  const isStale = stream.state !== "live" || (stream.lastAt && performance.now() - stream.lastAt > SLOW_MS);
  const state = stream.state === "live" ? (isStale ? "quiet" : "live") : stream.state;
  const names = { live: "live", quiet: "nothing new", waiting: "not connected", connecting: "connecting" };
  return [
    h("a", { class: "home", href: "#/" }, h("img", { src: "console/mark.svg", alt: "", width: 24, height: 24 }), "Paceline"),
    nodes ? h("span", { class: "cluster quiet", title: "the cluster's id" }, nodes.cluster_id.slice(0, 8)) : null,
    h("span", { class: "verdict", "data-verdict": health ? String(health.healthy) : "" }, verdict(health)),
    h("span", { class: "grow" }),
    h("span", { class: `state ${state}`, role: "status", title: stream.hello ? `node ${stream.hello.node}, ${stream.hello.software}` : "" }, h("i"), names[state]),
    stream.hello ? h("span", { class: "who quiet" }, stream.hello.principal) : null,
    h("button", { type: "button", "data-do": stream.hasToken ? "log-out" : "log-in" }, stream.hasToken ? "Log out" : "Log in"),
    h("button", { type: "button", "data-do": "theme", title: "Light or dark (t)", "aria-label": "Light or dark" }, "◐"),
    h("button", { type: "button", "data-do": "keys", title: "Keys (?)", "aria-label": "Keys" }, "?"),
  ];
}

function verdict(health) {
  if (stream.state === "waiting") return badge("", "not known");
  if (!health) return stream.error("/api/health") ? badge("warning", "not told") : badge("", "…");
  if (health.healthy) return badge("ok", "healthy");
  if (health.healthy === null) return badge("warning", "not known");
  return h("a", { class: "badge critical", href: "#/" }, plural(health.reasons.length, "problem"));
}

function banner() {
  if (stream.refused) return refusal(stream.refused);
  if (stream.state === "live") return null;
  const others = (stream.get("/api/nodes")?.nodes ?? []).filter((each) => each.listeners.http && each.id !== stream.hello?.node);
  if (stream.state === "connecting" || !stream.why) return null;
  return h(
    "div",
    { class: "refusal", role: "alert" },
    h("strong", null, `What is shown is no longer true: ${stream.why}.`),
    h(
      "p",
      null,
      "It is tried again. ",
      others.length ? "Other nodes: " : "",
      others.map((each) => [h("a", { href: `${location.protocol}//${each.listeners.http}/${location.hash}` }, `node ${each.id}`), " "]),
    ),
  );
}

function navigation(where) {
  return PAGES.filter((each) => each.key).map((each) =>
    h(
      "a",
      { href: `#${each.path}`, "aria-current": each.name === where.page.section ? "page" : null, title: `g ${each.key}` },
      each.name,
    ),
  );
}

function watched(where) {
  stream.watch([...ALWAYS, ...(where.page.watch?.(context()) ?? [])]);
}

function redraw() {
  drawing = false;
  const where = current();
  watched(where);
  const place = document.getElementById("main");
  morphChildren(document.getElementById("head"), head().filter(Boolean));
  morphChildren(document.getElementById("nav"), navigation(where));
  const shown = h("main", null, banner(), where.page.draw(context()));
  morphChildren(place, [...shown.childNodes]);
  place.dataset.shows = location.hash;
  document.title = `${where.page.title?.(where) ?? where.page.name} · Paceline`;
}

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(redraw);
}

function theme(name) {
  if (name) document.documentElement.dataset.theme = name;
}

function toggleTheme() {
  const now = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const name = now === "dark" ? "light" : "dark";
  localStorage.setItem(THEME, name);
  theme(name);
}

const dialog = document.getElementById("dialog");

export function ask(...content) {
  dialog.replaceChildren(h("form", { method: "dialog" }, ...content));
  dialog.showModal();
}

function askForToken() {
  ask(
    h("h2", null, "Log in"),
    h("p", null, "With a token of a user. An administrator makes one: ", h("code", null, "paceline user token NAME"), "."),
    h("label", null, "Token ", h("input", { name: "token", type: "password", autocomplete: "off", required: true })),
    h("p", { class: "buttons" }, h("button", { value: "cancel", formnovalidate: true }, "Cancel"), h("button", { value: "token", class: "main" }, "Log in")),
  );
}

function showKeys() {
  ask(
    h("h2", null, "Keys"),
    h(
      "dl",
      { class: "facts" },
      PAGES.filter((each) => each.key).map((each) => [h("dt", null, h("kbd", null, "g"), " ", h("kbd", null, each.key)), h("dd", null, each.name)]),
      h("dt", null, h("kbd", null, "/")),
      h("dd", null, "to the filter"),
      h("dt", null, h("kbd", null, "t")),
      h("dd", null, "light or dark"),
    ),
    h("p", { class: "buttons" }, h("button", { value: "close", class: "main" }, "Close")),
  );
}

const DO = {
  theme: toggleTheme,
  keys: showKeys,
  "log-in": askForToken,
  "log-out": () => stream.logIn(null),
};

document.addEventListener("click", (event) => {
  const pressed = event.target.closest("[data-do]");
  if (!pressed) return;
  DO[pressed.dataset.do]?.();
});

dialog.addEventListener("close", () => {
  const token = dialog.querySelector("input[name=token]");
  if (dialog.returnValue === "token" && token?.value) stream.logIn(token.value.trim());
});

document.addEventListener("input", (event) => {
  if (event.target.matches("input.filter")) {
    filter = event.target.value;
    draw();
  }
});

document.addEventListener("submit", (event) => {
  if (!event.target.dataset.go) return;
  event.preventDefault();
  const said = new URLSearchParams([...new FormData(event.target)].filter(([, value]) => value !== ""));
  location.hash = `${event.target.dataset.go}?${said}`;
});

let goes = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  const wasGoing = goes;
  goes = false;
  if (wasGoing) {
    const page = PAGES.find((each) => each.key === event.key);
    if (page) location.hash = page.path;
  } else if (event.key === "g") goes = true;
  else if (event.key === "t") toggleTheme();
  else if (event.key === "?") showKeys();
  else if (event.key === "/") {
    const field = document.querySelector("input.filter");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  }
});

window.addEventListener("hashchange", () => {
  filter = "";
  const field = document.querySelector("input.filter");
  if (field) field.value = "";
  document.getElementById("main").replaceChildren();
  draw();
  scrollTo(0, 0);
});

// A page that nobody looks at asks for nothing after a while; what it drew has a gap then.
let leaving;
document.addEventListener("visibilitychange", () => {
  clearTimeout(leaving);
  if (document.hidden) leaving = setTimeout(() => stream.watch([]), UNSEEN_MS);
  else draw();
});

theme(localStorage.getItem(THEME));
setInterval(draw, 2000);
draw();
