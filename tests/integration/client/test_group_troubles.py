"""Group members whose topics, leaders, callbacks or programs are in trouble, against real nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import trio

from paceline.client import (
    Client,
    GroupConsumer,
    GroupSettings,
    OutOfRange,
    fetcher,
    membership,
    offsets,
)
from paceline.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    NotCoordinator,
    PacelineError,
    RebalanceInProgress,
)
from paceline.types import TopicPartition
from paceline.wire.consumer_protocol import Subscription
from paceline.wire.native.api import NativeApi
from paceline.wire.native.groups import (
    CommitOffsets,
    GroupJoined,
    GroupLeft,
    GroupProtocol,
    GroupSynced,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    MemberAssignment,
    SyncGroup,
)
from tests.integration.client.test_groups import FLAGS, QUICK, Reader, Told, until
from tests.integration.node.machines import connect
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import cluster, lone_node

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(120)]

SHORT = GroupSettings(session_timeout_s=1, rebalance_timeout_s=20, auto_commit_s=0.2)
PATIENT = GroupSettings(session_timeout_s=6, rebalance_timeout_s=20)


class Slow(Told):
    """Takes its time, as long as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = trio.Event()
        self.is_busy = trio.Event()
        self.ended_with: set[TopicPartition] | None = None
        self.other: Told | None = None

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.is_busy.set()
        await self.may_end.wait()
        assert self.other is not None
        self.ended_with = set(self.other.owned)
        await super().revoked(partitions)


async def write(client: Client, topic: str, partition: int, *numbers: int) -> None:
    async with client.producer() as producer:
        for number in numbers:
            await producer.send(topic, b"%d" % number, partition=partition)


async def test_a_partition_without_a_leader_keeps_no_other_waiting(tmp_path: Path) -> None:
    """Nobody can tell where it begins: the member reads the rest, and stays one."""
    async with (
        cluster(tmp_path, flags=FLAGS) as nodes,
        connect(nodes.bootstrap_native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=6, replication_factor=1)
        found = (await client.admin.describe_topic("orders")).partitions
        coordinator = await client.admin.groups.coordinator("g")
        victim = next(each.leader for each in found if each.leader != coordinator)
        dead = {each.partition for each in found if each.leader == victim}
        alive = [each.partition for each in found if each.leader != victim]
        await nodes.crash(int(victim))
        one, two = Reader(client, SHORT), Reader(client, SHORT)
        nursery.start_soon(one.run)
        await until(lambda: len(one.told.owned) == 6)
        for partition in alive:
            await write(client, "orders", partition, partition)
        await until(lambda: {int(each or b"") for each in one.seen} == set(alive))
        await trio.sleep(2 * SHORT.session_timeout_s)  # virtual sessions are not: let them pass
        assert [name for name, _ in one.told.calls] == ["assigned"], "it is a member all the time"
        assert one.consumer is not None
        assert {at.partition for at in one.consumer.assignment} >= dead
        nursery.start_soon(two.run)
        await until(lambda: len(one.told.owned) == len(two.told.owned) == 3)
        await nodes.restart(int(victim))
        for partition in dead:
            await write(client, "orders", partition, partition)
        both = set(range(6))
        await until(lambda: {int(each or b"") for each in one.seen + two.seen} == both)
        nursery.cancel_scope.cancel()


async def test_a_deleted_topic_ends_no_reader_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "MISSING_PARTITION_S", 0.2)
    monkeypatch.setattr(offsets, "MISSING_PARTITION_S", 0.2)
    monkeypatch.setattr(membership, "REFRESH_S", 0.5)
    seen: list[tuple[str, bytes | None]] = []

    async def read(client: Client) -> None:
        async with client.consumer(["a", "b"], group="g", membership=QUICK) as consumer:
            async for record in consumer:
                seen.append((record.topic, record.value))

    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        for topic in ("a", "b"):
            await client.admin.create_topic(topic, partitions=1, replication_factor=1)
            await write(client, topic, 0, 1)
        nursery.start_soon(read, client)
        await until(lambda: len(seen) == 2)
        await client.admin.delete_topic("b")
        await trio.sleep(1.0)  # longer than a partition may be missing
        await write(client, "a", 0, 2)
        await until(lambda: ("a", b"2") in seen)
        await client.admin.create_topic("b", partitions=1, replication_factor=1)
        await write(client, "b", 0, 7)
        await until(lambda: ("b", b"7") in seen)
        nursery.cancel_scope.cancel()


ODD_MEMBERS = {
    "garbage": b"\xff\xff\xff",
    "nothing": b"",
    "version 1 as if it were 0": b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff",
    "a name too long": Subscription(("orders", "x" * 300)).to_bytes(),
    "a name that is none": Subscription(("orders", "no topic!")).to_bytes(),
    "no name": Subscription(("orders", "")).to_bytes(),
    "what it cannot have owned": Subscription(
        ("orders",), None, {"orders": (-5, 2**31 - 1)}, 3
    ).to_bytes(),
}


class OddMember:
    """Joins by hand, and tells the others nonsense where it leads."""

    def __init__(self, native: NativeConnection, said: bytes) -> None:
        self._native = native
        self._protocols = tuple(GroupProtocol(each.value, said) for each in QUICK.assignors)
        self._id = ""

    async def join(self) -> bool:
        """Whether it leads."""
        while True:
            request = JoinGroup("g", self._id, 6000, 20_000, "consumer", self._protocols)
            try:
                joined = await self._native.call(NativeApi.JOIN_GROUP, request, GroupJoined)
            except (CoordinatorLoadInProgress, NotCoordinator):
                await trio.sleep(0.02)  # no node coordinates yet
                continue
            self._id = joined.member_id
            if joined.error:
                assert joined.error == ErrorCode.MEMBER_ID_REQUIRED
                continue
            nonsense = [MemberAssignment(each.member_id, b"\xff\xff") for each in joined.members]
            sync = SyncGroup("g", joined.generation, self._id, tuple(nonsense))
            try:
                await self._native.call(NativeApi.SYNC_GROUP, sync, GroupSynced)
            except RebalanceInProgress:
                continue
            return joined.leader == self._id

    async def leave(self) -> None:
        leave = LeaveGroup("g", (LeavingMember(self._id),))
        await self._native.call(NativeApi.LEAVE_GROUP, leave, GroupLeft)


@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("said", ODD_MEMBERS.values(), ids=ODD_MEMBERS.keys())
async def test_what_one_member_says_ends_no_other(tmp_path: Path, said: bytes, leads: bool) -> None:
    """It ended the member that led, then the one that led in its place, and so all of them."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        NativeConnection(node.addresses["native"]) as native,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=4, replication_factor=1)
        odd = OddMember(native, said)
        readers = [Reader(client, PATIENT) for _ in range(2)]
        if leads:
            assert await odd.join()
        for reader in readers:
            nursery.start_soon(reader.run)
        if leads:
            while not all(reader.told.calls for reader in readers):
                await odd.join()
        else:
            await until(lambda: sum(len(each.told.owned) for each in readers) == 4)
            await odd.join()
        await odd.leave()
        for partition in range(4):
            await write(client, "orders", partition, partition)
        await until(lambda: len({each for reader in readers for each in reader.seen}) == 4)
        assert [reader.error for reader in readers] == [None, None]
        nursery.cancel_scope.cancel()


async def test_a_slow_callback_keeps_its_partitions_until_it_ends(tmp_path: Path) -> None:
    """Three sessions long: heartbeats go on, and nobody else reads meanwhile."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=4, replication_factor=1)
        one, two = Reader(client, SHORT), Reader(client, SHORT)
        slow = one.told = Slow()
        slow.other = two.told
        nursery.start_soon(one.run)
        await until(lambda: len(slow.owned) == 4)
        nursery.start_soon(two.run)
        await slow.is_busy.wait()
        await trio.sleep(3 * SHORT.session_timeout_s)
        assert not two.told.owned
        slow.may_end.set()
        await until(lambda: len(slow.owned) == len(two.told.owned) == 2)
        assert slow.ended_with == set()
        assert "lost" not in [name for name, _ in slow.calls]
        nursery.cancel_scope.cancel()


async def test_a_program_that_hangs_gives_its_partitions_to_others(tmp_path: Path) -> None:
    hasty = GroupSettings(
        session_timeout_s=1, rebalance_timeout_s=6, auto_commit_s=0.2, max_poll_interval_s=1.0
    )
    told, seen, goes_on = Told(), [], trio.Event()
    hangs = trio.Event()
    refused: list[PacelineError] = []

    async def hang(client: Client) -> None:
        async with client.consumer(
            "orders", group="g", membership=hasty, listener=told
        ) as consumer:
            async for record in consumer:
                seen.append(record.value)
                if not hangs.is_set():
                    hangs.set()
                    await goes_on.wait()
                    try:
                        await consumer.commit({TopicPartition("orders", record.partition): 1})
                    except PacelineError as error:
                        refused.append(error)

    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=2, replication_factor=1)
        await write(client, "orders", 0, 1)
        nursery.start_soon(hang, client)
        await hangs.wait()
        await until(lambda: ("lost", [0, 1]) in told.calls)
        other = Reader(client, QUICK)
        nursery.start_soon(other.run)
        await until(lambda: len(other.told.owned) == 2 and other.seen == [b"1"])
        goes_on.set()
        await until(lambda: len(other.told.owned) == len(told.owned) == 1)
        assert refused, "nothing of what it had counts any more"
        nursery.cancel_scope.cancel()


async def test_a_program_that_waits_for_records_does_not_hang(tmp_path: Path) -> None:
    hasty = GroupSettings(session_timeout_s=1, rebalance_timeout_s=6, max_poll_interval_s=0.5)
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        reader = Reader(client, hasty)
        nursery.start_soon(reader.run)
        await until(lambda: len(reader.told.owned) == 1)
        await trio.sleep(2.0)
        assert [name for name, _ in reader.told.calls] == ["assigned"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("auto_commit_s", [0.2, None])
async def test_a_quiet_reader_from_the_end_skips_nothing_when_it_restarts(
    tmp_path: Path, auto_commit_s: float | None
) -> None:
    """Where it begins is kept, also when commits are the program's own: it has nothing to commit
    yet."""
    settings = dataclasses.replace(SHORT, auto_commit_s=auto_commit_s)

    def reader(client: Client) -> AbstractAsyncContextManager[GroupConsumer]:
        return client.consumer(
            "orders", group="g", membership=settings, out_of_range=OutOfRange.LATEST
        )

    async with lone_node(tmp_path, FLAGS) as node, connect(node.native) as client:
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        await write(client, "orders", 0, 1, 2, 3)
        at = TopicPartition("orders", 0)
        async with reader(client) as consumer:
            await until(lambda: at in consumer.positions())
            committed = await client.admin.groups.offsets("g")
            assert [each.offset for each in committed.values()] == [3]
        await write(client, "orders", 0, 4)
        async with reader(client) as consumer:
            with trio.fail_after(30):
                assert (await anext(consumer)).value == b"4"


async def test_a_reader_begins_at_the_end_once_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal is asked again; meanwhile it reads nothing, and another member's partitions are
    none of its business."""
    settings = dataclasses.replace(SHORT, auto_commit_s=None)
    refused: list[object] = []
    async with lone_node(tmp_path, FLAGS) as node, connect(node.native) as client:
        await client.admin.create_topic("orders", partitions=2, replication_factor=1)
        await write(client, "orders", 0, 1)
        async with client.consumer(
            "orders", group="g", membership=settings, out_of_range=OutOfRange.LATEST
        ) as consumer:
            honest = consumer._coordinator.call

            async def refusing(api: NativeApi, body: object, *rest: Any, **more: Any) -> Any:
                if isinstance(body, CommitOffsets) and len(refused) < 20:
                    refused.append(body)
                    raise CoordinatorNotAvailable("the test refuses")
                return await honest(api, body, *rest, **more)

            monkeypatch.setattr(consumer._coordinator, "call", refusing)
            await until(lambda: len(refused) > 3)
            assert not consumer.positions()
            assert len(consumer.assignment) == 2
            await until(lambda: len(consumer.positions()) == 2)
            committed = await client.admin.groups.offsets("g")
            assert {at.partition: each.offset for at, each in committed.items()} == {0: 1, 1: 0}


async def test_a_leader_that_comes_back_notices_new_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A static member that leads keeps the assignment, and its duty to look after it."""
    monkeypatch.setattr(membership, "REFRESH_S", 0.3)
    static = GroupSettings(session_timeout_s=3, rebalance_timeout_s=6, instance_id="one")
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=2, replication_factor=1)
        first = Reader(client, static)
        nursery.start_soon(first.run)
        await until(lambda: len(first.told.owned) == 2)
        await first.stop()
        await client.admin.add_partitions("orders", 3)
        again = Reader(client, static)
        nursery.start_soon(again.run)
        await until(lambda: len(again.told.owned) == 3)
        await client.admin.add_partitions("orders", 4)
        await until(lambda: len(again.told.owned) == 4)
        nursery.cancel_scope.cancel()


async def test_a_group_gets_past_control_records(tmp_path: Path) -> None:
    """A topic whose last record is the end of a transaction is read up to its end: lag 0."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        reader = Reader(client, SHORT)
        nursery.start_soon(reader.run)
        async with client.transactional_producer("writer") as producer:
            async with producer.transaction():
                await producer.send("orders", b"1", partition=0)
            await until(lambda: reader.seen == [b"1"])
            async with producer.transaction():
                await producer.send("orders", b"2", partition=0)
        at = TopicPartition("orders", 0)
        with trio.fail_after(30):
            while True:
                found = await client.admin.groups.offsets("g")
                if at in found and found[at].offset == 4:
                    break
                await trio.sleep(0.05)
        assert reader.seen == [b"1", b"2"]
        nursery.cancel_scope.cancel()


def test_the_interval_is_on_by_default() -> None:
    assert GroupSettings().max_poll_interval_s == 300.0
