"""Consumer groups of the client against real nodes: sharing, taking over, administering."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from paceline.client import (
    Assignor,
    Client,
    Consumer,
    GroupConsumer,
    GroupSettings,
    OutOfRange,
    Position,
    RebalanceListener,
    blocking,
)
from paceline.errors import (
    FencedInstance,
    GroupNotFound,
    IllegalGeneration,
    InvalidRequest,
    NonEmptyGroup,
    OffsetOutOfRange,
    PacelineError,
)
from paceline.types import TopicPartition
from tests.integration.node.machines import connect
from tests.integration.node.nodes import cluster, lone_node

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(120)]

QUICK = GroupSettings(session_timeout_s=3, rebalance_timeout_s=6, auto_commit_s=0.2)
FLAGS = {"groups.initial_delay_ms": "50", "groups.session_min_ms": "500"}


class Told(RebalanceListener):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[int]]] = []
        self.owned: set[TopicPartition] = set()

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("assigned", [at.partition for at in partitions]))
        self.owned |= set(partitions)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("revoked", [at.partition for at in partitions]))
        self.owned -= set(partitions)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self.calls.append(("lost", [at.partition for at in partitions]))
        self.owned -= set(partitions)


class Reader:
    """A consumer in a task of its own, and what it has seen; ``stop`` leaves the group."""

    def __init__(self, client: Client, settings: GroupSettings = QUICK) -> None:
        self._client = client
        self._settings = settings
        self.seen: list[bytes | None] = []
        self.told = Told()
        self.consumer: GroupConsumer | None = None
        self.error: PacelineError | None = None
        self._scope = trio.CancelScope()
        self.ended = trio.Event()

    async def run(self) -> None:
        with self._scope:
            try:
                await self._read()
            except PacelineError as error:
                self.error = error
        self.ended.set()

    async def _read(self) -> None:
        async with self._client.consumer(
            "orders", group="g", membership=self._settings, listener=self.told
        ) as consumer:
            self.consumer = consumer
            async for record in consumer:
                self.seen.append(record.value)

    async def stop(self) -> None:
        self._scope.cancel()
        await self.ended.wait()


async def until(condition: Callable[[], bool], timeout_s: float = 30) -> None:
    with trio.fail_after(timeout_s):
        while not condition():  # noqa: ASYNC110  conditions span tasks: no one event tells
            await trio.sleep(0.02)


async def produce(client: Client, start: int, count: int, partitions: int = 4) -> None:
    async with client.producer() as producer:
        for number in range(start, start + count):
            await producer.submit("orders", b"%d" % number, partition=number % partitions)


def values(start: int, count: int) -> set[bytes]:
    return {b"%d" % number for number in range(start, start + count)}


async def test_two_readers_share_and_take_over(tmp_path: Path) -> None:
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=4, replication_factor=1)
        one, two = Reader(client), Reader(client)
        nursery.start_soon(one.run)
        await until(lambda: len(one.told.owned) == 4)
        await produce(client, 0, 100)
        await until(lambda: set(one.seen) == values(0, 100))
        nursery.start_soon(two.run)
        await until(lambda: len(one.told.owned) == len(two.told.owned) == 2)
        assert one.told.calls == [
            ("assigned", [0, 1, 2, 3]),
            ("revoked", [0, 1, 2, 3]),
            ("assigned", one.told.calls[-1][1]),
        ]
        described = await client.admin.groups.describe("g")
        assert (described.state, described.protocol) == ("Stable", "range")
        assert len(described.members) == 2
        await produce(client, 100, 100)
        await until(lambda: set(one.seen) | set(two.seen) == values(0, 200))
        # What the first had read was committed when it gave its partitions up.
        assert not set(two.seen) & values(0, 96)
        await one.stop()
        await until(lambda: len(two.told.owned) == 4)
        await produce(client, 200, 100)
        await until(lambda: set(two.seen) >= values(200, 100))
        await two.stop()
        # Everything was handed back, so the next one begins where they ended.
        committed = await client.admin.groups.offsets("g")
        assert sum(each.offset for each in committed.values()) >= 300 - 2
        assert (await client.admin.groups.describe("g")).state == "Empty"


@pytest.mark.parametrize("assignor", Assignor)
async def test_each_assignor_works(tmp_path: Path, assignor: Assignor) -> None:
    settings = GroupSettings(
        session_timeout_s=3, rebalance_timeout_s=6, assignors=(assignor,), auto_commit_s=None
    )
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=5, replication_factor=1)
        readers = [Reader(client, settings) for _ in range(3)]
        for reader in readers:
            nursery.start_soon(reader.run)
        await until(lambda: sorted(len(each.told.owned) for each in readers) == [1, 2, 2])
        described = await client.admin.groups.describe("g")
        assert described.protocol == assignor.value
        assert sorted(
            (part.topic, number)
            for member in described.members
            for part in member.assigned
            for number in part.partitions
        ) == [("orders", number) for number in range(5)]
        nursery.cancel_scope.cancel()


async def test_commits_are_the_programs_own(tmp_path: Path) -> None:
    manual = GroupSettings(session_timeout_s=3, rebalance_timeout_s=6, auto_commit_s=None)
    at = TopicPartition("orders", 0)
    async with lone_node(tmp_path, FLAGS) as node, connect(node.native) as client:
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        await produce(client, 0, 10, 1)
        with pytest.raises(OffsetOutOfRange, match="committed nothing"):
            async with client.consumer(
                "orders", group="g", membership=manual, out_of_range=OutOfRange.FAIL
            ) as consumer:
                await consumer.next_batch()
        async with client.consumer("orders", group="g", membership=manual) as consumer:
            for expected in range(4):
                assert (await anext(consumer)).value == b"%d" % expected
            assert await consumer.committed() == {at: None}
            await consumer.commit()
            assert await consumer.committed() == {at: 4}
            await consumer.commit({at: 2})
            assert (await anext(consumer)).value == b"4"
            with pytest.raises(IllegalGeneration, match="orders/7: not assigned"):
                await consumer.commit({TopicPartition("orders", 7): 1})
            with pytest.raises(InvalidRequest, match="group g assigns"):
                await consumer.assign("orders")
        async with client.consumer("orders", group="g", membership=manual) as consumer:
            assert (await anext(consumer)).value == b"2"
            await consumer.seek(at, Position.at(8))
            assert (await anext(consumer)).value == b"8"
            consumer.pause(at)
            with trio.move_on_after(0.2):
                raise AssertionError(f"paused, yet {await anext(consumer)}")
            consumer.resume(at)
            assert (await anext(consumer)).value == b"9"
            await consumer.commit()
        assert (await client.admin.groups.offsets("g"))[at].offset == 10


class Broken(Exception):
    """What a program raises."""


@pytest.mark.parametrize("way", ["records", "the last record", "batches", "cancelled"])
async def test_what_the_program_failed_on_is_read_again(tmp_path: Path, way: str) -> None:
    """It was committed as the block was left, though only what lies before it was done."""
    async with lone_node(tmp_path, FLAGS) as node, connect(node.native) as client:
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        await produce(client, 0, 5, partitions=1)
        at = {"batches": 0, "the last record": 4}.get(way, 2)
        with trio.fail_after(60), trio.CancelScope() as scope, suppress(Broken):
            async with client.consumer("orders", group="g") as consumer:
                if way == "batches":
                    async for _ in consumer.batches():
                        raise Broken
                async for record in consumer:
                    if record.offset == at and way == "cancelled":
                        scope.cancel()
                        await trio.lowlevel.checkpoint()
                    if record.offset == at:
                        raise Broken
        with trio.fail_after(60):
            async with client.consumer("orders", group="g") as consumer:
                assert (await anext(consumer)).offset == at


def member_of(client: Client, kind: str) -> AbstractAsyncContextManager[Consumer]:
    if kind == "driven":
        return client.coordinated_consumer("orders", group="g", auto_offset_reset="smallest")
    return client.consumer("orders", group="g")


@pytest.mark.parametrize("kind", ["native", "driven"])
async def test_what_a_time_out_in_the_block_cut_short_is_read_again(
    tmp_path: Path, kind: str
) -> None:
    """No error leaves the block then: what the program was at work on was committed."""
    async with lone_node(tmp_path, FLAGS) as node, connect(node.native) as client:
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        await produce(client, 0, 5, partitions=1)
        with trio.fail_after(60):
            async with member_of(client, kind) as consumer:
                assert [(await anext(consumer)).offset for _ in range(2)] == [0, 1]
                cut = None
                while cut is None:
                    with trio.move_on_after(0.2):
                        cut = await anext(consumer)
                        await trio.sleep_forever()
                assert cut.offset == 2
            async with member_of(client, kind) as consumer:
                assert (await anext(consumer)).offset == 2


@pytest.mark.virtual_time(False)
@pytest.mark.parametrize("kind", ["native", "driven"])
async def test_a_blocking_member_that_stops_within_a_batch_has_read_no_more(
    tmp_path: Path, kind: str
) -> None:
    """It takes whole batches from the loop; what it was not given of one was committed."""

    def work(address: str, closes: str) -> None:
        with blocking.connect(address) as client:
            if kind == "driven":
                consumer: Any = client.coordinated_consumer(
                    "orders", "g", auto_offset_reset="smallest"
                )
            else:
                consumer = client.group_consumer("orders", "g")
            for record in consumer:
                read.append(record.offset)
                if len(read) % 3 == 0:
                    break
            if closes == "itself":
                consumer.close()

    read: list[int] = []
    async with lone_node(tmp_path, FLAGS) as node, connect(node.native) as client:
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        async with client.producer() as producer:
            batch = [await producer.submit("orders", b"%d" % each) for each in range(9)]
            for delivery in batch:
                await delivery.wait()
        with trio.fail_after(60):
            for closes in ("itself", "its client", "itself"):
                await trio.to_thread.run_sync(work, node.native, closes)
        assert read == list(range(9))


@pytest.mark.parametrize(
    "kind",
    [
        *("native", "driven", "alone"),
        pytest.param("blocking", marks=pytest.mark.virtual_time(False)),
    ],
)
async def test_a_batch_that_is_asked_for_behind_records_is_the_rest_of_theirs(
    tmp_path: Path, kind: str
) -> None:
    """It was the one behind, and a group committed what nobody had been given."""
    offsets: list[int] = []

    def work(address: str) -> None:
        with blocking.connect(address) as client, client.group_consumer("orders", "g") as consumer:
            offsets.append(next(consumer).offset)
            while offsets[-1] < 11:
                batch = consumer.next_batch()
                assert batch is not None
                offsets.extend(each.offset for each in batch.records())

    async with lone_node(tmp_path, FLAGS) as node, connect(node.native) as client:
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        async with client.producer() as producer:
            for _ in range(2):
                sent = [await producer.submit("orders", b"x") for _ in range(6)]
                for delivery in sent:
                    await delivery.wait()
        with trio.fail_after(60):
            if kind == "blocking":
                await trio.to_thread.run_sync(work, node.native)
            else:
                opened = client.consumer("orders") if kind == "alone" else member_of(client, kind)
                async with opened as consumer:
                    offsets.append((await anext(consumer)).offset)
                    while offsets[-1] < 11:
                        batch = await consumer.next_batch()
                        assert batch is not None
                        offsets.extend(each.offset for each in batch.records())
        assert offsets == list(range(12))


async def test_a_static_member_comes_back_to_its_partitions(tmp_path: Path) -> None:
    static = GroupSettings(session_timeout_s=3, rebalance_timeout_s=6, instance_id="one")
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=4, replication_factor=1)
        first, other = Reader(client, static), Reader(client)
        nursery.start_soon(first.run)
        nursery.start_soon(other.run)
        await until(lambda: len(first.told.owned) == len(other.told.owned) == 2)
        before, calls = first.told.calls[-1], len(other.told.calls)
        await first.stop()
        again = Reader(client, static)
        nursery.start_soon(again.run)
        await until(lambda: again.told.calls[-1:] == [before])
        assert len(other.told.calls) == calls  # nobody else moved
        # Another program under the same instance id takes over from the first.
        twin = Reader(client, static)
        nursery.start_soon(twin.run)
        await again.ended.wait()
        assert isinstance(again.error, FencedInstance)
        await until(lambda: twin.told.calls[-1:] == [before])
        nursery.cancel_scope.cancel()


async def test_groups_are_administered(tmp_path: Path) -> None:
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        groups = client.admin.groups
        at = TopicPartition("orders", 1)
        await client.admin.create_topic("orders", partitions=4, replication_factor=1)
        with pytest.raises(GroupNotFound):
            await groups.describe("g")
        assert await groups.offsets("g") == {}
        await groups.alter_offsets("g", {at: 5})
        assert (await groups.offsets("g"))[at].offset == 5
        reader = Reader(client)
        nursery.start_soon(reader.run)
        await until(lambda: len(reader.told.owned) == 4)
        with pytest.raises(NonEmptyGroup):
            await groups.alter_offsets("g", {at: 1})
        with pytest.raises(NonEmptyGroup):
            await groups.delete("g")
        with pytest.raises(PacelineError):
            await groups.delete_offsets("g", [at])
        listed = await groups.list()
        assert [(g.family, g.group, g.state, g.member_count) for g in listed] == [
            ("kafka", "g", "Stable", 1)
        ]
        await reader.stop()
        await groups.alter_offsets("g", {at: 1})
        await groups.delete_offsets("g", [at])
        assert at not in await groups.offsets("g")
        await groups.delete("g")
        assert await groups.list() == []


async def test_the_group_goes_on_when_its_coordinator_dies(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path, flags=FLAGS) as nodes,
        connect(nodes.bootstrap_native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=4)
        one, two = Reader(client), Reader(client)
        nursery.start_soon(one.run)
        nursery.start_soon(two.run)
        await until(lambda: len(one.told.owned) == len(two.told.owned) == 2)
        await produce(client, 0, 100)
        await until(lambda: set(one.seen) | set(two.seen) >= values(0, 100))
        assert one.consumer is not None
        generation = one.consumer.generation
        coordinator = await client.admin.groups.coordinator("g")
        await nodes.crash(int(coordinator))
        await produce(client, 100, 100)
        await until(lambda: set(one.seen) | set(two.seen) >= values(0, 200))
        await until(lambda: one.consumer is not None and one.consumer.generation >= generation)
        await one.stop()
        await until(lambda: len(two.told.owned) == 4)
        await two.stop()
        committed = await client.admin.groups.offsets("g")
        assert sum(each.offset for each in committed.values()) >= 200 - 2


@pytest.mark.virtual_time(False)
async def test_the_blocking_consumer_is_a_member_too(tmp_path: Path) -> None:
    """It commits what its own thread has seen, not the batch it was given."""

    class ToldInThread(blocking.RebalanceListener):
        def __init__(self) -> None:
            self.calls: list[str] = []

        def assigned(self, partitions: Sequence[TopicPartition]) -> None:
            self.calls.append(f"assigned {len(partitions)}")

        def revoked(self, partitions: Sequence[TopicPartition]) -> None:
            self.calls.append(f"revoked {len(partitions)}")

    told = ToldInThread()
    at = TopicPartition("orders", 0)

    def read(bootstrap: str) -> list[bytes | None]:
        manual = GroupSettings(session_timeout_s=3, rebalance_timeout_s=6, auto_commit_s=None)
        with (
            blocking.connect(bootstrap) as client,
            client.group_consumer("orders", "g", membership=manual, listener=told) as consumer,
        ):
            values = [next(consumer).value for _ in range(4)]
            consumer.commit()
            assert consumer.committed() == {at: 4}
            assert client.admin.groups.describe("g").generation == consumer.generation
            values.append(next(consumer).value)
            return values

    async with lone_node(tmp_path, FLAGS) as node, connect(node.native) as client:
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        async with client.producer() as producer:
            await producer.send_many("orders", [b"%d" % number for number in range(10)])
        found = await trio.to_thread.run_sync(read, node.native)
        assert found == [b"%d" % number for number in range(5)]
        assert told.calls == ["assigned 1", "revoked 1"]
        assert (await client.admin.groups.offsets("g"))[at].offset == 4


@pytest.mark.virtual_time(False)
async def test_the_blocking_consumer_drops_the_rest_of_a_batch_that_moved(tmp_path: Path) -> None:
    """It was handed out although another member could read it already."""
    has_read, may_go_on = trio.Event(), threading.Event()

    def read(bootstrap: str) -> tuple[int, int]:
        with (
            blocking.connect(bootstrap) as client,
            client.group_consumer("orders", "g", membership=QUICK) as consumer,
        ):
            first = next(consumer)
            trio.from_thread.run_sync(has_read.set)
            assert may_go_on.wait(60)
            return first.offset, next(consumer).offset

    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=2, replication_factor=1)
        await produce(client, 0, 40, partitions=2)
        other = Reader(client)
        offsets: list[tuple[int, int]] = []

        async def read_in_thread() -> None:
            offsets.append(await trio.to_thread.run_sync(read, node.native))

        nursery.start_soon(read_in_thread)
        with trio.fail_after(60):
            await has_read.wait()
        nursery.start_soon(other.run)
        await until(lambda: len(other.told.owned) == 1)
        may_go_on.set()
        await until(lambda: bool(offsets))
        nursery.cancel_scope.cancel()
    assert offsets == [(0, 0)]  # nothing was committed, so its partition is read anew
