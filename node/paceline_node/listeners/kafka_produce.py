"""Kafka PRODUCE: batches as they were sent, or message sets made into batches.

Appends happen in order of arrival; the answer comes by the callback of the last partition to be
decided. Nothing is awaited between the check of a partition's role and its append; large requests
are carried out a partition a stretch, and old message sets that are large are read in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from paceline.errors import (
    ErrorCode,
    InvalidRecord,
    InvalidRequiredAcks,
    MessageTooLarge,
    PacelineError,
    PolicyViolation,
    RemoteProtocolError,
    UnsupportedCompression,
)
from paceline.types import Acks, Compression, is_internal_topic
from paceline.wire.batch import CLIENT_ATTRIBUTES, build_batch, checked_batches
from paceline.wire.batch_header import LENGTH_OVERHEAD, MAX_STORED_BATCH_BYTES, BatchHeader
from paceline.wire.kafka import records as wire
from paceline.wire.kafka.layout import Records
from paceline.wire.kafka.message_set import read_message_set
from paceline_node.env import Env
from paceline_node.listeners.kafka_call import Call
from paceline_node.listeners.kafka_errors import code_of, message_of
from paceline_node.replication.partition import ProduceResult
from paceline_node.security.principals import Operation
from paceline_node.services.client_batches import ClientBatches
from paceline_node.services.records import RecordService
from paceline_node.services.transactional_produce import (
    TRANSACTIONAL_ATTRIBUTES,
    TransactionalProduce,
)
from paceline_node.services.transactions import TransactionService
from paceline_node.stretches import Work
from paceline_node.transactions.keys import Family, TransactionKey

_FIRST_WITH_BATCHES = 3
_FIRST_WITH_ZSTD = 7
_INLINE_BYTES = 1024
"""A larger message set is read in a thread; it may unpack to a thousand times its bytes."""
_BYTES_PER_UNIT = 64 * 1024
"""Checking and writing so much costs as much as anything else that counts for one."""
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

Answer = Callable[[wire.ProduceResponse | None], None]
"""Takes the response; None where the request gets none."""


At = tuple[int, int]
"""Which partition of a request: the topic's index, and the partition's in it."""


class Prepared(NamedTuple):
    """A request ready to be appended, without what is refused already."""

    request: wire.ProduceRequest
    refused: Mapping[At, PacelineError]


class KafkaProduce:
    """Appends for Kafka clients."""

    def __init__(
        self,
        env: Env,
        records: RecordService,
        transactions: TransactionService,
        transactional: TransactionalProduce,
    ) -> None:
        self._env = env
        self._records = records
        self._transactions = transactions
        self._transactional = transactional
        self._batches = ClientBatches(env)

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
                    refused[topic_index, part_index] = error
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
        pending = _Pending(request.topic_data, partial(_answer, request.acks, answer))
        timeout_s = max(0, min(request.timeout_ms, _MAX_TIMEOUT_MS)) / 1000
        for topic_index, topic in enumerate(request.topic_data):
            for part_index, part in enumerate(topic.partition_data):
                place = (topic_index, part_index)
                if place in refused:
                    pending.done(place, refused[place])
                    continue
                try:
                    self._append(request, topic.name, part, call, timeout_s, pending, place)
                except PacelineError as error:
                    pending.done(place, error)
                size = len(part.records) if isinstance(part.records, memoryview) else 0
                yield 1 + size // _BYTES_PER_UNIT
        pending.all_started()

    def _append(
        self,
        request: wire.ProduceRequest,
        topic: str,
        part: wire.ProduceRequestTopicPartition,
        call: Call,
        timeout_s: float,
        pending: _Pending,
        place: At,
    ) -> None:
        if request.acks not in (0, 1, -1):
            raise InvalidRequiredAcks(f"acks {request.acks}: expected 0, 1 or -1")
        self._records.permit(call.principal, Operation.PRODUCE, topic)
        if is_internal_topic(topic):
            raise PolicyViolation(f"{topic}: internal topics take no records from clients")
        batch = part.records
        if not isinstance(batch, memoryview):
            raise InvalidRecord(f"{topic}/{part.index}: no batch")
        name = request.transactional_id
        allowed = CLIENT_ATTRIBUTES if name is None else TRANSACTIONAL_ATTRIBUTES
        headers = _only_batch(batch, allowed, call.version)
        partition = self._records.leader(topic, part.index)
        self._batches.check(partition, headers)
        acks, done = Acks(request.acks), partial(pending.done, place)
        if name is None:
            partition.produce(
                batch, headers, acks=acks, timeout_s=timeout_s, done=done, client=call.account
            )
            return
        self._transactions.permit(call.principal, Operation.TRANSACT, name)
        self._transactional.produce(
            partition,
            TransactionKey(Family.KAFKA, name),
            batch,
            headers,
            adds=False,
            acks=acks,
            timeout_s=timeout_s,
            done=done,
            client=call.account,
        )


def _only_batch(batch: memoryview, allowed: int, version: int) -> list[BatchHeader]:
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
    return [header]


def _batch(message_set: memoryview, now_ms: int) -> bytearray:
    return build_batch(read_message_set(message_set), timestamp_ms=now_ms)


def _answer(acks: int, answer: Answer, response: wire.ProduceResponse) -> None:
    if acks != Acks.NONE:
        answer(response)
        return
    for entry in response.responses:
        for part in entry.partition_responses:
            if part.error_code:
                raise RemoteProtocolError(
                    f"PRODUCE with acks 0 to {entry.name}/{part.index}: error {part.error_code}"
                )
    answer(None)


def _code(error: PacelineError) -> int:
    return _IN_PRODUCE.get(error.code) or code_of(error)


class _Pending:
    """Collects what becomes of one request's partitions. It outlives the request, whose batches lie
    in the frame they came in: of that it keeps nothing."""

    __slots__ = ("_answer", "_missing", "_results", "_topics")

    def __init__(
        self,
        topics: Sequence[wire.ProduceRequestTopic],
        answer: Callable[[wire.ProduceResponse], None],
    ) -> None:
        self._topics = [
            (topic.name, [part.index for part in topic.partition_data]) for topic in topics
        ]
        self._answer = answer
        # One more than there are partitions: nothing is answered before all were started.
        self._missing = sum(len(numbers) for _, numbers in self._topics) + 1
        self._results: dict[At, wire.ProduceResponseEntryPartition] = {}

    def done(self, place: At, result: ProduceResult | PacelineError) -> None:
        """A partition has stored its batch, has not, or cannot tell."""
        assert place not in self._results, "a partition answers once"
        index = self._topics[place[0]][1][place[1]]
        if isinstance(result, PacelineError):
            self._results[place] = wire.ProduceResponseEntryPartition(
                index=index,
                error_code=_code(result),
                base_offset=-1,
                error_message=message_of(result),
            )
        else:
            self._results[place] = wire.ProduceResponseEntryPartition(
                index=index,
                error_code=0,
                base_offset=result.base_offset,
                log_start_offset=result.log_start_offset,
            )
        self._settle()

    def all_started(self) -> None:
        """Every partition was asked."""
        self._settle()

    def _settle(self) -> None:
        self._missing -= 1
        if self._missing:
            return
        self._answer(
            wire.ProduceResponse(
                responses=tuple(
                    wire.ProduceResponseEntry(
                        name=name,
                        partition_responses=tuple(
                            self._results[at, number] for number in range(len(numbers))
                        ),
                    )
                    for at, (name, numbers) in enumerate(self._topics)
                )
            )
        )
