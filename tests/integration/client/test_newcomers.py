"""Groups that read from the end: what their topics get later they read from its start, and where
they began stays where it was."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trio

from paceline.client import Client, GroupConsumer, GroupSettings, OutOfRange, membership
from paceline.types import TopicPartition
from tests.integration.client.test_group_troubles import write
from tests.integration.client.test_groups import FLAGS, until
from tests.integration.node.machines import connect
from tests.integration.node.nodes import cluster, lone_node

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(120)]

SETTINGS = GroupSettings(session_timeout_s=6, rebalance_timeout_s=20, auto_commit_s=0.2)
AT = TopicPartition("t", 0)


class Reader:
    """A member that reads from the end, until it is stopped; what it has read, and where it is."""

    def __init__(
        self,
        client: Client,
        settings: GroupSettings = SETTINGS,
        *,
        topics: Sequence[str] = ("t",),
        works: trio.Event | None = None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._topics = topics
        self.works = trio.Event() if works is None else works
        """It is at work on what it has read until then."""
        if works is None:
            self.works.set()
        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self.consumer: GroupConsumer | None = None
        self.seen: list[tuple[int, bytes | None]] = []

    async def run(self) -> None:
        async with self._client.consumer(
            self._topics,
            group="g",
            membership=self._settings,
            out_of_range=OutOfRange.LATEST,
        ) as self.consumer:
            with self._scope:
                async for record in self.consumer:
                    self.seen.append((record.partition, record.value))
                    await self.works.wait()
        self._ended.set()

    async def stop(self) -> None:
        self._scope.cancel()
        await self._ended.wait()

    def reads(self, *partitions: int) -> Callable[[], bool]:
        """Whether it has begun these."""
        wanted = {TopicPartition("t", each) for each in partitions}
        return lambda: self.consumer is not None and set(self.consumer.positions()) == wanted


async def make(client: Client, partitions: int) -> None:
    await client.admin.create_topic("t", partitions=partitions, replication_factor=1)


@pytest.mark.parametrize("auto_commit_s", [0.2, None])
async def test_an_added_partition_is_read_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auto_commit_s: float | None
) -> None:
    monkeypatch.setattr(membership, "REFRESH_S", 0.5)
    settings = dataclasses.replace(SETTINGS, auto_commit_s=auto_commit_s)
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await make(client, 1)
        await write(client, "t", 0, 1)
        reader = Reader(client, settings)
        nursery.start_soon(reader.run)
        await until(reader.reads(0))
        await client.admin.add_partitions("t", 2)
        await write(client, "t", 1, 2, 3, 4)
        await until(lambda: len(reader.seen) == 3)
        await write(client, "t", 0, 5)
        await until(lambda: len(reader.seen) == 4)
        assert sorted(reader.seen) == [(0, b"5"), (1, b"2"), (1, b"3"), (1, b"4")]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("count", [2, 9])
async def test_a_topic_made_anew_is_read_from_its_start(tmp_path: Path, count: int) -> None:
    """Be there fewer records in it than were read of the one before, or more."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await make(client, 1)
        await write(client, "t", 0, 1, 2, 3)
        reader = Reader(client)
        nursery.start_soon(reader.run)
        await until(reader.reads(0))
        await write(client, "t", 0, 4)
        await until(lambda: reader.seen == [(0, b"4")])
        await client.admin.delete_topic("t")
        await make(client, 1)
        await write(client, "t", 0, *range(10, 10 + count))
        await until(lambda: len(reader.seen) == 1 + count)
        assert reader.seen[1:] == [(0, b"%d" % each) for each in range(10, 10 + count)]
        nursery.cancel_scope.cancel()


async def test_what_came_while_all_were_away_is_read(tmp_path: Path) -> None:
    """Partitions that were idle all the time go on where they began; new ones begin at their start,
    also for a member that has never seen the topic without them."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await make(client, 2)
        for partition in (0, 1):
            await write(client, "t", partition, 1, 2)
        first = Reader(client)
        nursery.start_soon(first.run)
        await until(first.reads(0, 1))
        await first.stop()
        await client.admin.add_partitions("t", 3)
        for partition in (0, 1, 2):
            await write(client, "t", partition, 3)
        again = Reader(client)
        nursery.start_soon(again.run)
        await until(lambda: len(again.seen) == 3)
        assert sorted(again.seen) == [(each, b"3") for each in range(3)]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("metadata_max", ["4096", "0"])
async def test_what_an_established_group_has_not_begun_is_read_from_its_start(
    tmp_path: Path, metadata_max: str
) -> None:
    """By whomever the offset of another partition was committed; and a cluster may want no notes
    with offsets."""
    flags = FLAGS | {"groups.offset_metadata_bytes_max": metadata_max}
    async with (
        lone_node(tmp_path, flags) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await make(client, 2)
        for partition in (0, 1):
            await write(client, "t", partition, 1, 2)
        await client.admin.groups.alter_offsets("g", {AT: 1})
        reader = Reader(client)
        nursery.start_soon(reader.run)
        await until(lambda: len(reader.seen) == 3)
        assert sorted(reader.seen) == [(0, b"2"), (1, b"1"), (1, b"2")]
        nursery.cancel_scope.cancel()


async def test_a_partition_that_another_member_has_not_begun_is_as_old_as_the_group(
    tmp_path: Path,
) -> None:
    """It had no leader when the group began. Whoever has it when it comes back begins at its end,
    though the others' beginnings are committed long since."""
    async with (
        cluster(tmp_path, flags=FLAGS) as nodes,
        connect(nodes.bootstrap_native) as client,
        trio.open_nursery() as nursery,
    ):
        await make(client, 6)
        for partition in range(6):
            await write(client, "t", partition, 1)
        found = (await client.admin.describe_topic("t")).partitions
        coordinator = await client.admin.groups.coordinator("g")
        victim = next(each.leader for each in found if each.leader != coordinator)
        dead = {each.partition for each in found if each.leader == victim}
        await nodes.crash(int(victim))
        one, two = Reader(client), Reader(client)
        nursery.start_soon(one.run)
        await until(one.reads(*set(range(6)) - dead))
        nursery.start_soon(two.run)
        await until(lambda: two.consumer is not None and len(two.consumer.assignment) == 3)
        await nodes.restart(int(victim))

        def reads_all() -> bool:
            members = [each.consumer for each in (one, two) if each.consumer is not None]
            return sum(len(each.positions()) for each in members) == 6

        await until(reads_all)
        for partition in range(6):
            await write(client, "t", partition, 2)
        await until(lambda: len(one.seen + two.seen) == 6)
        assert sorted(one.seen + two.seen) == [(each, b"2") for each in range(6)]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("anew", [False, True])
async def test_a_topic_that_came_before_a_member_did_is_new_to_its_group(
    tmp_path: Path, anew: bool
) -> None:
    """The other one was there before it, and is at work on a record: the group has no offset of the
    topic when the member joins."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await make(client, 1)
        if anew:
            await client.admin.create_topic("u", partitions=2, replication_factor=1)
        first = Reader(client, topics=("t", "u"), works=trio.Event())
        nursery.start_soon(first.run)
        begun = 3 if anew else 1
        await until(lambda: first.consumer is not None and len(first.consumer.positions()) == begun)
        await write(client, "t", 0, 9)
        await until(lambda: bool(first.seen))
        if anew:
            await client.admin.delete_topic("u")
        await client.admin.create_topic("u", partitions=2, replication_factor=1)
        for partition in (0, 1):
            await write(client, "u", partition, 1, 2, 3)
        second = Reader(client, topics=("t", "u"))
        nursery.start_soon(second.run)

        def of_u(*readers: Reader) -> list[tuple[int, bytes | None]]:
            return sorted(each for reader in readers for each in reader.seen if each[1] != b"9")

        await until(lambda: len(of_u(second)) == 3)
        first.works.set()
        await until(lambda: len(of_u(first, second)) == 6)
        assert of_u(first, second) == [
            (partition, b"%d" % value) for partition in (0, 1) for value in (1, 2, 3)
        ]
        nursery.cancel_scope.cancel()


async def test_a_topic_that_only_a_newer_member_reads_is_as_old_as_that(tmp_path: Path) -> None:
    """Others of its group do not read it, however long they have been there."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await make(client, 1)
        first = Reader(client)
        nursery.start_soon(first.run)
        await until(first.reads(0))
        await client.admin.create_topic("u", partitions=1, replication_factor=1)
        await write(client, "u", 0, 1, 2)
        second = Reader(client, topics=("t", "u"))
        nursery.start_soon(second.run)
        at = TopicPartition("u", 0)
        await until(lambda: second.consumer is not None and at in second.consumer.positions())
        await write(client, "u", 0, 3)
        await until(lambda: bool(second.seen))
        assert second.seen == [(0, b"3")]
        nursery.cancel_scope.cancel()
