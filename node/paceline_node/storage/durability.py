"""What of one log is on stable storage, and what a sync has to cover to make it so.

Pure bookkeeping: it holds file handles but only closes them. A sync runs while appends and
truncations go on, so each one is described by a :class:`SyncTicket` drawn when it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from paceline.types import NO_EPOCH
from paceline.wire.batch_header import BatchHeader
from paceline_node.env import File
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.fingerprint import MOST, UNKNOWN, Fingerprint, NewestFile
from paceline_node.storage.log_file import raw
from paceline_node.storage.log_segment import Segment
from paceline_node.storage.offset_assignment import Placed


class Marked(NamedTuple):
    """How far a log was synced; the leader epoch of the last record below ``offset`` (-1: none is
    known), and where that began; what its newest file can be told by."""

    offset: int
    epoch: int = NO_EPOCH
    epoch_start: int = 0
    fingerprint: Fingerprint = UNKNOWN

    @classmethod
    def of(cls, offset: int, epochs: EpochCache, fingerprint: Fingerprint = UNKNOWN) -> Marked:
        """The mark of a log with these epochs that was synced up to ``offset``."""
        last = epochs.entry_at(offset - 1)
        epoch, start = (NO_EPOCH, 0) if last is None else last
        return cls(offset, epoch, start, fingerprint)

    def unproven_from(self, epochs: EpochCache) -> int | None:
        """Where a log with these epochs begins to say what nobody was told (DESIGN 6.1): its first
        record of a newer epoch than this exact mark's. None: nowhere."""
        start = epochs.start_above(self.epoch)
        return None if start is None else max(start, self.offset)

    def is_ahead_of(self, epochs: EpochCache) -> bool:
        """Whether a table, if it was written behind this mark, is not the newest."""
        if self.epoch > epochs.last_epoch:
            return True
        return epochs.epoch_at(self.offset - 1) not in (NO_EPOCH, self.epoch)

    def speaks_against(self, header: BatchHeader) -> bool:
        """Whether a batch below this mark cannot have the epoch that its header names."""
        if self.epoch < 0 or header.base_offset >= self.offset:
            return False
        # By its end: the table may begin inside a batch that the log start lies in.
        if header.last_offset >= self.epoch_start:
            return header.leader_epoch != self.epoch
        return header.leader_epoch > self.epoch


class Mark(Protocol):
    """Where it is kept on disk how far one log was synced (``durable_marks.py``)."""

    def reach(self, told: Marked) -> None:
        """Everything below was synced."""

    def lower(self, told: Marked) -> None:
        """The log is about to be cut there."""


class _NoMark:
    def reach(self, told: Marked) -> None: ...

    def lower(self, told: Marked) -> None: ...


UNMARKED: Mark = _NoMark()
"""Of a log that no data directory looks after."""


class SyncTicket:
    """What a sync that starts now would make durable.

    ``files`` are to be synced first, then the entries of ``directory`` unless it is None. A
    truncation meanwhile lowers ``end_offset``.
    """

    __slots__ = ("closing", "directory", "end_offset", "files", "fingerprint", "truncations")

    def __init__(
        self,
        end_offset: int,
        fingerprint: Fingerprint,
        files: Sequence[File],
        closing: Sequence[File],
        *,
        directory: str | None,
        truncations: int,
    ) -> None:
        self.end_offset = end_offset
        self.fingerprint = fingerprint
        self.files = files
        self.closing = closing
        self.directory = directory
        self.truncations = truncations


class Durability:
    """Unsynced files of one log and its durable offset (exclusive, never above the log end)."""

    def __init__(self, directory: str, durable_offset: int) -> None:
        self.durable_offset = durable_offset
        self._fingerprint = UNKNOWN  # of the log up to the durable offset
        self._newest = NewestFile()
        self._directory = directory
        self._directory_dirty = False
        self._dirty: list[File] = []
        self._closing: list[File] = []
        self._tickets: list[SyncTicket] = []
        self._truncations = 0
        self._truncations_synced = 0
        self._withheld_from: int | None = None
        self._is_true = False  # what is withheld waits for a sync only

    @property
    def is_dirty(self) -> bool:
        """Whether there is anything to sync."""
        return bool(self._dirty) or self._directory_dirty

    @property
    def truncation_pending(self) -> bool:
        """Whether a file was shortened and no sync has covered that yet."""
        return self._truncations != self._truncations_synced

    def touch(self, file: File) -> None:
        """Bytes of ``file`` changed."""
        if not self._dirty or self._dirty[-1] is not file:
            self._dirty.append(file)

    def appended(self, file: File, placed: Sequence[Placed]) -> None:
        """These batches are the log's last now, in ``file``."""
        self._newest.appended(placed[-MOST:])
        self.touch(file)

    def begun(self, file: File, base_offset: int) -> None:
        """``file`` is the log's newest now, and empty."""
        self._newest.begun(base_offset)
        self.touch(file)
        self._directory_dirty = True

    def newest_removed(self) -> None:
        """An older file of the log is its newest now."""
        self._newest.begun(-1)

    def opened(self, newest: Segment, reach: int) -> None:
        """The log ends with ``newest``, all of which is durable. ``reach``: as its mark says."""
        self._newest.read(newest, reach)
        self.durable_offset = newest.next_offset
        self._fingerprint = self._newest.told(self.durable_offset)

    def withhold(self, offset: int | None) -> None:
        """What an opened log has from there on counts for nothing until :meth:`prove`; a sync does
        not change that."""
        if offset is not None and offset < self.durable_offset:
            self._withheld_from = self.durable_offset = offset
            self._fingerprint, self._is_true = UNKNOWN, False

    def is_proven(self) -> bool:
        """Whether nothing is withheld."""
        return self._withheld_from is None

    def prove(self) -> bool:
        """The partition's leader has the newest epochs, too, or this log leads: what is withheld
        counts from the next sync on. Returns whether this is news, and a sync is needed."""
        is_news = not self._is_true and not self.is_proven()
        self._is_true = True
        return is_news

    def marked(self, epochs: EpochCache) -> Marked:
        """The mark of the log, which has these epochs."""
        return Marked.of(self.durable_offset, epochs, self._fingerprint)

    def replaced(self) -> None:
        """A file of the log is another one now, perhaps with other batches at its end. It is not
        the newest, but may have been when a sync began."""
        base = self._newest.base_offset
        if self.durable_offset <= base:
            self._fingerprint = UNKNOWN
        for ticket in self._tickets:
            if ticket.end_offset <= base:
                ticket.fingerprint = UNKNOWN

    def touch_directory(self) -> None:
        """Names in the log's directory changed."""
        self._directory_dirty = True

    def sync_and_close(self, files: Sequence[File]) -> None:
        """New files that nobody writes again: close them once they are synced."""
        self._dirty.extend(files)
        self._closing.extend(files)
        self._directory_dirty = True

    def removed(self, file: File) -> None:
        """``file`` was unlinked; its bytes need not reach the disk."""
        gone = raw(file)  # it may have been touched by either name
        self._dirty = [each for each in self._dirty if raw(each) is not gone]
        for ticket in self._tickets:
            ticket.files = tuple(each for each in ticket.files if each is not gone)
        self._directory_dirty = True

    def shortened(self, file: File) -> None:
        """``file`` was truncated in place."""
        self._dirty.append(file)
        self._truncations += 1

    def cut_back(self, end_offset: int) -> None:
        """The log ends at ``end_offset`` now: nothing above it can become durable."""
        self._newest.cut(end_offset)
        if self._withheld_from is not None and end_offset <= self._withheld_from:
            self._withheld_from = None
        if end_offset <= self.durable_offset:
            self.durable_offset, self._fingerprint = end_offset, self._newest.told(end_offset)
        for ticket in self._tickets:
            if end_offset < ticket.end_offset:
                ticket.end_offset, ticket.fingerprint = end_offset, UNKNOWN

    def draw(self, end_offset: int) -> SyncTicket:
        """Describe a sync that starts now, for a log that ends at ``end_offset``."""
        if self._withheld_from is not None and not self._is_true:
            end_offset = self._withheld_from
        ticket = SyncTicket(
            end_offset,
            self._newest.told(end_offset),
            tuple(dict.fromkeys(map(raw, self._dirty))),
            tuple(self._closing),
            directory=self._directory if self._directory_dirty else None,
            truncations=self._truncations,
        )
        self._dirty.clear()
        self._closing.clear()
        self._directory_dirty = False
        self._tickets.append(ticket)
        return ticket

    def put_back(self, ticket: SyncTicket) -> None:
        """The sync that ``ticket`` describes did not begin, or was not waited for: the next one has
        to cover it all."""
        self._tickets.remove(ticket)
        self._dirty[:0] = ticket.files
        self._closing[:0] = ticket.closing
        self._directory_dirty |= ticket.directory is not None

    def synced(self, ticket: SyncTicket) -> None:
        """The sync that ``ticket`` describes has succeeded."""
        self._tickets.remove(ticket)
        for file in ticket.closing:
            file.close()
        self._truncations_synced = max(self._truncations_synced, ticket.truncations)
        if ticket.end_offset > self.durable_offset:
            self.durable_offset, self._fingerprint = ticket.end_offset, ticket.fingerprint
            self._withheld_from = None

    def close(self) -> None:
        """Close the files that waited for a sync."""
        for file in (
            *self._closing,
            *(file for ticket in self._tickets for file in ticket.closing),
        ):
            file.close()
