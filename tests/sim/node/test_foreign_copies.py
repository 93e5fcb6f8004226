"""Kafka and Cursus clients that copy in transactions: each record that was read for good is copied
once, and the judge sees it when a rule is broken."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import trio

from paceline_cluster.sim.foreign_clients import copier
from paceline_cluster.sim.plan import ForeignClient, Plan
from paceline_node.groups.cursus_groups import CursusGroups
from paceline_node.groups.transactional_offsets import TransactionalOffsets
from tests.sim.node.story import Story, find, plan_of, play

pytestmark = pytest.mark.timeout(600)

COPYING = (ForeignClient.KAFKA, ForeignClient.CURSUS)


def plan(client: ForeignClient) -> Plan:
    plain = replace(plan_of(partitions=2), readers=0, pause_s=0.2)
    return replace(plain, foreign_clients=(client,), foreign_copiers=(client,))


async def some_copies(story: Story) -> None:
    """Both copiers work, abort, vanish and hand over for a while."""
    await story.acknowledged(60, within=30)


async def many_copies(story: Story) -> None:
    """They do so for several sessions of a member."""
    await trio.sleep(5 * copier.SESSION_S)


@contextlib.contextmanager
def long_at_work() -> Iterator[None]:
    """Copiers are often at work on a transaction until others have taken their place."""
    with mock.patch.object(copier, "_DOZE", 0.3), mock.patch.object(copier, "LIFE_S", (8.0, 20.0)):
        yield


@pytest.mark.parametrize("client", COPYING)
def test_what_was_read_for_good_is_copied_once(client: ForeignClient) -> None:
    play(some_copies, plan(client))


@pytest.mark.slow
def test_offsets_of_aborted_transactions_of_kafka_that_are_kept_are_found() -> None:
    settle = TransactionalOffsets.settle

    def keep_all(self: TransactionalOffsets, *args: Any, **options: Any) -> Any:
        return settle(self, *args, **{**options, "commits": True})

    with mock.patch.object(TransactionalOffsets, "settle", keep_all):
        find(some_copies, plan(ForeignClient.KAFKA), "EOS at ")


@pytest.mark.slow
def test_offsets_of_kafka_that_are_told_although_they_may_move_are_found() -> None:
    pending = mock.patch.object(TransactionalOffsets, "is_pending", return_value=False)
    with pending, long_at_work():
        find(many_copies, plan(ForeignClient.KAFKA), "EOS at ")


@pytest.mark.slow
def test_commits_of_any_generation_of_cursus_are_found() -> None:
    with mock.patch.object(CursusGroups, "check_owner"), long_at_work():
        find(many_copies, plan(ForeignClient.CURSUS), "EOS at ")
