from __future__ import annotations

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from paceline_node.net.deadlines import Deadline, Deadlines


@given(
    plan=st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 20), st.one_of(st.none(), st.integers(0, 40))),
        max_size=12,
    )
)
@settings(max_examples=60, deadline=None)
def test_each_fires_once_at_its_time_unless_cancelled_before(
    plan: list[tuple[int, int, int | None]],
) -> None:
    """(set at, runs for, cancelled at): whatever the order, even if an earlier one is set later."""
    fired: dict[int, float] = {}

    async def one(
        deadlines: Deadlines, number: int, start: int, seconds: int, cancel: int | None
    ) -> None:
        await trio.sleep(start)
        entry = deadlines.after(
            seconds, lambda: fired.setdefault(number, trio.current_time() - began)
        )
        if cancel is not None:
            await trio.sleep(cancel + 0.5)  # between two whole seconds, so never at a deadline
            entry.cancel()

    began = 0.0

    async def main() -> None:
        nonlocal began
        began = trio.current_time()
        deadlines = Deadlines()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deadlines.run)
            for number, (start, seconds, cancel) in enumerate(plan):
                nursery.start_soon(one, deadlines, number, start, seconds, cancel)
            await trio.sleep(100)
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    expected = {
        number: start + seconds
        for number, (start, seconds, cancel) in enumerate(plan)
        if cancel is None or cancel + 0.5 > seconds
    }
    assert {number: round(at, 3) for number, at in fired.items()} == expected


async def test_equal_deadlines_fire_in_the_order_they_were_set(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    deadlines = Deadlines()
    order: list[int] = []
    made: list[Deadline] = [
        deadlines.after(5, lambda number=number: order.append(number)) for number in range(50)
    ]
    made[7].cancel()
    nursery.start_soon(deadlines.run)
    await trio.sleep(6)
    assert order == [number for number in range(50) if number != 7]


async def test_cancelled_entries_do_not_pile_up(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    deadlines = Deadlines()
    nursery.start_soon(deadlines.run)
    fired: list[int] = []
    deadlines.after(3000, lambda: fired.append(1))
    for _ in range(100_000):
        deadlines.after(3600, lambda: fired.append(2)).cancel()
    assert len(deadlines) < 3000
    await trio.sleep(4000)
    assert fired == [1]
    assert len(deadlines) == 0
