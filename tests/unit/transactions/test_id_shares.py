"""Nobody uses up the transactional ids that others need."""

from __future__ import annotations

from contextlib import suppress

import pytest

from paceline.errors import ConcurrentTransactions, Throttled, TransactionTooLarge
from paceline.wire.peer.names import GroupName, PartitionName
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.limits import TransactionLimits
from paceline_node.transactions.sinks import Attempt
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


def opened(desk: Desk, name: str, client: str, count: int) -> ProducerIdentity:
    """A transaction of the client over so many partitions."""
    key = TransactionKey(Family.KAFKA, name)
    who = desk.engine.producers.init(key, 60_000, spare=next(desk.spares), client=client)
    assert who is not None
    partitions = [PartitionName("orders", number) for number in range(count)]
    desk.engine.producers.add_partitions(key, who, partitions)
    return who


def test_what_open_transactions_name_is_bounded_for_each_client_and_for_all() -> None:
    """4 KB that name 1,000 partitions are 0.36 MB on every node, and each of 100,000 ids might
    name 10,000."""
    desk = Desk(TransactionLimits(open_partitions_max=20))
    who = opened(desk, "mallory", "mallory", 9)
    with pytest.raises(Throttled, match=r"transactions\.open_partitions_max"):
        opened(desk, "mallory-too", "mallory", 2)
    key = TransactionKey(Family.KAFKA, "mallory")
    desk.engine.producers.add_partitions(key, who, [P0])
    desk.engine.producers.add_group(key, who, GroupName("kafka", "g"))
    with pytest.raises(Throttled):
        desk.engine.producers.add_group(key, who, GroupName("kafka", "h"))
    other = opened(desk, "trudy", "trudy", 10)
    with pytest.raises(Throttled):
        opened(desk, "late", "honest", 1)
    desk.engine.producers.end(key, who, commits=True, bumps=False)
    desk.finish(key)
    opened(desk, "late", "honest", 1)
    desk.check_fold()
    assert desk.engine.store.open_count == 11
    desk.fail_over()
    key = TransactionKey(Family.KAFKA, "trudy")
    desk.engine.producers.end(key, other, commits=False, bumps=False)
    desk.finish(key)
    assert desk.engine.store.open_count == 1


def test_an_id_taken_over_takes_along_what_it_names() -> None:
    desk = Desk(TransactionLimits(open_partitions_max=20))
    opened(desk, "shared", "mallory", 10)
    with pytest.raises(ConcurrentTransactions):
        opened(desk, "shared", "honest", 10)
    desk.finish(TransactionKey(Family.KAFKA, "shared"))
    opened(desk, "shared", "honest", 10)
    opened(desk, "another", "mallory", 10)


def test_task_attempts_of_sinks_count_for_their_client() -> None:
    desk = Desk(TransactionLimits(ids_max=4))

    def begin(client: str, number: int) -> None:
        attempt = Attempt("sink", "q", "r", 0, number, 0)
        desk.engine.sinks.begin(attempt, 60_000, next(desk.spares), client)

    for number in range(2):
        begin("mallory", number)
    with pytest.raises(TransactionTooLarge, match=r"half of transactions\.ids_max"):
        begin("mallory", 2)
    begin("honest", 3)
