"""Which open transactions of a log nobody ends, as their coordinator tells."""

from __future__ import annotations

import pytest

from paceline.errors import CoordinatorNotAvailable
from paceline.wire.peer.names import GroupName
from paceline_node.transaction_names import Family, TransactionKey
from paceline_node.transactions.hanging import OpenHere
from paceline_node.transactions.records import Staged
from tests.unit.transactions.desk import KEY, P0, P1, Desk


@pytest.mark.parametrize("commits", [True, False])
def test_none_hangs_from_its_first_write_until_every_marker_is_there(commits: bool) -> None:
    desk = Desk()
    who = desk.init()
    here, elsewhere = OpenHere(who.producer_id, P0), OpenHere(who.producer_id, P1)
    asked = [here, elsewhere, OpenHere(who.producer_id + 1, P0)]
    assert desk.engine.find_hanging(asked) == [True, True, True]
    desk.engine.producers.add_partitions(KEY, who, [P0])
    assert desk.engine.find_hanging(asked) == [False, True, True]
    desk.engine.producers.end(KEY, who, commits=commits, bumps=True)
    desk.fail_over()
    assert desk.engine.find_hanging(asked) == [False, True, True]
    desk.finish()
    assert desk.engine.find_hanging(asked) == [True, True, True]
    desk.check_fold()


def test_a_group_of_an_open_transaction_does_not_hang() -> None:
    desk = Desk()
    who = desk.init()
    group = GroupName("kafka", "billing")
    asked = [OpenHere(who.producer_id, group), OpenHere(who.producer_id, P0)]
    assert desk.engine.find_hanging(asked) == [True, True]
    desk.engine.producers.add_group(KEY, who, group)
    assert desk.engine.find_hanging(asked) == [False, True]


def test_what_is_staged_is_on_its_way_to_its_partition() -> None:
    desk = Desk()
    key = TransactionKey(Family.CURSUS, "copier")
    who = desk.init(key)
    epoch = desk.engine.store.transactions[key].wire_epoch
    desk.engine.staging.begin(key, epoch)
    desk.engine.staging.stage(key, epoch, [Staged("orders", 0, 1, 0, None, b"m")])
    desk.engine.staging.end(key, epoch, commits=True)
    assert desk.engine.find_hanging([OpenHere(who.producer_id, P0)]) == [False]


def test_who_may_have_been_deposed_says_nothing() -> None:
    """It may not know of a transaction: only what it can write counts, and that is committed by
    whoever leads alone."""
    desk = Desk()
    before = len(desk.batches)
    desk.engine.find_hanging([OpenHere(7, P0)])
    assert len(desk.batches) == before + 1
    desk.refuses = True
    with pytest.raises(CoordinatorNotAvailable):
        desk.engine.find_hanging([OpenHere(7, P0)])
