"""``producers-<20-digit offset>.snap``: a log's producer table up to an offset.

Framed as in ``checkpoint.py``; the payload is::

    msgpack [leader epoch of the batch before the offset (-1: none), producer table bytes]

The table's bytes are described in ``producers.py``. A snapshot is written when a segment is sealed
and at a clean stop. The leader epoch ties it to its log: (offset, epoch) names one history, so a
snapshot that outlived a truncation is recognised and not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgpack

from paceline.errors import CorruptMessage
from paceline.types import NO_EPOCH
from paceline.wire.batch_header import read_header
from paceline_node.env import Disk, File
from paceline_node.storage import checkpoint
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.producers import ProducerTable, read_detail
from paceline_node.storage.segment import Boundary, Segment

_PREFIX = "producers-"
_SUFFIX = ".snap"
KEPT = 3
"""Snapshots kept per log; the older ones only shorten a replay that hardly ever happens."""


def name(offset: int) -> str:
    return f"{_PREFIX}{offset:020d}{_SUFFIX}"


def offsets(names: Iterable[str]) -> list[int]:
    """Offsets of all snapshots among the names of a directory, ascending."""
    found = []
    for each in names:
        digits = each.removeprefix(_PREFIX).removesuffix(_SUFFIX)
        if each == f"{_PREFIX}{digits}{_SUFFIX}" and len(digits) == 20 and digits.isdecimal():
            found.append(int(digits))
    return sorted(found)


class Snapshots:
    """The snapshots of one log. Changes names in its directory; the caller syncs that."""

    def __init__(self, disk: Disk, directory: str, available: Sequence[int]) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets = sorted(available)

    def write_unsynced(self, table: ProducerTable, offset: int, epochs: EpochCache) -> File:
        """Write ``table`` as it is at ``offset``, the log's end, and drop the oldest snapshot; the
        caller syncs and closes the file. Raises OSError."""
        payload = msgpack.packb([int(epochs.epoch_at(offset - 1)), table.snapshot()])
        path = f"{self._directory}/{name(offset)}"
        file = checkpoint.create_unsynced(self._disk, path, checkpoint.Kind.PRODUCERS, payload)
        table.mark(offset)
        if offset not in self._offsets:
            self._offsets.append(offset)
        while len(self._offsets) > KEPT:
            self._disk.remove(f"{self._directory}/{name(self._offsets.pop(0))}")
        return file

    def drop_above(self, offset: int) -> bool:
        """Remove snapshots that a truncation to ``offset`` made untrue; whether there were any."""
        found = False
        while self._offsets and self._offsets[-1] > offset:
            self._disk.remove(f"{self._directory}/{name(self._offsets.pop())}")
            found = True
        return found


async def restore_newest(
    disk: Disk,
    directory: str,
    available: Sequence[int],
    table: ProducerTable,
    epochs: EpochCache,
    limit: int,
) -> int | None:
    """Load the newest usable snapshot at or below ``limit`` into ``table``; return its offset.

    None: there is none, ``table`` is unchanged. Bad snapshots are derived state and passed over.
    """
    for offset in sorted(available, reverse=True):
        if offset > limit:
            continue
        try:
            kept = await read(disk, directory, offset)
            if kept is None:
                continue
            epoch, data = kept
            # The table says nothing about offsets that retention has removed.
            if epochs.epoch_at(offset - 1) in (NO_EPOCH, epoch):
                table.restore(data, offset)
                return offset
        except CorruptMessage:
            continue
    return None


async def read(disk: Disk, directory: str, offset: int) -> tuple[int, bytes] | None:
    """The snapshot at ``offset``: the leader epoch of the batch before it (-1: none), and the
    table. Raises CorruptMessage."""
    path = f"{directory}/{name(offset)}"
    payload = await checkpoint.read(disk, path, checkpoint.Kind.PRODUCERS)
    return None if payload is None else _unpack(payload)


def replay(segments: Sequence[Segment], table: ProducerTable, start: int, end: int) -> None:
    """Feed the batches with offsets in ``start..end`` to ``table``.

    Raises CorruptMessage when the lengths in a segment lead nowhere.
    """
    for segment in segments:
        if segment.next_offset <= start or segment.base_offset >= end:
            continue
        first = segment.find(start) if start > segment.base_offset else None
        origin = Boundary(0, segment.base_offset)
        if first is not None:
            origin = Boundary(first.position, first.base_offset)
        for step in segment.walk(origin):
            if step.base_offset >= end:
                break
            data = segment.file.pread(step.end - step.position, step.position)
            header = read_header(data)
            table.note(header, read_detail(data, 0, header), step.base_offset)


def _unpack(payload: bytes) -> tuple[int, bytes]:
    try:
        epoch, data = msgpack.unpackb(payload)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise CorruptMessage(f"producer snapshot: {error}") from None
    if type(epoch) is not int or type(data) is not bytes:
        raise CorruptMessage("producer snapshot: expected an epoch and bytes")
    return epoch, data
