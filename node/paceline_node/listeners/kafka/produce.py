"""Kafka PRODUCE: batches as they were sent, or message sets made into batches.

Old message sets that are large are read in a thread, before anything is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from paceline.errors import (
    AuthorizationFailed,
    ErrorCode,
    InvalidRecord,
    InvalidRequiredAcks,
    MessageTooLarge,
    PacelineError,
    RemoteProtocolError,
    UnsupportedCompression,
)
from paceline.types import Acks, Compression
from paceline.wire.batch import build_batch, checked_batches
from paceline.wire.batch_header import LENGTH_OVERHEAD, MAX_STORED_BATCH_BYTES, BatchHeader
from paceline.wire.kafka import records as wire
from paceline.wire.kafka.layout import Records
from paceline.wire.kafka.message_set import read_message_set
from paceline_node.bare_errors import bare
from paceline_node.env import Env
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.errors import code_of, message_of
from paceline_node.services.partitions.partition_access import Refused
from paceline_node.services.records.produce import (
    Outcome,
    Part,
    ProduceService,
    Wish,
    Within,
)
from paceline_node.sliced_work import Work
from paceline_node.transaction_names import Family, TransactionKey

_FIRST_WITH_BATCHES = 3
_FIRST_WITH_ZSTD = 7
_INLINE_BYTES = 1024
"""A larger message set is read in a thread; it may unpack to a thousand times its bytes."""
_NOTHING = memoryview(b"")
_MAX_TIMEOUT_MS = 120_000

_IN_PRODUCE = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    # Nothing was appended, for the transaction's coordinator could not be asked: clients of these
    # versions know no such error of PRODUCE, but send again at this one.
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorCode.NOT_ENOUGH_REPLICAS,
    # No room for another producer: not all clients know this number as one to come again at.
    ErrorCode.THROTTLED: ErrorCode.NOT_ENOUGH_REPLICAS,
}

_PARTS_PER_UNIT = 16

Answer = Callable[[Callable[[], wire.ProduceResponse] | None, int], None]
"""Takes what makes the response, and of how many partitions: making a long one takes a thread. None
where the request gets none."""


At = tuple[int, int]
"""Which partition of a request: the topic's index, and the partition's in it."""


class Prepared(NamedTuple):
    """A request ready to be appended, without what is refused already."""

    request: wire.ProduceRequest
    refused: Mapping[At, PacelineError]


class KafkaProduce:
    """Appends for Kafka clients."""

    def __init__(self, env: Env, produce: ProduceService) -> None:
        self._env = env
        self._produce = produce

    async def prepare(self, request: wire.ProduceRequest, call: Call) -> Prepared:
        """The request with batches in the place of message sets (versions below 3)."""
        if call.version >= _FIRST_WITH_BATCHES:
            return Prepared(request, {})
        refused: dict[At, PacelineError] = {}
        topics = []
        for topic_index, topic in enumerate(request.topic_data):
            parts = []
            for part_index, part in enumerate(topic.partition_data):
                batch: Records = None
                try:
                    batch = await self._converted(part.records)
                except PacelineError as error:
                    refused[topic_index, part_index] = bare(error)
                parts.append(wire.ProduceRequestTopicPartition(index=part.index, records=batch))
            topics.append(wire.ProduceRequestTopic(name=topic.name, partition_data=tuple(parts)))
        made = wire.ProduceRequest(
            acks=request.acks, timeout_ms=request.timeout_ms, topic_data=tuple(topics)
        )
        return Prepared(made, refused)

    async def _converted(self, message_set: Records) -> Records:
        if not isinstance(message_set, memoryview) or not message_set:
            return None
        now_ms = self._env.stamp_ms()
        if len(message_set) <= _INLINE_BYTES:
            return memoryview(_batch(message_set, now_ms))
        made = await self._env.host.run_blocking(lambda: _batch(message_set, now_ms))
        return memoryview(made)

    def starting(self, prepared: Prepared, call: Call, answer: Answer) -> Work[None]:
        """Append all that the request carries, a partition a stretch; ``answer`` is called once,
        maybe before this ends. Raises RemoteProtocolError for an error that the request's acks
        leave no answer for: the connection is to be closed."""
        request, refused = prepared
        acks, bad_acks = Acks.LEADER, None
        if request.acks in (0, 1, -1):
            acks = Acks(request.acks)
        else:
            bad_acks = InvalidRequiredAcks(f"acks {request.acks}: expected 0, 1 or -1")
        # Of the request, whose batches lie in the frame they came in, nothing else is kept.
        asked: list[tuple[str, list[int]]] = []
        parts: list[Part] = []
        for topic_index, topic in enumerate(request.topic_data):
            asked.append((topic.name, [part.index for part in topic.partition_data]))
            for part_index, part in enumerate(topic.partition_data):
                fault = bad_acks or refused.get((topic_index, part_index))
                batches = part.records if isinstance(part.records, memoryview) else _NOTHING
                parts.append(Part(topic.name, part.index, batches, fault=fault))
                if not len(parts) % _PARTS_PER_UNIT:
                    yield 1
        name = request.transactional_id
        wish = Wish(
            call.principal,
            acks,
            max(0, min(request.timeout_ms, _MAX_TIMEOUT_MS)) / 1000,
            partial(_only_batch, call.version),
            None if name is None else Within(TransactionKey(Family.KAFKA, name), adds=False),
            call.account,
        )
        told = partial(_answer, asked, request.acks, answer)
        try:
            yield from self._produce.appending(wish, parts, told)
        except AuthorizationFailed as error:
            told([Refused(error)] * len(parts))


def _only_batch(version: int, batch: memoryview, allowed: int) -> Sequence[BatchHeader]:
    if len(batch) > MAX_STORED_BATCH_BYTES:
        raise MessageTooLarge(f"{len(batch)} bytes for a partition, limit {MAX_STORED_BATCH_BYTES}")
    # No second one is looked at: a crowd of them would keep the event loop for seconds.
    header = next(checked_batches(batch, allowed_attributes=allowed), None)
    if header is None:
        raise InvalidRecord("no batch for a partition")
    if header.batch_length + LENGTH_OVERHEAD != len(batch):
        raise InvalidRecord("several batches for a partition: one is allowed")
    if header.compression == Compression.ZSTD and version < _FIRST_WITH_ZSTD:
        raise UnsupportedCompression(f"zstd in PRODUCE version {version}: needs 7")
    return (header,)


def _batch(message_set: memoryview, now_ms: int) -> bytearray:
    return build_batch(read_message_set(message_set), timestamp_ms=now_ms)


def _answer(
    asked: Sequence[tuple[str, Sequence[int]]],
    acks: int,
    answer: Answer,
    outcomes: Sequence[Outcome],
) -> None:
    if acks != Acks.NONE:
        answer(partial(_response, asked, outcomes), len(outcomes))
        return
    places = ((name, number) for name, numbers in asked for number in numbers)
    for (name, number), outcome in zip(places, outcomes, strict=True):
        if isinstance(outcome, Refused):
            raise RemoteProtocolError(
                f"PRODUCE with acks 0 to {name}/{number}: error {_code(outcome.error)}"
            )
    answer(None, len(outcomes))


def _response(
    asked: Sequence[tuple[str, Sequence[int]]], outcomes: Sequence[Outcome]
) -> wire.ProduceResponse:
    told = iter(outcomes)
    return wire.ProduceResponse(
        responses=tuple(
            wire.ProduceResponseEntry(
                name=name,
                partition_responses=tuple(_told(number, next(told)) for number in numbers),
            )
            for name, numbers in asked
        )
    )


def _told(index: int, outcome: Outcome) -> wire.ProduceResponseEntryPartition:
    if isinstance(outcome, Refused):
        return wire.ProduceResponseEntryPartition(
            index=index,
            error_code=_code(outcome.error),
            base_offset=-1,
            error_message=message_of(outcome.error),
        )
    return wire.ProduceResponseEntryPartition(
        index=index,
        error_code=0,
        base_offset=outcome.base_offset,
        log_start_offset=outcome.log_start_offset,
    )


def _code(error: PacelineError) -> int:
    return _IN_PRODUCE.get(error.code) or code_of(error)
