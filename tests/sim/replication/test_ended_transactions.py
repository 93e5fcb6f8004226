"""Replicas that nobody reads keep nothing of transactions that are over."""

from __future__ import annotations

import pytest
import trio.testing

from paceline_node.storage.transaction_index import TransactionIndex
from tests.sim.replication.memory_cluster import memory_cluster
from tests.sim.replication.test_removed_tombstones import (
    caught_up,
    compacted,
    end_transaction,
    put_in_transaction,
)

COUNT = 5


async def transact() -> None:
    async with memory_cluster() as cluster:
        leader = await compacted(cluster)
        for number in range(COUNT):
            await put_in_transaction(leader, number, b"k")
            await end_transaction(leader, number, commits=number % 2 == 0)
        await caught_up(cluster)
        for node in cluster.nodes.values():
            replica = node.partition("t")
            await cluster.wait(lambda replica=replica: replica.high_watermark == 2 * COUNT)
            index = replica.log.producers.transactions
            assert (len(index.aborted), index.unsettled_count) == (COUNT // 2, 0)


async def test_replicas_remember_no_ended_transactions(
    autojump_clock: trio.testing.MockClock,
) -> None:
    await transact()


async def test_without_the_rule_they_do(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TransactionIndex, "settled", lambda *_: None)
    with pytest.RaisesGroup(AssertionError, flatten_subgroups=True):
        await transact()
