"""Commits of members whose partitions moved while they worked on what they had: what others have
committed stays, and nobody is told that something is committed that is not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
)
from pathlib import Path

import pytest
import trio

from paceline.client import (
    Client,
    ClientSettings,
    CoordinatedConsumer,
    DrivenSettings,
    GroupConsumer,
    GroupSettings,
    Position,
    blocking,
)
from paceline.errors import IllegalGeneration
from paceline.types import TopicPartition
from tests.integration.client.test_groups import FLAGS, produce, until
from tests.integration.node.machines import connect
from tests.integration.node.nodes import lone_node

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(120)]

MANUAL = GroupSettings(session_timeout_s=3, rebalance_timeout_s=8, auto_commit_s=None)
DRIVEN = DrivenSettings(heartbeat_interval_ms=200, auto_commit=False)
AT, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
FAMILIES = {"group": "kafka", "coordinated": "coordinator"}
Member = GroupConsumer | CoordinatedConsumer
BlockingMember = blocking.GroupConsumer | blocking.CoordinatedConsumer

each_kind = pytest.mark.parametrize("kind", FAMILIES)


def named(name: str) -> ClientSettings:
    """The first member by name has the only partition, or the first one of two."""
    return ClientSettings(client_id=name)


def joined(client: Client, kind: str, name: str) -> AbstractAsyncContextManager[Member]:
    if kind == "group":
        return client.consumer("orders", group="g", membership=MANUAL)
    return client.coordinated_consumer(
        "orders", group="g", auto_offset_reset="smallest", consumer_id=name, driven=DRIVEN
    )


@asynccontextmanager
async def reading(
    path: Path, kind: str, partitions: int = 1
) -> AsyncIterator[tuple[str, Client, Member]]:
    """A node's address, and a member that has all partitions, with 20 records in each."""
    async with lone_node(path, FLAGS) as node, connect(node.native, named("z")) as client:
        await client.admin.create_topic("orders", partitions=partitions, replication_factor=1)
        await produce(client, 0, 20 * partitions, partitions)
        async with joined(client, kind, "z") as member:
            await until(lambda: len(member.positions()) == partitions)
            yield node.native, client, member


async def committed(client: Client, kind: str) -> dict[TopicPartition, int]:
    found = await client.admin.groups.offsets("g", family=FAMILIES[kind])
    return {at: each.offset for at, each in found.items()}


async def read(member: Member, count: int) -> int:
    """Take so many records; the offset behind the last one."""
    with trio.fail_after(60):
        for _ in range(count):
            record = await anext(member)
    return record.offset + 1


@asynccontextmanager
async def another(member: Member, kind: str, node: str) -> AsyncIterator[Member]:
    """A member that has the first partition, until it leaves."""
    async with connect(node, named("a")) as client, joined(client, kind, "a") as other:
        await until(lambda: AT in other.positions())
        yield other
    await until(lambda: AT in member.positions())


@each_kind
async def test_a_stale_offset_sets_nothing_back(tmp_path: Path, kind: str) -> None:
    """The partition is its own again, and begins where the other has committed."""
    async with reading(tmp_path, kind) as (node, client, member):
        assert await read(member, 2) == 2
        async with another(member, kind, node) as other:
            assert await read(other, 10) == 10
            await other.commit()
        for stale in (1, 2):
            with pytest.raises(IllegalGeneration, match="orders/0: given up since"):
                await member.commit({AT: stale})
        assert await committed(client, kind) == {AT: 10}
        assert await read(member, 1) == 11
        with pytest.raises(IllegalGeneration, match="orders/0: given up since"):
            await member.commit({AT: 2})
        await member.commit({AT: 11})
        assert await committed(client, kind) == {AT: 11}


@each_kind
async def test_who_holds_a_partition_may_set_it_back(tmp_path: Path, kind: str) -> None:
    async with reading(tmp_path, kind) as (node, client, member):
        assert await read(member, 5) == 5
        await member.commit()
        await member.commit({AT: 3})
        assert await committed(client, kind) == {AT: 3}
        async with another(member, kind, node) as other:
            assert await read(other, 10) == 13
            await other.commit()
        await member.seek(AT, Position.at(2))
        await member.commit({AT: 2})
        assert await committed(client, kind) == {AT: 2}
        assert await read(member, 1) == 3


@each_kind
async def test_an_offset_counts_once_it_is_read_again(tmp_path: Path, kind: str) -> None:
    """Nobody has committed anything: what was taken comes again."""
    async with reading(tmp_path, kind) as (node, client, member):
        assert await read(member, 3) == 3
        async with another(member, kind, node):
            pass
        assert await read(member, 2) == 2
        with pytest.raises(IllegalGeneration, match="orders/0: given up since"):
            await member.commit({AT: 3})
        await member.commit({AT: 2})
        assert await read(member, 1) == 3
        await member.commit({AT: 3})
        assert await committed(client, kind) == {AT: 3}
        await member.commit()


@each_kind
async def test_a_commit_of_all_names_what_is_gone(tmp_path: Path, kind: str) -> None:
    """It says so until something is taken anew; what is still held is committed."""
    async with reading(tmp_path, kind, 2) as (node, client, member):
        seen: set[TopicPartition] = set()
        while len(seen) < 2:
            record = await anext(member)
            seen.add(TopicPartition(record.topic, record.partition))
        async with another(member, kind, node):
            await until(lambda: list(member.positions()) == [OTHER])
            assert await read(member, 2) == 2
            with pytest.raises(IllegalGeneration, match="orders/0: given up before"):
                await member.commit()
            assert await committed(client, kind) == {OTHER: 2}
            with pytest.raises(IllegalGeneration, match="orders/0: given up before"):
                await member.commit()
            assert await read(member, 1) == 3
            await member.commit()
            assert await committed(client, kind) == {OTHER: 3}


@each_kind
async def test_a_commit_of_all_is_refused_without_any_partition(tmp_path: Path, kind: str) -> None:
    async with reading(tmp_path, kind) as (node, client, member):
        assert await read(member, 1) == 1
        async with another(member, kind, node) as other:
            await until(lambda: not member.assignment)
            with pytest.raises(IllegalGeneration, match="orders/0: given up before"):
                await member.commit()
            assert not await committed(client, kind)
            assert await read(other, 1) == 1


async def test_what_was_committed_by_itself_is_not_refused(tmp_path: Path) -> None:
    """Nothing was in hand as the partition moved."""
    automatic = GroupSettings(session_timeout_s=3, rebalance_timeout_s=8)
    async with lone_node(tmp_path, FLAGS) as node, connect(node.native, named("z")) as client:
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        await produce(client, 0, 3, 1)
        async with (
            client.consumer("orders", group="g", membership=automatic) as member,
            trio.open_nursery() as nursery,
        ):
            assert await read(member, 3) == 3
            nursery.start_soon(anext, member)
            async with another(member, "group", node.native) as other:
                assert await committed(client, "group") == {AT: 3}
                assert list((await other.committed()).values()) == [3]
                await member.commit()
            nursery.cancel_scope.cancel()


def refusal(member: BlockingMember, offsets: dict[TopicPartition, int] | None) -> str:
    """What a commit is refused with; nothing if it is not."""
    try:
        member.commit(offsets)
    except IllegalGeneration as error:
        return str(error)
    return ""


def opened(client: blocking.Client, kind: str) -> AbstractContextManager[BlockingMember]:
    if kind == "group":
        return client.group_consumer("orders", "g", membership=MANUAL)
    return client.coordinated_consumer(
        "orders", "g", auto_offset_reset="smallest", consumer_id="z", driven=DRIVEN
    )


@each_kind
@pytest.mark.virtual_time(False)
async def test_a_blocking_member_hears_of_it_too(tmp_path: Path, kind: str) -> None:
    """Of what its thread took, not of the batch that it was given."""
    took, lost, left = (trio.Event() for _ in range(3))
    refused: list[str] = []

    def work(node: str) -> None:
        with blocking.connect(node, named("z")) as client, opened(client, kind) as member:
            assert [next(member).offset for _ in range(3)] == [0, 1, 2]
            assert not refusal(member, {AT: 2})
            trio.from_thread.run_sync(took.set)
            trio.from_thread.run(lost.wait)
            refused.extend(refusal(member, each) for each in (None, {AT: 3}))
            trio.from_thread.run(left.wait)
            while AT not in member.positions():
                trio.from_thread.run(trio.sleep, 0.02)
            assert next(member).offset == 6
            refused.extend(refusal(member, each) for each in ({AT: 3}, {AT: 7}, None))

    async with (
        lone_node(tmp_path, FLAGS) as node,
        connect(node.native, named("a")) as client,
        trio.open_nursery() as nursery,
    ):
        await client.admin.create_topic("orders", partitions=1, replication_factor=1)
        await produce(client, 0, 20, 1)
        nursery.start_soon(trio.to_thread.run_sync, work, node.native)
        await took.wait()
        async with joined(client, kind, "a") as other:
            await until(lambda: AT in other.positions())
            lost.set()
            await until(lambda: len(refused) == 2)
            assert await read(other, 4) == 6
            await other.commit()
        left.set()
    assert [each.rpartition(": ")[2].split(" ")[:3] for each in refused] == [
        ["given", "up", "before"],
        ["not", "assigned", "to"],
        ["given", "up", "since"],
        [""],
        [""],
    ]
