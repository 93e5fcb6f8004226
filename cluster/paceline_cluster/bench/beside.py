"""Two connectors side by side, each beside the ceiling of both: ratios, and who is ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.values import dataclass
from paceline_cluster.bench.figures import Aim
from paceline_cluster.cli.output import Table

RATE, TIME = "rows/s", "ms"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured thing, in RATE (more is better) or TIME (less is); ``aim`` is for what is ours
    divided by the ceiling."""

    name: str
    unit: str
    ceiling: float
    paceline: float
    kafka: float
    aim: Aim | None = None

    @property
    def to_ceiling(self) -> float:
        """Ours by the ceiling's."""
        return self.paceline / self.ceiling

    @property
    def kafka_to_ceiling(self) -> float:
        """Theirs by the ceiling's."""
        return self.kafka / self.ceiling

    @property
    def to_kafka(self) -> float:
        """Ours by theirs."""
        return self.paceline / self.kafka

    @property
    def is_ahead(self) -> bool:
        """Whether ours is the better one."""
        return self.to_kafka > 1 if self.unit == RATE else self.to_kafka < 1

    def to_json(self) -> dict[str, Any]:
        """With all ratios."""
        return {
            "name": self.name,
            "unit": self.unit,
            "ceiling": round(self.ceiling),
            "paceline": round(self.paceline),
            "kafka": round(self.kafka),
            "paceline_to_ceiling": round(self.to_ceiling, 3),
            "kafka_to_ceiling": round(self.kafka_to_ceiling, 3),
            "paceline_to_kafka": round(self.to_kafka, 3),
            "ahead": self.is_ahead,
            "aim": None if self.aim is None else str(self.aim),
            "met": None if self.aim is None else self.aim.met(self.to_ceiling),
        }


def table(rows: Sequence[Row]) -> Table:
    """For people. ``ahead``: whether Paceline is; the aim is for Paceline to the ceiling."""
    columns = ("spark", "", "ceiling", "paceline", "kafka", "p:ceiling", "k:ceiling", "p:kafka")
    return Table((*columns, "ahead", "aim", "met"), [_cells(each) for each in rows])


def _cells(row: Row) -> tuple[object, ...]:
    return (
        row.name,
        row.unit,
        *(f"{value:,.0f}" for value in (row.ceiling, row.paceline, row.kafka)),
        *(f"{value:.2f}" for value in (row.to_ceiling, row.kafka_to_ceiling, row.to_kafka)),
        row.is_ahead,
        "" if row.aim is None else str(row.aim),
        "" if row.aim is None else row.aim.met(row.to_ceiling),
    )
