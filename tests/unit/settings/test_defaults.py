"""A number has one default: what rooms take when nobody says more is what settings say."""

from __future__ import annotations

from dataclasses import replace

from paceline_node.app.groups import group_limits
from paceline_node.app.metadata import controller_settings
from paceline_node.app.replication import replication_settings
from paceline_node.app.transactions import transaction_limits
from paceline_node.controller.context import ControllerSettings
from paceline_node.controller.quorum import QuorumSettings
from paceline_node.controller.raft_types import RaftTiming
from paceline_node.groups.limits import GroupLimits
from paceline_node.listeners.cursus.produce import ProduceLimits
from paceline_node.listeners.v1.records import RecordLimits
from paceline_node.replication.manager import ReplicationSettings
from paceline_node.settings import Settings, load
from paceline_node.storage.log_settings import LogSettings
from paceline_node.transactions.limits import TransactionLimits

SETTINGS = Settings()


def test_groups_and_transactions() -> None:
    assert group_limits(SETTINGS) == GroupLimits()
    assert transaction_limits(SETTINGS) == TransactionLimits()


def test_replicas() -> None:
    made, alone = replication_settings(SETTINGS), ReplicationSettings()
    assert made.table.index_interval_bytes == alone.table.index_interval_bytes
    assert replace(made, table=alone.table) == alone


def test_controller_and_quorum() -> None:
    assert controller_settings(SETTINGS) == ControllerSettings()
    raft, alone = SETTINGS.raft, QuorumSettings()
    timing = RaftTiming.of(heartbeat_ms=raft.heartbeat_ms, election_ms=raft.election_ms)
    assert timing == alone.timing
    assert raft.voters == alone.most_voters
    assert raft.snapshot_records == alone.snapshot_entries
    assert raft.snapshot_bytes == alone.snapshot_bytes


def test_logs() -> None:
    alone, log = LogSettings(), SETTINGS.log
    assert alone.segment_bytes == log.segment_bytes
    assert alone.segment_ms == log.segment_ms
    assert alone.retention_ms == log.retention_ms
    assert (alone.retention_bytes, log.retention_bytes) == (None, -1)
    assert alone.index_interval_bytes == log.index_interval_bytes


def test_listeners() -> None:
    v1, cursus = SETTINGS.v1, SETTINGS.cursus
    waits = (v1.ack_timeout_ms / 1000, v1.leader_wait_ms / 1000, v1.consume_commit_wait_ms / 1000)
    assert RecordLimits(*waits, v1.consume_max_bytes, v1.forward_produce) == RecordLimits()
    waited = ProduceLimits(cursus.leader_wait_ms / 1000, cursus.ack_timeout_ms / 1000)
    assert waited == ProduceLimits()


def test_group_partitions_are_those_of_the_settings() -> None:
    settings = load(flags=["node.id=0", "node.data_dir=nowhere", "groups.partitions=5"])
    assert dict(controller_settings(settings).internal_topics)["__groups"] == 5
