"""Where a decided transaction is marked is noted for it, and for no later one of its id."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import trio

from paceline.wire.peer.names import PartitionName
from paceline_node.services.transactions.marker_progress import MarkerProgress
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.endings import Ending
from paceline_node.transactions.records import Staged

KEY = TransactionKey(Family.CURSUS, "t")
P0, P1 = PartitionName("out", 0), PartitionName("out", 1)


def ending(epoch: int) -> Ending:
    """A transaction of the id, which has an epoch for itself."""
    staged = tuple([Staged("out", number, -1, 0, None, b"x") for number in (0, 1)])
    found = SimpleNamespace(key=KEY, identity=ProducerIdentity(7, epoch), staged=staged)
    return cast(Ending, found)


async def noted_of(marked: MarkerProgress, of: Ending) -> list[tuple[ProducerIdentity, set[Any]]]:
    noted: list[tuple[ProducerIdentity, set[Any]]] = []

    def note(_key: object, identity: ProducerIdentity, places: set[Any]) -> None:
        noted.append((identity, places))

    async def perform(command: Callable[[Any], None]) -> None:
        await trio.lowlevel.checkpoint()
        command(SimpleNamespace(producers=SimpleNamespace(note_marked=note)))

    with trio.move_on_after(5):
        await marked.keep_noted(of, perform)
    return noted


async def test_what_is_marked_is_noted(autojump_clock: object) -> None:
    marked = MarkerProgress()
    marked.add(ending(1), P0)
    assert await noted_of(marked, ending(1)) == [(ProducerIdentity(7, 1), {P0})]


async def test_the_next_transaction_of_an_id_is_marked_nowhere_yet(autojump_clock: object) -> None:
    """Its completion was refused in between, so nobody had dropped what the last one had: where
    its records were not stored yet, they never were."""
    marked = MarkerProgress()
    marked.add(ending(1), P0)
    marked.add(ending(1), P1)
    assert await noted_of(marked, ending(2)) == []
    marked.add(ending(2), P1)
    assert await noted_of(marked, ending(2)) == [(ProducerIdentity(7, 2), {P1})]
