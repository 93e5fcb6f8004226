"""Kafka requests about the positions that groups store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from paceline.errors import ErrorCode, PacelineError
from paceline.wire.kafka import offsets as wire
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.inspection import Inspection
from paceline_node.groups.keys import Family, GroupKey, TopicPartition
from paceline_node.groups.offsets import Commit
from paceline_node.groups.records import Offset
from paceline_node.listeners.kafka_call import Call
from paceline_node.listeners.kafka_coordinator_errors import CoordinatorApi, coordinator_code
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.groups import GroupService

_LAST_OF_0_8 = 1
_NOT_ALLOWED = int(ErrorCode.AUTHORIZATION_FAILED)
_WITH_NULL_FOR_ALL = 2
_WITH_SEVERAL_GROUPS = 8

_NOTHING = Offset(-1)


class Position(NamedTuple):
    """What a group has stored of a partition; ``error`` where that is about to change."""

    offset: Offset = _NOTHING
    error: int = 0


Found = Sequence[tuple[TopicPartition, Position]]


class AskedOffset(Protocol):
    """A position to store, in OFFSET_COMMIT and TXN_OFFSET_COMMIT alike."""

    @property
    def partition_index(self) -> int: ...
    @property
    def committed_offset(self) -> int: ...
    @property
    def committed_leader_epoch(self) -> int: ...
    @property
    def committed_metadata(self) -> str | None: ...


class AskedTopic(Protocol):
    """Positions in one topic."""

    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> Sequence[AskedOffset]: ...


def judged(
    groups: GroupService, topics: Sequence[AskedTopic], principal: Principal
) -> tuple[list[Commit], dict[TopicPartition, int]]:
    """What may be stored, and the errors of the others."""
    refused: dict[TopicPartition, int] = {}
    good: list[Commit] = []
    for topic in topics:
        may_read = groups.may_read(principal, topic.name)
        for asked in topic.partitions:
            error = _refusal(groups, topic.name, asked) if may_read else _NOT_ALLOWED
            if error:
                refused[topic.name, asked.partition_index] = error
            else:
                good.append(
                    Commit(
                        topic.name,
                        asked.partition_index,
                        asked.committed_offset,
                        asked.committed_leader_epoch,
                        asked.committed_metadata or "",
                    )
                )
    return good, refused


def _refusal(groups: GroupService, topic: str, asked: AskedOffset) -> int:
    metadata = (asked.committed_metadata or "").encode()
    if len(metadata) > groups.limits.offset_metadata_bytes_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    if not groups.has_partition(topic, asked.partition_index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.OFFSET_OUT_OF_RANGE if asked.committed_offset < 0 else 0


def stored(
    topics: Sequence[AskedTopic], outcome: int, refused: Mapping[TopicPartition, int]
) -> tuple[wire.OffsetCommitResponseTopic, ...]:
    """The answers: ``outcome`` is that of all that were not refused; an error of it counts for
    those too."""
    return tuple(
        wire.OffsetCommitResponseTopic(
            name=topic.name,
            partitions=tuple(
                wire.OffsetCommitResponseTopicPartition(
                    partition_index=asked.partition_index,
                    error_code=outcome or refused.get((topic.name, asked.partition_index), 0),
                )
                for asked in topic.partitions
            ),
        )
        for topic in topics
    )


class KafkaOffsets:
    """Commits, fetches and deletes offsets."""

    def __init__(self, groups: GroupService) -> None:
        self._groups = groups

    # --- commit -----------------------------------------------------------------------------------

    async def commit(
        self, request: wire.OffsetCommitRequest, call: Call
    ) -> wire.OffsetCommitResponse:
        """Stores what may be stored; each partition has its own answer."""
        good, refused = judged(self._groups, request.topics, call.principal)
        outcome = await self._store(request, call, good)
        return wire.OffsetCommitResponse(topics=stored(request.topics, outcome, refused))

    async def _store(
        self, request: wire.OffsetCommitRequest, call: Call, good: list[Commit]
    ) -> int:
        topics = {each.topic for each in good}

        def check(engine: GroupEngine) -> None:
            if key.family is Family.COORDINATOR:
                engine.coordinator.check_commit(key, request.generation_id, request.member_id)
            else:
                engine.kafka.check_commit(
                    key,
                    request.generation_id,
                    request.member_id,
                    request.group_instance_id,
                    topics,
                )

        try:
            self._groups.permit(call.principal, Operation.COMMIT_OFFSETS, request.group_id)
            key = self._key(request.group_id, call)
            await self._groups.commit(key, good, check)
        except PacelineError as error:
            return coordinator_code(error, CoordinatorApi.OFFSET_COMMIT)
        return 0

    def _key(self, group: str, call: Call) -> GroupKey:
        """Consumers of the coordinator protocol commit by the versions of Kafka 0.8, where their
        group is not confused with one that Kafka's later clients share (spec coordinator 7)."""
        if call.version <= _LAST_OF_0_8:
            driven = GroupKey(Family.COORDINATOR, group)
            if self._groups.is_stored(driven):
                return driven
        return GroupKey(Family.KAFKA, group)

    # --- fetch ------------------------------------------------------------------------------------

    async def fetch(self, request: wire.OffsetFetchRequest, call: Call) -> wire.OffsetFetchResponse:
        """What groups stored; of all their partitions where none are named."""
        if call.version >= _WITH_SEVERAL_GROUPS:
            return wire.OffsetFetchResponse(
                groups=tuple(
                    [
                        await self._group(request, group, call)
                        for group in dict.fromkeys(request.groups)
                    ]
                )
            )
        wanted = None
        if request.topics is not None:
            wanted = [
                (topic.name, number)
                for topic in request.topics
                for number in topic.partition_indexes
            ]
        try:
            found = await self._found(request, request.group_id, wanted, call)
        except PacelineError as error:
            return self._refused(
                request, coordinator_code(error, CoordinatorApi.OFFSET_FETCH), call
            )
        return wire.OffsetFetchResponse(
            topics=tuple(
                wire.OffsetFetchResponseTopic(
                    name=name,
                    partitions=tuple(
                        wire.OffsetFetchResponseTopicPartition(
                            partition_index=number,
                            committed_offset=position.offset.offset,
                            committed_leader_epoch=position.offset.leader_epoch,
                            metadata=position.offset.metadata,
                            error_code=position.error
                            or self._missing(name, number, position, call),
                        )
                        for number, position in partitions
                    ),
                )
                for name, partitions in _by_topic(found)
            )
        )

    def _missing(self, topic: str, number: int, position: Position, call: Call) -> int:
        """Version 0 calls what is not stored an unknown partition, version 1 one that is not
        there (spec coordinator 3.1)."""
        if position.offset.offset >= 0 or call.version >= _WITH_NULL_FOR_ALL:
            return 0
        if call.version == 0 or not self._groups.has_partition(topic, number):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return 0

    def _refused(
        self, request: wire.OffsetFetchRequest, code: int, call: Call
    ) -> wire.OffsetFetchResponse:
        """The error of the whole, as Kafka tells it from version 2 on, and at each partition that
        was named: aiokafka looks there alone, and takes none for "nothing is stored"."""
        return wire.OffsetFetchResponse(
            error_code=code if call.version >= _WITH_NULL_FOR_ALL else 0,
            topics=tuple(
                wire.OffsetFetchResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        wire.OffsetFetchResponseTopicPartition(
                            partition_index=number,
                            committed_offset=-1,
                            metadata="",
                            error_code=code,
                        )
                        for number in topic.partition_indexes
                    ),
                )
                for topic in request.topics or ()
            ),
        )

    async def _group(
        self, request: wire.OffsetFetchRequest, asked: wire.OffsetFetchRequestGroup, call: Call
    ) -> wire.OffsetFetchResponseGroup:
        wanted = None
        if asked.topics is not None:
            wanted = [
                (topic.name, number) for topic in asked.topics for number in topic.partition_indexes
            ]
        try:
            found = await self._found(request, asked.group_id, wanted, call)
        except PacelineError as error:
            code = coordinator_code(error, CoordinatorApi.OFFSET_FETCH)
            return wire.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
        return wire.OffsetFetchResponseGroup(
            group_id=asked.group_id,
            topics=tuple(
                wire.OffsetFetchResponseGroupTopic(
                    name=name,
                    partitions=tuple(
                        wire.OffsetFetchResponseGroupTopicPartition(
                            partition_index=number,
                            committed_offset=position.offset.offset,
                            committed_leader_epoch=position.offset.leader_epoch,
                            metadata=position.offset.metadata,
                            error_code=position.error,
                        )
                        for number, position in partitions
                    ),
                )
                for name, partitions in _by_topic(found)
            ),
        )

    async def _found(
        self,
        request: wire.OffsetFetchRequest,
        group: str,
        wanted: list[TopicPartition] | None,
        call: Call,
    ) -> Found:
        self._groups.permit(call.principal, Operation.DESCRIBE, group)
        key = self._key(group, call)

        def position(engine: GroupEngine, at: TopicPartition, offset: Offset | None) -> Position:
            if request.require_stable and engine.transactional.is_pending(key, *at):
                return Position(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
            return Position() if offset is None else Position(offset)

        def fetch(engine: GroupEngine) -> Found:
            found = (
                engine.offsets.fetch_all(key)
                if wanted is None
                else [(at, engine.offsets.fetch(key, *at)) for at in wanted]
            )
            return [(at, position(engine, at, offset)) for at, offset in found]

        return await self._groups.perform(key, fetch)

    # --- delete -----------------------------------------------------------------------------------

    async def delete(
        self, request: wire.OffsetDeleteRequest, call: Call
    ) -> wire.OffsetDeleteResponse:
        """Forgets offsets, but none of topics that members read."""
        wanted = [
            (topic.name, asked.partition_index)
            for topic in request.topics
            for asked in topic.partitions
        ]
        try:
            self._groups.permit(call.principal, Operation.ALTER, request.group_id)
            key = GroupKey(Family.KAFKA, request.group_id)
            kept = await self._groups.perform(
                key, lambda engine: Inspection(engine).delete_offsets(key, wanted)
            )
        except PacelineError as error:
            code = coordinator_code(error, CoordinatorApi.OFFSET_DELETE)
            return wire.OffsetDeleteResponse(error_code=code)
        refused = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return wire.OffsetDeleteResponse(
            error_code=0,
            topics=tuple(
                wire.OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=tuple(
                        wire.OffsetDeleteResponseTopicPartition(
                            partition_index=asked.partition_index,
                            error_code=refused
                            if (topic.name, asked.partition_index) in kept
                            else 0,
                        )
                        for asked in topic.partitions
                    ),
                )
                for topic in request.topics
            ),
        )


def _by_topic(found: Found) -> Iterator[tuple[str, list[tuple[int, Position]]]]:
    topics: dict[str, list[tuple[int, Position]]] = {}
    for (topic, number), position in found:
        topics.setdefault(topic, []).append((number, position))
    return iter(topics.items())
