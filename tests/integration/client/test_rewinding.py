"""Members of a group whose transactions are aborted: what they took comes again, all of it, and no
partition that is in trouble keeps the others waiting."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from paceline.client import (
    Client,
    GroupConsumer,
    GroupSettings,
    OutOfRange,
    Position,
    blocking,
    fetcher,
    offsets,
    shared_consumer,
)
from paceline.errors import IllegalGeneration
from paceline.types import TopicPartition
from tests.integration.client.test_exactly_once import FLAGS, until
from tests.integration.client.test_group_troubles import write
from tests.integration.node.machines import connect
from tests.integration.node.nodes import cluster, lone_node

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(120)]

SETTINGS = GroupSettings(session_timeout_s=6, rebalance_timeout_s=20, auto_commit_s=None)
AT = TopicPartition("in", 0)


async def taken(consumer: GroupConsumer, count: int) -> list[tuple[str, int, int]]:
    """Where so many records lie, sorted."""
    records = []
    with trio.fail_after(30):
        for _ in range(count):
            records.append(await anext(consumer))
    return sorted((each.topic, each.partition, each.offset) for each in records)


async def make(client: Client, topic: str, partitions: int = 1) -> None:
    await client.admin.create_topic(topic, partitions=partitions, replication_factor=1)


async def test_what_was_taken_from_the_end_comes_again(tmp_path: Path) -> None:
    """Nothing is committed: the group begins at the end, but not at another one each time."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        client.transactional_producer("copier") as producer,
    ):
        await make(client, "in")
        await write(client, "in", 0, 1, 2)
        async with client.consumer(
            "in", group="g", membership=SETTINGS, out_of_range=OutOfRange.LATEST
        ) as consumer:
            await until(lambda: AT in consumer.positions())
            await write(client, "in", 0, 3, 4, 5)
            await producer.begin()
            assert await taken(consumer, 2) == [("in", 0, 2), ("in", 0, 3)]
            await producer.send_offsets({AT: 4}, consumer.member)
            await producer.abort()
            await consumer.rewind()
            assert await taken(consumer, 3) == [("in", 0, offset) for offset in (2, 3, 4)]


async def test_what_was_taken_behind_a_seek_comes_again(tmp_path: Path) -> None:
    """The place that the program gave a partition that had not begun is where it began."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        client.transactional_producer("other") as other,
    ):
        await make(client, "in")
        await write(client, "in", 0, 1, 2, 3)
        await other.begin()
        await other.send_offsets({AT: 1}, "g")
        async with client.consumer("in", group="g", membership=SETTINGS) as consumer:
            await until(lambda: consumer.assignment == [AT])
            await consumer.seek(AT, Position.at(2))
            await other.abort()
            assert await taken(consumer, 1) == [("in", 0, 2)]
            await consumer.rewind()
            assert await taken(consumer, 1) == [("in", 0, 2)]


async def test_partitions_without_leaders_keep_no_other_from_going_back(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, flags=FLAGS) as nodes,
        connect(nodes.bootstrap_native) as client,
        client.consumer("in", group="g", membership=SETTINGS) as consumer,
    ):
        await make(client, "in", 3)
        found = (await client.admin.describe_topic("in")).partitions
        for partition in range(3):
            await write(client, "in", partition, 1)
        assert len(await taken(consumer, 3)) == 3
        coordinator = await client.admin.groups.coordinator("g")
        victim = next(each.leader for each in found if each.leader != coordinator)
        alive = [("in", each.partition, 0) for each in found if each.leader != victim]
        dead = [("in", each.partition, 0) for each in found if each.leader == victim]
        await nodes.crash(int(victim))
        with trio.fail_after(30):
            await consumer.rewind()
        assert await taken(consumer, len(alive)) == alive
        consumer.pause(*consumer.assignment)
        consumer.resume(*consumer.assignment)
        await nodes.restart(int(victim))
        assert await taken(consumer, len(dead)) == dead


async def test_a_deleted_topic_keeps_no_other_from_going_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "MISSING_PARTITION_S", 0.2)
    monkeypatch.setattr(offsets, "MISSING_PARTITION_S", 0.2)
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
    ):
        await make(client, "in")
        await make(client, "gone")
        await write(client, "in", 0, 1)
        async with client.consumer(["gone", "in"], group="g", membership=SETTINGS) as consumer:
            assert await taken(consumer, 1) == [("in", 0, 0)]
            await client.admin.delete_topic("gone")
            await consumer.rewind()
            assert await taken(consumer, 1) == [("in", 0, 0)]
            await make(client, "gone")
            await write(client, "gone", 0, 1)
            assert await taken(consumer, 1) == [("gone", 0, 0)]


async def test_an_open_transaction_keeps_no_other_partition_from_going_back(tmp_path: Path) -> None:
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        client.transactional_producer("other") as other,
        client.consumer("in", group="g", membership=SETTINGS) as consumer,
    ):
        await make(client, "in", 2)
        for partition in (0, 1):
            await write(client, "in", partition, 1, 2)
        assert len(await taken(consumer, 4)) == 4
        await other.begin()
        await other.send_offsets({AT: 1}, consumer.member)
        with trio.fail_after(15):
            await consumer.rewind()
        assert await taken(consumer, 2) == [("in", 1, 0), ("in", 1, 1)]
        await other.commit()
        assert await taken(consumer, 1) == [("in", 0, 1)]


async def test_a_cancelled_way_back_frees_nothing(tmp_path: Path) -> None:
    """Offsets behind what was taken before a rebalance stay refused."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        client.transactional_producer("copier") as producer,
        client.consumer("in", group="g", membership=SETTINGS) as consumer,
    ):
        await make(client, "in")
        await write(client, "in", 0, 1, 2)
        await taken(consumer, 1)
        generation = consumer.generation
        async with client.consumer("in", group="g", membership=SETTINGS):
            await until(lambda: consumer.generation > generation)
            generation = consumer.generation
        # Assigned anew: without partitions there is nothing to ask for, and no way back to cancel.
        await until(lambda: consumer.generation > generation and AT in consumer.positions())
        with trio.CancelScope() as scope:
            scope.cancel()
            await consumer.rewind()
        await taken(consumer, 1)
        await producer.begin()
        with pytest.raises(IllegalGeneration):
            await producer.send_offsets({AT: 1}, consumer.member)
        await producer.abort()


async def test_what_a_deleted_topic_has_reached_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets of other topics are committed, and nobody is told of an error."""
    monkeypatch.setattr(shared_consumer, "MISSING_PARTITION_S", 0.2)
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
    ):
        for topic in ("gone", "in"):
            await make(client, topic)
            await write(client, topic, 0, 1)
        async with client.consumer(["gone", "in"], group="g", membership=SETTINGS) as consumer:
            assert await taken(consumer, 2) == [("gone", 0, 0), ("in", 0, 0)]
            await client.admin.delete_topic("gone")
            await consumer.commit()
            committed = await client.admin.groups.offsets("g")
            assert {at: each.offset for at, each in committed.items()} == {AT: 1}
            assert list(consumer.positions()) == [AT]


async def test_a_commit_that_waited_over_a_rebalance_is_refused(tmp_path: Path) -> None:
    """Others may have read on meanwhile: its offsets are of a generation that is over."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        client.consumer("in", group="g", membership=SETTINGS) as consumer,
        trio.open_nursery() as nursery,
    ):
        await make(client, "in")
        await write(client, "in", 0, 1, 2)
        await taken(consumer, 1)
        refused = trio.Event()

        async def commit() -> None:
            with pytest.raises(IllegalGeneration):
                await consumer.commit()
            refused.set()

        async with consumer._committing:  # as one does that waits for its answer
            nursery.start_soon(commit)
            generation = consumer.generation
            async with client.consumer("in", group="g", membership=SETTINGS):
                await until(lambda: consumer.generation > generation)
        with trio.fail_after(30):
            await refused.wait()
        assert not await client.admin.groups.offsets("g")


@pytest.mark.virtual_time(False)
async def test_a_blocking_member_commits_beside_a_partition_without_a_leader(
    tmp_path: Path,
) -> None:
    def commit(bootstrap: list[str], count: int) -> dict[TopicPartition, int | None]:
        with (
            blocking.connect(bootstrap) as client,
            client.group_consumer("in", "g", membership=SETTINGS) as consumer,
        ):
            for _ in range(count):
                next(consumer)
            consumer.commit()
            return consumer.committed()

    async with (
        cluster(tmp_path, flags=FLAGS) as nodes,
        connect(nodes.bootstrap_native) as client,
    ):
        await make(client, "in", 3)
        found = (await client.admin.describe_topic("in")).partitions
        for partition in range(3):
            await write(client, "in", partition, 1)
        coordinator = await client.admin.groups.coordinator("g")
        victim = next(each.leader for each in found if each.leader != coordinator)
        alive = [each.partition for each in found if each.leader != victim]
        await nodes.crash(int(victim))
        committed = await trio.to_thread.run_sync(commit, nodes.bootstrap_native, len(alive))
        assert committed == {
            TopicPartition("in", each): 1 if each in alive else None for each in range(3)
        }
