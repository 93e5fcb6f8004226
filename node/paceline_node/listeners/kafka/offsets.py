"""Kafka requests about the positions that groups store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from paceline.errors import ErrorCode, PacelineError
from paceline.wire.kafka import offsets as wire
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.coordinator_errors import CoordinatorApi, coordinator_code
from paceline_node.listeners.kafka.errors import FORBIDDEN, topic_code
from paceline_node.security.principals import Operation, ResourceKind
from paceline_node.services.groups.group_service import KAFKA, GroupService
from paceline_node.services.groups.offsets_to_commit import OffsetsToCommit
from paceline_node.services.groups.open_driven_group import OpenDrivenGroup
from paceline_node.services.groups.open_group import GroupMember, Position
from paceline_node.services.groups.open_kafka_group import OpenKafkaGroup

_LAST_OF_0_8 = 1
_WITH_NULL_FOR_ALL = 2
_WITH_SEVERAL_GROUPS = 8

_AT_A_TIME = 200
"""Offsets looked up in one command."""
_OFFSETS_PER_UNIT = 4
_BYTES_PER_UNIT = 64 * 1024

_At = tuple[str, int]
"""A partition: its topic and its number."""
Found = Sequence[tuple[_At, Position]]
_HIDDEN = Position()
"""Of a topic that the client may not know of."""


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


async def judged(groups: GroupService, topics: Sequence[AskedTopic], call: Call) -> OffsetsToCommit:
    """What may be stored, and the errors of the others."""
    judged = groups.asked_offsets(call.principal)
    async for topic in call.pace.each(topics):
        async for asked in call.pace.each(topic.partitions):
            judged.add(
                topic.name,
                asked.partition_index,
                asked.committed_offset,
                asked.committed_leader_epoch,
                asked.committed_metadata or "",
            )
    return judged


async def stored(
    topics: Sequence[AskedTopic], outcome: int, refused: Mapping[_At, int], call: Call
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
                            or topic_code(refused.get((topic.name, asked.partition_index), 0)),
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
        asked = await judged(self._groups, request.topics, call)
        outcome = 0
        try:
            group = self._open(call, Operation.COMMIT_OFFSETS, request.group_id)
            member = GroupMember(
                request.generation_id, request.member_id, request.group_instance_id
            )
            await group.store(member, asked.good)
        except PacelineError as error:
            outcome = coordinator_code(error, CoordinatorApi.OFFSET_COMMIT)
        told = await stored(request.topics, outcome, asked.refused, call)
        return wire.OffsetCommitResponse(topics=told)

    def _open(
        self, call: Call, operation: Operation, group: str
    ) -> OpenKafkaGroup | OpenDrivenGroup:
        """Consumers of the coordinator protocol commit by the versions of Kafka 0.8, where their
        group is not confused with one that Kafka's later clients share (groups/DESIGN 6.10)."""
        if call.version <= _LAST_OF_0_8 and self._groups.is_driven(group):
            return self._groups.open_driven(call.principal, operation, group)
        return self._groups.open_kafka(call.principal, operation, group)

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
                                    committed_offset=position.offset,
                                    committed_leader_epoch=position.leader_epoch,
                                    metadata=position.metadata.decode(),
                                    error_code=_pending(position)
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
        if position.offset >= 0 or call.version >= _WITH_NULL_FOR_ALL:
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
                                    committed_offset=position.offset,
                                    committed_leader_epoch=position.leader_epoch,
                                    metadata=position.metadata.decode(),
                                    error_code=_pending(position),
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
        opened = self._open(call, Operation.DESCRIBE, group)
        may_see = self._groups.may_see_offsets(call.principal)
        if topics is None:
            wanted = [each for each in await opened.stored() if may_see(each[0])]
        else:
            wanted = [
                (topic.name, number)
                async for topic in call.pace.each(topics)
                for number in topic.partition_indexes
            ]

        found: list[tuple[_At, Position]] = []
        for start in range(0, len(wanted), _AT_A_TIME) or (0,):  # once where there are none, too
            some = wanted[start : start + _AT_A_TIME]
            await call.pace.spend(1 + len(some) // _OFFSETS_PER_UNIT)
            positions = await opened.positions(some, stable=request.require_stable)
            copied = sum(len(each.metadata) for each in positions)
            await call.pace.spend(copied // _BYTES_PER_UNIT, copied)
            found += [
                (at, position if may_see(at[0]) else _HIDDEN)
                for at, position in zip(some, positions, strict=True)
            ]
        if topics is not None:
            return found
        return [each for each in found if each[1].is_pending or each[1].offset >= 0]

    # --- delete -----------------------------------------------------------------------------------

    async def delete(
        self, request: wire.OffsetDeleteRequest, call: Call
    ) -> wire.OffsetDeleteResponse:
        """Forgets offsets, of topics that the client may read, but none that members read."""
        wanted = [
            (topic.name, asked.partition_index)
            async for topic in call.pace.each(request.topics)
            async for asked in call.pace.each(topic.partitions)
        ]
        try:
            refused = await self._groups.delete_offsets(
                call.principal, KAFKA, request.group_id, "", wanted
            )
        except PacelineError as error:
            code = coordinator_code(error, CoordinatorApi.OFFSET_DELETE)
            return wire.OffsetDeleteResponse(error_code=code)
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
                                    error_code=_undeleted(
                                        refused.get((topic.name, asked.partition_index))
                                    ),
                                )
                                async for asked in call.pace.each(topic.partitions)
                            ]
                        ),
                    )
                    async for topic in call.pace.each(request.topics)
                ]
            ),
        )


def _undeleted(reason: ErrorCode | None) -> int:
    if reason is ErrorCode.AUTHORIZATION_FAILED:
        return FORBIDDEN[ResourceKind.TOPIC]
    return 0 if reason is None else reason


def _pending(position: Position) -> int:
    if position is _HIDDEN:
        return FORBIDDEN[ResourceKind.TOPIC]
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if position.is_pending else 0


async def _by_topic(found: Found, call: Call) -> Iterable[tuple[str, list[tuple[int, Position]]]]:
    topics: dict[str, list[tuple[int, Position]]] = {}
    async for (topic, number), position in call.pace.each(found):
        topics.setdefault(topic, []).append((number, position))
    return topics.items()
