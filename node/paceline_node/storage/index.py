"""Sparse indexes of one segment: offset to position, and timestamp to offset.

Pure. Both files are laid out as Kafka's, so that other tools may read them (DESIGN 1.1).
Big-endian::

    .index       +--------------------+--------------------+
    8 bytes      | u32 offset - base  | u32 file position  |   one entry a batch start
                 +--------------------+--------------------+

    .timeindex   +-----------------------------------------+--------------------+
    12 bytes     | i64 largest timestamp so far (ms)       | u32 offset - base  |
                 +-----------------------------------------+--------------------+

An entry is made every ``index_interval_bytes`` of log. Offsets and positions strictly increase;
so do timestamps: an entry says that no record up to its offset is younger. In memory they are
plain arrays (20 bytes for every 64 KiB of log); they are written when the segment is sealed or
the log is closed, and rebuilt by a scan when they do not fit.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from paceline.errors import CorruptMessage

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")

MAX_RELATIVE = 2**31 - 1
"""Largest relative offset and position: other readers take them for signed."""


class OffsetIndex:
    """Batch starts of one segment: every so many bytes, ascending."""

    __slots__ = ("_offsets", "_positions", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("I")
        self._positions = array("I")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last_position(self) -> int:
        """Position of the last entry; -1 when empty."""
        return self._positions[-1] if self._positions else -1

    def add(self, offset: int, position: int) -> None:
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)

    def floor(self, offset: int) -> tuple[int, int]:
        """(offset, position) of the last entry at or before ``offset``; the segment's start when
        there is none."""
        at = bisect_right(self._offsets, offset - self.base_offset) - 1
        if at < 0:
            return self.base_offset, 0
        return self.base_offset + self._offsets[at], self._positions[at]

    def floor_position(self, position: int) -> tuple[int, int]:
        """(offset, position) of the last entry at or before a file position."""
        at = bisect_right(self._positions, position) - 1
        if at < 0:
            return self.base_offset, 0
        return self.base_offset + self._offsets[at], self._positions[at]

    def entry(self, at: int) -> tuple[int, int]:
        """(offset, position) of entry number ``at``."""
        return self.base_offset + self._offsets[at], self._positions[at]

    def entries(self) -> Iterator[tuple[int, int]]:
        """(position, offset) of each entry, ascending."""
        for position, relative in zip(self._positions, self._offsets, strict=True):
            yield position, self.base_offset + relative

    def truncate(self, position: int) -> None:
        """Drop entries at or behind a file position."""
        keep = bisect_left(self._positions, position)
        del self._offsets[keep:]
        del self._positions[keep:]

    def to_bytes(self) -> bytes:
        interleaved = array("I", bytes(4 * 2 * len(self._offsets)))
        interleaved[0::2] = self._offsets
        interleaved[1::2] = self._positions
        if sys.byteorder == "little":
            interleaved.byteswap()
        return interleaved.tobytes()

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes, log_size: int) -> OffsetIndex:
        """Read a file. Raises CorruptMessage when its size or its last entry cannot be true."""
        if len(data) % _OFFSET_ENTRY.size:
            raise CorruptMessage(f"offset index of {len(data)} bytes is cut short")
        index = cls(base_offset)
        interleaved = array("I", data)
        if sys.byteorder == "little":
            interleaved.byteswap()
        index._offsets = interleaved[0::2]
        index._positions = interleaved[1::2]
        if not _ascending(index._offsets) or not _ascending(index._positions):
            raise CorruptMessage("offset index entries do not ascend")
        if index.last_position >= log_size:
            raise CorruptMessage(
                f"offset index points to byte {index.last_position} of a log of {log_size}"
            )
        return index


class TimeIndex:
    """Timestamps of one segment: the largest so far, at ascending offsets."""

    __slots__ = ("_offsets", "_timestamps", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("I")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def last(self) -> tuple[int, int]:
        """(largest timestamp, offset of its batch's last record); (-1, base offset) when empty."""
        if not self._offsets:
            return -1, self.base_offset
        return self._timestamps[-1], self.base_offset + self._offsets[-1]

    def add(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry unless ``timestamp_ms`` is not above the last one's."""
        relative = offset - self.base_offset
        if not self._offsets or (
            timestamp_ms > self._timestamps[-1] and relative > self._offsets[-1]
        ):
            self._timestamps.append(timestamp_ms)
            self._offsets.append(relative)

    def entry(self, at: int) -> tuple[int, int]:
        """(largest timestamp, offset of its batch's last record) of entry number ``at``."""
        return self._timestamps[at], self.base_offset + self._offsets[at]

    def count_below(self, timestamp_ms: int) -> int:
        """How many entries are below a time."""
        return bisect_left(self._timestamps, timestamp_ms)

    def count_within(self, end_offset: int) -> int:
        """How many entries are below an offset."""
        return bisect_left(self._offsets, max(0, end_offset - self.base_offset))

    def last_below(self, timestamp_ms: int) -> int:
        """An offset up to which every record is older than ``timestamp_ms`` (inclusive); the base
        offset when nothing is known, so a search begins there either way."""
        at = self.count_below(timestamp_ms) - 1
        return self.base_offset + self._offsets[at] if at >= 0 else self.base_offset

    def last_within(self, end_offset: int) -> tuple[int, int]:
        """(largest timestamp, offset of its batch's last record) of the last entry below an
        offset; (-1, base offset) when there is none."""
        at = self.count_within(end_offset) - 1
        if at < 0:
            return -1, self.base_offset
        return self._timestamps[at], self.base_offset + self._offsets[at]

    def truncate(self, offset: int) -> None:
        """Drop entries at or behind an offset."""
        keep = bisect_left(self._offsets, max(0, offset - self.base_offset))
        del self._timestamps[keep:]
        del self._offsets[keep:]

    def to_bytes(self) -> bytes:
        return b"".join(
            _TIME_ENTRY.pack(*entry) for entry in zip(self._timestamps, self._offsets, strict=True)
        )

    @classmethod
    def from_bytes(cls, base_offset: int, data: bytes) -> TimeIndex:
        """Read a file. Raises CorruptMessage when it is cut or does not ascend."""
        if len(data) % _TIME_ENTRY.size:
            raise CorruptMessage(f"time index of {len(data)} bytes is cut short")
        index = cls(base_offset)
        for timestamp, relative in _TIME_ENTRY.iter_unpack(data):
            index._timestamps.append(timestamp)
            index._offsets.append(relative)
        if not _ascending(index._offsets) or not _ascending(index._timestamps):
            raise CorruptMessage("time index entries do not ascend")
        return index


def _ascending(values: array[int]) -> bool:
    listed = values.tolist()
    # In C: a 1 GiB segment has 16,384 entries. No two are equal, as in a file of zeros.
    return listed == sorted(set(listed))
