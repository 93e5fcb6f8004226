"""The statistics as one HTML page with plots: no script, no file besides it. Pure."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]

WIDTH, HEIGHT, MARGIN = 720, 200, 34
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #1c2430; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #d5dbe3; }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto; }
td, th { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #eef1f5; }
th { font-weight: 600; } td:first-child, th:first-child { text-align: left; }
svg { background: #f7f9fb; border-radius: 6px; } rect { fill: #2f6fb5; }
text { font-size: 11px; fill: #5a6676; } .facts { color: #5a6676; }
@media (prefers-color-scheme: dark) { body { background: #14181e; color: #dde3ea; }
  svg { background: #1c222b; } td, th, h2 { border-color: #2b333e; } }
"""


def page(tables: Tables, title: str, made: str) -> str:
    """The whole page: for each topic its numbers, bars of rows by partition and by hour, sizes."""
    topics = sorted({row["topic"] for row in tables["partitions"]})
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{html.escape(title)}</h1><p class=facts>{html.escape(made)}</p>",
    ]
    for topic in topics:
        parts += _topic(topic, {name: _of(rows, topic) for name, rows in tables.items()})
    return "".join([*parts, "</body></html>\n"])


def _of(rows: Sequence[Row], topic: str) -> list[Row]:
    return [
        {key: value for key, value in row.items() if key != "topic"}
        for row in rows
        if row["topic"] == topic
    ]


def _topic(topic: str, tables: Mapping[str, Sequence[Row]]) -> list[str]:
    partitions, hours = tables["partitions"], tables["hours"]
    rows = sum(row["rows"] for row in partitions)
    size = sum(row["bytes"] for row in partitions)
    parts = [
        f"<h2>{html.escape(topic)}</h2>",
        f"<p class=facts>{rows:,} records, {size:,} bytes, {len(partitions)} partitions</p>",
        bars("records by partition", [(str(row["partition"]), row["rows"]) for row in partitions]),
        bars("records by hour", [(str(row["hour"])[:13], row["rows"]) for row in hours]),
        bars(
            "value size, p99 by partition",
            [(str(row["partition"]), row["value_p99"]) for row in partitions],
        ),
    ]
    for name in ("partitions", "keys", "headers", "codecs"):
        if tables[name]:
            parts += [f"<h3>{name}</h3>", _table(tables[name])]
    return parts


def bars(title: str, values: Sequence[tuple[str, float]]) -> str:
    """A bar chart; labels are thinned so that they do not run into each other."""
    if not values:
        return ""
    top = max(value for _, value in values) or 1
    step = (WIDTH - 2 * MARGIN) / len(values)
    every = max(1, round(90 / step)) if len(values[0][0]) > 4 else max(1, round(24 / step))
    shapes = [
        f"<figure><figcaption>{html.escape(title)}, at most {top:,}</figcaption>",
        f'<svg width="{WIDTH}" height="{HEIGHT}" role=img aria-label="{html.escape(title)}">',
    ]
    room = HEIGHT - 2 * MARGIN
    for number, (label, value) in enumerate(values):
        height = room * value / top
        x, y = MARGIN + number * step, HEIGHT - MARGIN - height
        shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(1.0, step * 0.85):.1f}" '
            f'height="{height:.1f}"><title>{html.escape(label)}: {value:,}</title></rect>'
        )
        if number % every == 0:
            shapes.append(f'<text x="{x:.1f}" y="{HEIGHT - 14}">{html.escape(label)}</text>')
    return "".join([*shapes, "</svg></figure>"])


def _table(rows: Sequence[Row]) -> str:
    columns = list(rows[0])
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(_shown(row[name]))}</td>" for name in columns) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
