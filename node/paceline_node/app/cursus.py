"""The Cursus side of a broker: which part serves which command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.wire.cursus import requests
from paceline.wire.cursus.commands import COMMANDS
from paceline.wire.cursus.compression import CursusCompressor
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.cursus import (
    CursusEndsAsked,
    CursusGroupsAsked,
    CursusMemberAsked,
    CursusPositionAsked,
    CursusRecordsAsked,
)
from paceline_node.client_memory import ClientMemory
from paceline_node.env import Env
from paceline_node.listeners.cursus.cluster import CursusCluster
from paceline_node.listeners.cursus.consume import CursusConsume
from paceline_node.listeners.cursus.coordinators import Coordinators
from paceline_node.listeners.cursus.events import CursusEvents
from paceline_node.listeners.cursus.group_readers import GroupReaders
from paceline_node.listeners.cursus.groups import CursusGroupCommands
from paceline_node.listeners.cursus.listener import CursusListener, CursusSettings
from paceline_node.listeners.cursus.produce import CursusProduce, ProduceLimits
from paceline_node.listeners.cursus.topic_lookup import TopicLookup
from paceline_node.listeners.cursus.topics import CursusTopics
from paceline_node.listeners.cursus.transactions import CursusTransactions
from paceline_node.observe.metrics import Metrics
from paceline_node.security.authentication import Authenticator
from paceline_node.services.admin.topic_deletion import TopicDeletion
from paceline_node.services.broker_services import BrokerServices
from paceline_node.services.event_streams.event_streams import EventStreams
from paceline_node.services.event_streams.open_event_streams import EventStreamService
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.settings import Settings

_FEATURES = (
    "event_sourcing_v1",
    "idempotent_producer_v1",
    "offset_resume_v1",
    "stream_control_v1",
    "structured_errors_v1",
    "topic_compaction_v1",
)


def make_cursus(
    env: Env,
    settings: Settings,
    services: BrokerServices,
    removal: TopicDeletion,
    routing: LeaderRouting,
    metrics: Metrics,
    compressors: Sequence[CursusCompressor],
    memory: ClientMemory,
    authenticator: Authenticator,
) -> CursusListener:
    """The listener with all that answers its requests."""
    cursus = settings.cursus
    places = TopicLookup(routing.node_id, services.topics, services.turns)
    limits = ProduceLimits(cursus.leader_wait_ms / 1000, cursus.ack_timeout_ms / 1000)
    produce = CursusProduce(env, services.produce, places, routing, limits)
    coordinators = Coordinators(env, places, routing)
    groups = CursusGroupCommands(env, services.groups, places, routing, coordinators)
    reads = CursusConsume(
        env,
        services.fetch,
        places,
        routing,
        GroupReaders(env, services.groups, routing),
        keepalive_s=cursus.keepalive_ms / 1000,
        leader_wait_s=cursus.leader_wait_ms / 1000,
        non_utf8=cursus.non_utf8,
    )
    listener = CursusListener(
        env,
        _session_settings(settings, compressors),
        produce,
        reads,
        metrics,
        memory,
        authenticator,
        is_closed=lambda: services.acls.is_guarded,
    )
    topics = CursusTopics(env, services.topics, removal, services.offsets, places, routing)
    _serve_topics(
        listener,
        topics,
        CursusCluster(services.topics, places, services.status.quorum),
        CursusEvents(
            env,
            places,
            routing,
            EventStreamService(
                services.access, services.records, EventStreams(env, cursus.event_streams_max)
            ),
        ),
    )
    transactions = CursusTransactions(
        env,
        services.transactions,
        services.produce,
        places,
        produce,
        groups,
        coordinators,
        timeout_ms=cursus.transaction_timeout_ms,
    )
    _serve_coordinated(listener, groups, transactions)
    _serve_nodes(listener, topics, groups, reads)
    return listener


def _session_settings(
    settings: Settings, compressors: Sequence[CursusCompressor]
) -> CursusSettings:
    cursus = settings.cursus
    return CursusSettings(
        frozenset(COMMANDS),
        _FEATURES,
        compressors,
        cursus.idle_timeout_ms / 1000 or None,
        stall_s=settings.limits.stall_ms / 1000,
        stream_stall_s=cursus.stream_stall_ms / 1000,
    )


def _serve_topics(
    listener: CursusListener, topics: CursusTopics, cluster: CursusCluster, events: CursusEvents
) -> None:
    listener.serve_requests(requests.CreateTopic, topics.create)
    listener.serve_requests(requests.DeleteTopic, topics.delete)
    listener.serve_requests(requests.ListTopics, topics.list)
    listener.serve_requests(requests.DescribeTopic, topics.describe)
    listener.serve_requests(requests.TopicMetadata, topics.metadata)
    listener.serve_requests(requests.ListOffsets, topics.list_offsets)
    listener.serve_requests(requests.ListCluster, cluster.list_cluster)
    listener.serve_requests(requests.ClusterStatus, cluster.cluster_status)
    listener.serve_requests(requests.ElectLeader, cluster.elect_leader)
    listener.serve_requests(requests.AppendStream, events.append)
    listener.serve_requests(requests.StreamVersion, events.version)
    listener.serve_requests(requests.SaveSnapshot, events.save_snapshot)
    listener.serve_requests(requests.ReadSnapshot, events.read_snapshot)
    listener.serve_requests(requests.ReadStream, events.read)


def _serve_coordinated(
    listener: CursusListener, groups: CursusGroupCommands, transactions: CursusTransactions
) -> None:
    listener.serve_requests(requests.FindCoordinator, transactions.find_coordinator)
    listener.serve_requests(requests.InitProducerId, transactions.init)
    listener.serve_requests(requests.BeginTransaction, transactions.begin)
    listener.serve_runs(
        requests.TransactionPublish,
        transactions.publish,
        lambda request: (request.fence, request.topic),
    )
    listener.serve_requests(requests.SendOffsets, transactions.send_offsets)
    listener.serve_requests(requests.EndTransaction, transactions.end)
    listener.serve_requests(requests.TransactionStatus, transactions.status)
    listener.serve_requests(requests.RegisterGroup, groups.register)
    listener.serve_requests(requests.JoinGroup, groups.join)
    listener.serve_requests(requests.SyncGroup, groups.sync)
    listener.serve_requests(requests.Heartbeat, groups.heartbeat)
    listener.serve_requests(requests.LeaveGroup, groups.leave)
    listener.serve_requests(requests.FetchOffset, groups.fetch_offset)
    listener.serve_requests(requests.CommitOffset, groups.commit)
    listener.serve_requests(requests.BatchCommit, groups.batch_commit)
    listener.serve_requests(requests.GroupStatus, groups.status)
    listener.serve_requests(requests.ListGroups, groups.list)


def health_checks(services: BrokerServices) -> Mapping[str, str]:
    """What /ready tells: each subsystem, and why it is not in order."""
    reasons = services.status.reasons()
    return {"broker": "ok"} if not reasons else {"broker": "; ".join(reasons)}


def _serve_nodes(
    listener: CursusListener,
    topics: CursusTopics,
    groups: CursusGroupCommands,
    reads: CursusConsume,
) -> None:
    """What other nodes ask for their clients."""
    listener.serve_asked(PeerApi.CURSUS_GROUPS, CursusGroupsAsked, groups.names_asked)
    listener.serve_asked(PeerApi.CURSUS_ENDS, CursusEndsAsked, topics.ends_asked)
    listener.serve_asked(PeerApi.CURSUS_POSITION, CursusPositionAsked, groups.position_asked)
    listener.serve_asked(PeerApi.CURSUS_MEMBER, CursusMemberAsked, groups.member_asked)
    listener.serve_asked(PeerApi.CURSUS_RECORDS, CursusRecordsAsked, reads.records_asked)
