"""What a leader answers peers that ask at the wrong time, and what it does when they warn it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from paceline.errors import (
    AuthorizationFailed,
    FencedLeaderEpoch,
    InconsistentClusterId,
    NotLeader,
    UnknownLeaderEpoch,
    UnknownTopicId,
)
from paceline.types import BrokerEpoch, LeaderEpoch, NodeId, TopicId
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.replica import FetchRange, RangeFetched, ReplicaFetch, SuspectCorrupt
from paceline_node.replication.manager import ReplicationSettings
from paceline_node.replication.partition import Partition
from paceline_node.replication.repairs import RepairSettings
from tests.integration.replication.cluster import (
    CLUSTER,
    SETTINGS,
    TestCluster,
    TestNode,
    batch,
    produce,
    running_cluster,
)
from tests.integration.replication.test_damage import flip, written
from tests.integration.replication.test_replication import settled, values


def followers(cluster: TestCluster, leader: Partition) -> list[TestNode]:
    return [node for node in cluster.nodes.values() if node.node_id != leader.leader]


async def ask(node: TestNode, of: NodeId, api: PeerApi, request: Message) -> Frame:
    """Over the node's own link; the lane of the fetcher stays the fetcher's."""
    return await node.links.call(of, api, request, lane="control", timeout_s=10)


async def test_ranges_are_given_by_the_leader_of_that_epoch_only(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await written(cluster)
        cluster.elect(
            "t", followers(cluster, leader)[0].node_id
        )  # so that there is an epoch before
        await cluster.wait(lambda: (found := cluster.leader("t")) is not None and found != leader)
        leader = cluster.leader("t")
        assert leader is not None
        node, other = followers(cluster, leader)
        wanted = FetchRange(leader.topic_id, 0, leader.leader_epoch, 2, 4, 1 << 20)

        frame = await ask(node, leader.leader, PeerApi.FETCH_RANGE, wanted)
        fetched = RangeFetched.unpack(frame.body)
        assert (fetched.base_offset, fetched.next_offset) == (2, 4)
        assert [tuple(span.pack()) for span in fetched.epochs] == [(0, 0), (1, 6)]

        for start in (leader.log_end_offset, leader.log_end_offset + 1):
            request = replace(wanted, start_offset=start, end_offset=start + 1)
            frame = await ask(node, leader.leader, PeerApi.FETCH_RANGE, request)
            fetched = RangeFetched.unpack(frame.body)
            assert fetched.base_offset == fetched.next_offset == start
            assert len(frame.payload) == 0

        unknown = replace(wanted, topic_id=TopicId(UUID(int=1)))
        with pytest.raises(UnknownTopicId):
            await ask(node, leader.leader, PeerApi.FETCH_RANGE, unknown)
        with pytest.raises(NotLeader):
            await ask(node, other.node_id, PeerApi.FETCH_RANGE, wanted)
        before = replace(wanted, current_leader_epoch=LeaderEpoch(leader.leader_epoch - 1))
        with pytest.raises(FencedLeaderEpoch):
            await ask(node, leader.leader, PeerApi.FETCH_RANGE, before)
        after = replace(wanted, current_leader_epoch=LeaderEpoch(leader.leader_epoch + 1))
        with pytest.raises(UnknownLeaderEpoch):
            await ask(node, leader.leader, PeerApi.FETCH_RANGE, after)


async def test_a_fetch_in_another_name_is_refused(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await written(cluster, 1)
        node, other = followers(cluster, leader)
        directory_id = UUID(int=500 + node.node_id)
        epoch = BrokerEpoch(node.broker_epoch)
        fetch = ReplicaFetch(CLUSTER, node.node_id, epoch, directory_id, 1, 0, 1, 1, ())
        elsewhere = replace(fetch, cluster_id=UUID(int=7))
        with pytest.raises(InconsistentClusterId):
            await ask(node, leader.leader, PeerApi.REPLICA_FETCH, elsewhere)
        for false in (
            replace(fetch, follower_id=other.node_id),
            replace(fetch, follower_directory_id=UUID(int=7)),
        ):
            with pytest.raises(AuthorizationFailed):
                await ask(node, leader.leader, PeerApi.REPLICA_FETCH, false)
        await produce(leader, batch(b"after"))  # the followers' own fetches go on
        await settled(cluster, "t")


async def test_a_leader_that_a_follower_warns_looks_for_itself(tmp_path: Path) -> None:
    """Rightly, and it lets another one lead; without reason, and nothing happens."""
    async with running_cluster(tmp_path) as cluster:
        leader = await written(cluster)
        node = followers(cluster, leader)[0]
        holder = cluster.nodes[leader.leader]
        gone = SuspectCorrupt(TopicId(UUID(int=1)), 0, 3)
        sound = SuspectCorrupt(leader.topic_id, 0, 3)
        await cluster.wait(
            lambda: node.links.post(leader.leader, PeerApi.SUSPECT_CORRUPT, gone, lane="control")
        )
        assert node.links.post(leader.leader, PeerApi.SUSPECT_CORRUPT, sound, lane="control")
        await produce(leader, batch(b"more"))
        await settled(cluster, "t")
        assert leader.is_leader
        assert holder.manager.repairs.damaged == ()
        flip(leader, holder.root, 3)
        assert node.links.post(leader.leader, PeerApi.SUSPECT_CORRUPT, sound, lane="control")
        await cluster.wait(
            lambda: (moved := cluster.leader("t")) is not None and moved is not leader
        )
        await cluster.wait(lambda: holder.manager.repairs.repaired_count == 1)
        expected = [b"value %d" % number for number in range(6)] + [b"more"]
        await cluster.wait(lambda: values(leader, from_follower=True) == expected)


SCRUBBING: ReplicationSettings = replace(
    SETTINGS, repairs=RepairSettings(scrub_interval_s=0.2, scrub_bytes_per_s=1 << 30)
)


async def test_scrubbing_finds_what_no_reader_has_met(tmp_path: Path) -> None:
    """In a sealed segment of a follower; the leader's copy makes it whole."""
    async with running_cluster(tmp_path, settings=SCRUBBING) as cluster:
        await cluster.create_topic("t", min_insync_replicas="2", segment_bytes="1024")
        leader = cluster.leader("t")
        assert leader is not None
        for number in range(12):
            await produce(leader, batch(b"%4d" % number * 50))
        await settled(cluster, "t")
        node = followers(cluster, leader)[0]
        damaged = node.partition("t")
        assert len(damaged.log.segments) > 2
        flip(damaged, node.root, 5)
        await cluster.wait(lambda: node.manager.repairs.repaired_count == 1)
        await cluster.wait(lambda: node.node_id in leader.isr)
        expected = [b"%4d" % number * 50 for number in range(12)]
        assert values(damaged, from_follower=True) == expected
