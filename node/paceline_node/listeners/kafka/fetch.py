"""Kafka FETCH, LIST_OFFSETS and OFFSET_FOR_LEADER_EPOCH.

An answer's records are ranges of segment files as they lie there, except where this protocol's
readers could not make sense of them (``batch_conversion.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from paceline.errors import (
    CorruptMessage,
    ErrorCode,
    FetchSessionNotFound,
    PacelineError,
)
from paceline.types import NO_EPOCH, Isolation, LeaderEpoch, OffsetSpec
from paceline.wire.kafka import records as wire
from paceline_node.env import Env
from paceline_node.listeners.kafka.batch_conversion import Converter, Wanted
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.compacted_gaps import ReadOn
from paceline_node.listeners.kafka.errors import code_of
from paceline_node.loop_turns import Turns
from paceline_node.net.transport import FilePart
from paceline_node.services.future import Future
from paceline_node.services.partitions.partition_access import Refused
from paceline_node.services.records import fetch as reading
from paceline_node.services.records.fetch import FetchService, InOlderTier, ReadResult, aborted_in
from paceline_node.services.records.list_offsets import FoundOffset, OffsetService
from paceline_node.services.records.list_offsets import Outcome as OffsetsOutcome
from paceline_node.services.records.list_offsets import Query as OffsetsQuery

_FIRST_WITH_BATCHES = 4
_FIRST_WITH_MAGIC_1 = 2
_AT_ONCE = 150
"""Requests of more partitions than these take turns with others' work."""
_NO_SESSION = 0
_NEW_SESSION = (-1, 0)
_FIRST_WITH_MAX_TIMESTAMP = 7
_NO_SPEC = -1000
"""Not the name of any offset, whatever the native protocol has added."""


class _Answering(NamedTuple):
    """What belongs to one answer."""

    wish: reading.Wish
    version: int
    converter: Converter
    read_on: ReadOn


class KafkaFetch:
    """Reads for Kafka clients."""

    def __init__(
        self,
        env: Env,
        service: FetchService,
        offset_service: OffsetService,
        turns: Turns,
    ) -> None:
        self._host = env.host
        self._turns = turns
        self._service = service
        self._offsets = offset_service

    # --- FETCH ------------------------------------------------------------------------------------

    async def fetch(self, request: wire.FetchRequest, call: Call) -> wire.FetchResponse:
        """Sessions are declined: every answer says session 0, and clients send whole requests."""
        if request.session_id != _NO_SESSION or request.session_epoch not in _NEW_SESSION:
            return wire.FetchResponse(error_code=FetchSessionNotFound.code)
        wish = await self._wish(request, call)
        outcomes = await self._read(wish)
        converter = Converter(call.room, self._host, self._turns)
        room_bytes = wish.max_bytes - sum([reading.size_of(each) for each in outcomes])
        read_on = ReadOn(converter, self._turns, max(0, room_bytes))
        answering = _Answering(wish, call.version, converter, read_on)
        partitions: list[wire.FetchResponseEntryPartition] = []
        for asked, outcome in zip(wish.parts, outcomes, strict=True):
            partitions.append(await self._partition(asked, outcome, answering))
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

    async def _wish(self, request: wire.FetchRequest, call: Call) -> reading.Wish:
        parts: list[reading.Wanted] = []
        for topic, asked in _flat(request):
            parts.append(
                reading.Wanted(
                    topic,
                    asked.partition,
                    asked.fetch_offset,
                    asked.partition_max_bytes,
                    LeaderEpoch(asked.current_leader_epoch),
                )
            )
            await self._turn(parts)
        return reading.Wish(
            call.principal,
            parts,
            Isolation.READ_COMMITTED if request.isolation_level else Isolation.READ_UNCOMMITTED,
            request.min_bytes,
            request.max_bytes,
            request.max_wait_ms / 1000 if request.min_bytes > 0 else 0.0,
        )

    async def _read(self, wish: reading.Wish) -> list[reading.Outcome]:
        if len(wish.parts) > _AT_ONCE:
            return await self._service.fetch_in_turns(wish)
        answer: Future[list[reading.Outcome]] = Future()
        try:
            parked = self._service.fetch(wish, answer.deliver)
        except InOlderTier:
            return await self._service.fetch_in_turns(wish)
        try:
            return await answer.wait()
        finally:
            if parked is not None:
                parked.abandon()

    async def _partition(
        self, asked: reading.Wanted, outcome: reading.Outcome, answering: _Answering
    ) -> wire.FetchResponseEntryPartition:
        lists_aborted = answering.wish.isolation is Isolation.READ_COMMITTED
        if isinstance(outcome, Refused):
            return wire.FetchResponseEntryPartition(
                partition_index=asked.partition,
                error_code=code_of(outcome.error),
                high_watermark=-1,
                aborted_transactions=() if lists_aborted else None,
                records=b"",
            )
        records: FilePart | bytes = b""
        error = 0
        try:
            outcome, records = await self._records_of(asked, outcome, answering)
        except CorruptMessage as refusal:
            error = code_of(self._service.corrupt(asked, outcome, refusal))
        except PacelineError as refusal:
            error = code_of(refusal)
        aborted = None
        if lists_aborted:
            aborted = tuple(
                wire.FetchResponseEntryPartitionAbortedTransaction(
                    producer_id=producer, first_offset=first
                )
                for first, producer in aborted_in(outcome)
            )
        return wire.FetchResponseEntryPartition(
            partition_index=asked.partition,
            error_code=error,
            high_watermark=outcome.high_watermark,
            last_stable_offset=outcome.last_stable_offset,
            log_start_offset=outcome.log_start_offset,
            aborted_transactions=aborted,
            records=records,
        )

    async def _records_of(
        self, asked: reading.Wanted, found: ReadResult, answering: _Answering
    ) -> tuple[ReadResult, FilePart | bytes]:
        """What to send, and the range that it is of."""
        if found.slice is None:
            return found, b""
        behind = partial(self._service.behind, answering.wish, asked)
        if answering.version >= _FIRST_WITH_BATCHES:
            return await answering.read_on.batches(found, asked.max_bytes, behind)
        part = FilePart(found.slice.file, found.slice.position, found.slice.size)
        wanted = Wanted(
            asked.offset,
            asked.max_bytes,
            magic=1 if answering.version >= _FIRST_WITH_MAGIC_1 else 0,
        )
        return found, await answering.converter.message_set(
            part, found.slice.next_offset, wanted, behind
        )

    # --- LIST_OFFSETS -----------------------------------------------------------------------------

    async def list_offsets(
        self, request: wire.ListOffsetsRequest, call: Call
    ) -> wire.ListOffsetsResponse:
        """Offsets by time, or the ends."""
        asked_by = [(topic.name, asked) for topic in request.topics for asked in topic.partitions]
        queries: list[OffsetsQuery] = []
        for topic, asked in asked_by:
            queries.append(
                OffsetsQuery(
                    topic,
                    asked.partition_index,
                    _spec(asked.timestamp, call.version),
                    LeaderEpoch(asked.current_leader_epoch),
                )
            )
            await self._turn(queries)
        outcomes = await self._look_up(queries, request.isolation_level, call)
        told: list[wire.ListOffsetsResponseTopicPartition] = []
        for (_, asked), query, outcome in zip(asked_by, queries, outcomes, strict=True):
            told.append(self._offset(asked, query, outcome, call))
            await self._turn(told)
        answered = iter(told)
        return wire.ListOffsetsResponse(
            topics=tuple(
                wire.ListOffsetsResponseTopic(
                    name=topic.name,
                    partitions=tuple(next(answered) for _ in topic.partitions),
                )
                for topic in request.topics
            )
        )

    async def _look_up(
        self, queries: Sequence[OffsetsQuery], isolation_level: int, call: Call
    ) -> list[OffsetsOutcome]:
        isolation = Isolation.READ_COMMITTED if isolation_level else Isolation.READ_UNCOMMITTED
        found = None
        if len(queries) <= _AT_ONCE:
            found = self._offsets.find(call.principal, queries, isolation)
        if found is None:
            found = await self._offsets.find_in_turns(call.principal, queries, isolation)
        return found

    def _offset(
        self,
        asked: wire.ListOffsetsRequestTopicPartition,
        query: OffsetsQuery,
        outcome: OffsetsOutcome,
        call: Call,
    ) -> wire.ListOffsetsResponseTopicPartition:
        if isinstance(outcome, Refused):
            error = code_of(outcome.error)
            if error == ErrorCode.OFFSET_NOT_AVAILABLE and call.version < 5:
                error = ErrorCode.LEADER_NOT_AVAILABLE  # the other number came with version 5
            return wire.ListOffsetsResponseTopicPartition(
                partition_index=asked.partition_index,
                error_code=error,
                leader_epoch=outcome.leader_epoch,
            )
        try:
            old_style = self._old_style(asked, query, outcome, call)
        except PacelineError as error:  # the leader went while others had their turn
            return self._offset(asked, query, Refused(error), call)
        return wire.ListOffsetsResponseTopicPartition(
            partition_index=asked.partition_index,
            error_code=0,
            old_style_offsets=old_style,
            timestamp=outcome.timestamp_ms,
            offset=outcome.offset,
            leader_epoch=outcome.leader_epoch,
        )

    def _old_style(
        self,
        asked: wire.ListOffsetsRequestTopicPartition,
        query: OffsetsQuery,
        found: FoundOffset,
        call: Call,
    ) -> tuple[int, ...]:
        """Version 0: an end, or the starts of the segments up to a time, newest first."""
        if call.version > 0 or found.offset < 0:
            return ()
        if asked.timestamp in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
            return (found.offset,)[: asked.max_num_offsets]
        starts = self._offsets.segment_starts(call.principal, query)
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
        query = OffsetsQuery(
            topic,
            asked.partition,
            OffsetSpec.EPOCH_END,
            LeaderEpoch(asked.current_leader_epoch),
            LeaderEpoch(asked.leader_epoch),
        )
        try:
            end = self._offsets.end_of_epoch(call.principal, query)
        except PacelineError as error:
            return wire.OffsetForLeaderEpochResponseTopicPartition(
                partition=asked.partition, error_code=code_of(error)
            )
        epoch, offset = (NO_EPOCH, -1) if end is None else end
        return wire.OffsetForLeaderEpochResponseTopicPartition(
            partition=asked.partition, error_code=0, leader_epoch=epoch, end_offset=offset
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
