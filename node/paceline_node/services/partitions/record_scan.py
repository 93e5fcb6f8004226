"""Reading records one batch after the other, as listeners do that decode them.

Committed records only, in order, past everything that is hidden: control batches, and offsets
that compaction emptied (DESIGN 4.1). What is decoded was verified first (DESIGN 4.2), and so was
its place in the log, which no checksum covers; a batch that does not hold is reported, for it was
sound when it was appended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.errors import CorruptMessage
from paceline.types import Compression, Isolation
from paceline.wire.batch import BatchHeader, verify
from paceline.wire.records import Record, decode_records
from paceline_node.env import Env
from paceline_node.replication.older_tier_reads import read_older
from paceline_node.replication.partition import Partition
from paceline_node.storage.reading import LocalSlice
from paceline_node.storage.tiered_storage import InOlderTier
from paceline_node.storage.transaction_index import AbortedTransaction, is_aborted

_INLINE_BYTES = 64 * 1024
"""More than this is read or decompressed in a thread (DESIGN 4.2)."""


class RecordScan:
    """One pass over a replica, from ``position`` on; not for use by two tasks."""

    def __init__(
        self,
        env: Env,
        replica: Partition,
        position: int,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int,
        from_follower: bool = False,
    ) -> None:
        """``max_bytes`` is how much of the log is read at a time. ``high_watermark`` is that which
        the newest read was made under."""
        self._env = env
        self._replica = replica
        self._isolation = isolation
        self._max_bytes = max_bytes
        self._from_follower = from_follower
        self._first = self.position = position
        self.high_watermark = replica.high_watermark
        self._data = b""
        self._batches: Iterator[tuple[int, BatchHeader]] = iter(())
        self._aborted: Sequence[AbortedTransaction] = ()
        self._last_offset = position

    async def next_batch(self) -> list[Record] | None:
        """The records of the next batch that shows any, or None at the end of what may be read.

        ``position`` is then the offset behind that batch. Raises NotLeader, OffsetOutOfRange,
        OffsetNotAvailable, and CorruptMessage naming the offset.
        """
        while True:
            try:
                for at, header in self._batches:
                    records = await self._open(at, header)
                    self.position = header.next_offset
                    if records:
                        return records
            except CorruptMessage:
                self._replica.suspect(min(self.position, self._last_offset))
                raise
            if not await self._read():
                return None

    async def _read(self) -> bool:
        asked = self.position, self._max_bytes, self._isolation
        try:
            read = self._replica.read(*asked, from_follower=self._from_follower)
        except InOlderTier:
            read = await read_older(self._replica, *asked)
        self.high_watermark, found = read.high_watermark, read.slice
        if found is None:
            return False
        self._aborted = read.aborted
        if isinstance(found, LocalSlice) and found.size <= _INLINE_BYTES:
            self._data = found.read()
        else:
            self._data = await found.read_async()
        self._batches = found.batches(self._data)
        self._last_offset = found.next_offset - 1
        return True

    async def _open(self, at: int, header: BatchHeader) -> list[Record]:
        if header.is_control or not header.record_count or is_aborted(header, self._aborted):
            return []
        verify(self._data, at)
        if header.compression == Compression.NONE:
            records = decode_records(self._data, at)
        else:
            data = self._data
            records = await self._env.host.run_blocking(lambda: decode_records(data, at))
        if header.base_offset >= self._first:
            return records
        return [record for record in records if record.offset >= self._first]
