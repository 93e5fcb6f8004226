"""A file that knows which of its bytes would survive a power cut (sim/DESIGN 2).

Pure. The page cache's view is ``content``; ``_pending`` lists the writes and truncations since the
last sync, each with what it replaced, so that the durable image can be found by undoing them and
a torn one by redoing some.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from paceline.values import dataclass
from paceline_node.env import Bytes

_PAGE = 4096
_SECTOR = 512


@dataclass(slots=True)
class _Change:
    """A write of ``data`` at ``position``, or (``data`` None) a truncation to ``position``.

    ``replaced`` is what was overwritten or cut, ``old_size`` the size before. ``synced`` is set by
    a sync that succeeded; ``dropped`` by one that failed: the kernel marked the pages clean, so
    no later sync writes them.
    """

    position: int
    data: bytes | None
    replaced: bytes
    old_size: int
    synced: bool = False
    dropped: bool = False

    @property
    def weight(self) -> int:
        return len(self.data) if self.data is not None else 1


class MemoryNode:
    """Content and unsynced changes of one file; several handles may share it."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.unreadable: list[tuple[int, int]] = []
        """Byte ranges (start, end) that a read fails on, until they are written anew."""
        self.is_unwritable = False
        """Whether every write fails, until the disk is healed."""
        self._pending: list[_Change] = []

    def write(self, chunks: Sequence[Bytes], position: int) -> None:
        data = b"".join(chunks)
        old_size = len(self.content)
        if position > old_size:
            self.truncate(position)
            old_size = position
        end = position + len(data)
        replaced = bytes(self.content[position:end])
        self._pending.append(_Change(position, data, replaced, old_size))
        self.content[position:end] = data
        self._readable_again(position, end)

    def truncate(self, size: int) -> None:
        cut = bytes(self.content[size:])
        self._pending.append(_Change(size, None, cut, len(self.content)))
        self._readable_again(size, len(self.content))
        _resize(self.content, size)

    def readable(self, position: int, size: int) -> int:
        """How many bytes from ``position`` on come before one on a sector that went bad: as the
        real thing, a read that comes upon one gives what lies before it, and fails only there."""
        end = position + size
        for low, high in self.unreadable:
            if low < end and position < high:
                end = max(position, low)
        return end - position

    def _readable_again(self, first: int, end: int) -> None:
        """What is written anew goes to a spare sector; what is cut off is read by nobody, nor is
        what of a sector lies behind the end."""
        if end >= len(self.content):
            end = max((high for _, high in self.unreadable), default=end)
        if self.unreadable:
            self.unreadable = [
                part
                for low, high in self.unreadable
                for part in ((low, min(high, first)), (max(low, end), high))
                if part[0] < part[1]
            ]

    def pending(self) -> list[_Change]:
        """The changes that a sync starting now has to write."""
        return [change for change in self._pending if not change.synced and not change.dropped]

    def synced(self, changes: Sequence[_Change]) -> None:
        """A sync that began with ``changes`` pending has succeeded."""
        for change in changes:
            change.synced = True
        if any(change.dropped for change in self._pending):
            return  # what lies behind a hole must stay replayable
        keep = 0
        while keep < len(self._pending) and self._pending[keep].synced:
            keep += 1
        del self._pending[:keep]

    def sync_failed(self, changes: Sequence[_Change]) -> None:
        """A sync failed: reads still show the bytes, a power cut will lose them."""
        for change in changes:
            change.dropped = True

    def power_cut(self, rng: random.Random) -> None:
        """Keep what was synced, and of the rest nothing, all, a prefix, or scattered pages or
        sectors."""
        if not self._pending:
            return
        cached = bytes(self.content)
        image = self._durable()
        unsynced = self.pending()
        fate = rng.randrange(8) if unsynced else 0
        if fate == 1:
            for change in unsynced:
                _redo(image, change)
        elif fate in (2, 3):
            _redo_prefix(image, unsynced, rng)
        elif fate in (4, 5):
            _redo_pages(image, cached, unsynced, rng)
        elif fate in (6, 7):
            _redo_pages(image, cached, unsynced, rng, unit=_SECTOR)
        self.content = image
        self._pending.clear()

    def flip(self, position: int, mask: int) -> None:
        """Rot: the byte on the medium and in the cache changes."""
        self.content[position] ^= mask

    def overwrite(self, content: bytes) -> None:
        """Replace everything, on the medium and in the cache."""
        self.content = bytearray(content)
        self.unreadable.clear()
        self._pending.clear()

    def _durable(self) -> bytearray:
        image = bytearray(self.content)
        for change in reversed(self._pending):
            _undo(image, change)
        for change in self._pending:
            if change.synced:
                _redo(image, change)
        return image


def _resize(image: bytearray, size: int) -> None:
    if size < len(image):
        del image[size:]
    else:
        image.extend(bytes(size - len(image)))


def _undo(image: bytearray, change: _Change) -> None:
    if change.data is not None:
        image[change.position : change.position + len(change.data)] = change.replaced
    else:
        image[change.position :] = change.replaced
    _resize(image, change.old_size)


def _redo(image: bytearray, change: _Change) -> None:
    if change.data is None:
        _resize(image, change.position)
        return
    if change.position > len(image):
        _resize(image, change.position)
    image[change.position : change.position + len(change.data)] = change.data


def _redo_prefix(image: bytearray, changes: Sequence[_Change], rng: random.Random) -> None:
    left = rng.randint(0, sum(change.weight for change in changes))
    for change in changes:
        if left < change.weight:
            if change.data is not None and change.position + len(change.data) <= change.old_size:
                # What is overwritten in place reaches the disk by whole sectors.
                left = max(0, (change.position + left) // _SECTOR * _SECTOR - change.position)
            if change.data is not None and left:
                _redo(image, _Change(change.position, change.data[:left], b"", 0))
            return
        _redo(image, change)
        left -= change.weight


def _redo_pages(
    image: bytearray,
    cached: bytes,
    changes: Sequence[_Change],
    rng: random.Random,
    *,
    unit: int = _PAGE,
) -> None:
    """Each touched page (or ``unit`` of bytes) holds its old or its new bytes; where the file grew
    the rest is zeros."""
    touched: set[int] = set()
    for change in changes:
        size = len(change.data) if change.data is not None else 0
        end = min(change.position + size, len(cached))
        touched.update(range(change.position // unit, (end + unit - 1) // unit))
    grown = len(cached) > len(image)
    if grown or rng.random() < 0.5:
        _resize(image, len(cached))
    for page in sorted(touched):
        if rng.random() < 0.5:
            continue
        start = page * unit
        end = min(start + unit, len(cached), len(image))
        if end == len(cached):  # the last page may be torn between sectors
            end = min(end, start + _SECTOR * rng.randint(0, unit // _SECTOR))
        image[start:end] = cached[start:end]
