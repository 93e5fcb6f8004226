"""What Cursus asks about the cluster as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from paceline.errors import PacelineError
from paceline.types import NodeId
from paceline.wire.cursus import requests
from paceline.wire.cursus.errors import CursusError, partition_not_found, quoted
from paceline.wire.cursus.replies import compact_json, ok
from paceline.wire.native import admin
from paceline_node.listeners.cursus.session import CursusCall, Reply, text
from paceline_node.listeners.cursus.topic_lookup import TopicLookup
from paceline_node.security.principals import Operation
from paceline_node.services.admin.node_status import QuorumView, count_partitions
from paceline_node.services.topics.cluster_view import BrokerView, TopicView
from paceline_node.services.topics.topic_service import TopicService
from paceline_node.sliced_work import at_once

_CONTROLLER_WAIT_S = 3.5


class CursusCluster:
    """Answers LIST_CLUSTER, CLUSTER_STATUS and ELECT_LEADER."""

    def __init__(
        self, topics: TopicService, places: TopicLookup, quorum: Callable[[], QuorumView]
    ) -> None:
        self._topics = topics
        self._places = places
        self._quorum = quorum

    async def list_cluster(self, _: requests.ListCluster, call: CursusCall) -> Reply:
        """All registered nodes."""
        image = self._topics.overview(call.principal)
        brokers = [self._broker(broker) for _, broker in sorted(image.brokers.items())]
        return text(ok(brokers=compact_json(brokers)))

    def _broker(self, broker: BrokerView) -> dict[str, object]:
        peer = broker.endpoint("peer")
        return {
            "id": str(broker.node_id),
            "addr": "" if peer is None else f"{peer.host}:{peer.port}",
            "client_addr": self._places.address(broker.node_id),
            "status": "active" if broker.active else "inactive",
        }

    async def cluster_status(self, _: requests.ClusterStatus, call: CursusCall) -> Reply:
        """Quorum, nodes and partitions, as this node's metadata have them."""
        image = self._topics.overview(call.principal)
        quorum = self._quorum()
        counts = at_once(count_partitions(image))
        active = len(image.active_brokers())
        status = {
            "raft_leader": self._places.address(quorum.leader),
            "raft_state": quorum.role,
            "raft_applied_index": image.offset,
            "raft_commit_index": quorum.commit_offset,
            "broker_count": len(image.brokers),
            "active_brokers": active,
            "inactive_brokers": len(image.brokers) - active,
            "partition_count": counts.partitions,
            "leaderless_partitions": counts.leaderless,
            "under_replicated_partitions": counts.under_replicated,
            "brokers": [self._broker(broker) for _, broker in sorted(image.brokers.items())],
            "partitions": _partitions(self._topics.visible(call.principal)),
        }
        return text(ok(cluster=compact_json(status)))

    async def elect_leader(self, request: requests.ElectLeader, call: CursusCall) -> Reply:
        """Move a leadership to a node that is in sync, without pinning it there
        (controller/DESIGN 8.3)."""
        topic = await self._places.topic_for(call.principal, Operation.MOVE_LEADER, request.topic)
        before = topic.partitions.get(request.partition)
        if before is None:
            raise partition_not_found(request.partition)
        node = self._node(request.broker)
        leader: int = before.leader
        epoch: int = before.leader_epoch
        if leader != node:
            wish = admin.ElectLeader(request.topic, request.partition, node)
            try:
                done = await self._topics.administer(
                    call.principal, wish, admin.RoleSet, timeout_s=_CONTROLLER_WAIT_S
                )
            except PacelineError as error:
                if error.retriable:
                    raise
                raise CursusError("leader_election_rejected", f"reason={quoted(str(error))}") from (
                    error
                )
            leader, epoch = done.leader, done.leader_epoch
        return text(
            ok(
                topic=request.topic,
                partition=request.partition,
                previous_leader=before.leader,
                leader=leader,
                leader_epoch=epoch,
                changed=leader != before.leader,
            )
        )

    def _node(self, broker: str) -> NodeId:
        """The node that a client names by its id or its address."""
        for node in self._topics.image.brokers:
            if broker in (str(node), self._places.address(node)):
                return node
        detail = f"reason={quoted(f'no broker {broker!r} is registered')}"
        raise CursusError("leader_election_rejected", detail)


def _partitions(topics: Iterable[TopicView]) -> list[dict[str, object]]:
    found = []
    for topic in sorted(topics, key=lambda topic: topic.name):
        if topic.name.startswith("__"):
            continue
        for number, partition in sorted(topic.partitions.items()):
            found.append(
                {
                    "key": f"{topic.name}-{number}",
                    "topic": topic.name,
                    "partition": number,
                    "leader": str(partition.leader) if partition.leader >= 0 else "",
                    "leader_epoch": partition.leader_epoch,
                    "replicas": [str(node) for node in partition.replicas],
                    "isr": [str(node) for node in partition.isr],
                    "leader_available": partition.leader >= 0,
                    "under_replicated": len(partition.isr) < len(partition.replicas),
                }
            )
    return found
