"""One partition's log at a scripted broker; knows producers by replication/DESIGN 4.4."""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from paceline.errors import (
    DuplicateSequence,
    InvalidProducerEpoch,
    OutOfOrderSequence,
)
from paceline.types import LeaderEpoch, NodeId
from paceline.wire.batch import BatchHeader, iter_batches, stamp, validate_client_batches
from paceline.wire.native import data
from paceline.wire.records import decode_records


@dataclass
class ProducerState:
    epoch: int
    recent: list[tuple[int, int, int]] = field(default_factory=list)  # first seq, last seq, offset

    @property
    def last_sequence(self) -> int:
        return self.recent[-1][1]


class PartitionLog:
    """One partition: leader, epoch, batches."""

    def __init__(self, topic: str, number: int, leader: int) -> None:
        self.topic = topic
        self.number = number
        self.leader = NodeId(leader)
        self.epoch = LeaderEpoch(0)
        self.batches: list[bytearray] = []
        self.log_start = 0
        self.log_end = 0
        self.hw_is_known = True
        self.producers: dict[int, ProducerState] = {}
        self.aborted: tuple[data.AbortedTransaction, ...] = ()
        self.grown = trio.Event()

    def append(self, payload: memoryview) -> tuple[int, int, bool]:
        """Returns base offset, last offset, duplicate."""
        base, last, duplicate = -1, -1, False
        headers = validate_client_batches(payload)
        position = 0
        for header in headers:
            found = self._check_producer(header)
            if found is not None:
                base, last, duplicate = found, found + header.record_count - 1, True
            else:
                first = self._append_one(payload[position : position + header.size_bytes], header)
                base = first if base < 0 else base
                last = self.log_end - 1
            position += header.size_bytes
        return base, last, duplicate

    def _append_one(self, raw: memoryview, header: BatchHeader) -> int:
        batch = bytearray(raw)
        base = self.log_end
        stamp(batch, 0, base, self.epoch)
        self.batches.append(batch)
        self.log_end += header.record_count
        if header.has_producer:
            state = self.producers.get(header.producer_id)
            if state is None or state.epoch != header.producer_epoch:
                state = self.producers[header.producer_id] = ProducerState(header.producer_epoch)
            state.recent.append((header.base_sequence, header.last_sequence, base))
            del state.recent[:-5]
        self.wake()
        return base

    def append_raw(self, batch: bytearray) -> None:
        """A batch that no client sent (control batches)."""
        (_, header), *_ = iter_batches(batch)
        stamp(batch, 0, self.log_end, self.epoch)
        self.batches.append(batch)
        self.log_end += header.last_offset_delta + 1
        self.wake()

    def wake(self) -> None:
        grown, self.grown = self.grown, trio.Event()
        grown.set()

    def _check_producer(self, header: BatchHeader) -> int | None:
        if not header.has_producer:
            return None
        state = self.producers.get(header.producer_id)
        if state is None:
            return None
        if header.producer_epoch < state.epoch:
            raise InvalidProducerEpoch(f"epoch {header.producer_epoch}, known {state.epoch}")
        if header.producer_epoch > state.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(f"new epoch begins with {header.base_sequence}")
            return None
        for first, last, offset in state.recent:
            if (first, last) == (header.base_sequence, header.last_sequence):
                return offset
        expected = (state.last_sequence + 1) & 0x7FFFFFFF
        if header.base_sequence == expected:
            return None
        if header.base_sequence <= state.last_sequence:
            raise DuplicateSequence(f"sequence {header.base_sequence} was seen")
        raise OutOfOrderSequence(f"sequence {header.base_sequence}, expected {expected}")

    def read(self, offset: int, max_bytes: int) -> tuple[bytes, int]:
        chunks = []
        size = 0
        end = offset
        for batch in self.batches:
            (_, header), *_ = iter_batches(batch)
            if header.next_offset <= offset:
                continue
            if chunks and size + len(batch) > max_bytes:
                break
            chunks.append(bytes(batch))
            size += len(batch)
            end = header.next_offset
        return b"".join(chunks), end

    def values(self) -> list[bytes | None]:
        return [record.value for batch in self.batches for record in decode_records(batch)]
