"""Transactions in whole nodes: the checker sees what readers must not, when a rule is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from paceline_cluster.checker import events
from paceline_cluster.sim.plan import Plan
from paceline_node.groups.transactional import TransactionalOffsets
from paceline_node.replication.partition import Partition
from paceline_node.storage.transactions import TransactionIndex
from tests.sim.node.story import Story, perform, plan_of, play

pytestmark = pytest.mark.timeout(600)


def plan() -> Plan:
    return replace(plan_of(), transactors=2)


async def some_transactions(story: Story) -> None:
    def count() -> int:
        return sum(isinstance(event, events.Together) for event in story.recorder.events)

    await story.until("transactions", lambda: count() >= 30, within=30)


def test_committed_ones_are_read_wholly_and_aborted_ones_never() -> None:
    play(some_transactions, plan())


def test_aborted_records_that_readers_are_given_are_found() -> None:
    with mock.patch.object(TransactionIndex, "aborted_in", return_value=[]):
        violation = perform(some_transactions, plan()).violation
    assert violation is not None
    assert "refused but stored" in violation.text


def test_reading_beyond_what_is_decided_is_found() -> None:
    to_the_high_watermark = property(lambda self: self.replica.high_watermark)
    with mock.patch.object(Partition, "last_stable_offset", to_the_high_watermark):
        violation = perform(some_transactions, plan()).violation
    assert violation is not None
    assert "read but not committed" in violation.text


def copies() -> Plan:
    return replace(plan_of(partitions=2), copiers=2)


async def some_copies(story: Story) -> None:
    """Both copiers work, abort, vanish and hand over for a while."""
    await story.acknowledged(100, within=30)


def test_what_was_read_for_good_is_copied_once() -> None:
    play(some_copies, copies())


def test_offsets_of_aborted_transactions_that_are_kept_are_found() -> None:
    settle = TransactionalOffsets.settle

    def keep_all(self: TransactionalOffsets, *args: Any, **options: Any) -> Any:
        return settle(self, *args, **{**options, "commits": True})

    with mock.patch.object(TransactionalOffsets, "settle", keep_all):
        violation = perform(some_copies, copies()).violation
    assert violation is not None
    assert violation.invariant == "EOS"
