"""Kafka FETCH, LIST_OFFSETS and OFFSET_FOR_LEADER_EPOCH.

Reading and waiting are the native fetch's; the answer's records are ranges of segment files as they
lie there, except where this protocol's readers could not make sense of them (``kafka_convert.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from paceline.errors import (
    CorruptMessage,
    ErrorCode,
    FetchSessionNotFound,
    PacelineError,
)
from paceline.types import NO_EPOCH, Isolation, LeaderEpoch, OffsetSpec
from paceline.wire.kafka import records as wire
from paceline.wire.native import data as native
from paceline_node.env import Env
from paceline_node.listeners.kafka_call import Call
from paceline_node.listeners.kafka_convert import Converter, Wanted
from paceline_node.listeners.kafka_errors import code_of, kafka_code
from paceline_node.listeners.native_fetch import FetchHandler
from paceline_node.peers.transport import FilePart
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation
from paceline_node.services.answer import Answer
from paceline_node.services.records import RecordService
from paceline_node.turns import Turns

_FIRST_WITH_BATCHES = 4
_FIRST_WITH_MAGIC_1 = 2
_AT_ONCE = 150
"""Requests of more partitions than these take turns with others' work."""
_NO_SESSION = 0
_NEW_SESSION = (-1, 0)
_FIRST_WITH_MAX_TIMESTAMP = 7
_NO_SPEC = -1000
"""Not the name of any offset, whatever the native protocol has added."""

Found = tuple[native.FetchReply, list[FilePart]]


class KafkaFetch:
    """Reads for Kafka clients."""

    def __init__(
        self, env: Env, records: RecordService, native_fetch: FetchHandler, turns: Turns
    ) -> None:
        self._host = env.host
        self._turns = turns
        self._records = records
        self._native = native_fetch

    # --- FETCH ------------------------------------------------------------------------------------

    async def fetch(self, request: wire.FetchRequest, call: Call) -> wire.FetchResponse:
        """Sessions are declined: every answer says session 0, and clients send whole requests."""
        if request.session_id != _NO_SESSION or request.session_epoch not in _NEW_SESSION:
            return wire.FetchResponse(error_code=FetchSessionNotFound.code)
        reply, parts = await self._read(request, call)
        slices = iter(parts)
        converter = Converter(call.room, self._host)
        partitions: list[wire.FetchResponseEntryPartition] = []
        for (_, asked), found in zip(_flat(request), reply.partitions, strict=True):
            part = next(slices) if found.records_bytes else None
            partitions.append(await self._partition(asked, found, part, request, call, converter))
            await self._turn(partitions)
        answered = iter(partitions)
        return wire.FetchResponse(
            responses=tuple(
                wire.FetchResponseEntry(
                    topic=topic.topic,
                    partitions=tuple(next(answered) for _ in topic.partitions),
                )
                for topic in request.topics
            )
        )

    async def _turn(self, done: list[Any]) -> None:
        """After each of many that are done one by one: a turn of others between slices."""
        if len(done) % _AT_ONCE == 0:
            await self._turns.next()

    async def _read(self, request: wire.FetchRequest, call: Call) -> Found:
        isolation = Isolation.READ_COMMITTED if request.isolation_level else Isolation(0)
        asked_for: list[native.FetchPartition] = []
        for topic, asked in _flat(request):
            asked_for.append(
                native.FetchPartition(
                    topic,
                    asked.partition,
                    asked.fetch_offset,
                    asked.partition_max_bytes,
                    LeaderEpoch(asked.current_leader_epoch),
                )
            )
            await self._turn(asked_for)
        wanted = native.Fetch(
            request.max_wait_ms if request.min_bytes > 0 else 0,
            request.min_bytes,
            request.max_bytes,
            isolation,
            tuple(asked_for),
        )
        if len(wanted.partitions) > _AT_ONCE:
            return await self._native.fetch_in_turns(wanted, call.principal)
        answer: Answer[Found] = Answer()
        parked = self._native.fetch(
            wanted, call.principal, lambda reply, parts: answer.deliver((reply, parts))
        )
        try:
            return await answer.wait()
        finally:
            if parked is not None:
                parked.abandon()

    async def _partition(
        self,
        asked: wire.FetchRequestTopicPartition,
        found: native.FetchedPartition,
        part: FilePart | None,
        request: wire.FetchRequest,
        call: Call,
        converter: Converter,
    ) -> wire.FetchResponseEntryPartition:
        records: FilePart | bytes = b""
        error = kafka_code(found.error)
        if part is not None:
            try:
                records = await self._records_of(asked, found, part, call, converter)
            except PacelineError as refusal:
                if isinstance(refusal, CorruptMessage):
                    refusal = self._refusal(found, refusal)
                error = code_of(refusal)
        aborted = None
        if request.isolation_level:
            aborted = tuple(
                wire.FetchResponseEntryPartitionAbortedTransaction(
                    producer_id=each.producer_id, first_offset=each.first_offset
                )
                for each in found.aborted
            )
        return wire.FetchResponseEntryPartition(
            partition_index=asked.partition,
            error_code=error,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            aborted_transactions=aborted,
            records=records,
        )

    async def _records_of(
        self,
        asked: wire.FetchRequestTopicPartition,
        found: native.FetchedPartition,
        part: FilePart,
        call: Call,
        converter: Converter,
    ) -> FilePart | bytes:
        if call.version >= _FIRST_WITH_BATCHES:
            return await converter.batches(part, found.next_offset)
        wanted = Wanted(
            asked.fetch_offset,
            asked.partition_max_bytes,
            magic=1 if call.version >= _FIRST_WITH_MAGIC_1 else 0,
        )
        partition = self._records.leader(found.topic, found.partition)
        return await converter.message_set(part, found.next_offset, wanted, partition)

    def _refusal(self, found: native.FetchedPartition, error: CorruptMessage) -> CorruptMessage:
        partition = self._records.hosted(found.topic, found.partition)
        return error if partition is None else partition.refuse(found.next_offset - 1, error)

    # --- LIST_OFFSETS -----------------------------------------------------------------------------

    async def list_offsets(
        self, request: wire.ListOffsetsRequest, call: Call
    ) -> wire.ListOffsetsResponse:
        """Offsets by time, or the ends."""
        asked_by = [(topic.name, asked) for topic in request.topics for asked in topic.partitions]
        queries: list[native.OffsetQuery] = []
        for topic, asked in asked_by:
            queries.append(
                native.OffsetQuery(
                    topic,
                    asked.partition_index,
                    _spec(asked.timestamp, call.version),
                    LeaderEpoch(asked.current_leader_epoch),
                )
            )
            await self._turn(queries)
        isolation = Isolation.READ_COMMITTED if request.isolation_level else Isolation(0)
        asked_for = native.ListOffsets(isolation, tuple(queries))
        reply = None
        if len(queries) <= _AT_ONCE:
            reply = self._native.list_offsets(asked_for, call.principal)
        if reply is None:
            reply = await self._native.list_offsets_in_turns(asked_for, call.principal)
        offsets: list[wire.ListOffsetsResponseTopicPartition] = []
        for (_, asked), found in zip(asked_by, reply.partitions, strict=True):
            offsets.append(self._offset(asked, found, call))
            await self._turn(offsets)
        answered = iter(offsets)
        return wire.ListOffsetsResponse(
            topics=tuple(
                wire.ListOffsetsResponseTopic(
                    name=topic.name,
                    partitions=tuple(next(answered) for _ in topic.partitions),
                )
                for topic in request.topics
            )
        )

    def _offset(
        self, asked: wire.ListOffsetsRequestTopicPartition, found: native.OffsetFound, call: Call
    ) -> wire.ListOffsetsResponseTopicPartition:
        error = kafka_code(found.error)
        if error == ErrorCode.OFFSET_NOT_AVAILABLE and call.version < 5:
            error = ErrorCode.LEADER_NOT_AVAILABLE  # the other number came with version 5
        offsets: tuple[int, ...] = ()
        if call.version == 0 and not error and found.offset >= 0:
            offsets = self._old_style(asked, found)
        return wire.ListOffsetsResponseTopicPartition(
            partition_index=asked.partition_index,
            error_code=error,
            old_style_offsets=offsets,
            timestamp=found.timestamp_ms,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )

    def _old_style(
        self, asked: wire.ListOffsetsRequestTopicPartition, found: native.OffsetFound
    ) -> tuple[int, ...]:
        """Version 0: an end, or the starts of the segments up to a time, newest first."""
        if asked.timestamp in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
            return (found.offset,)[: asked.max_num_offsets]
        log = self._records.leader(found.topic, found.partition).log
        starts = [max(each.base_offset, log.log_start_offset) for each in log.segments]
        older = [start for start in starts if start <= found.offset]
        return tuple(reversed(older))[: max(0, asked.max_num_offsets)]

    # --- OFFSET_FOR_LEADER_EPOCH ------------------------------------------------------------------

    async def end_of_epoch(
        self, request: wire.OffsetForLeaderEpochRequest, call: Call
    ) -> wire.OffsetForLeaderEpochResponse:
        """Where epochs ended, so that a consumer sees whether its position was truncated away."""
        return wire.OffsetForLeaderEpochResponse(
            topics=tuple(
                [
                    wire.OffsetForLeaderEpochResponseTopic(
                        topic=topic.topic,
                        partitions=tuple(
                            [
                                self._end_of_epoch(topic.topic, asked, call)
                                async for asked in call.pace.each(topic.partitions)
                            ]
                        ),
                    )
                    async for topic in call.pace.each(request.topics)
                ]
            )
        )

    def _end_of_epoch(
        self, topic: str, asked: wire.OffsetForLeaderEpochRequestTopicPartition, call: Call
    ) -> wire.OffsetForLeaderEpochResponseTopicPartition:
        try:
            self._records.permit(call.principal, Operation.DESCRIBE, topic)
            partition: Partition = self._records.leader(
                topic, asked.partition, current_leader_epoch=asked.current_leader_epoch
            )
            partition.check_serving()
        except PacelineError as error:
            return wire.OffsetForLeaderEpochResponseTopicPartition(
                partition=asked.partition, error_code=code_of(error)
            )
        log = partition.log
        end = log.epochs.end_offset_for(asked.leader_epoch, log.log_end_offset)
        return wire.OffsetForLeaderEpochResponseTopicPartition(
            partition=asked.partition,
            error_code=0,
            leader_epoch=NO_EPOCH if end is None else end.epoch,
            end_offset=-1 if end is None else end.end,
        )


def _spec(timestamp: int, version: int) -> int:
    lowest = (
        OffsetSpec.MAX_TIMESTAMP if version >= _FIRST_WITH_MAX_TIMESTAMP else OffsetSpec.EARLIEST
    )
    return timestamp if timestamp >= lowest else _NO_SPEC


def _flat(
    request: wire.FetchRequest,
) -> Iterator[tuple[str, wire.FetchRequestTopicPartition]]:
    topics: Iterable[wire.FetchRequestTopic] = request.topics
    return ((topic.topic, asked) for topic in topics for asked in topic.partitions)
