"""Rules of exactly once and of groups that nothing stops: each taken away is noticed.

The table of all of them, with what holds each and what finds its absence, is in
``tests/sim/README.md``. Here are those that a core of its own keeps: the test named passes with the
rule where it lives, and must fail without it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import pytest
import trio
import trio.testing

from paceline.errors import PacelineError
from paceline_node.groups import context as groups
from paceline_node.groups import kafka_group, member_records
from paceline_node.groups.committed_offsets import Commit, OffsetBook
from paceline_node.groups.context import GroupContext
from paceline_node.groups.kafka_roster import Roster
from paceline_node.groups.kafka_state import KafkaState
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.pending_offsets import PendingOffsets
from paceline_node.groups.topic_ids import TopicIds
from paceline_node.groups.transactional_offsets import TransactionalOffsets
from paceline_node.listeners.kafka import coordinator_errors as errors
from paceline_node.listeners.kafka.coordinator_errors import CoordinatorApi
from paceline_node.services.transactions.connection_transactions import ConnectionTransactions
from paceline_node.services.transactions.staged_order import StagedOrder
from paceline_node.services.transactions.transaction_endings import TransactionEndings
from paceline_node.state_machines.machine import Entry
from paceline_node.storage import compaction
from paceline_node.transactions import context as transactions
from paceline_node.transactions import staging
from tests.unit.groups import (
    test_kafka_groups,
    test_member_records,
    test_offset_order,
    test_read_topics,
    test_topic_ids,
    test_transactional_offsets,
)
from tests.unit.groups.members import KEY
from tests.unit.groups.test_large_groups import lines_of, rebalance
from tests.unit.listeners import test_kafka_coordinator_errors
from tests.unit.services import test_transaction_endings
from tests.unit.storage import test_transaction_compaction
from tests.unit.transactions import test_producers, test_sinks, test_staging


@dataclass(frozen=True)
class Rule:
    """``number`` is that of the table; ``test`` holds it; ``away`` takes it away."""

    number: int
    about: str
    test: Callable[[], object]
    away: Callable[[], contextlib.AbstractContextManager[object]]


def _set(target: object, name: str, value: object) -> Callable[[], Any]:
    return lambda: mock.patch.object(target, name, value)


def _run(test: Callable[..., Awaitable[None]], *given: object) -> Callable[[], None]:
    def run() -> None:
        clock = trio.testing.MockClock(autojump_threshold=0)
        trio.run(test, *given, clock=clock)

    return run


def _one_after_the_other() -> contextlib.AbstractContextManager[object]:
    """Offsets are settled once all markers are written."""
    marked: dict[object, trio.Event] = {}
    mark, settle = TransactionEndings._mark, TransactionEndings._settle

    async def mark_first(self: TransactionEndings, ending: Any, *rest: Any) -> None:
        await mark(self, ending, *rest)
        marked.setdefault(ending.key, trio.Event()).set()

    async def settle_then(self: TransactionEndings, ending: Any) -> None:
        await marked.setdefault(ending.key, trio.Event()).wait()
        await settle(self, ending)

    return mock.patch.multiple(TransactionEndings, _mark=mark_first, _settle=settle_then)


@property
def _made_anew(self: KafkaState) -> Roster:
    return Roster(self.stored, None if self.round is None else self.round.joined)


def _sent_now(self: OffsetBook, key: GroupKey, commit: Commit) -> Entry | None:
    return self.entry(key, commit, self.next_order)


def _settled_as_of_now() -> contextlib.AbstractContextManager[object]:
    """What a transaction commits counts as sent when it ended."""
    committed = TransactionalOffsets._committed

    def now(self: TransactionalOffsets, key: GroupKey, name: Any, pending: Any) -> Entry | None:
        return committed(self, key, name, replace(pending, order=self._offsets.next_order))

    return mock.patch.object(TransactionalOffsets, "_committed", now)


def _rebalances_are_linear() -> None:
    small, large = (lines_of(lambda n=n: rebalance(n)) / n for n in (10, 60))  # type: ignore[misc]
    assert large < small * 1.5


RULES = (
    Rule(
        1,
        "only PRODUCE tells of a time-out",
        lambda: test_kafka_coordinator_errors.test_only_produce_tells_of_a_time_out(
            CoordinatorApi.END_TXN
        ),
        _set(errors, "MEANT", {}),
    ),
    Rule(
        3,
        "offsets count while their topic is there",
        lambda: test_topic_ids.test_a_deletion_that_no_coordinator_saw_is_made_up_for(KEY, False),
        _set(TopicIds, "holds", lambda *_: True),
    ),
    Rule(
        3,
        "commits by name are of the topic that was read",
        lambda: test_read_topics.test_what_was_reached_in_the_old_topic_counts_not_for_the_new(
            False
        ),
        _set(kafka_group, "made_anew", lambda *_: None),
    ),
    Rule(
        4,
        "nothing is decided whose offsets are not pending",
        lambda: test_staging.test_only_the_offsets_that_are_pending_are_committed("offsets"),
        _set(staging, "_is_same", lambda *_: True),
    ),
    Rule(
        4,
        "who asks for an offset waits for what is pending",
        lambda: test_transactional_offsets.test_what_is_pending_is_committed_or_dropped_at_the_end(
            True
        ),
        _set(TransactionalOffsets, "is_pending", lambda *_, **__: False),
    ),
    Rule(
        4,
        "staged records are stored in the order of the commits",
        _run(test_transaction_endings.test_what_was_committed_first_is_stored_first, None),
        _set(StagedOrder, "may_store", lambda *_: True),
    ),
    Rule(
        5,
        "offsets wait for no partition",
        _run(test_transaction_endings.test_offsets_wait_for_no_partition, None),
        _one_after_the_other,
    ),
    Rule(
        13,
        "ids that nobody uses make room",
        test_producers.test_ids_that_nobody_has_used_make_room_for_new_ones,
        _set(transactions, "evicted", lambda *_: []),
    ),
    Rule(
        14,
        "a request of a member searches nothing",
        _rebalances_are_linear,
        _set(KafkaState, "roster", _made_anew),
    ),
    Rule(
        14,
        "who comes back writes itself",
        test_member_records.test_a_member_that_comes_back_writes_no_more_than_itself,
        _set(member_records, "is_same", lambda *_: False),
    ),
    Rule(
        15,
        "what is large is written in pieces",
        test_staging.test_what_many_staged_records_leave_is_forgotten_in_pieces,
        _set(transactions, "_PIECE_BYTES", 1 << 40),
    ),
    Rule(
        15,
        "a decision of any size is one record",
        test_sinks.test_a_commit_of_any_size_is_decided_by_one_record,
        _set(transactions, "_PIECE_BYTES", 1 << 40),
    ),
    Rule(
        17,
        "records of transactions are compacted",
        _run(test_transaction_compaction.test_a_changelog_of_transactions_shrinks_as_a_plain_one),
        _set(compaction, "_open", lambda *_: (b"", ())),
    ),
    Rule(
        18,
        "groups of pending offsets are counted",
        test_kafka_groups.test_groups_of_pending_offsets_count_too,
        _set(GroupContext, "check_new_group", lambda *_: None),
    ),
    Rule(
        18,
        "ids of members are short enough for everybody",
        lambda: test_kafka_groups.test_a_client_with_the_longest_id_can_join("c" * 1024),
        _set(groups, "_ID_PREFIX_BYTES_MAX", 4096),
    ),
    Rule(
        19,
        "a plain commit outlives an older transaction's",
        lambda: test_offset_order.test_a_plain_commit_stays_that_came_behind_those_of_a_transaction(
            "compacted", None, True
        ),
        _set(TransactionalOffsets, "_is_overtaken", lambda *_: False),
    ),
    Rule(
        19,
        "an operator's reset outlives an older transaction's offset",
        lambda: test_offset_order.test_an_operators_reset_stays("compacted", 0, None),
        _set(TransactionalOffsets, "_is_overtaken", lambda *_: False),
    ),
    Rule(
        19,
        "what a transaction commits is as old as when it was sent",
        lambda: (
            test_offset_order.test_of_two_transactions_the_later_one_is_heard_though_it_ends_last(
                "compacted"
            )
        ),
        _settled_as_of_now,
    ),
    Rule(
        19,
        "an offset that only goes on holds nothing back",
        lambda: test_offset_order.test_the_highest_stays_of_those_that_never_go_back(
            "compacted", 45
        ),
        _set(OffsetBook, "forward_entry", _sent_now),
    ),
    Rule(
        19,
        "deleting takes what is pending along",
        lambda: test_offset_order.test_a_deleted_offset_does_not_come_back(
            "compacted", test_offset_order.KAFKA, True
        ),
        _set(PendingOffsets, "producers_at", lambda *_: ()),
    ),
    Rule(
        19,
        "what holds back an older offset makes no room",
        test_offset_order.test_what_holds_an_older_offset_back_does_not_make_room,
        _set(OffsetBook, "_first", lambda self, key, _: list(self._context.store.offsets[key])[:1]),
    ),
    Rule(
        20,
        "a connection acts in no transaction that another one began",
        test_staging.test_a_connection_acts_in_no_transaction_that_another_one_began,
        _set(ConnectionTransactions, "act", lambda *_: None),
    ),
    Rule(
        20,
        "a number that is staged is of no other record",
        test_staging.test_a_number_that_is_staged_is_of_no_other_record,
        _set(staging, "_repeats", lambda *_, **__: True),
    ),
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule.number}: {rule.about}")
def test_its_absence_is_noticed(rule: Rule) -> None:
    with rule.away(), pytest.raises((AssertionError, PacelineError, pytest.fail.Exception)):
        rule.test()
