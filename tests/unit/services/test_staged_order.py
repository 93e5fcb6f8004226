"""In which order staged transactions may be stored."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import trio
import trio.testing

from paceline.types import LeaderEpoch
from paceline.wire.peer.names import PartitionName
from paceline_node.services.transactions.staged_order import StagedOrder
from paceline_node.transaction_names import Family, TransactionKey

A, B, C = (TransactionKey(Family.CURSUS, name) for name in "abc")
P0, P1 = PartitionName("orders", 0), PartitionName("orders", 1)


class Decided:
    """What a coordinator has decided: for each id its serial and where it has records to store."""

    def __init__(self) -> None:
        self.turns = StagedOrder()
        self.epoch = 1
        self.places: dict[TransactionKey, tuple[int, set[PartitionName]]] = {}

    def decide(self, key: TransactionKey, serial: int, *places: PartitionName) -> None:
        self.places.pop(key, None)
        self.places[key] = serial, set(places)
        self.line_up()

    def line_up(self) -> None:
        transactions = {
            key: SimpleNamespace(serial=serial) for key, (serial, _) in self.places.items()
        }
        self.turns.line_up(
            LeaderEpoch(self.epoch),
            self.places,
            cast(Any, transactions),
            lambda key: self.places[key][1],
        )


def test_each_partition_has_a_line_of_its_own() -> None:
    decided = Decided()
    decided.decide(A, 1, P0)
    decided.decide(B, 1, P0, P1)
    turns = decided.turns
    assert (turns.may_store(A, P0), turns.may_store(B, P0)) == (True, False)
    assert turns.may_store(B, P1)
    turns.stored(B, P1)
    assert not turns.may_store(B, P0)
    turns.stored(A, P0)
    turns.stored(A, P0)
    assert turns.may_store(B, P0)


def test_who_is_dropped_holds_nobody_up_and_the_next_of_the_same_id_is_the_last() -> None:
    decided = Decided()
    decided.decide(A, 1, P0)
    decided.decide(B, 1, P0)
    turns = decided.turns
    turns.drop(A)
    assert turns.may_store(B, P0)
    decided.decide(A, 2, P0)
    assert not turns.may_store(A, P0)
    assert turns.knows(A, 2, LeaderEpoch(1))
    assert not turns.knows(A, 1, LeaderEpoch(1))


def test_a_new_epoch_has_the_order_of_its_log() -> None:
    """The decision of A was lost with the leader that made it, and made again behind that of B."""
    decided = Decided()
    decided.decide(A, 1, P0)
    decided.places = {B: (1, {P0}), A: (1, {P0})}
    decided.epoch = 3
    assert not decided.turns.knows(A, 1, LeaderEpoch(3))
    decided.line_up()
    assert decided.turns.may_store(B, P0)
    assert not decided.turns.may_store(A, P0)


async def test_a_turn_that_comes_before_anybody_waits_is_not_missed() -> None:
    decided = Decided()
    for key in (A, B, C):
        decided.decide(key, 1, P0)
    turns = decided.turns
    turns.stored(A, P0)
    with trio.fail_after(5):
        await turns.wait_turn(B)
    woken = []

    async def wait(key: TransactionKey) -> None:
        await turns.wait_turn(key)
        woken.append(key)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait, B)
        nursery.start_soon(wait, C)
        await trio.testing.wait_all_tasks_blocked()
        assert woken == []
        turns.stored(B, P0)
        await trio.testing.wait_all_tasks_blocked()
        assert woken == [C]
        nursery.cancel_scope.cancel()
