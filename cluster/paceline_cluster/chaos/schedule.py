"""When which fault strikes: drawn from a seed. Pure.

A scenario's faults either have their own time (``at``) or are drawn: after each pause a fault is
chosen by weight, or with probability ``calm`` none. Every fault ends before the time is over.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import field

from paceline.values import dataclass
from paceline_cluster.chaos.targets import Target

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """A fault as a scenario names it. ``at`` None: drawn, by ``weight``. ``seconds``: how long,
    from and to. ``every``: repeats ``at`` in this interval."""

    kind: str
    target: Target
    seconds: Range = (1.0, 1.0)
    at: float | None = None
    every: float | None = None
    weight: float = 1.0
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScheduleSpec:
    """``first_s``: quiet at the beginning. ``pause_s``: from one drawing to the next. ``calm``: the
    probability of none. ``at_once``: so many drawn faults overlap at most."""

    first_s: float = 1.0
    pause_s: Range = (1.0, 4.0)
    calm: float = 0.25
    at_once: int = 2


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """A fault with its time; seconds since the faults' part of the run began."""

    begin: float
    end: float
    spec: FaultSpec


def plan(
    faults: Sequence[FaultSpec], schedule: ScheduleSpec, seconds: float, rng: random.Random
) -> list[PlannedFault]:
    """All faults of a run of ``seconds``, by their beginning."""
    planned = _timed(faults, seconds, rng)
    drawn = [spec for spec in faults if spec.at is None]
    if drawn:
        planned += _drawn(drawn, schedule, seconds, rng)
    return sorted(planned, key=lambda each: each.begin)


def _timed(faults: Sequence[FaultSpec], seconds: float, rng: random.Random) -> list[PlannedFault]:
    planned = []
    for spec in faults:
        at = spec.at
        while at is not None and at < seconds:
            length = rng.uniform(*spec.seconds)
            planned.append(PlannedFault(at, min(at + length, seconds), spec))
            at = None if spec.every is None else at + spec.every
    return planned


def _drawn(
    faults: Sequence[FaultSpec], schedule: ScheduleSpec, seconds: float, rng: random.Random
) -> list[PlannedFault]:
    planned: list[PlannedFault] = []
    weights = [spec.weight for spec in faults]
    now = schedule.first_s
    while now < seconds:
        active = sum(each.end > now for each in planned)
        if active < schedule.at_once and rng.random() >= schedule.calm:
            [spec] = rng.choices(faults, weights)
            length = rng.uniform(*spec.seconds)
            if now + length <= seconds:
                planned.append(PlannedFault(now, now + length, spec))
        now += rng.uniform(*schedule.pause_s)
    return planned
