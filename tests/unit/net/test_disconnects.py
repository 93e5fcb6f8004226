"""Turns of connections that end."""

from __future__ import annotations

from collections import Counter

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from paceline_node.net.disconnects import Disconnects

HANG_S = 30.0


async def leave_all(leaving: Disconnects, count: int) -> Counter[int]:
    """Let so many leave that come in one round; how many went in which."""
    rounds = 0
    left: Counter[int] = Counter()

    async def go() -> None:
        await leaving.turn()
        left[rounds] += 1

    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(go)
            while left.total() < count:
                await trio.lowlevel.checkpoint()
                rounds += 1
    return left


@pytest.mark.parametrize("count", [1, 2, 4, 5, 100])
async def test_a_few_leave_in_each_round(count: int) -> None:
    leaving = Disconnects()
    for _ in range(2):  # there is a way out for those who come later
        left = await leave_all(leaving, count)
        assert left.total() == count
        assert max(left.values()) <= 8  # trio runs the tasks of a round in any order


async def test_a_large_crowd_is_gone_in_a_bounded_number_of_rounds() -> None:
    left = await leave_all(Disconnects(), 3000)
    assert max(left.values()) <= 24
    assert len(left) < 3000 // 4 - 100


async def test_who_is_cancelled_while_waiting_keeps_nobody() -> None:
    leaving = Disconnects()
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(leaving.turn)
        nursery.cancel_scope.cancel("all of them")
    await wait_all_tasks_blocked()
    assert (await leave_all(leaving, 10)).total() == 10
