// Numbers as people read them.

const GROUPS = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const COUNTS = ["", "k", "M", "G", "T"];
const NOTHING = "–";

const isKnown = (value) => value !== null && value !== undefined && !(value < 0);

export const count = (value) => (isKnown(value) ? GROUPS.format(value).replaceAll(",", "\u202f") : NOTHING);

function scaled(value, step, names) {
  let size = value;
  let unit = 0;
  while (size >= step && unit < names.length - 1) {
    size /= step;
    unit += 1;
  }
  const digits = size >= 100 || Number.isInteger(size) ? 0 : size >= 10 || unit === 0 ? 1 : 2;
  return [size.toFixed(digits), names[unit]];
}

export function bytes(value) {
  if (!isKnown(value)) return NOTHING;
  const [size, unit] = scaled(value, 1024, SIZES);
  return `${size} ${unit}`;
}

// About so many: for heads of pages and axes, where the last digits would only flicker.
export function about(value) {
  if (!isKnown(value)) return NOTHING;
  const [size, unit] = scaled(value, 1000, COUNTS);
  return `${size}${unit}`;
}

export const perSecond = (value) => (isKnown(value) ? `${about(value)}/s` : NOTHING);
export const bytesPerSecond = (value) => (isKnown(value) ? `${bytes(value)}/s` : NOTHING);

export function milliseconds(value) {
  if (!isKnown(value)) return NOTHING;
  if (value === 0) return "0 ms";
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return `${value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)} ms`;
}

const SPANS = [
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];

export function duration(seconds) {
  if (!isKnown(seconds)) return NOTHING;
  if (!Number.isFinite(seconds)) return "never";
  const at = Math.max(0, SPANS.findIndex(([, size]) => seconds >= size));
  if (seconds < 1) return "0 s";
  const [unit, size] = SPANS[at];
  const rest = SPANS[at + 1];
  const more = rest ? Math.floor((seconds % size) / rest[1]) : 0;
  return `${Math.floor(seconds / size)} ${unit}${more ? ` ${more} ${rest[0]}` : ""}`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export const clock = (date) => date.toLocaleTimeString("en-GB");

export { isKnown, NOTHING };
