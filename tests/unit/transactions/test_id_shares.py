"""Nobody uses up the transactional ids that others need."""

from __future__ import annotations

from contextlib import suppress

import pytest

from paceline.errors import TransactionTooLarge
from paceline_node.transactions.keys import Family, TransactionKey
from paceline_node.transactions.limits import TransactionLimits
from tests.unit.transactions.desk import P0, Desk


def take(desk: Desk, name: str, client: str) -> None:
    key = TransactionKey(Family.KAFKA, name)
    desk.spare = getattr(desk, "spare", 10_000) + 1
    who = desk.engine.producers.init(key, 60_000, spare=desk.spare, client=client)
    assert who is not None
    desk.engine.producers.add_partitions(key, who, [P0])
    desk.engine.producers.abort(key, "done")
    ending = desk.engine.ending(key)
    assert ending is not None
    desk.engine.producers.complete(key, ending.serial)


def names(desk: Desk) -> set[str]:
    return {key.name for key in desk.engine.store.transactions}


def test_who_has_half_loses_its_own_and_who_has_most_gives_way() -> None:
    """300 ids that each had one transaction kept everybody out for an hour."""
    desk = Desk(TransactionLimits(ids_max=10))
    take(desk, "honest", "honest")
    for client in ("mallory", "trudy"):
        for number in range(20):
            with suppress(TransactionTooLarge):
                take(desk, f"{client}-{number}", client)
    assert len(names(desk)) <= 10
    assert "honest" in names(desk)
    take(desk, "honest-too", "honest")
    assert {"honest", "honest-too"} <= names(desk)


def test_open_transactions_stay() -> None:
    desk = Desk(TransactionLimits(ids_max=4))
    for number in range(2):
        key = TransactionKey(Family.KAFKA, f"open-{number}")
        who = desk.engine.producers.init(key, 60_000, spare=20_000 + number, client="mallory")
        assert who is not None
        desk.engine.producers.add_partitions(key, who, [P0])
    with pytest.raises(TransactionTooLarge, match=r"half of transactions\.ids_max"):
        take(desk, "more", "mallory")
    take(desk, "other", "honest")
