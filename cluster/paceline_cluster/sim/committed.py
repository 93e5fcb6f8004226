"""What is committed of each partition, batch by batch, as the oracle knows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from paceline.errors import CorruptMessage, OffsetOutOfRange
from paceline.wire.batch_header import BatchHeader, iter_batches, verify
from paceline_node.storage.log import Log

_READ_BYTES = 1024 * 1024


class BatchId(NamedTuple):
    """A stored batch: equal ids mean equal bytes (the checksum covers what clients sent)."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    crc: int


def batches_of(log: Log, start: int, end: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of ``log`` within ``start..end``; fewer where the log is damaged or cut off."""
    offset = max(start, log.log_start_offset)
    while offset < end:
        try:
            part = log.locate(offset, _READ_BYTES, log.log_end_offset)
            if part is None:
                return
            data = memoryview(part.read())
            for position, header in iter_batches(data):
                if header.next_offset > end:
                    return
                yield header, data[position : position + header.size_bytes]
        except (CorruptMessage, OffsetOutOfRange, OSError):
            return
        offset = part.next_offset


def read_batches(log: Log, start: int, end: int) -> list[BatchId]:
    """As :func:`batches_of`, without their bytes."""
    return [
        BatchId(header.base_offset, header.next_offset, header.leader_epoch, header.crc)
        for header, _ in batches_of(log, start, end)
    ]


def is_sound(log: Log) -> bool:
    """Whether every batch of ``log`` is there, has its checksum, and what that does not cover: its
    place, and the leader epoch that the log knows of. No start reads old batches."""
    offset = log.log_start_offset
    expected: int | None = None
    while offset < log.log_end_offset:
        try:
            part = log.locate(offset, _READ_BYTES, log.log_end_offset)
            if part is None:
                return False
            data = part.read()
            for position, _ in iter_batches(data):
                header = verify(data, position)
                if header.leader_epoch != log.epochs.epoch_at(header.last_offset):
                    return False
                if expected not in (None, header.base_offset):
                    return False
                expected = header.next_offset
        except (CorruptMessage, OffsetOutOfRange, OSError):
            return False
        offset = part.next_offset
    return True


class CommittedLog:
    """The log of a partition up to the true high watermark: the largest that any legitimate leader
    ever reached."""

    def __init__(self) -> None:
        self.end = 0
        self.compacted_to = 0
        """Below lie other batches where a replica was compacted: nothing there is compared."""
        self._batches: dict[int, BatchId] = {}
        self._unread: list[tuple[int, int]] = []
        """Committed by a leader whose damaged disk did not show it: what the first sound replica
        holds there is what was committed."""

    def conflict(self, batches: list[BatchId]) -> str | None:
        """How the ``batches`` of a sound replica differ from what is committed, if they do."""
        for batch in batches:
            if batch.base_offset >= self.end:
                break
            if batch.base_offset < self.compacted_to:
                continue
            known = self._batches.get(batch.base_offset)
            if known is None and self._is_unread(batch):
                self._batches[batch.base_offset] = batch
            elif known != batch:
                return f"holds {batch}, committed is {known}"
        return None

    def extend(self, batches: list[BatchId], end: int) -> None:
        """A leader's high watermark moved to ``end``; ``batches``: what its sound log shows."""
        read_to = self.end
        for batch in batches:
            if batch.base_offset >= self.end:
                self._batches[batch.base_offset] = batch
                read_to = batch.next_offset
        if read_to < end:
            self._unread.append((read_to, end))
        self.end = max(self.end, end)

    def _is_unread(self, batch: BatchId) -> bool:
        return any(
            first <= batch.base_offset and batch.next_offset <= end for first, end in self._unread
        )

    def missing(self, batches: list[BatchId], log_start: int) -> str | None:
        """The first committed batch at or behind ``log_start`` that is not among ``batches``."""
        held = set(batches)
        log_start = max(log_start, self.compacted_to)
        for batch in self._batches.values():
            if batch.next_offset > log_start and batch not in held:
                return f"lacks {batch}"
        return None
