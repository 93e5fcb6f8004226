"""Batches under the caller's own sequences: stored once and in order, whatever happens."""

from __future__ import annotations

import pytest
import trio

from paceline.client.sequenced import SequencedBatch
from paceline.errors import OutOfOrderSequence, UnknownTopicOrPartition
from paceline.types import TopicPartition
from paceline.wire.batch import build_batch
from paceline.wire.records import Record
from tests.unit.client.harness import cluster_and_client

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def batch(at: TopicPartition, first: int, *values: bytes, producer: int = 7) -> SequencedBatch:
    records = [Record(-1, 0, None, value) for value in values]
    made = build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=first)
    return SequencedBatch(at, made)


async def test_batches_of_a_partition_keep_their_order(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        first, second = cluster.create("orders", 2)
        writer = client.sequenced_writer()
        last = await writer.write(
            [batch(A, 0, b"a", b"b"), batch(B, 0, b"x"), batch(A, 2, b"c"), batch(B, 1, b"y")]
        )
        assert first.values() == [b"a", b"b", b"c"]
        assert second.values() == [b"x", b"y"]
        assert last == {A: 2, B: 1}


async def test_a_batch_sent_again_is_stored_once(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        writer = client.sequenced_writer()
        await writer.write([batch(A, 0, b"a"), batch(A, 1, b"b")])
        assert await writer.write([batch(A, 0, b"a"), batch(A, 1, b"b"), batch(A, 2, b"c")]) == {
            A: 2
        }
        assert log.values() == [b"a", b"b", b"c"]


async def test_a_dead_leader_is_waited_for(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        (log,) = cluster.create("orders")
        writer = client.sequenced_writer()
        await writer.write([batch(A, 0, b"a")])
        cluster.kill(0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.write, [batch(A, 1, b"b")])
            await trio.sleep(3)
            cluster.move("orders", 0, 1)
        assert log.values() == [b"a", b"b"]


async def test_what_repeating_cannot_mend_is_raised(autojump_clock: object) -> None:
    async with cluster_and_client() as (cluster, client):
        cluster.create("orders")
        writer = client.sequenced_writer()
        await writer.write([batch(A, 0, b"a")])
        with pytest.raises(OutOfOrderSequence):
            await writer.write([batch(A, 5, b"z")])
        with pytest.raises(UnknownTopicOrPartition):
            await writer.partition_count("nothing")
        assert await writer.partition_count("orders") == 1


async def test_each_identity_is_new(autojump_clock: object) -> None:
    async with cluster_and_client() as (_, client):
        writer = client.sequenced_writer()
        first, second = await writer.new_identity(), await writer.new_identity()
        assert first.producer_id != second.producer_id
