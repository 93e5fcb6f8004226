"""Segments in whole nodes: the judge sees what must not happen, when a rule is broken."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from unittest import mock

import pytest

from paceline.wire.segment.appender import Appender
from paceline_cluster.sim.fabric import Weather
from paceline_cluster.sim.plan import Plan
from paceline_node.replication.partition import Partition
from paceline_node.services.segments import led_segment
from paceline_node.services.segments.segment_reads import SegmentBounds
from paceline_node.services.segments.segment_writers import SegmentWriters
from paceline_node.storage.byte_positions import first_position
from paceline_node.storage.byte_segment_state import SegmentMarks, require_next
from tests.sim.node.mutants import MUTANTS, Patch
from tests.sim.node.story import Story, find, plan_of, play

pytestmark = pytest.mark.timeout(600)


def plan() -> Plan:
    """Links slow enough for much to be on its way at any time."""
    return replace(plan_of(), weather=Weather(latency_s=(0.002, 0.02)), streamers=2)


async def troubles(story: Story) -> None:
    """Connections are reset under their clients, commits take long for a while, a node dies;
    much is written all the time."""
    judge = story.run.judge

    async def more(size: int) -> None:
        goal = judge.stored_bytes + size
        await story.until(f"{size} more bytes", lambda: judge.stored_bytes >= goal, within=20)

    for _ in range(6):
        await more(8_000)
        for machine in story.machines:
            for stream in story.fabric.connections(machine.host):
                story.fabric.reset(stream)
    for source, target in permutations(story.machines, 2):
        story.fabric.link(source.host, target.host).extra_s = 0.15
    await more(8_000)
    story.heal()
    victim = story.leader
    victim.kill()
    await more(20_000)
    story.start(victim)
    await more(20_000)


def test_each_segment_is_its_writers_streams() -> None:
    assert play(troubles, plan()).segment_bytes > 80_000


# --- wrong versions of single rules ---------------------------------------------------------------


@dataclass(frozen=True)
class SegmentMutant:
    """``invariants``: any of these may be seen to break first. ``slow``: another one of the tiers
    tells of the rule."""

    name: str
    patch: Patch
    invariants: frozenset[str]
    slow: bool = False


def _set(target: object, name: str, value: object) -> Patch:
    return lambda: mock.patch.object(target, name, value)


def patch_of(name: str) -> Patch:
    """The patch of a mutant that other protocols' checks find, too."""
    return next(mutant.patch for mutant in MUTANTS if mutant.name == name)


def _take_everything(self: Appender, run: bytes) -> bytes:
    assert self.next is not None
    self.next += len(run)
    return run


def _begin_at_the_level(self: Appender, offset: int) -> None:
    if self.next is None:
        self.next = self.skip


def _next_whatever_was_sealed(marks: SegmentMarks, level: int, start: int) -> None:
    require_next(marks._replace(sealed_at=-1), level, start)


@contextlib.contextmanager
def _nobody_is_fenced() -> Iterator[None]:
    """Neither when a newcomer sets up, nor by the compare-and-set of the append."""
    with (
        mock.patch.object(led_segment, "require_next"),
        mock.patch.object(SegmentWriters, "claim"),
    ):
        yield


@contextlib.contextmanager
def _readable_to_the_log_end() -> Iterator[None]:
    def bounds(partition: Partition) -> SegmentBounds:
        marks = partition.log.producers.marks
        end = marks.end_position
        return SegmentBounds(first_position(partition.log), end, end, marks.is_sealed)

    with (
        patch_of("reads go to the log end")(),
        mock.patch.object(led_segment, "bounds_of", bounds),
    ):
        yield


FOUND = (
    SegmentMutant(
        "repeated Events are stored again",
        _set(Appender, "take", _take_everything),
        frozenset(("segment", "I7")),
    ),
    SegmentMutant(
        "what is sent again counts from the level",
        _set(Appender, "begin", _begin_at_the_level),
        frozenset(("I7",)),
        slow=True,
    ),
    SegmentMutant("nobody is fenced", _nobody_is_fenced, frozenset(("segment", "I7"))),
    SegmentMutant(
        "appends go on behind the seal",
        _set(led_segment, "require_next", _next_whatever_was_sealed),
        frozenset(("segment", "I8")),
    ),
    SegmentMutant(
        "levels are told at append",
        patch_of("acks=all answered at append"),
        frozenset(("I5",)),
    ),
    SegmentMutant(
        "reads go to the log end",
        _readable_to_the_log_end,
        frozenset(("I4",)),
        slow=True,
    ),
)


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(each, id=each.name, marks=[pytest.mark.slow] if each.slow else [])
        for each in FOUND
    ],
)
def test_mutant_is_found(mutant: SegmentMutant) -> None:
    with mutant.patch():
        find(troubles, plan(), *(f"{each} at " for each in mutant.invariants))
