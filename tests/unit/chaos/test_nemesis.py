"""Carrying out a plan of faults when each takes longer than the plan knows."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing

from paceline_cluster.chaos import nemesis
from paceline_cluster.chaos.faults import FaultKind, Part
from paceline_cluster.chaos.nemesis import Nemesis
from paceline_cluster.chaos.recorder import Recorder
from paceline_cluster.chaos.schedule import FaultSpec, PlannedFault
from paceline_cluster.chaos.targets import Picture, Target


async def test_what_found_no_time_is_passed_over(
    autojump_clock: trio.testing.MockClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of an hour took two where everything was slow to be in sync again."""
    struck: list[float] = []

    async def begin(_: Any, nodes: Sequence[int], numbers: Mapping[str, float]) -> None:
        struck.append(trio.current_time())
        await trio.sleep(4)

    async def end(_: Any, nodes: Sequence[int], numbers: Mapping[str, float]) -> None:
        await trio.lowlevel.checkpoint()

    async def look(_: Any) -> Picture:
        await trio.lowlevel.checkpoint()
        return Picture((0, 1, 2), 0, {}, is_healthy=True, serving=frozenset((0, 1, 2)))

    slow = FaultKind("takes its time", Part.DISK, begin, end, {}, losing=True)
    monkeypatch.setitem(cast(Any, nemesis.KINDS), "slow", slow)
    monkeypatch.setattr(nemesis, "look", look)
    planned = [PlannedFault(at, at + 1, FaultSpec("slow", Target("any"))) for at in range(8)]
    start = trio.current_time()
    with Recorder(tmp_path / "history.jsonl", {}) as recorder:
        striking = Nemesis(cast(Any, None), recorder, random.Random(1), lambda _: None)
        await striking.run(planned)
    assert [at - start for at in struck] == pytest.approx([0, 5])
    assert [strike.why for strike in striking.strikes] == 2 * [""] + 6 * ["its time is over"]
