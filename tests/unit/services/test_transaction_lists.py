"""All transactional ids are listed some at a time: 100,000 in one step kept the loop for 237 ms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from paceline_node.loop_turns import Turns
from paceline_node.security.principals import ANONYMOUS
from paceline_node.services.transactions.transaction_service import TransactionService
from paceline_node.transaction_names import Family, TransactionKey
from paceline_node.transactions.inspection import Inspection
from paceline_node.transactions.records import State
from tests.unit.transactions.desk import P0, Desk

MANY, AT_ONCE = 1100, 260


class Machines:
    """One engine; ``most``: ids that one command has looked at, at most."""

    def __init__(self, desk: Desk) -> None:
        self.most = 0
        inner = desk.engine.inspection

        def listed(some: Sequence[TransactionKey], states: frozenset[State]) -> Any:
            self.most = max(self.most, len(some))
            return inner.listed(some, states)

        inspection = SimpleNamespace(keys=inner.keys, listed=listed)
        self._engine = SimpleNamespace(inspection=cast(Inspection, inspection))
        self.between: Callable[[], None] = lambda: None

    async def perform(
        self, number: int, key: object, operation: Callable[[Any], Any], *, commit_s: float
    ) -> Any:
        result = operation(self._engine)
        self.between()
        return result


def service(machines: Machines, turns: Turns, hidden: frozenset[str]) -> TransactionService:
    access = SimpleNamespace(allows=lambda principal, operation, to: to.name not in hidden)
    none = None
    parts = (none, none, machines, none, none, access, turns)
    return TransactionService(*cast(Any, parts), commit_s=1)


async def test_ids_are_listed_some_at_a_time() -> None:
    desk = Desk()
    keys = [TransactionKey(Family.KAFKA, f"t{number}") for number in range(MANY)]
    for key in keys:
        who = desk.init(key)
        if key.name.endswith("7"):
            desk.engine.producers.add_partitions(key, who, [P0])
    machines, turns = Machines(desk), Turns()
    found = await service(machines, turns, frozenset(("t5", "t17"))).list(ANONYMOUS, ())
    expected = sorted(str(key) for key in keys if key.name not in ("t5", "t17"))
    assert [str(each.key) for each in found] == expected
    assert 0 < machines.most <= AT_ONCE
    assert 0 < turns.longest_units <= AT_ONCE
    found = await service(machines, turns, frozenset()).list(ANONYMOUS, ("ongoing",))
    assert len(found) == MANY // 10
    assert all(each.key.name.endswith("7") for each in found)


async def test_ids_that_are_forgotten_meanwhile_are_left_out() -> None:
    desk = Desk()
    for number in range(MANY):
        desk.init(TransactionKey(Family.KAFKA, f"t{number}"))
    machines = Machines(desk)
    gone = TransactionKey(Family.KAFKA, f"t{MANY - 1}")
    machines.between = lambda: desk.engine.store.transactions.pop(gone, None)
    found = await service(machines, Turns(), frozenset()).list(ANONYMOUS, ())
    assert len(found) == MANY - 1
    assert gone not in {each.key for each in found}
