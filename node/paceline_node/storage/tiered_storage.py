"""The seam for a second storage tier: batches that this node's disk gave up, and others have kept.

Nothing here knows of objects or buckets. A tier is whatever finds batches by offset and may take
its time (DESIGN 11). Almost all reads are of what the disk has, and never come here:
:meth:`Log.locate` finds that without waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.errors import OffsetNotAvailable, OffsetOutOfRange
from paceline_node.storage.partition_file import PartitionIdentity
from paceline_node.storage.producers import ProducerTable
from paceline_node.storage.reading import LocalSlice, LogSlice
from paceline_node.storage.transaction_index import AbortedTransaction


class SegmentSource(Protocol):
    """Segments of one log, read by offset. All of it is committed. The methods are cancel-safe."""

    @property
    def start_offset(self) -> int:
        """The first offset that is found here; never falls."""

    async def find(self, offset: int, max_bytes: int, end_offset: int) -> LogSlice | None:
        """Whole batches from the one that contains ``offset``, at most ``max_bytes`` but at least
        one, none that reaches ``end_offset``; None when there is none.

        Reading them may wait again. Raises OffsetOutOfRange for what is not here, CorruptMessage
        where it is damaged, OffsetNotAvailable where it cannot be had now.
        """

    async def aborted_in(self, start: int, end: int) -> Sequence[AbortedTransaction]:
        """Whose records between two offsets readers of committed data must drop."""


class InOlderTier(OffsetNotAvailable):
    """An offset that only :meth:`Tiers.find` can find, which waits. To the client of a reader that
    cannot wait it means that it should ask again."""


class LocalTier(Protocol):
    """What this node's disk has of a log: a :class:`~paceline_node.storage.log.Log`."""

    identity: PartitionIdentity
    log_start_offset: int
    producers: ProducerTable

    @property
    def log_end_offset(self) -> int: ...

    def locate(self, offset: int, max_bytes: int, end_offset: int) -> LocalSlice | None: ...


class Tiers:
    """A log as its readers see it, in two tiers at most: a :class:`SegmentSource` itself."""

    __slots__ = ("_local", "older")

    def __init__(self, local: LocalTier) -> None:
        self._local = local
        self.older: SegmentSource | None = None
        """Has what lies below the log start, up to there without a gap."""

    @property
    def start_offset(self) -> int:
        """Where readers may begin."""
        start = self._local.log_start_offset
        return start if self.older is None else min(start, self.older.start_offset)

    async def find(self, offset: int, max_bytes: int, end_offset: int) -> LogSlice | None:
        """As :meth:`SegmentSource.find`; what the disk has is found without a checkpoint."""
        try:
            return self._local.locate(offset, max_bytes, end_offset)
        except InOlderTier:
            assert self.older is not None
        return await self.older.find(offset, max_bytes, end_offset)

    async def aborted_in(self, start: int, end: int) -> Sequence[AbortedTransaction]:
        """As :meth:`SegmentSource.aborted_in`, of a slice that :meth:`find` found at ``start``."""
        if self.older is not None and start < self._local.log_start_offset:
            return await self.older.aborted_in(start, end)
        return self._local.producers.transactions.aborted_in(start, end)

    def outside(self, offset: int, start: int) -> OffsetOutOfRange | InOlderTier:
        """Why the disk, which has ``start`` and what follows, does not have ``offset``."""
        local = self._local
        if self.start_offset <= offset < local.log_start_offset:
            return InOlderTier(f"{local.identity}: offset {offset} is not on this disk any more")
        known = f"{start}..{local.log_end_offset}"
        return OffsetOutOfRange(f"{local.identity}: offset {offset} is outside {known}")
