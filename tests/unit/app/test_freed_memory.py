"""What was freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio

from paceline_node.app import freed_memory
from paceline_node.app.freed_memory import GROWTH, MUCH, PERIOD_S, Allocator, Growth

FRAGMENTED = """
import random
from paceline_node.app.freed_memory import Allocator, resident_bytes

allocator = Allocator()
allocator.configure()
sizes = random.Random(1)
blocks = [bytes(sizes.randint(1_000, 60_000)) for _ in range(5_000)]
full = resident_bytes()
kept = blocks[::40]
del blocks
held = resident_bytes()
allocator.give_back()
print(full, held, resident_bytes())
"""
"""Every fortieth block stays, so that the heap cannot shrink."""


@pytest.mark.skipif(not Allocator().keeps_freed_memory, reason="glibc's allocator only")
def test_free_pages_between_blocks_in_use_are_given_back() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FRAGMENTED], capture_output=True, text=True, check=True
    )
    full, held, left = map(int, ran.stdout.split())
    assert full > 100 << 20
    assert held > 100 << 20, "this system gives back by itself: the test shows nothing"
    assert left < full / 2


class Counted(Allocator):
    """Frees what is not in use."""

    keeps_freed_memory = True

    def __init__(self) -> None:
        self.resident = self.in_use = 100 * GROWTH
        self.garbage = self.of_clients = 0
        self.times = self.looks = 0

    def give_back(self) -> None:
        self.times += 1
        self.resident = self.in_use + self.garbage

    def look_through(self) -> None:
        self.looks += 1
        self.garbage = 0


async def _pass_time() -> None:
    """Some periods, each to its end: the clock does not wait for threads."""
    for _ in range(10):
        await trio.sleep(PERIOD_S)
        await trio.to_thread.run_sync(lambda: None)


async def test_what_is_freed_long_after_the_growth_is_given_back(autojump_clock: object) -> None:
    allocator = Counted()
    least = allocator.in_use
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            freed_memory.watch,
            allocator,
            allocator.look_through,
            lambda: allocator.of_clients,
            lambda: allocator.resident,
        )
        await _pass_time()
        assert allocator.times == 0, "a node that stays as it is has nothing to look for"
        allocator.in_use += 3 * GROWTH
        allocator.resident = allocator.in_use
        while allocator.times < 3:
            await _pass_time()
        assert allocator.resident == allocator.in_use
        allocator.in_use = least
        while allocator.resident > least:
            await _pass_time()
        before = allocator.times
        await _pass_time()
        assert allocator.times == before
        nursery.cancel_scope.cancel()


async def test_garbage_is_looked_for_when_there_may_be_much(autojump_clock: object) -> None:
    allocator = Counted()
    least = allocator.in_use
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            freed_memory.watch,
            allocator,
            allocator.look_through,
            lambda: allocator.of_clients,
            lambda: allocator.resident,
        )
        await _pass_time()
        allocator.garbage = MUCH // 2
        allocator.resident = least + allocator.garbage
        while allocator.times < 3:
            await _pass_time()
        assert allocator.looks == 0
        allocator.garbage = allocator.in_use // 4 + MUCH
        while allocator.garbage:
            await _pass_time()
        assert allocator.looks == 1
        allocator.in_use = allocator.resident = 2 * least
        while allocator.looks == 1:
            await _pass_time()
        await _pass_time()
        assert allocator.looks == 2, "what is in use is looked at once"
        allocator.of_clients = 2 * least
        allocator.in_use = allocator.resident = 4 * least
        await _pass_time()
        assert allocator.looks == 2, "nor is what clients hold"
        nursery.cancel_scope.cancel()


def test_looking_for_garbage_takes_its_part_of_the_time() -> None:
    growth = Growth(0)
    assert not growth.is_much(MUCH + 1, 1.0), "it is growing"
    assert growth.is_much(MUCH + 1, 5.0)
    growth.looked(0, 5.0, 5.25)
    assert not growth.is_much(MUCH + 1, 30.0)
    assert growth.is_much(MUCH + 1, 31.0)


def test_what_grows_and_grows_is_looked_at_too() -> None:
    growth = Growth(0)
    assert not growth.is_much(2 * MUCH, 1.0)
    assert growth.is_much(2 * MUCH + 1, 3.0)
