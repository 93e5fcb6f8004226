"""The page through which a node's faults are switched from outside, while it runs.

A file of 64 bytes that both sides map; the node looks at it whenever it touches its disk or its
wall clock, so a fault begins and ends at once, without a task or a socket in the node.
Little-endian:

     0  8  magic "PACEFLT1"
     8  8  i64  wall clock offset, ms
    16  4  i32  errno of every write; 0: writes work
    20  4  i32  syncs that are still to fail with EIO, one after the other
    24  8  f64  added to every sync, seconds
    32  8  i64  free bytes that the disk shows; -1: what is really free
    40  8  f64  how fast the monotonic clock goes; 1: as it should
    48 16  2 i64  bytes of every log, from and to, that answer EIO to a read; equal: none
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

MAGIC = b"PACEFLT1"
_SIZE = 64
_I64 = struct.Struct("<q")
_I32 = struct.Struct("<i")
_F64 = struct.Struct("<d")
_RANGE = struct.Struct("<qq")
_WALL, _WRITES, _SYNCS, _DELAY, _FREE, _RATE, _UNREADABLE = 8, 16, 20, 24, 32, 40, 48


class ControlPage:
    """The faults of one node. ``path`` None: both sides live in this process."""

    def __init__(self, path: Path | None = None) -> None:
        if path is None:
            self._map = mmap.mmap(-1, _SIZE)
            self._map[:8] = MAGIC
            self.heal()
            return
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE)
        if self._map[:8] != MAGIC:
            self._map.close()
            raise ValueError(f"{path} is no page of faults")

    @classmethod
    def create(cls, path: Path) -> ControlPage:
        """Make the file, without any fault, and map it."""
        path.write_bytes(MAGIC + bytes(_SIZE - len(MAGIC)))
        page = cls(path)
        page.heal()
        return page

    def close(self) -> None:
        self._map.close()

    def heal(self) -> None:
        """Take all faults back."""
        self.wall_offset_ms = 0
        self.write_errno = 0
        self.sync_failures = 0
        self.sync_delay_s = 0.0
        self.free_bytes = None
        self.clock_rate = 1.0
        self.unreadable = None

    @property
    def wall_offset_ms(self) -> int:
        """How far the wall clock is wrong."""
        return int(_I64.unpack_from(self._map, _WALL)[0])

    @wall_offset_ms.setter
    def wall_offset_ms(self, value: int) -> None:
        _I64.pack_into(self._map, _WALL, value)

    @property
    def write_errno(self) -> int:
        """What every write fails with; 0 when they work."""
        return int(_I32.unpack_from(self._map, _WRITES)[0])

    @write_errno.setter
    def write_errno(self, value: int) -> None:
        _I32.pack_into(self._map, _WRITES, value)

    @property
    def sync_failures(self) -> int:
        """How many of the next syncs fail."""
        return int(_I32.unpack_from(self._map, _SYNCS)[0])

    @sync_failures.setter
    def sync_failures(self, value: int) -> None:
        _I32.pack_into(self._map, _SYNCS, value)

    @property
    def sync_delay_s(self) -> float:
        """How much longer every sync takes."""
        return float(_F64.unpack_from(self._map, _DELAY)[0])

    @sync_delay_s.setter
    def sync_delay_s(self, value: float) -> None:
        _F64.pack_into(self._map, _DELAY, value)

    @property
    def free_bytes(self) -> int | None:
        """Room that the disk pretends to have; None: the truth."""
        value = int(_I64.unpack_from(self._map, _FREE)[0])
        return None if value < 0 else value

    @free_bytes.setter
    def free_bytes(self, value: int | None) -> None:
        _I64.pack_into(self._map, _FREE, -1 if value is None else value)

    @property
    def unreadable(self) -> tuple[int, int] | None:
        """Bytes (from, to) of every log that cannot be read, where they were not written since."""
        start, end = _RANGE.unpack_from(self._map, _UNREADABLE)
        return (int(start), int(end)) if start < end else None

    @unreadable.setter
    def unreadable(self, value: tuple[int, int] | None) -> None:
        self._map[_UNREADABLE : _UNREADABLE + _RANGE.size] = _RANGE.pack(*(value or (0, 0)))

    @property
    def clock_rate(self) -> float:
        """How fast the monotonic clock goes, above 0."""
        return float(_F64.unpack_from(self._map, _RATE)[0])

    @clock_rate.setter
    def clock_rate(self, value: float) -> None:
        # At once: pack_into would clear the bytes first, and the node may look just then.
        self._map[_RATE : _RATE + _F64.size] = _F64.pack(value)
