"""Topics and their partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from paceline.errors import error_for
from paceline.types import NodeId
from paceline.wire.native.data import EffectiveSetting, PartitionDescription, TopicDescription
from paceline.wire.native.status_details import RoleOverride

NO_CONTROLLER = "there is no controller, so leaders and replicas in sync may be others by now"
"""Why what metadata tell may be out of date."""


class RegisteredPartition(Protocol):
    """A partition as metadata have it; a ``leader`` below 0 is none."""

    @property
    def leader(self) -> NodeId: ...
    @property
    def replicas(self) -> Sequence[NodeId]: ...
    @property
    def isr(self) -> Sequence[NodeId]: ...


class TopicSummary:
    """A topic in a list: what is counted of its partitions, which may be added some at a time."""

    def __init__(self, name: str, topic_id: object, kind: str) -> None:
        self._data = {"name": name, "topic_id": str(topic_id), "kind": kind}
        self._partitions = self._replication_factor = 0
        self._leaderless = self._under_replicated = 0

    def add(self, partitions: Iterable[RegisteredPartition]) -> TopicSummary:
        """Count these, too."""
        for each in partitions:
            self._partitions += 1
            self._replication_factor = max(self._replication_factor, len(each.replicas))
            self._leaderless += each.leader < 0
            self._under_replicated += len(each.isr) < len(each.replicas)
        return self

    def document(self) -> dict[str, Any]:
        """An item of ``topic list``."""
        return {
            **self._data,
            "partitions": self._partitions,
            "replication_factor": self._replication_factor,
            "leaderless": self._leaderless,
            "under_replicated": self._under_replicated,
        }


def topic_document(found: TopicDescription, *, has_controller: bool) -> dict[str, Any]:
    """What ``topic describe`` tells of one, without its ``partitions``, which come last."""
    return {
        "name": found.name,
        "topic_id": str(found.topic_id),
        "kind": found.kind,
        "configs": configs_of(found),
        "settings": _settings_of(found),
        "stale": stale(found.partitions, has_controller=has_controller),
    }


def is_of_topic(setting: EffectiveSetting) -> bool:
    """Whether it was set for the topic, as its source says; nodes may stand behind that."""
    return setting.source.split()[0] == "topic"


def _settings_of(found: TopicDescription) -> list[dict[str, str]] | None:
    if found.configs is None:
        return None
    return [
        {"name": each.name, "value": each.value, "source": each.source} for each in found.settings
    ]


def configs_of(found: TopicDescription) -> dict[str, str] | None:
    """What was set for a topic; None where whoever asks may not see that. All have
    ``min.insync.replicas`` written down with them, which counts only where it is not what they
    would have anyway, as far as that is known."""
    if not found.settings:
        return found.configs
    return {each.name: each.value for each in found.settings if is_of_topic(each)}


def partition_document(found: PartitionDescription) -> dict[str, Any]:
    """One of a topic's ``partitions``."""
    override = found.override
    if override is None and not (found.error or found.message):
        override = RoleOverride(pinned=False)
    return {
        "partition": found.partition,
        "leader": found.leader,
        "leader_epoch": found.leader_epoch,
        "replicas": list(found.replicas),
        "isr": list(found.isr),
        "pinned": None if override is None else override.pinned,
        "follower_marks": [] if override is None else list(override.followers),
        "log_start_offset": found.log_start_offset,
        "high_watermark": found.high_watermark,
        "log_end_offset": found.log_end_offset,
        "size_bytes": found.size_bytes,
        "segments": found.segment_count,
        "progress": [
            {
                "node": each.node_id,
                "in_sync": each.in_sync,
                "log_end_offset": each.log_end_offset,
                "acked_offset": each.acked_offset,
            }
            for each in found.progress
        ],
        "error": found.message or (str(error_for(found.error, "")) if found.error else None),
    }


def stale(partitions: Iterable[PartitionDescription], *, has_controller: bool) -> str | None:
    """Why what is told of partitions of a topic may be out of date; None: it is not."""
    silent = [str(each.partition) for each in partitions if each.error or each.message]
    reasons = []
    if not has_controller:
        reasons.append(NO_CONTROLLER)
    if silent:
        which = f"partition{'' if len(silent) == 1 else 's'} {', '.join(silent)}"
        reasons.append(
            f"no leader answered for {which}, of which only what was decided last is known"
        )
    return "; ".join(reasons) or None
