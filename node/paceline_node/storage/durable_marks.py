"""``durable.marks``: how far each log is known to be on stable storage, after every group sync.

What opening a log needs most after a crash is the line between what was promised and what was
not: below it a bad batch is damage, above it nobody was told of the record. The recovery point is
that line as it was some seconds ago. The marks are it to the last sync, and cost no sync of their
own: they are written, not synced, when a group's sync has succeeded and before anybody is told.

* After a kill the page cache still has them: they are exact.
* For a power cut they ride in the sync of a group, four times a second at most, and always in the
  next one after a mark was lowered. So they are a fraction of a second old; but a leader epoch that
  is new to one is synced before anybody is told of a record of it.

One slot of 64 bytes a log, overwritten in place; big-endian, the CRC-32C over all before it, the
rest zeros::

     0               16          20           28          32           40      44             60
    +---------------+-----------+------------+-----------+------------+-------+--------------+-----+
    | topic id      | u32       | i64 offset | i32 epoch | i64 its    | u32   | 4 u32: last, | u32 |
    |               | partition |            |           | start      | crc   | reach,       | crc |
    |               |           |            |           |            |       | trail, first |     |
    +---------------+-----------+------------+-----------+------------+-------+--------------+-----+

The epoch is that of the last record below the offset (-1: none), and where it begins. It lies
outside every batch's own checksum, and the table of epochs is written with checkpoints only. The
four numbers are of the batches below the offset in the newest file, which is known by them should
it be exchanged with another log's (``fingerprint.py``); the second CRC covers all before it.
Earlier versions wrote zeros there, or the first of the four, the second CRC, and zeros.

A slot is written within one sector, so a power cut leaves an old or the new one. A missing file, or
a slot that is not whole, means "not known": then the recovery point has to do. But a log may have
lost whole batches above that point without a trace, so such a start is not trusted
(``log_directory.py``), unless the process before stopped in an orderly way.

One slot is not a log's: it counts the syncs that the marks rode in (DESIGN 6.2)::

     0               16          20                 28                        60
    +---------------+-----------+------------------+--------------------------+-----+
    | _COUNTS       | zeros     | i64 syncs        | zeros                    | u32 |
    |               |           |                  |                          | crc |
    +---------------+-----------+------------------+--------------------------+-----+

Earlier versions find no whole mark in it, and empty it.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from uuid import UUID

from paceline.types import TopicId
from paceline.wire.checksum import crc32c
from paceline_node.env import Disk, File
from paceline_node.storage.durability import Marked
from paceline_node.storage.fingerprint import UNKNOWN, Fingerprint
from paceline_node.storage.layout import PartitionKey
from paceline_node.storage.log_file import Salvage, Unreadable, open_file
from paceline_node.storage.obstructing_entries import make_way

NAME = "durable.marks"
RIDE_S = 0.25
"""How often the marks ride in the sync of a group, at most."""

_SLOT = struct.Struct(">16sIqiq")
_CRC = struct.Struct(">I")
_FINGERPRINT = struct.Struct(">IIII")
_COUNT = struct.Struct(">16s4xq32x")
_COUNTS = b"syncs so far\0\0\0\0"
_SLOT_BYTES = 64
_RUN = 64  # slots: a page


class LogMark:
    """The mark of one log. ``told``: everything below its offset that the log holds was synced."""

    __slots__ = ("_marks", "_slot", "told")

    def __init__(self, marks: DurableMarks, slot: int, told: Marked) -> None:
        self._marks = marks
        self._slot = slot
        self.told = told

    def reach(self, told: Marked) -> None:
        """A sync has covered the log up to there; :meth:`DurableMarks.flush` writes it."""
        if told.offset >= self.told.offset and told != self.told:
            self._set(told)

    def lower(self, told: Marked) -> None:
        """The log is about to be cut there: written at once, since a mark above the end of a log
        would tell of a loss. Never fails: such a false alarm costs a repair."""
        if told.offset < self.told.offset:
            self._set(told)
            self._marks.lowered()

    def _set(self, told: Marked) -> None:
        self._marks.begins_term |= told.epoch != self.told.epoch
        self.told = told
        self._marks.change(self, self._slot)


def _unnoted(syncs: int) -> None:
    """Nobody notes it."""


class DurableMarks:
    """The file, its image in memory, and who has which slot."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._file: File | None = None
        self._image = bytearray()
        self._slots: dict[PartitionKey, int] = {}
        self._free: list[int] = []
        self._keys: dict[int, PartitionKey] = {}
        self._owners: dict[int, LogMark] = {}
        self._dirty: set[int] = set()
        self._unsynced = False
        self._urgent = False
        self.begins_term = True
        """Whether a mark may name a leader epoch that the disk has no mark of: to be synced before
        anybody is told of a record (DESIGN 6.1)."""
        self._rode_at = float("-inf")
        self.was_missing = False
        """Whether there was no file when it was opened."""
        self.syncs = 0
        """How many syncs the file says that it rode in; 0: it says nothing."""
        self._count_slot: int | None = None
        self._counting = False
        self._written_syncs = self.noted_syncs = self._riding = 0
        self._note: Callable[[int], None] = _unnoted

    async def open(self) -> dict[PartitionKey, Marked]:
        """Open or make the file; the marks that it holds. What cannot be read, or has rotted, is
        written anew. Raises OSError."""
        try:
            self._file = await open_file(self._disk, NAME)
        except (FileNotFoundError, Unreadable):
            self.was_missing = True
            make_way(self._disk, NAME)
            self._file = self._disk.create(NAME)
            await self._disk.fsync_dir("")
        size = self._file.size() // _SLOT_BYTES * _SLOT_BYTES
        self._image = bytearray(await Salvage(self._file).read(size, 0) if size else b"")
        found: dict[PartitionKey, Marked] = {}
        for slot in range(len(self._image) // _SLOT_BYTES):
            if self._count_slot is None and (syncs := self._read_count(slot)):
                self._count_slot, self.syncs = slot, syncs
                continue
            read = self._read(slot)
            if read is None or read[0] in found:
                self._empty(slot)
                continue
            key, found[key] = read
            self._slots[key] = slot
            self._keys[slot] = key
        self._written_syncs = self.syncs
        self.flush()
        return found

    def of(self, key: PartitionKey, told: Marked) -> LogMark:
        """The mark of a log that was just opened or made, durable as far as ``told``."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._slots[key] = self._new_slot()
            self._keys[slot] = key
        mark = self._owners[slot] = LogMark(self, slot, told)
        self.change(mark, slot)
        return mark

    def _new_slot(self) -> int:
        return self._free.pop() if self._free else len(self._image) // _SLOT_BYTES

    def forget(self, keys: Iterable[PartitionKey]) -> None:
        """These partitions are not kept here any more; written at once, as what is lowered."""
        for key in keys:
            slot = self._slots.pop(key, None)
            if slot is not None:
                del self._keys[slot]
                self._owners.pop(slot, None)
                self._empty(slot)
        self.lowered()

    def _empty(self, slot: int) -> None:
        self._free.append(slot)
        self._image[slot * _SLOT_BYTES : (slot + 1) * _SLOT_BYTES] = bytes(_SLOT_BYTES)
        self._dirty.add(slot)

    def change(self, mark: LogMark, slot: int) -> None:
        """Note the mark in its slot; :meth:`flush` writes it. Nothing happens where the slot is the
        log's no more: a log that was given up may be in a sync that has just ended."""
        if self._owners.get(slot) is not mark:
            return
        key = self._keys[slot]
        told = mark.told
        body = _SLOT.pack(key[0].bytes, key[1], told.offset, told.epoch, told.epoch_start)
        body += _CRC.pack(crc32c(body))
        body += _FINGERPRINT.pack(*told.fingerprint)
        self._fill(slot, (body + _CRC.pack(crc32c(body))).ljust(_SLOT_BYTES, b"\0"))

    def _fill(self, slot: int, content: bytes) -> None:
        start = slot * _SLOT_BYTES
        if start == len(self._image):
            self._image.extend(bytes(_SLOT_BYTES))
        self._image[start : start + _SLOT_BYTES] = content
        self._dirty.add(slot)

    async def count_from(self, at_least: int, note: Callable[[int], None]) -> None:
        """Count each sync that the marks ride in from now on, and have it noted elsewhere when it
        has succeeded; the first one at once, so what is noted there is of this file. Where more
        are known it is an older copy, and goes on from there. Raises OSError."""
        self._counting, self._note = True, note
        self.syncs = max(self.syncs, at_least)
        self._unsynced = True
        await self.sync()

    def _count(self) -> None:
        """A sync is about to begin: what it covers is newer than a file that does not count it."""
        if self._count_slot is None:
            self._count_slot = self._new_slot()
        self.syncs += 1
        body = _COUNT.pack(_COUNTS, self.syncs)
        self._fill(self._count_slot, body + _CRC.pack(crc32c(body)))
        self.flush()

    def _succeeded(self, syncs: int) -> None:
        """A sync that covered this count has. Noted is never more than is durable here."""
        if syncs > self.noted_syncs:
            self.noted_syncs = syncs
            self._note(syncs)

    def lowered(self) -> None:
        """A mark fell: write it now, and let it ride in the next sync. Where that fails it is
        written with the next one that rises."""
        self._urgent = True
        with contextlib.suppress(OSError):
            self.flush()

    def flush(self) -> None:
        """Write what has changed, without syncing it. Raises OSError: then nobody may be told of
        what is new, for after a kill a log is believed to end where its mark says."""
        if not self._dirty or self._file is None:
            return
        self._unsynced = True
        for first, last in _runs(sorted(self._dirty)):
            low, high = first * _SLOT_BYTES, (last + 1) * _SLOT_BYTES
            self._file.pwrite(bytes(self._image[low:high]), low)
        self._dirty.clear()
        self._written_syncs = self.syncs

    def to_ride(self, now: float) -> list[File]:
        """The files to add to a group's sync that starts now: none, or this one."""
        due = self._urgent or now - self._rode_at >= RIDE_S
        if self._file is None or not (self._unsynced or self._counting) or not due:
            return []
        if self._counting:
            self._count()
            self._riding = self._written_syncs
        self._rode_at = now
        self._unsynced = self._urgent = False
        return [self._file]

    def rode(self) -> None:
        """The sync of the group has succeeded."""
        self._succeeded(self._riding)

    def fell_off(self) -> None:
        """The sync of the group could not begin: they ride in the next one."""
        self._unsynced = self._urgent = True

    async def sync(self) -> None:
        """Write and sync them outside a group. Raises OSError."""
        self.flush()
        if self._file is None or not self._unsynced:
            return
        if self._counting:
            self._count()
        syncs = self._written_syncs
        self._unsynced = self._urgent = self.begins_term = False
        await self._disk.sync([self._file])
        self._succeeded(syncs)

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read_count(self, slot: int) -> int:
        content = bytes(self._image[slot * _SLOT_BYTES : (slot + 1) * _SLOT_BYTES])
        name, syncs = _COUNT.unpack_from(content)
        is_whole = name == _COUNTS and syncs > 0 and _holds(content, _COUNT.size)
        return int(syncs) if is_whole else 0

    def _read(self, slot: int) -> tuple[PartitionKey, Marked] | None:
        start = slot * _SLOT_BYTES
        body = bytes(self._image[start : start + _SLOT.size])
        (crc,) = _CRC.unpack_from(self._image, start + _SLOT.size)
        if crc32c(body) != crc:
            return None
        topic_id, partition, offset, epoch, epoch_start = _SLOT.unpack(body)
        fingerprint = _fingerprint(bytes(self._image[start : start + _SLOT_BYTES]))
        marked = Marked(offset, epoch, epoch_start, fingerprint)
        if marked.offset < 0:
            return None
        return (TopicId(UUID(bytes=topic_id)), partition), marked


def _fingerprint(slot: bytes) -> Fingerprint:
    at = _SLOT.size + _CRC.size
    if _holds(slot, at + _FINGERPRINT.size):
        return Fingerprint(*_FINGERPRINT.unpack_from(slot, at))
    if _holds(slot, at + _CRC.size):
        (last,) = _CRC.unpack_from(slot, at)
        return Fingerprint(last)
    return UNKNOWN


def _holds(slot: bytes, end: int) -> bool:
    """Whether there is the checksum of what lies before ``end``."""
    return _CRC.unpack_from(slot, end) == (crc32c(slot[:end]),)


def _runs(slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of stretches to write at once: what lies near is written with them, unchanged,
    since a write costs more than the bytes of a page."""
    first = last = slots[0]
    for slot in slots[1:]:
        if slot - first >= _RUN:
            yield first, last
            first = slot
        last = slot
    yield first, last
