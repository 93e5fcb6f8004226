"""Scenarios: which cluster, which workload, which faults. Read from TOML; problems are all named.

name = "mine"
description = "Leaders die under load."
seconds = 30                       # of faults; --minutes overrides it
nodes = 3

[settings]                         # of every node
"broker.session_ms" = "1500"

[workload]                         # see WorkloadSpec
writers = 2
rate = 300

[schedule]                         # how drawn faults follow each other; see ScheduleSpec
pause_s = [1, 4]

[[fault]]
kind = "kill"                      # see 'paceline chaos list'
target = "leader of orders/*"
seconds = [0.5, 3]
weight = 2                         # drawn; or a time of its own:  at = 5  (and  every = 10)
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from importlib.resources import files
from pathlib import Path
from typing import Any

from paceline.values import dataclass
from paceline_cluster.chaos.faults import KINDS
from paceline_cluster.chaos.schedule import FaultSpec, Range, ScheduleSpec
from paceline_cluster.chaos.targets import Target, parse_target
from paceline_cluster.chaos.workload import WorkloadSpec
from paceline_cluster.errors import BadScenario

_TOP = frozenset({"name", "description", "seconds", "nodes", "settings", "workload", "schedule"})
_FAULT = frozenset({"kind", "target", "seconds", "at", "every", "weight"})


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario as it is run."""

    name: str
    description: str
    seconds: float
    nodes: int
    settings: Mapping[str, str]
    workload: WorkloadSpec
    schedule: ScheduleSpec
    faults: tuple[FaultSpec, ...]


def built_in() -> list[Scenario]:
    """The scenarios that come with Paceline, by name."""
    folder = files("paceline_cluster.chaos").joinpath("scenarios")
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".toml"))
    return [parse(folder.joinpath(name).read_text("utf-8"), name) for name in names]


def named(name: str) -> Scenario:
    """A built-in scenario. Raises BadScenario naming those there are."""
    known = {scenario.name: scenario for scenario in built_in()}
    if name not in known:
        raise BadScenario(f"there is no scenario {name!r}; there are {', '.join(known)}")
    return known[name]


def read(path: Path) -> Scenario:
    """A scenario of one's own. Raises BadScenario, OSError."""
    return parse(path.read_text(encoding="utf-8"), str(path))


def parse(text: str, source: str) -> Scenario:
    """Raises BadScenario with every problem, each with its place."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadScenario(f"{source}: {error}") from None
    form = _Form(source)
    scenario = form.scenario(data)
    if form.problems:
        raise BadScenario("\n".join(f"{source}: {problem}" for problem in form.problems))
    return scenario


class _Form:
    """Converts leaf by leaf and collects what does not fit."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.problems: list[str] = []

    def scenario(self, data: dict[str, Any]) -> Scenario:
        self._unknown("", data, _TOP | {"fault"})
        raw_faults = data.get("fault", [])
        if not isinstance(raw_faults, list) or not all(isinstance(f, dict) for f in raw_faults):
            self._bad("fault", "expected [[fault]] tables")
            raw_faults = []
        if not raw_faults:
            self._bad("fault", "there is none; add a [[fault]]")
        settings = self._table(data, "settings")
        return Scenario(
            name=str(data.get("name", Path(self.source).stem)),
            description=str(data.get("description", "")),
            seconds=self._number(data, "seconds", "seconds", 30.0, low=1),
            nodes=int(self._number(data, "nodes", "nodes", 3, low=1, high=9)),
            settings={key: str(value) for key, value in settings.items()},
            workload=self._filled(WorkloadSpec(), data, "workload"),
            schedule=self._filled(ScheduleSpec(), data, "schedule"),
            faults=tuple(
                fault
                for number, raw in enumerate(raw_faults, start=1)
                if (fault := self._fault(raw, f"fault {number}")) is not None
            ),
        )

    def _fault(self, raw: dict[str, Any], where: str) -> FaultSpec | None:
        kind = KINDS.get(str(raw.get("kind")))
        target = self._target(raw, where)
        if kind is None:
            self._bad(f"{where}, kind", f"{raw.get('kind')!r}; expected {', '.join(KINDS)}")
            return None
        self._unknown(f"{where}, ", raw, _FAULT | set(kind.numbers))
        every = self._optional(raw, where, "every")
        if every is not None and (every <= 0 or "at" not in raw):
            self._bad(f"{where}, every", "goes with at, and is above 0")
            every = None
        seconds = (0.0, 0.0) if kind.instant else self._range(raw, where, "seconds", (1.0, 3.0))
        if target is None:
            return None
        return FaultSpec(
            kind=str(raw["kind"]),
            target=target,
            seconds=seconds,
            at=self._optional(raw, where, "at"),
            every=every,
            weight=self._number(raw, f"{where}, weight", "weight", 1.0),
            numbers={
                name: self._number(raw, f"{where}, {name}", name, default, low=None)
                for name, default in kind.numbers.items()
            },
        )

    def _target(self, raw: dict[str, Any], where: str) -> Target | None:
        try:
            return parse_target(str(raw.get("target", "")))
        except ValueError as error:
            self._bad(f"{where}, target", str(error))
            return None

    def _filled(self, default: Any, data: dict[str, Any], table: str) -> Any:
        """A spec of plain numbers and ranges, from a table of the same names."""
        raw = self._table(data, table)
        names = [field.name for field in fields(default)]
        self._unknown(f"{table}.", raw, frozenset(names))
        values: dict[str, Any] = {}
        for name in names:
            known = getattr(default, name)
            if isinstance(known, tuple):
                low, high = self._range(raw, table, name, known)
                whole = isinstance(known[0], int)
                values[name] = (int(low), int(high)) if whole else (low, high)
            else:
                number = self._number(raw, f"{table}.{name}", name, known)
                values[name] = int(number) if isinstance(known, int) else number
        return type(default)(**values)

    def _table(self, data: dict[str, Any], name: str) -> dict[str, Any]:
        value = data.get(name, {})
        if isinstance(value, dict):
            return value
        self._bad(name, f"expected a table, found {value!r}")
        return {}

    def _number(
        self,
        raw: Mapping[str, Any],
        where: str,
        name: str,
        default: float,
        *,
        low: float | None = 0,
        high: float | None = None,
    ) -> float:
        value = raw.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._bad(where, f"expected a number, found {value!r}")
            return default
        if (low is not None and value < low) or (high is not None and value > high):
            self._bad(where, f"{value} is out of {low}..{'' if high is None else high}")
            return default
        return float(value)

    def _optional(self, raw: Mapping[str, Any], where: str, name: str) -> float | None:
        return self._number(raw, f"{where}, {name}", name, 0) if name in raw else None

    def _range(
        self, raw: Mapping[str, Any], where: str, name: str, default: tuple[float, float]
    ) -> Range:
        value = raw.get(name, list(default))
        pair = value if isinstance(value, list) else [value, value]
        numbers = [n for n in pair if isinstance(n, int | float) and not isinstance(n, bool)]
        if len(pair) != 2 or len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1]:
            self._bad(f"{where}, {name}", f"expected a number or [from, to], found {value!r}")
            return default
        return float(numbers[0]), float(numbers[1])

    def _unknown(self, where: str, raw: Mapping[str, Any], known: frozenset[str]) -> None:
        for name in sorted(raw.keys() - known):
            self._bad(f"{where}{name}", f"unknown; expected {', '.join(sorted(known))}")

    def _bad(self, where: str, what: str) -> None:
        self.problems.append(f"{where}: {what}")
