"""Measured figures: what, how much, against which aim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, field
from typing import Any

from paceline.values import dataclass
from paceline_cluster.cli.output import Table


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure should reach: at least, or at most, ``value``."""

    value: float
    at_least: bool

    def met(self, value: float) -> bool:
        return value >= self.value if self.at_least else value <= self.value

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.value:g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number; ``details`` are further facts of the same measurement."""

    name: str
    value: float
    unit: str
    aim: Aim | None = None
    details: dict[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["aim"] = None if self.aim is None else str(self.aim)
        data["met"] = None if self.aim is None else self.aim.met(self.value)
        return data


def percentile(values: Sequence[float], fraction: float) -> float:
    """The value below which ``fraction`` of ``values`` lie (nearest rank)."""
    ordered = sorted(values)
    rank = max(1, -(-len(ordered) * fraction // 1))
    return ordered[int(rank) - 1]


def latency(name: str, seconds: Sequence[float], wall_s: float, aim: Aim | None = None) -> Figure:
    """The median of single latencies in ms, with the tail and the rate beside it."""
    in_ms = [value * 1000 for value in seconds]
    details = {
        "p99_ms": round(percentile(in_ms, 0.99), 3),
        "p999_ms": round(percentile(in_ms, 0.999), 3),
        "max_ms": round(max(in_ms), 3),
        "writes_per_s": round(len(in_ms) / wall_s),
    }
    return Figure(name, round(percentile(in_ms, 0.5), 3), "ms p50", aim, details)


def rate(name: str, size_bytes: int, count: int, wall_s: float, aim: Aim | None = None) -> Figure:
    """MB/s (10**6 bytes of record values), with records/s beside it."""
    details = {"records_per_s": round(count / wall_s), "seconds": round(wall_s, 2)}
    return Figure(name, round(size_bytes / wall_s / 1e6, 1), "MB/s", aim, details)


def table(figures: Sequence[Figure]) -> Table:
    """The figures for people."""
    rows = [
        (
            figure.name,
            f"{figure.value:g} {figure.unit}",
            "" if figure.aim is None else f"{figure.aim}",
            "" if figure.aim is None else ("met" if figure.aim.met(figure.value) else "not met"),
            ", ".join(f"{key} {value:g}" for key, value in figure.details.items()),
        )
        for figure in figures
    ]
    return Table(("figure", "measured", "aim", "", "besides"), rows)
