"""What as many transactional ids as there may be cost: counted in steps, for time depends on the
machine. Nobody's request, and no alarm, looks through all of them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from paceline.errors import NotCoordinator, TransactionTooLarge
from paceline_node.transaction_names import Family, TransactionKey
from paceline_node.transactions.hanging import OpenHere
from paceline_node.transactions.limits import TransactionLimits
from paceline_node.transactions.records import State
from tests.unit.groups.test_large_groups import lines_of
from tests.unit.transactions.desk import P0, Desk

FEW, MANY = 2000, 4000
DAY_S = 24 * 3600.0


def crowded(count: int, *, opens: bool = False) -> Desk:
    """As many ids as there may be; half of them have had a transaction, or have one open."""
    desk = Desk(TransactionLimits(ids_max=count, open_partitions_max=10 * count))
    for number in range(count):
        key = TransactionKey(Family.KAFKA, str(number))
        who = desk.init(key)
        if number % 2:
            desk.engine.producers.add_partitions(key, who, [P0])
            if not opens:
                desk.engine.producers.end(key, who, commits=True, bumps=False)
                desk.finish(key)
    return desk


def refused(desk: Desk) -> None:
    """Nobody gives way: all are in use, or were a moment ago."""
    with suppress(TransactionTooLarge):
        desk.init(TransactionKey(Family.KAFKA, "late"))
        raise AssertionError("somebody gave way")


def looked(desk: Desk) -> None:
    """For ids that are to be forgotten; there is none."""
    before = len(desk.engine.store.transactions)
    desk.time += desk.limits.expiry_check_s
    desk.engine.on_alarm()
    assert len(desk.engine.store.transactions) == before


@pytest.mark.parametrize("work", [refused, looked])
def test_looking_for_ids_to_forget_costs_the_same_however_many_there_are(
    work: Callable[[Desk], None],
) -> None:
    few, many = (crowded(count) for count in (FEW, MANY))
    assert lines_of(lambda: work(many)) < 1.5 * lines_of(lambda: work(few))


def aged(desk: Desk) -> None:
    """As a scrape asks."""
    assert desk.engine.oldest_open_s() > 0


def asked(desk: Desk) -> None:
    """As a partition's leader asks of a transaction that has been open for long."""
    number = next(iter(desk.engine.store.of_producer))
    assert desk.engine.find_hanging([OpenHere(number, P0), OpenHere(1, P0)]) == [False, True]


@pytest.mark.parametrize("work", [aged, asked])
def test_looking_at_open_ones_costs_the_same_however_many_there_are(
    work: Callable[[Desk], None],
) -> None:
    few, many = (crowded(count, opens=True) for count in (FEW, MANY))
    for desk in (few, many):
        desk.time += 1
    work(few)  # what a process prepares once
    assert lines_of(lambda: work(many)) < 1.5 * lines_of(lambda: work(few))


def test_a_new_coordinator_lets_time_outs_run_in_steps() -> None:
    """It aborts each in time all the same, and one that ends meanwhile is no business of that."""
    costs = []
    for count in (FEW, MANY):
        desk = crowded(count, opens=True)
        ended = TransactionKey(Family.KAFKA, "1")
        desk.engine.resign(NotCoordinator("the test elects another"))
        desk.engine = desk.replayed()
        costs.append(lines_of(lambda: desk.engine.lead(desk, log_is_empty=False)))  # noqa: B023
        who = desk.engine.store.transactions[ended].identity
        desk.engine.producers.end(ended, who, commits=True, bumps=False)
        while desk.engine.next_alarm() <= desk.time:
            costs.append(lines_of(desk.engine.on_alarm))
        desk.advance(61)
        states = {found.state for found in desk.engine.store.transactions.values()}
        assert State.ONGOING not in states
        assert desk.engine.store.transactions[ended].commits
    assert max(costs[1:]) < 1.5 * costs[0]


def test_all_are_forgotten_in_the_end_by_the_next_coordinator_too() -> None:
    desk = crowded(1000)
    desk.fail_over()
    desk.advance(6 * DAY_S)
    assert len(desk.engine.store.transactions) == 1000
    desk.advance(2 * DAY_S)
    assert not desk.engine.store.transactions
    assert not any(desk.engine.store.idle.values())
    desk.check_fold()


def test_open_ones_and_young_ones_hide_no_old_one() -> None:
    """Those that changed longest ago are looked at first, unused ones and others apart."""
    desk = crowded(3000, opens=True)
    desk.advance(61)
    desk.init(TransactionKey(Family.KAFKA, "late"))
    assert TransactionKey(Family.KAFKA, "0") not in desk.engine.store.transactions


def test_ids_of_one_family_hide_none_of_another() -> None:
    desk = crowded(3000)
    for number in range(3000):
        desk.init(TransactionKey(Family.CURSUS, str(number)))
    desk.advance(61)
    desk.init(TransactionKey(Family.CURSUS, "late"))
