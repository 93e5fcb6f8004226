"""Kafka requests about the positions that groups store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from paceline.errors import ErrorCode, PacelineError
from paceline.wire.kafka import offsets as wire
from paceline_node.groups.engine import GroupEngine
from paceline_node.groups.keys import Family, GroupKey, TopicAndNumber
from paceline_node.groups.offsets import Commit
from paceline_node.groups.records import Offset
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.coordinator_errors import CoordinatorApi, coordinator_code
from paceline_node.security.principals import Operation
from paceline_node.services.groups import GroupService
from paceline_node.services.open_group import OpenGroup

_LAST_OF_0_8 = 1
_NOT_ALLOWED = int(ErrorCode.AUTHORIZATION_FAILED)
_WITH_NULL_FOR_ALL = 2
_WITH_SEVERAL_GROUPS = 8

_AT_A_TIME = 200
"""Offsets looked up in one command."""
_OFFSETS_PER_UNIT = 4
_BYTES_PER_UNIT = 64 * 1024

_NOTHING = Offset(-1)


class Position(NamedTuple):
    """What a group has stored of a partition; ``error`` where that is about to change."""

    offset: Offset = _NOTHING
    error: int = 0


Found = Sequence[tuple[TopicAndNumber, Position]]


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


class NamedTopic(Protocol):
    """Partitions of one topic, in both forms of OFFSET_FETCH."""

    @property
    def name(self) -> str: ...
    @property
    def partition_indexes(self) -> Sequence[int]: ...


async def judged(
    groups: GroupService, topics: Sequence[AskedTopic], call: Call
) -> tuple[list[Commit], dict[TopicAndNumber, int]]:
    """What may be stored, and the errors of the others."""
    refused: dict[TopicAndNumber, int] = {}
    good: list[Commit] = []
    async for topic in call.pace.each(topics):
        may_read = groups.may_read(call.principal, topic.name)
        async for asked in call.pace.each(topic.partitions):
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


async def stored(
    topics: Sequence[AskedTopic], outcome: int, refused: Mapping[TopicAndNumber, int], call: Call
) -> tuple[wire.OffsetCommitResponseTopic, ...]:
    """The answers: ``outcome`` is that of all that were not refused; an error of it counts for
    those too."""
    return tuple(
        [
            wire.OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    [
                        wire.OffsetCommitResponseTopicPartition(
                            partition_index=asked.partition_index,
                            error_code=outcome
                            or refused.get((topic.name, asked.partition_index), 0),
                        )
                        async for asked in call.pace.each(topic.partitions)
                    ]
                ),
            )
            async for topic in call.pace.each(topics)
        ]
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
        good, refused = await judged(self._groups, request.topics, call)
        outcome = await self._store(request, call, good)
        told = await stored(request.topics, outcome, refused, call)
        return wire.OffsetCommitResponse(topics=told)

    async def _store(
        self, request: wire.OffsetCommitRequest, call: Call, good: list[Commit]
    ) -> int:
        topics = {each.topic for each in good}

        def check(engine: GroupEngine) -> None:
            key = group.key
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
            named = self._key(request.group_id, call)
            group = self._groups.open(call.principal, Operation.COMMIT_OFFSETS, named)
            await group.commit(good, check)
        except PacelineError as error:
            return coordinator_code(error, CoordinatorApi.OFFSET_COMMIT)
        return 0

    def _key(self, group: str, call: Call) -> GroupKey:
        """Consumers of the coordinator protocol commit by the versions of Kafka 0.8, where their
        group is not confused with one that Kafka's later clients share (groups/DESIGN 6.10)."""
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
                        async for group in call.pace.each(await call.pace.once_each(request.groups))
                    ]
                )
            )
        try:
            found = await self._found(request, request.group_id, request.topics, call)
        except PacelineError as error:
            return await self._refused(
                request, coordinator_code(error, CoordinatorApi.OFFSET_FETCH), call
            )
        return wire.OffsetFetchResponse(
            topics=tuple(
                [
                    wire.OffsetFetchResponseTopic(
                        name=name,
                        partitions=tuple(
                            [
                                wire.OffsetFetchResponseTopicPartition(
                                    partition_index=number,
                                    committed_offset=position.offset.offset,
                                    committed_leader_epoch=position.offset.leader_epoch,
                                    metadata=position.offset.metadata.decode(),
                                    error_code=position.error
                                    or self._missing(name, number, position, call),
                                )
                                async for number, position in call.pace.each(partitions)
                            ]
                        ),
                    )
                    for name, partitions in await _by_topic(found, call)
                ]
            )
        )

    def _missing(self, topic: str, number: int, position: Position, call: Call) -> int:
        """Version 0 calls what is not stored an unknown partition, version 1 one that is not
        there (DESIGN 7)."""
        if position.offset.offset >= 0 or call.version >= _WITH_NULL_FOR_ALL:
            return 0
        if call.version == 0 or not self._groups.has_partition(topic, number):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return 0

    async def _refused(
        self, request: wire.OffsetFetchRequest, code: int, call: Call
    ) -> wire.OffsetFetchResponse:
        """The error of the whole, as Kafka tells it from version 2 on, and at each partition that
        was named: aiokafka looks there alone, and takes none for "nothing is stored"."""
        return wire.OffsetFetchResponse(
            error_code=code if call.version >= _WITH_NULL_FOR_ALL else 0,
            topics=tuple(
                [
                    wire.OffsetFetchResponseTopic(
                        name=topic.name,
                        partitions=tuple(
                            [
                                wire.OffsetFetchResponseTopicPartition(
                                    partition_index=number,
                                    committed_offset=-1,
                                    metadata="",
                                    error_code=code,
                                )
                                async for number in call.pace.each(topic.partition_indexes)
                            ]
                        ),
                    )
                    async for topic in call.pace.each(request.topics or ())
                ]
            ),
        )

    async def _group(
        self, request: wire.OffsetFetchRequest, asked: wire.OffsetFetchRequestGroup, call: Call
    ) -> wire.OffsetFetchResponseGroup:
        try:
            found = await self._found(request, asked.group_id, asked.topics, call)
        except PacelineError as error:
            code = coordinator_code(error, CoordinatorApi.OFFSET_FETCH)
            return wire.OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
        return wire.OffsetFetchResponseGroup(
            group_id=asked.group_id,
            topics=tuple(
                [
                    wire.OffsetFetchResponseGroupTopic(
                        name=name,
                        partitions=tuple(
                            [
                                wire.OffsetFetchResponseGroupTopicPartition(
                                    partition_index=number,
                                    committed_offset=position.offset.offset,
                                    committed_leader_epoch=position.offset.leader_epoch,
                                    metadata=position.offset.metadata.decode(),
                                    error_code=position.error,
                                )
                                async for number, position in call.pace.each(partitions)
                            ]
                        ),
                    )
                    for name, partitions in await _by_topic(found, call)
                ]
            ),
        )

    async def _found(
        self,
        request: wire.OffsetFetchRequest,
        group: str,
        topics: Sequence[NamedTopic] | None,
        call: Call,
    ) -> Found:
        """What is stored of the partitions named, or of all; looked up some at a time."""
        key = self._key(group, call)
        opened = self._groups.open(call.principal, Operation.DESCRIBE, key)
        if topics is None:
            wanted = await self._stored(opened, call)
        else:
            wanted = [
                (topic.name, number)
                async for topic in call.pace.each(topics)
                for number in topic.partition_indexes
            ]

        def position(engine: GroupEngine, at: TopicAndNumber) -> Position:
            if request.require_stable and engine.transactional.is_pending(key, *at):
                return Position(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
            offset = engine.offsets.fetch(key, *at)
            return Position() if offset is None else Position(offset)

        def look_up(some: Sequence[TopicAndNumber], engine: GroupEngine) -> list[Position]:
            return [position(engine, at) for at in some]

        found: list[tuple[TopicAndNumber, Position]] = []
        for start in range(0, len(wanted), _AT_A_TIME) or (0,):  # once where there are none, too
            some = wanted[start : start + _AT_A_TIME]
            await call.pace.spend(1 + len(some) // _OFFSETS_PER_UNIT)
            positions = await opened.perform(partial(look_up, some))
            copied = sum(len(each.offset.metadata) for each in positions)
            await call.pace.spend(copied // _BYTES_PER_UNIT, copied)
            found += zip(some, positions, strict=True)
        if topics is not None:
            return found
        return [each for each in found if each[1].error or each[1].offset is not _NOTHING]

    async def _stored(self, group: OpenGroup, call: Call) -> list[TopicAndNumber]:
        """The partitions that the group has stored offsets of, by topic and partition."""
        known = await group.perform(lambda engine: list(engine.store.offsets.get(group.key, ())))
        topics: dict[str, list[int]] = {}
        async for topic, number in call.pace.each(known):
            topics.setdefault(topic, []).append(number)
        return [
            (topic, number)
            async for topic in call.pace.each(sorted(topics))
            async for number in call.pace.each(sorted(topics[topic]))
        ]

    # --- delete -----------------------------------------------------------------------------------

    async def delete(
        self, request: wire.OffsetDeleteRequest, call: Call
    ) -> wire.OffsetDeleteResponse:
        """Forgets offsets, but none of topics that members read."""
        wanted = [
            (topic.name, asked.partition_index)
            async for topic in call.pace.each(request.topics)
            async for asked in call.pace.each(topic.partitions)
        ]
        try:
            key = GroupKey(Family.KAFKA, request.group_id)
            group = self._groups.open(call.principal, Operation.ALTER, key)
            kept = await group.delete_offsets(wanted)
        except PacelineError as error:
            code = coordinator_code(error, CoordinatorApi.OFFSET_DELETE)
            return wire.OffsetDeleteResponse(error_code=code)
        refused = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return wire.OffsetDeleteResponse(
            error_code=0,
            topics=tuple(
                [
                    wire.OffsetDeleteResponseTopic(
                        name=topic.name,
                        partitions=tuple(
                            [
                                wire.OffsetDeleteResponseTopicPartition(
                                    partition_index=asked.partition_index,
                                    error_code=refused
                                    if (topic.name, asked.partition_index) in kept
                                    else 0,
                                )
                                async for asked in call.pace.each(topic.partitions)
                            ]
                        ),
                    )
                    async for topic in call.pace.each(request.topics)
                ]
            ),
        )


async def _by_topic(found: Found, call: Call) -> Iterable[tuple[str, list[tuple[int, Position]]]]:
    topics: dict[str, list[tuple[int, Position]]] = {}
    async for (topic, number), position in call.pace.each(found):
        topics.setdefault(topic, []).append((number, position))
    return topics.items()
