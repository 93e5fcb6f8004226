"""A log of numbered values in memory, with a durable end that a power cut falls back to."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

from paceline.errors import CorruptMessage
from paceline_node.storage.compaction_file import CompactionState
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.producers import FrozenTable

_RECORD = struct.Struct(">qiq")  # offset, leader epoch, value


class SimLog:
    """Implements ``ReplicaLog``: one record a batch, ``data`` is packed (offset, epoch, value)."""

    def __init__(self) -> None:
        self.epochs = EpochCache()
        self.log_start_offset = 0
        self.durable_offset = 0
        self.compaction = CompactionState()  # never compacted
        self.syncs = 0  # as ``durable.marks`` counts them
        self.records: list[tuple[int, int]] = []  # (epoch, value), first at log_start_offset

    @classmethod
    def of_epochs(cls, epochs: Sequence[int]) -> SimLog:
        """A durable log whose records have these epochs; the value names epoch and offset."""
        log = cls()
        for offset, epoch in enumerate(epochs):
            log.append(epoch, epoch * 1000 + offset)
        log.flush()
        return log

    def prove(self) -> bool:
        return False

    def is_proven(self) -> bool:
        return True  # no epoch rots here

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    def copy(self) -> SimLog:
        """What is on the disk now."""
        log = SimLog()
        log.log_start_offset = self.log_start_offset
        log.records = list(self.records)
        log.syncs = self.syncs
        log.recover()
        return log

    def flush(self) -> None:
        self.durable_offset = self.log_end_offset

    def at(self, offset: int) -> tuple[int, int]:
        return self.records[offset - self.log_start_offset]

    def append(self, epoch: int, value: int) -> int:
        """A leader's append of one record; its offset."""
        assert epoch >= self.epochs.last_epoch, f"epoch {epoch} behind {self.epochs}"  # I7
        offset = self.log_end_offset
        if epoch != self.epochs.last_epoch:
            self.epochs.assign(epoch, offset)
        self.records.append((epoch, value))
        return offset

    def append_follower(self, data: memoryview, newest_epoch: int, told: EpochCache) -> object:
        last_epoch = self.epochs.last_epoch
        expected = self.log_end_offset
        for offset, epoch, _ in _RECORD.iter_unpack(data):
            in_order = last_epoch <= epoch <= newest_epoch
            if offset != expected or not in_order or told.epoch_at(offset) not in (-1, epoch):
                raise CorruptMessage(f"record {offset} of epoch {epoch} at log end {expected}")
            last_epoch = epoch
            expected += 1
        for _, epoch, value in _RECORD.iter_unpack(data):
            self.append(epoch, value)
        return None

    def read(self, offset: int, count: int) -> bytes:
        """Up to ``count`` records from ``offset``, as another log's ``append_follower`` takes."""
        first = offset - self.log_start_offset
        taken = self.records[first : first + count]
        return b"".join(_RECORD.pack(offset + i, *record) for i, record in enumerate(taken))

    def truncate(self, offset: int) -> None:
        assert self.log_start_offset <= offset <= self.log_end_offset
        del self.records[offset - self.log_start_offset :]
        self.epochs.truncate_end(offset)
        self.durable_offset = min(self.durable_offset, offset)

    def end_if_cut(self, offset: int) -> int:
        return offset

    @property
    def oldest_whole_offset(self) -> int:
        return self.log_start_offset

    @property
    def state_offset(self) -> int | None:
        return self.log_start_offset

    def begin_at(self, state: FrozenTable, *, is_kept: bool) -> None:
        offset = state.offset
        self.records.clear()
        self.epochs.clear()
        self.log_start_offset = offset
        self.durable_offset = offset

    def advance_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        del self.records[: offset - self.log_start_offset]
        self.log_start_offset = offset
        self.epochs.truncate_start(offset)

    def doubt(self, offset: int, error: CorruptMessage) -> None:
        raise AssertionError(f"nothing rots here: {error}")

    def recover(self) -> None:
        """What a start does: epochs are rebuilt from the records, and all is fsynced."""
        self.epochs = EpochCache()
        for index, (epoch, _) in enumerate(self.records):
            if epoch != self.epochs.last_epoch:
                self.epochs.assign(epoch, self.log_start_offset + index)
        self.flush()

    def power_cut(self, rng: random.Random) -> None:
        """Lose a random part of what was not fsynced."""
        kept = rng.randint(self.durable_offset, self.log_end_offset)
        del self.records[kept - self.log_start_offset :]
