// Elements, and how those that are shown become those that are to be shown: in place, so that focus,
// selection and scrolling stay where they are.

const SVG = "http://www.w3.org/2000/svg";
const DRAWN = new Set(["svg", "path", "line", "rect", "g", "text", "circle", "title"]);

function fill(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

function build(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : String(value));
  }
  fill(element, children);
  return element;
}

// What is drawn has "title" for its own; of pages it is h("title") that nobody needs.
export function h(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

export function s(tag, attributes, ...children) {
  if (!DRAWN.has(tag)) throw new Error(`no element of drawings: ${tag}`);
  return build(document.createElementNS(SVG, tag), attributes, children);
}

const isSame = (a, b) =>
  a.nodeType === b.nodeType &&
  a.nodeName === b.nodeName &&
  (a.nodeType !== Node.ELEMENT_NODE || (a.id === b.id && a.dataset?.key === b.dataset?.key));

export function morph(shown, wanted) {
  if (shown.nodeType === Node.TEXT_NODE) {
    if (shown.data !== wanted.data) shown.data = wanted.data;
    return;
  }
  if (shown.nodeType !== Node.ELEMENT_NODE) return;
  for (const { name } of [...shown.attributes]) {
    // What a person opened stays open.
    if (!wanted.hasAttribute(name) && name !== "open") shown.removeAttribute(name);
  }
  for (const { name, value } of wanted.attributes) {
    if (shown.getAttribute(name) !== value) shown.setAttribute(name, value);
  }
  if (shown.nodeName === "INPUT" || shown.nodeName === "SELECT") return; // whose value is the person's
  morphChildren(shown, [...wanted.childNodes]);
}

export function morphChildren(shown, wanted) {
  const byKey = new Map();
  for (const child of shown.childNodes) if (child.dataset?.key) byKey.set(child.dataset.key, child);
  let at = shown.firstChild;
  for (const next of wanted) {
    const kept = next.dataset?.key ? byKey.get(next.dataset.key) : null;
    if (kept && kept !== at && isSame(kept, next)) {
      shown.insertBefore(kept, at);
      morph(kept, next);
    } else if (at && isSame(at, next)) {
      morph(at, next);
      at = at.nextSibling;
    } else {
      shown.insertBefore(next, at);
    }
  }
  while (at) {
    const rest = at.nextSibling;
    at.remove();
    at = rest;
  }
}
