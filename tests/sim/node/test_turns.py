"""Work that keeps a node's event loop for longer than a slice is seen by the oracle."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from paceline_node.loop_turns import MOST_UNITS, SLICE_UNITS
from paceline_node.sliced_work import Work
from tests.sim.node.story import Story, perform

pytestmark = pytest.mark.timeout(600)


def _work(at_once: int) -> Work[None]:
    """A thousand pieces, of so many units each."""
    for _ in range(1000):
        yield at_once


async def _at_the_leader(story: Story, *, at_once: int) -> None:
    node = story.leader.node
    assert node is not None
    assert node.broker is not None
    await node.broker.turns.run(_work(at_once))
    await story.acknowledged(1)


@pytest.mark.parametrize("at_once", [1, SLICE_UNITS, MOST_UNITS + 1])
def test_a_slice_that_is_too_long_ends_the_run(at_once: int) -> None:
    violation = perform(partial(_at_the_leader, at_once=at_once)).violation
    if at_once <= SLICE_UNITS:
        assert violation is None
    else:
        assert violation is not None
        assert f"did {at_once} units of work" in violation.text


async def _never_waits(story: Story) -> None:
    """As a task of a node whose clean-up is shielded; it ends when its machine does."""
    with trio.CancelScope(shield=True):
        while story.leader.is_up:
            await trio.lowlevel.checkpoint()


def test_a_task_that_never_waits_ends_the_run() -> None:
    violation = perform(_never_waits).violation
    assert violation is not None
    assert "a task never waits" in violation.text
