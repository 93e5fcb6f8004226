"""Committed offsets: storing, reading, forgetting. Who may do so is the families' business."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paceline.errors import OffsetRegression
from paceline_node.coordination.machine import Entry
from paceline_node.groups.context import GroupContext
from paceline_node.groups.keys import GroupKey, TopicPartition
from paceline_node.groups.records import Offset, group_entry, offset_entry

_FORGET_AT_ONCE = 500


class OffsetRule(enum.Enum):
    """What a family lets commits do."""

    FREE = "free"
    """Any offset (spec v1 7, Kafka)."""
    FORWARD = "forward"
    """Never below the committed one; an equal one changes nothing (spec cursus 9)."""


class Commit(NamedTuple):
    """An offset to store."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class OffsetBook:
    """The offsets of all families."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context

    def commit(self, key: GroupKey, commits: Sequence[Commit], rule: OffsetRule) -> None:
        """Store all of ``commits``, or none. Raises OffsetRegression, and what writing raises."""
        known = self._context.store.offsets.get(key, {})
        if rule is OffsetRule.FORWARD:
            commits = [each for each in commits if _moves(key, each, known)]
        if not commits:
            return
        now_ms = self._context.wall_ms()
        self._context.write(
            key,
            *[
                offset_entry(
                    key,
                    each.topic,
                    each.partition,
                    Offset(each.offset, each.leader_epoch, each.metadata, now_ms),
                )
                for each in commits
            ],
        )

    def fetch(self, key: GroupKey, topic: str, partition: int) -> Offset | None:
        """The committed offset, None when there is none."""
        return self._context.store.offsets.get(key, {}).get((topic, partition))

    def fetch_all(self, key: GroupKey) -> list[tuple[TopicPartition, Offset]]:
        """All that the group has committed, by topic and partition."""
        return sorted(self._context.store.offsets.get(key, {}).items())

    def forget(self, key: GroupKey, partitions: Iterable[TopicPartition]) -> None:
        """Forget offsets; those that are not there do not matter. Raises what writing raises."""
        known = self._context.store.offsets.get(key, {})
        gone = [each for each in partitions if each in known]
        if gone:
            self._context.write(key, *_tombstones(key, gone))

    def forget_topic(self, topic: str) -> None:
        """Forget what all groups have committed for a topic that was deleted: another one of its
        name begins at 0. Raises what writing raises, perhaps half-way."""
        for key, known in list(self._context.store.offsets.items()):
            self.forget(key, sorted(each for each in known if each[0] == topic))

    def forget_group(self, key: GroupKey) -> None:
        """Forget a group and all its offsets. Raises what writing raises."""
        gone = sorted(self._context.store.offsets.get(key, {}))
        entries = _tombstones(key, gone)
        if self._context.group(key) is not None:
            entries.append(group_entry(key, None))
        for start in range(0, len(entries), _FORGET_AT_ONCE):
            self._context.write(key, *entries[start : start + _FORGET_AT_ONCE])


def _moves(key: GroupKey, commit: Commit, known: dict[TopicPartition, Offset]) -> bool:
    before = known.get((commit.topic, commit.partition))
    if before is None or commit.offset > before.offset:
        return True
    if commit.offset < before.offset:
        raise OffsetRegression(
            f"group {key}: {commit.topic}/{commit.partition} is at {before.offset}, "
            f"got {commit.offset}"
        )
    return False


def _tombstones(key: GroupKey, partitions: Iterable[TopicPartition]) -> list[Entry]:
    return [offset_entry(key, topic, partition, None) for topic, partition in partitions]
