"""Groups of the native protocol on three nodes, over real sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import trio

from paceline.errors import (
    ConnectionLost,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    GroupNotFound,
    IllegalGeneration,
    InvalidGroup,
    InvalidRequest,
    NonEmptyGroup,
    NotCoordinator,
    PacelineError,
    RebalanceInProgress,
    RequestTimedOut,
    UnknownMember,
)
from paceline.wire.consumer_protocol import Assignment, Subscription
from paceline.wire.message import Message
from paceline.wire.native import admin
from paceline.wire.native import groups as wire
from paceline.wire.native.api import NativeApi
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import HANG_S, Cluster, V1Client, cluster, lone_node

pytestmark = pytest.mark.virtual_time

M = TypeVar("M", bound=Message)
NODES = (0, 1, 2)
MOVED = (
    NotCoordinator,
    CoordinatorNotAvailable,
    CoordinatorLoadInProgress,
    RequestTimedOut,
    ConnectionLost,
    OSError,
)
ORDERS = wire.GroupProtocol("range", Subscription(("orders",)).to_bytes())
ONE = {
    "topics.partitions": "3",
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
}


def join_of(group: str, member_id: str = "", **fields: object) -> wire.JoinGroup:
    return wire.JoinGroup(group, member_id, 6000, 10_000, "consumer", (ORDERS,), **fields)


class Member:
    """One member of a group, at one connection."""

    def __init__(self, native: NativeConnection, group: str = "team") -> None:
        self.native = native
        self.group = group
        self.id = ""
        self.generation = -1
        self.joined: wire.GroupJoined | None = None

    async def join(self) -> wire.GroupJoined:
        while True:
            request = join_of(self.group, self.id)
            joined = await self.native.call(NativeApi.JOIN_GROUP, request, wire.GroupJoined)
            self.id = joined.member_id
            if joined.error == ErrorCode.NONE:
                self.joined, self.generation = joined, joined.generation
                return joined
            assert joined.error == ErrorCode.MEMBER_ID_REQUIRED

    async def sync(self) -> Assignment:
        """As the leader, deal the partitions of orders out in the order of members."""
        assert self.joined is not None
        members = self.joined.members
        assignments = tuple(
            wire.MemberAssignment(
                each.member_id,
                Assignment({"orders": tuple(range(at, 3, len(members)))}).to_bytes(),
            )
            for at, each in enumerate(members)
        )
        request = wire.SyncGroup(self.group, self.generation, self.id, assignments)
        synced = await self.native.call(NativeApi.SYNC_GROUP, request, wire.GroupSynced)
        return Assignment.from_bytes(synced.assignment)

    async def beat(self) -> None:
        request = wire.HeartbeatGroup(self.group, self.generation, self.id)
        await self.native.call(NativeApi.HEARTBEAT_GROUP, request, wire.GroupDone)

    async def commit(self, partition: int, offset: int, metadata: str = "") -> int:
        offsets = (wire.OffsetToCommit("orders", partition, offset, 0, metadata),)
        request = wire.CommitOffsets(self.group, self.generation, self.id, offsets)
        reply = await self.native.call(NativeApi.COMMIT_OFFSETS, request, wire.OffsetResults)
        return reply.partitions[0].error

    async def leave(self) -> None:
        request = wire.LeaveGroup(self.group, (wire.LeavingMember(self.id),))
        left = await self.native.call(NativeApi.LEAVE_GROUP, request, wire.GroupLeft)
        assert [each.error for each in left.members] == [0]


async def offsets_of(native: NativeConnection, group: str) -> dict[int, int]:
    request = wire.FetchOffsets(group)
    reply = await native.call(NativeApi.FETCH_OFFSETS, request, wire.OffsetsFetched)
    return {each.partition: each.offset for each in reply.partitions}


async def coordinator(nodes: Cluster, group: str = "team") -> int:
    """Asked of any node, until somebody coordinates."""

    async def found() -> wire.CoordinatorFound | None:
        for number in sorted(nodes.up):
            try:
                async with NativeConnection(nodes.up[number].addresses["native"]) as native:
                    request = wire.FindCoordinator(group)
                    return await native.call(
                        NativeApi.FIND_COORDINATOR, request, wire.CoordinatorFound
                    )
            except MOVED:
                continue
        return None

    reply = await nodes.wait_for(f"a coordinator of {group}", found)
    node = reply.broker.node_id
    address = next(each for each in reply.broker.addresses if each.name == "native")
    if node in nodes.up:
        assert (address.host, address.port) == nodes.up[node].addresses["native"]
    return int(node)


async def at_coordinator(
    nodes: Cluster, ask: Callable[[NativeConnection], Awaitable[M]], group: str = "team"
) -> M:
    """Ask whoever coordinates, through failovers."""

    async def answered() -> M | None:
        node = await coordinator(nodes, group)
        try:
            async with NativeConnection(nodes.up[node].addresses["native"]) as native:
                return await ask(native)
        except (*MOVED, KeyError):
            return None

    return await nodes.wait_for("an answer of the coordinator", answered)


async def test_a_group_from_first_join_to_deletion(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        V1Client(node.v1) as v1,
        NativeConnection(node.addresses["native"]) as first,
        NativeConnection(node.addresses["native"]) as second,
    ):
        await v1.ok("PRODUCE", "orders k:v acks=all")
        one, two = Member(first), Member(second)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.join)
            nursery.start_soon(two.join)
        assert one.generation == two.generation == 1
        found: list[Assignment] = []

        async def sync(member: Member) -> None:
            found.append(await member.sync())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(sync, one)
            nursery.start_soon(sync, two)
        dealt = sorted(p for each in found for p in each.partitions["orders"])
        assert dealt == [0, 1, 2]
        await one.beat()
        assert await one.commit(0, 5, "here") == ErrorCode.NONE
        assert await one.commit(7, 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await one.commit(0, 5, "x" * 5000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert await one.commit(0, -1) == ErrorCode.OFFSET_OUT_OF_RANGE
        assert await offsets_of(second, "team") == {0: 5}

        described = await first.call(
            NativeApi.DESCRIBE_GROUP, wire.DescribeGroup("team"), wire.GroupDescription
        )
        assert (described.state, described.protocol, described.generation) == ("Stable", "range", 1)
        assert {each.member_id for each in described.members} == {one.id, two.id}
        shown = sorted(p for m in described.members for t in m.assigned for p in t.partitions)
        assert shown == [0, 1, 2]
        listed = await patiently(first, NativeApi.LIST_GROUPS, wire.ListGroups(), wire.GroupsListed)
        assert listed.groups == (
            wire.GroupListing("kafka", "team", "", "Stable", "consumer", 2, 1),
        )

        reset = wire.ResetOffsets("team", (wire.OffsetToCommit("orders", 0, 2),))
        with pytest.raises(NonEmptyGroup):
            await first.call(NativeApi.RESET_OFFSETS, reset, wire.OffsetResults)
        with pytest.raises(NonEmptyGroup):
            await first.call(NativeApi.DELETE_GROUP, wire.DeleteGroup("team"), wire.GroupDone)
        drop = wire.DeleteOffsets("team", (wire.TopicPartitions("orders", (0, 1)),))
        kept = await first.call(NativeApi.DELETE_OFFSETS, drop, wire.OffsetResults)
        assert {each.error for each in kept.partitions} == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}

        await two.leave()
        with pytest.raises(RebalanceInProgress):
            await one.beat()
        await one.leave()
        await first.call(NativeApi.RESET_OFFSETS, reset, wire.OffsetResults)
        assert await offsets_of(second, "team") == {0: 2}
        await first.call(NativeApi.DELETE_OFFSETS, drop, wire.OffsetResults)
        assert await offsets_of(second, "team") == {}
        await first.call(NativeApi.DELETE_GROUP, wire.DeleteGroup("team"), wire.GroupDone)
        with pytest.raises(GroupNotFound):
            await first.call(NativeApi.DELETE_GROUP, wire.DeleteGroup("team"), wire.GroupDone)
        gone = await first.call(
            NativeApi.DESCRIBE_GROUP, wire.DescribeGroup("team"), wire.GroupDescription
        )
        assert gone.state == "Dead"


async def test_what_may_not_be_asked(tmp_path) -> None:
    refused: tuple[tuple[NativeApi, Message, type[PacelineError]], ...] = (
        (NativeApi.JOIN_GROUP, join_of(""), InvalidGroup),
        (NativeApi.JOIN_GROUP, join_of("team", "stranger"), UnknownMember),
        (NativeApi.SYNC_GROUP, wire.SyncGroup("team", 1, "m"), UnknownMember),
        (NativeApi.HEARTBEAT_GROUP, wire.HeartbeatGroup("team", 1, "m"), UnknownMember),
        (NativeApi.COMMIT_OFFSETS, wire.CommitOffsets("team", 1, "m", ()), IllegalGeneration),
        (NativeApi.DESCRIBE_GROUP, wire.DescribeGroup("team", "other"), InvalidRequest),
        (NativeApi.LIST_GROUPS, wire.ListGroups(("other",)), InvalidRequest),
    )
    async with (
        lone_node(tmp_path, ONE) as node,
        NativeConnection(node.addresses["native"]) as native,
    ):
        for api, request, error in refused:
            with pytest.raises(error):
                await patiently(native, api, request)


async def patiently(
    native: NativeConnection, api: NativeApi, request: Message, reply: type[M] = wire.GroupDone
) -> M:
    """Ask the only node, which may have to begin to coordinate yet, of some partitions."""
    with trio.fail_after(HANG_S):
        while True:
            try:
                return await native.call(api, request, reply)
            except MOVED:
                await trio.sleep(0.05)


async def test_operators_reach_groups_of_other_families(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        V1Client(node.v1) as v1,
        NativeConnection(node.addresses["native"]) as native,
    ):
        await v1.ok("JOIN", "team orders c assignor=range")
        await v1.ok("COMMIT", "team orders c 2 1 9")
        described = await native.call(
            NativeApi.DESCRIBE_GROUP, wire.DescribeGroup("team", "v1"), wire.GroupDescription
        )
        assert (described.state, described.protocol, described.generation) == ("Stable", "range", 2)
        assert described.members[0].assigned == (wire.TopicPartitions("orders", (0, 1, 2)),)
        # The same name in family kafka is another group, and has nothing.
        fetch = wire.FetchOffsets("team")
        told = await patiently(native, NativeApi.FETCH_OFFSETS, fetch, wire.OffsetsFetched)
        assert told.partitions == ()
        await v1.ok("LEAVE", "team orders c 2")
        back = wire.ResetOffsets("team", (wire.OffsetToCommit("orders", 1, 4),), "v1")
        await native.call(NativeApi.RESET_OFFSETS, back, wire.OffsetResults)
        assert (await v1.ok("OFFSET", "team orders 1"))["offset"] == "4"


async def test_a_deleted_topic_takes_its_offsets_along(tmp_path) -> None:
    async with (
        lone_node(tmp_path, ONE) as node,
        V1Client(node.v1) as v1,
        NativeConnection(node.addresses["native"]) as native,
    ):
        await v1.ok("PRODUCE", "orders k:v acks=all")
        alone = wire.CommitOffsets("team", -1, "", (wire.OffsetToCommit("orders", 0, 5),))
        await patiently(native, NativeApi.COMMIT_OFFSETS, alone, wire.OffsetResults)
        assert await offsets_of(native, "team") == {0: 5}
        await native.call(NativeApi.DELETE_TOPIC, admin.DeleteTopic("orders"), admin.Done)
        assert await offsets_of(native, "team") == {}


async def test_other_nodes_send_clients_on(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        node = await coordinator(nodes)
        await at_coordinator(nodes, lambda native: fetched(native))
        for number in NODES:
            if number == node:
                continue
            async with NativeConnection(nodes.up[number].addresses["native"]) as native:
                with pytest.raises(NotCoordinator):
                    await offsets_of(native, "team")


async def fetched(native: NativeConnection) -> wire.OffsetsFetched:
    return await native.call(
        NativeApi.FETCH_OFFSETS, wire.FetchOffsets("team"), wire.OffsetsFetched
    )


async def test_members_live_through_the_death_of_their_coordinator(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        async with nodes.v1(0) as v1:
            await v1.ok("PRODUCE", "orders k:v acks=1")  # makes the topic
        await at_coordinator(nodes, fetched)
        dead = await coordinator(nodes)
        async with NativeConnection(nodes.up[dead].addresses["native"]) as native:
            member = Member(native)
            await member.join()
            assert (await member.sync()).partitions == {"orders": (0, 1, 2)}
            assert await member.commit(1, 77) == ErrorCode.NONE
        await nodes.crash(dead)

        async def beats(native: NativeConnection) -> wire.GroupDone:
            member.native = native
            await member.beat()
            assert await member.commit(2, 78) == ErrorCode.NONE
            assert await offsets_of(native, "team") == {1: 77, 2: 78}
            # The assignment, too, is still there.
            assert (await member.sync()).partitions == {"orders": (0, 1, 2)}
            return wire.GroupDone()

        await at_coordinator(nodes, beats)
        assert member.generation == 1


async def test_a_rebalance_goes_on_after_its_coordinator_died(tmp_path) -> None:
    async with cluster(tmp_path) as nodes:
        await at_coordinator(nodes, fetched)
        dead = await coordinator(nodes)
        async with NativeConnection(nodes.up[dead].addresses["native"]) as native:
            member = Member(native)
            await member.join()  # generation 1 is told, nothing is assigned yet
        await nodes.crash(dead)

        async def goes_on(native: NativeConnection) -> wire.GroupDone:
            member.native = native
            with pytest.raises(RebalanceInProgress):
                await member.beat()
            await member.join()
            assert (await member.sync()).partitions == {"orders": (0, 1, 2)}
            return wire.GroupDone()

        await at_coordinator(nodes, goes_on)
        assert member.generation == 2
