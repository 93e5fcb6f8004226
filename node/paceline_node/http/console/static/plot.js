// Lines over time, as drawings. Labels are text beside them: a drawing is stretched to its place.

import { h, s } from "./dom.js";
import { duration } from "./format.js";

const WIDTH = 600;
const HEIGHT = 150;
const LEAST_MS = 60_000;
const MOST_MS = 300_000;

// Round numbers that hold `most`, and how they divide it.
function scale(most) {
  if (!(most > 0)) return { top: 1, ticks: [0, 1] };
  const power = 10 ** Math.floor(Math.log10(most));
  const step = [0.25, 0.5, 1, 2, 2.5, 5].map((each) => each * power).find((each) => each * 4 >= most) ?? 5 * power;
  const top = step * Math.ceil(most / step);
  return { top, ticks: Array.from({ length: Math.round(top / step) + 1 }, (_, index) => index * step) };
}

function path(points, toX, toY) {
  // Where nothing was heard for a while there is no line.
  let line = "";
  let before = null;
  for (const [at, value] of points) {
    line += `${before !== null && at - before < 8000 ? "L" : "M"}${toX(at).toFixed(1)} ${toY(value).toFixed(1)}`;
    before = at;
  }
  return line;
}

// `lines`: [{label, series, tone}] over the time that is known, one minute to five.
export function plot(title, lines, format, note = "") {
  const now = Date.now();
  const first = Math.min(now, ...lines.map((line) => line.series.points[0]?.[0] ?? now));
  const shownMs = Math.min(MOST_MS, Math.max(LEAST_MS, now - first));
  const begin = now - shownMs;
  const seen = lines.map((line) => line.series.points.filter(([at]) => at >= begin));
  const most = Math.max(0, ...seen.flat().map(([, value]) => value));
  const { top, ticks } = scale(most);
  const toX = (at) => ((at - begin) / shownMs) * WIDTH;
  const toY = (value) => HEIGHT - (value / top) * (HEIGHT - 6) - 1;
  const legend = lines.map((line) =>
    h("span", { class: `legend ${line.tone}` }, h("i"), `${line.label} `, h("b", null, format(line.series.last))),
  );
  return h(
    "figure",
    { class: "plot" },
    h("figcaption", null, h("h2", null, title), h("div", { class: "legends" }, legend)),
    h(
      "div",
      { class: "field" },
      h("div", { class: "ticks" }, ticks.toReversed().map((tick) => h("span", null, format(tick)))),
      s(
        "svg",
        { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title },
        ticks.map((tick) => s("line", { class: "grid", x1: 0, x2: WIDTH, y1: toY(tick), y2: toY(tick) })),
        seen.map((points, index) => s("path", { class: `line ${lines[index].tone}`, d: path(points, toX, toY) })),
      ),
    ),
    h("div", { class: "times" }, h("span", null, `${duration(Math.round(shownMs / 1000))} ago`), h("span", null, note), h("span", null, "now")),
  );
}

export function spark(series, label) {
  const points = series.points.slice(-240);
  if (points.length < 2) return h("span", { class: "spark" });
  const most = Math.max(...points.map(([, value]) => value)) || 1;
  const [[first], [last]] = [points[0], points.at(-1)];
  const toX = (at) => ((at - first) / Math.max(1, last - first)) * 100;
  const toY = (value) => 23 - (value / most) * 21;
  return s(
    "svg",
    { class: "spark", viewBox: "0 0 100 24", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("path", { class: "line a", d: path(points, toX, toY) }),
  );
}

// How much of a whole, as a bar.
export function bar(part, whole, level = "ok", label = "") {
  const share = whole > 0 ? Math.min(1, Math.max(0, part / whole)) : 0;
  return s(
    "svg",
    { class: `bar ${level}`, viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": label },
    s("rect", { class: "rest", width: 100, height: 8 }),
    s("rect", { class: "part", width: (100 * share).toFixed(1), height: 8 }),
  );
}
