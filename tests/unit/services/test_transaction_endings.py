"""The tasks that end transactions: how they are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import trio
import trio.testing

from paceline_node.services.transaction_endings import TransactionEndings
from paceline_node.transactions.engine import TransactionEngine
from paceline_node.transactions.keys import Family, TransactionKey
from tests.unit.transactions.desk import P0, Desk


class Stuck:
    """The machines, of which one leads, and nothing that is asked of it is ever committed."""

    def __init__(self, engine: TransactionEngine) -> None:
        self._engine = engine
        self.asked = 0

    def machines(self) -> Iterator[tuple[int, int, TransactionEngine]]:
        yield 0, 0, self._engine

    async def perform(self, *_: object, **__: object) -> None:
        self.asked += 1
        await trio.sleep_forever()


def prepare(desk: Desk, name: str) -> None:
    key = TransactionKey(Family.KAFKA, name)
    who = desk.init(key)
    desk.engine.producers.add_partitions(key, who, [P0])
    desk.engine.producers.end(key, who, commits=True, bumps=True)


async def test_transactions_under_way_are_not_looked_through_at_each_write() -> None:
    desk, walks = Desk(), 0
    found = desk.engine.endings

    def endings() -> list[TransactionKey]:
        nonlocal walks
        walks += 1
        return found()

    desk.engine.endings = endings  # type: ignore[method-assign]
    stuck = Stuck(desk.engine)
    ends = TransactionEndings(cast(Any, None), cast(Any, None))
    ends.attach(cast(Any, stuck), cast(Any, None))
    for number in range(100):
        prepare(desk, f"early-{number}")
    async with trio.open_nursery() as nursery:
        await nursery.start(ends.run)
        await trio.testing.wait_all_tasks_blocked()
        assert (stuck.asked, walks) == (100, 1)
        for _ in range(50):  # other ids write
            desk.init()
            ends.changed()
            await trio.testing.wait_all_tasks_blocked()
        assert (stuck.asked, walks) == (100, 1)
        prepare(desk, "late")
        ends.changed()
        await trio.testing.wait_all_tasks_blocked()
        assert (stuck.asked, walks) == (101, 2)
        nursery.cancel_scope.cancel()
