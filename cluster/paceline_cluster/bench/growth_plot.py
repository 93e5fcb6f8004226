"""The curves of growth as one SVG: for each kind of work the CPU of an operation, and the longest
stall, over how much a node remembers. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from paceline_cluster.bench.growth import Growth

_WIDTH, _HEIGHT = 470, 190
"""Of one panel with what is written around it."""
_LEFT, _TOP, _RIGHT, _BOTTOM = 64, 34, 16, 30
_CPU, _STALL, _OWN = "#2f7ed8", "#c0392b", "#d98200"
_MARKS = 4


class _Line(NamedTuple):
    name: str
    colour: str
    values: Sequence[float]


def plot(grown: Sequence[Growth]) -> str:
    """A row for each kind of work, in the order in which they were measured; sizes by powers of
    ten, times from 0."""
    kinds = list(dict.fromkeys(each.work for each in grown))
    width, height = 2 * _WIDTH, len(kinds) * _HEIGHT
    parts = [
        (
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' "
            "font-family='sans-serif' font-size='11' fill='#222'>"
        ),
        f"<rect width='{width}' height='{height}' fill='#fff'/>",
    ]
    for row, work in enumerate(kinds):
        of_kind = sorted((each for each in grown if each.work == work), key=lambda each: each.size)
        name, sizes = work.format("n"), [each.size for each in of_kind]
        cpu = _Line("CPU", _CPU, [each.cpu_us for each in of_kind])
        stall = _Line("longest stall", _STALL, [each.longest_ms for each in of_kind])
        own = _Line("without the collector", _OWN, [each.longest_own_ms for each in of_kind])
        top = row * _HEIGHT
        parts += _panel(0, top, f"{name}: µs for {of_kind[0].unit}", sizes, [cpu])
        parts += _panel(_WIDTH, top, f"{name}: longest stall, ms", sizes, [stall, own])
    return "".join(parts) + "</svg>\n"


def _panel(
    left: int, top: int, title: str, sizes: Sequence[int], lines: Sequence[_Line]
) -> list[str]:
    highest = _rounded_up(max(max(line.values) for line in lines))
    first, span = math.log10(sizes[0]), math.log10(sizes[-1] / sizes[0]) or 1.0
    plot_width, plot_height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(size: int) -> float:
        return left + _LEFT + plot_width * (math.log10(size) - first) / span

    def y(value: float) -> float:
        return top + _TOP + plot_height * (1 - value / highest)

    parts = [f"<text x='{left + _LEFT}' y='{top + 14}' font-weight='bold'>{escape(title)}</text>"]
    for mark in range(_MARKS + 1):
        value = highest * mark / _MARKS
        parts.append(
            f"<line x1='{left + _LEFT}' x2='{left + _WIDTH - _RIGHT}' y1='{y(value):.1f}' "
            f"y2='{y(value):.1f}' stroke='#ddd'/><text x='{left + _LEFT - 6}' "
            f"y='{y(value) + 4:.1f}' text-anchor='end'>{value:g}</text>"
        )
    for size in sizes:
        parts.append(
            f"<text x='{x(size):.1f}' y='{top + _HEIGHT - _BOTTOM + 16}' text-anchor='middle'>"
            f"{size:,}</text>"
        )
    for place, line in enumerate(lines):
        points = [(x(size), y(value)) for size, value in zip(sizes, line.values, strict=True)]
        joined = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        parts.append(f"<polyline points='{joined}' fill='none' stroke='{line.colour}'/>")
        for (across, down), value in zip(points, line.values, strict=True):
            parts.append(
                f"<circle cx='{across:.1f}' cy='{down:.1f}' r='3' fill='{line.colour}'>"
                f"<title>{escape(line.name)}: {value:.3g}</title></circle>"
            )
        if len(lines) > 1:
            parts.append(
                f"<text x='{left + _LEFT + 8 + 110 * place}' y='{top + _TOP - 6}' "
                f"fill='{line.colour}'>{escape(line.name)}</text>"
            )
    return parts


def _rounded_up(value: float) -> float:
    """The next of 1, 2, 4, 10 times a power of ten: each fourth of it is short to write."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 4, 10) if value <= factor * power)
