"""One task's writing: rows into batches with sequences of their own, batches to the cluster.

Batches close by count of bytes alone, never by time, and records without a key take partitions in
turn, from one that the task's number gives: the same rows make the same batches under the same
sequences, which is what the guarantee ``idempotent`` rests on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from paceline.client.batching import RECORD_OVERHEAD_BYTES, estimated_size
from paceline.client.partitioner import KeyHashes
from paceline.client.sequenced import SequencedBatch
from paceline.errors import UnknownTopicOrPartition
from paceline.spark.options import SinkOptions
from paceline.spark.rows import BadRow, Row, check_row, dead_letter
from paceline.types import TopicPartition
from paceline.wire.batch import HEADER_BYTES, TRANSACTIONAL, build_batch
from paceline.wire.native.data import ProducerIdentity
from paceline.wire.records import Record

FLUSH_BYTES = 8 << 20
"""Built batches that wait to be sent together, over all partitions."""


class Output(Protocol):
    """Where batches go: the blocking ``SequencedWriter``."""

    def partition_count(self, topic: str, /) -> int:
        """Of an existing topic."""

    def write(self, batches: Iterable[SequencedBatch], /) -> dict[TopicPartition, int]:
        """Store them; the last offset of each partition."""


@dataclass
class Written:
    """What a task has stored so far; ``last`` is -1 where the offset is not known any more."""

    rows: int = 0
    bytes: int = 0
    dead_letters: int = 0
    last: dict[TopicPartition, int] = field(default_factory=dict)


class _Pending:
    """Records of one partition that wait for company."""

    __slots__ = ("at", "records", "sequence", "size")

    def __init__(self, at: TopicPartition) -> None:
        self.at = at
        self.records: list[Record] = []
        self.size = HEADER_BYTES
        self.sequence = 0


class TaskWriter:
    """Writes rows under one producer identity. :meth:`finish` sends the rest."""

    def __init__(
        self,
        output: Output,
        identity: ProducerIdentity,
        options: SinkOptions,
        *,
        first_partition: int,
        transactional: bool = False,
    ) -> None:
        self.written = Written()
        self._output = output
        self._identity = identity
        self._options = options
        self._first = first_partition
        self._flags = TRANSACTIONAL if transactional else 0
        self._pending: dict[tuple[str, int], _Pending] = {}
        self._counts: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        self._hashes = KeyHashes()
        self._ready: list[SequencedBatch] = []
        self._ready_bytes = 0

    def add(self, row: Row) -> None:
        """Take in a row. Raises BadRow unless those are dead letters, and what writing raises."""
        record = row.record
        size = estimated_size(record.key, record.value, record.headers)
        try:
            topic = check_row(row, size, self._options)
            number = self._choose(topic, row)
        except BadRow as bad:
            record, topic, number = self._bury(row, bad)
            size = estimated_size(record.key, record.value, record.headers)
        pending = self._pending.get((topic, number))
        if pending is None:
            pending = self._pending[topic, number] = _Pending(TopicPartition(topic, number))
        if pending.records and pending.size + size > self._options.batch_bytes:
            self._close(pending)
        pending.records.append(record)
        pending.size += size + RECORD_OVERHEAD_BYTES
        self.written.rows += 1
        self.written.bytes += size

    def finish(self) -> Written:
        """Send what is left, and wait until all is stored."""
        for pending in self._pending.values():
            if pending.records:
                self._close(pending)
        self._flush()
        return self.written

    # --- where to ---------------------------------------------------------------------------------

    def _choose(self, topic: str, row: Row) -> int:
        count = self._count(topic)
        if row.partition is not None:
            if not 0 <= row.partition < count:
                raise BadRow(f"partition {row.partition} of {topic}, which has {count}")
            return row.partition
        if row.record.key is not None:
            return self._hashes[row.record.key] % count
        return self._turns.setdefault(topic, self._first) % count

    def _count(self, topic: str) -> int:
        count = self._counts.get(topic)
        if count is None:
            try:
                count = self._counts[topic] = self._output.partition_count(topic)
            except UnknownTopicOrPartition as error:
                raise BadRow(str(error)) from error
        return count

    def _bury(self, row: Row, bad: BadRow) -> tuple[Record, str, int]:
        topic = self._options.dead_letter_topic
        if not topic:
            raise bad
        self.written.dead_letters += 1
        letter = dead_letter(row, str(bad))
        return letter, topic, self._choose(topic, Row(topic, None, letter))

    # --- sending ----------------------------------------------------------------------------------

    def _close(self, pending: _Pending) -> None:
        at = pending.at
        batch = build_batch(
            pending.records,
            compression=self._options.compression,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=pending.sequence,
            flags=self._flags,
        )
        pending.sequence = (pending.sequence + len(pending.records)) & 0x7FFFFFFF
        if any(record.key is None for record in pending.records):
            self._turns[at.topic] = self._turns.get(at.topic, self._first) + 1
        pending.records = []
        pending.size = HEADER_BYTES
        self._ready.append(SequencedBatch(at, batch))
        self._ready_bytes += len(batch)
        if self._ready_bytes >= FLUSH_BYTES:
            self._flush()

    def _flush(self) -> None:
        ready, self._ready, self._ready_bytes = self._ready, [], 0
        for at, offset in self._output.write(ready).items():
            self.written.last[at] = max(offset, self.written.last.get(at, -1))
