"""The deterministic loop: order from the seed, virtual time, held tasks."""

from __future__ import annotations

import trio

from paceline_cluster.sim import loop
from paceline_cluster.sim.loop import PROCESS, TaskGroup


def order_of(seed: int) -> list[int]:
    seen: list[int] = []

    async def note(number: int) -> None:
        await trio.lowlevel.checkpoint()
        seen.append(number)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(note, number)

    loop.run(main, seed=seed, step=lambda: None)
    return seen


def test_a_seed_gives_one_order() -> None:
    assert order_of(1) == order_of(1)
    assert order_of(1) != order_of(2)
    assert sorted(order_of(1)) == list(range(20))


def test_time_jumps_to_the_next_deadline() -> None:
    async def main() -> float:
        await trio.sleep(86_400)
        return trio.current_time()

    assert loop.run(main, seed=1, step=lambda: None) == 86_400


def test_held_tasks_go_on_where_they_stood() -> None:
    """As SIGSTOP: timers fire late, and what came before its deadline still counts."""
    seen: list[tuple[str, float]] = []
    group = TaskGroup("held")

    async def ticking() -> None:
        PROCESS.set(group)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tick)

    async def tick() -> None:
        for _ in range(3):
            await trio.sleep(1)
            seen.append(("tick", trio.current_time()))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ticking)
            await trio.sleep(1.5)
            group.hold()
            await trio.sleep(10)
            seen.append(("release", trio.current_time()))
            group.release()

    loop.run(main, seed=1, step=lambda: None)
    assert seen == [("tick", 1), ("release", 11.5), ("tick", 11.5), ("tick", 12.5)]


def test_the_step_is_called_between_batches() -> None:
    steps = 0

    def step() -> None:
        nonlocal steps
        steps += 1

    async def main() -> None:
        for _ in range(10):
            await trio.lowlevel.checkpoint()

    loop.run(main, seed=1, step=step)
    assert steps > 10
