"""Offsets that somebody wants stored: which of them may be, and why the others may not."""

from __future__ import annotations

from collections.abc import Callable

from paceline.errors import ErrorCode
from paceline_node.groups.committed_offsets import Commit
from paceline_node.groups.keys import TopicAndNumber

_MAX_OFFSET = 2**63 - 1


class OffsetsToCommit:
    """``good`` are to be stored; ``refused`` says why others are not. ``may_read`` is asked once
    for each topic: only who may read one may say how far it has."""

    def __init__(
        self,
        may_read: Callable[[str], bool],
        has_partition: Callable[[str, int], bool],
        metadata_bytes_max: int,
    ) -> None:
        self._may_read = may_read
        self._has_partition = has_partition
        self._metadata_bytes_max = metadata_bytes_max
        self._readable: dict[str, bool] = {}
        self.good: list[Commit] = []
        self.refused: dict[TopicAndNumber, ErrorCode] = {}

    def add(
        self, topic: str, partition: int, offset: int, leader_epoch: int, metadata: str
    ) -> ErrorCode:
        """One more, and what is wrong with it."""
        error = self._refusal(topic, partition, offset, metadata)
        if error is ErrorCode.NONE:
            self.good.append(Commit(topic, partition, offset, leader_epoch, metadata))
        else:
            self.refused[topic, partition] = error
        return error

    def _refusal(self, topic: str, partition: int, offset: int, metadata: str) -> ErrorCode:
        if topic not in self._readable:
            self._readable[topic] = self._may_read(topic)
        if not self._readable[topic]:
            return ErrorCode.AUTHORIZATION_FAILED
        if len(metadata.encode()) > self._metadata_bytes_max:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        if not self._has_partition(topic, partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if 0 <= offset <= _MAX_OFFSET else ErrorCode.OFFSET_OUT_OF_RANGE
