"""Bytes of one metadata log segment, and reading a chain of them back.

Big-endian. A segment is a header and frames::

    0        4      6      8           16          24
    +--------+------+------+-----------+-----------+---------+
    | "PLRL" | u16  | u16  | u64       | u64       | u32     |
    |        | vers.| zero | base index| base term | CRC-32C |
    +--------+------+------+-----------+-----------+---------+

    0         4         8            16        24       32     33
    +---------+---------+------------+---------+--------+------+----------+
    | u32     | u32     | u64        | u64     | u64    | u8   | data     |
    | size    | CRC-32C | synced     | index   | term   | kind |          |
    +---------+---------+------------+---------+--------+------+----------+

``base`` is the last entry before the segment. ``size`` counts what follows the CRC, which covers
just that. ``synced`` is how much of this segment was known to be on stable storage when the frame
was written. That decides what a bad frame means: nothing behind it says that it was synced -> it
is a torn write that nobody was told about; anything else -> damage. Rules: RAFT 5.2.
"""

from __future__ import annotations

import struct
from dataclasses import field

from paceline.errors import CorruptMessage
from paceline.values import dataclass
from paceline.wire.checksum import crc32c
from paceline_node.controller.raft_types import Entry, EntryKind

SEGMENT_SUFFIX = ".raft"
HEADER_BYTES = 28
_MAGIC = b"PLRL"
_VERSION = 1
_HEADER = struct.Struct(">4sHHQQ")
_CRC = struct.Struct(">I")
_FRAME = struct.Struct(">II")
_BODY = struct.Struct(">QQQB")


def segment_name(number: int) -> str:
    return f"{number:020d}{SEGMENT_SUFFIX}"


def encode_header(base_index: int, base_term: int) -> bytes:
    head = _HEADER.pack(_MAGIC, _VERSION, 0, base_index, base_term)
    return head + _CRC.pack(crc32c(head))


def encode_entry(entry: Entry, synced: int) -> bytes:
    """One frame; ``synced`` is the durable size of the segment at this moment."""
    body = _BODY.pack(synced, entry.index, entry.term, entry.kind) + entry.data
    return _FRAME.pack(len(body), crc32c(body)) + body


@dataclass(frozen=True, slots=True)
class _Frame:
    end: int
    synced: int
    entry: Entry


def _frame_at(view: memoryview, position: int) -> _Frame | None:
    """The frame that begins here; None when none does."""
    if len(view) - position < _FRAME.size + _BODY.size:
        return None
    size, crc = _FRAME.unpack_from(view, position)
    start = position + _FRAME.size
    if size < _BODY.size or size > len(view) - start:
        return None
    body = view[start : start + size]
    if crc32c(body) != crc:
        return None
    synced, index, term, kind = _BODY.unpack_from(body)
    try:
        entry = Entry(index, term, EntryKind(kind), bytes(body[_BODY.size :]))
    except ValueError:
        return None
    return _Frame(start + size, synced, entry)


def _is_confirmed(view: memoryview, position: int) -> bool:
    """Whether any frame behind ``position`` was written after that point had been synced."""
    for candidate in range(position + 1, len(view)):
        frame = _frame_at(view, candidate)
        if frame is not None and frame.synced > position:
            return True
    return False


def _header_holds(view: memoryview) -> bool:
    if len(view) < HEADER_BYTES:
        return False
    (crc,) = _CRC.unpack_from(view, _HEADER.size)
    return bytes(view[:4]) == _MAGIC and crc == crc32c(view[: _HEADER.size])


def whole_bytes(data: bytes | memoryview) -> int:
    """How many bytes hold, from the beginning on."""
    view = memoryview(data)
    if not _header_holds(view):
        return 0
    position = HEADER_BYTES
    while (frame := _frame_at(view, position)) is not None:
        position = frame.end
    return position


def merged(one: bytes, other: bytes) -> bytes:
    """What two copies of one segment hold together: each frame from whichever copy has it whole.

    What follows the last whole frame is kept as it is in one of them, the one that proves it to be
    damage if there is one: the reader judges it.
    """
    views = [memoryview(one), memoryview(other)]
    views.sort(key=whole_bytes, reverse=True)
    if whole_bytes(views[0]) == 0:
        return max(one, other, key=len)
    position = HEADER_BYTES
    result = bytearray(views[0][:HEADER_BYTES])
    while True:
        frames = (_frame_at(view, position) for view in views)
        view, frame = next(
            ((v, f) for v, f in zip(views, frames, strict=True) if f is not None), (None, None)
        )
        if view is None or frame is None:
            break
        result += view[position : frame.end]
        position = frame.end
    tails = sorted((view[position:] for view in views), key=len, reverse=True)
    confirmed = [tail for tail in tails if _is_confirmed(_padded(tail, position), position)]
    return bytes(result + (confirmed or tails)[0])


def _padded(tail: memoryview, position: int) -> memoryview:
    """The tail where it lay in its segment."""
    return memoryview(bytes(position) + tail)


@dataclass(slots=True)
class Replay:
    """The log as its segments tell it, fed in order."""

    base: tuple[int, int] = (0, 0)
    entries: list[Entry] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    highest: dict[int, int] = field(default_factory=dict)
    truncated: int = 0

    @property
    def last_index(self) -> int:
        return self.base[0] + len(self.entries)

    def term_at(self, index: int) -> int | None:
        if index == self.base[0]:
            return self.base[1]
        if self.base[0] < index <= self.last_index:
            return self.entries[index - self.base[0] - 1].term
        return None

    def add(self, number: int, data: bytes, *, is_last: bool) -> int:
        """Replay one segment; how many of its bytes hold (0: not even the header).

        Only the last segment may end torn: before a new one begins the old one is synced. Raises
        CorruptMessage for damage.
        """
        view = memoryview(data)
        if not self._begin(view):
            if not is_last or _is_confirmed(view, 0):
                raise CorruptMessage("the header does not hold")
            self.truncated += len(data)
            return 0
        self.numbers.append(number)
        self.highest[number] = 0
        position = HEADER_BYTES
        while position < len(view):
            frame = _frame_at(view, position)
            if frame is None:
                if not is_last or _is_confirmed(view, position):
                    raise CorruptMessage(f"the entry at byte {position} does not hold")
                self.truncated += len(view) - position
                break
            self._take(frame.entry, position)
            self.highest[number] = max(self.highest[number], frame.entry.index)
            position = frame.end
        return position

    def _begin(self, view: memoryview) -> bool:
        if not _header_holds(view):
            return False
        _, version, _, base_index, base_term = _HEADER.unpack_from(view)
        if version != _VERSION:
            raise CorruptMessage(f"segment version {version}, expected {_VERSION}")
        if (base_index, base_term) != (self.last_index, self.term_at(self.last_index)):
            # A received snapshot replaced the log, or this is the oldest segment kept.
            self.base = (base_index, base_term)
            self.entries.clear()
        return True

    def _take(self, entry: Entry, position: int) -> None:
        if entry.index <= self.base[0]:
            # It replaced an entry of a segment that is gone; the snapshot covers both.
            self.entries.clear()
            self.base = (entry.index, entry.term)
            return
        if entry.index > self.last_index + 1:
            raise CorruptMessage(
                f"entry {entry.index} at byte {position} follows {self.last_index}"
            )
        del self.entries[entry.index - self.base[0] - 1 :]
        self.entries.append(entry)
