"""``producers-<20-digit offset>.snap``: what a partition's records below an offset amount to.

A row of frames, each as in ``checkpoint.py`` (so each has a checksum of its own, and none is larger
than what can be packed or read without holding up the event loop)::

    msgpack ["head", offset, leader epoch of the batch before the offset (-1: none),
             [topic id, partition]]
    msgpack ["states", [state, ...]]             rows as in ``producers.py``; any number of these
    msgpack ["aborted", [[producer id, first offset, marker], ...]]                  likewise
    msgpack ["end", number of states, number of aborted transactions]

The leader epoch ties a snapshot to its log: (offset, epoch) names one history, so a snapshot that
outlived a truncation is recognised and not used. The partition ties it to its directory: one that
was exchanged with another log's is not believed (``file_owner.py``). The same bytes go to a replica
that is to begin at the offset (``replication/state_transfer.py``).

Earlier versions named no partition. Before, they wrote one frame of kind 3, msgpack [that leader
epoch, the bytes of :meth:`ProducerTable.snapshot`]; they are still read.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import msgpack
import trio

from paceline.errors import CorruptMessage
from paceline.values import dataclass
from paceline.wire.batch_header import verify
from paceline_node.env import Disk, File
from paceline_node.storage import checkpoint
from paceline_node.storage.file_owner import Owner
from paceline_node.storage.log_file import LogFile, is_unreadable, open_file
from paceline_node.storage.log_segment import Boundary, Segment
from paceline_node.storage.obstructing_entries import make_way
from paceline_node.storage.producer_state import (
    ProducerState,
    State,
    is_stream,
    numbers_of,
    row_to_state,
    state_to_row,
)
from paceline_node.storage.producers import FrozenTable, ProducerTable, read_detail
from paceline_node.storage.segment_scan import SLICE_BATCHES
from paceline_node.storage.state_map import StateMap
from paceline_node.storage.transaction_index import AbortedTransaction

_PREFIX = "producers-"
_SUFFIX = ".snap"
SLICE_BYTES = 1024 * 1024
"""What is read of a log between two checkpoints."""
_ROWS = 256
"""States in one frame: packing or reading them takes about a millisecond."""
_REST_S = 0.003
"""Between two frames the event loop is left to others for so long."""
_FRAME = struct.Struct(">4sHHI")
_MAX_FRAME = 4 * 1024 * 1024
_OLD = checkpoint.encode(checkpoint.Kind.PRODUCERS, b"")[:8]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a file says; ``epoch`` is that of the batch before its offset, -1 when there is none.
    ``named``: whose it says that it is, None where it names nobody."""

    epoch: int
    table: FrozenTable
    named: object = None


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


def frames(snapshot: Snapshot, owner: Owner) -> Iterator[bytes]:
    """The file's bytes, frame by frame."""
    table = snapshot.table
    yield _frame("head", table.offset, snapshot.epoch, owner.named)
    rows: list[Any] = []
    for key, state in table.states.items():
        rows.append(state_to_row(key, state))
        if len(rows) == _ROWS:
            yield _frame("states", rows)
            rows = []
    if rows:
        yield _frame("states", rows)
    for at in range(0, len(table.aborted), _ROWS):
        yield _frame("aborted", [list(each) for each in table.aborted[at : at + _ROWS]])
    yield _frame("end", len(table.states), len(table.aborted))


def _frame(*values: Any) -> bytes:
    payload: bytes = msgpack.packb(values)
    return checkpoint.encode(checkpoint.Kind.STATE, payload)


def create_unsynced(disk: Disk, directory: str, owner: Owner, snapshot: Snapshot) -> File:
    """Write a small snapshot at once; the caller syncs and closes the file. Raises OSError."""
    path = f"{directory}/{name(snapshot.table.offset)}"
    disk.remove(path)
    file = disk.create(path)
    try:
        file.append([b"".join(frames(snapshot, owner))])
    except OSError:
        file.close()
        disk.remove(path)
        raise
    return file


async def write(disk: Disk, directory: str, owner: Owner, snapshot: Snapshot) -> None:
    """Write a snapshot of any size durably, a little at a time. Raises OSError; cancelled, it is
    not there."""
    path = f"{directory}/{name(snapshot.table.offset)}"
    temporary = path + checkpoint.TEMPORARY
    make_way(disk, temporary)
    file = disk.create(temporary)
    try:
        for frame in frames(snapshot, owner):
            file.append([frame])
            await trio.sleep(_REST_S)
        await disk.sync([file])
    finally:
        file.close()
    disk.rename(temporary, path)
    await disk.fsync_dir(directory)


async def read(
    disk: Disk, directory: str, offset: int, owner: Owner | None = None
) -> Snapshot | None:
    """The snapshot at ``offset``; None when there is no such file. Raises CorruptMessage, also
    where it is not of ``owner`` (None: whoever has it)."""
    path = f"{directory}/{name(offset)}"
    try:
        file = await open_file(disk, path)
    except FileNotFoundError:
        return None
    try:
        snapshot = await read_file(file)
        if owner is not None:
            owner.check(snapshot.named)
    except CorruptMessage as error:
        raise CorruptMessage(f"{path}: {error}") from None
    except OSError as error:
        if not is_unreadable(error):
            raise
        # No other file depends on this one: as bad as if it were rotten.
        raise CorruptMessage(f"{path}: {error.strerror}") from None
    finally:
        file.close()
    if snapshot.table.offset not in (offset, -1):
        raise CorruptMessage(f"{path}: it says that it was taken at {snapshot.table.offset}")
    return replace(snapshot, table=_at(snapshot.table, offset))


async def read_file(file: File) -> Snapshot:
    """What a file holds, read a little at a time. Raises CorruptMessage."""
    if file.pread(len(_OLD), 0) == _OLD:
        return _read_old(file)
    reader = _Reader()
    async with aclosing(_payloads(file)) as payloads:
        async for payload in payloads:
            reader.take(payload)
    return reader.finish()


async def check(file: File, owner: Owner) -> None:
    """Check every frame of a file, and that it is of ``owner``. Raises CorruptMessage, and
    OSError."""
    named: object = None
    if file.pread(len(_OLD), 0) == _OLD:
        _read_old(file)
    else:
        reader: _Reader | None = _Reader()
        async with aclosing(_payloads(file)) as payloads:
            async for payload in payloads:
                if reader is not None:  # the head; the rest may be large
                    reader.take(payload)
                    named, reader = reader.named, None
    owner.check(named)


async def _payloads(file: File) -> AsyncGenerator[bytes, None]:
    """The frames' payloads, with others' turns in between."""
    position, size = 0, file.size()
    while position < size:
        head = file.pread(_FRAME.size, position)
        length = 0 if len(head) < _FRAME.size else _FRAME.unpack(head)[3]
        if length > _MAX_FRAME:
            raise CorruptMessage(f"byte {position}: a frame of {length} bytes")
        data = file.pread(_FRAME.size + length + 4, position)
        yield checkpoint.decode(checkpoint.Kind.STATE, data)
        position += len(data)
        await trio.lowlevel.checkpoint()


class IncomingSnapshot:
    """A snapshot that comes in pieces, to be kept in the directory of ``owner``'s log;
    :meth:`abandon` it in any case."""

    def __init__(self, disk: Disk, directory: str, owner: Owner, offset: int) -> None:
        self._disk = disk
        self._owner = owner
        self._directory = directory
        self._offset = offset
        self._path = f"{directory}/{name(offset)}{checkpoint.TEMPORARY}"
        make_way(disk, self._path)
        self._file: File | None = disk.create(self._path)
        self.size_bytes = 0

    def add(self, piece: memoryview) -> int:
        """Take in the next piece; bytes so far. Raises OSError."""
        assert self._file is not None, "the snapshot was finished or abandoned"
        self._file.append([piece])
        self.size_bytes += len(piece)
        return self.size_bytes

    async def finish(self) -> Snapshot:
        """All of it is here: check it and make it durable under its name. Raises CorruptMessage,
        OSError."""
        assert self._file is not None, "the snapshot was finished or abandoned"
        found = await read_file(LogFile(self._file))
        if found.table.offset not in (self._offset, -1):
            raise CorruptMessage(f"{self._path}: it was taken at offset {found.table.offset}")
        found = replace(found, table=_at(found.table, self._offset))
        if found.named is None:  # a leader of an earlier version
            self.abandon()
            await write(self._disk, self._directory, self._owner, found)
            return found
        self._owner.check(found.named)
        await self._disk.sync([self._file])
        self._file.close()
        self._file = None
        self._disk.rename(self._path, f"{self._directory}/{name(self._offset)}")
        await self._disk.fsync_dir(self._directory)
        return found

    def abandon(self) -> None:
        """Close and remove what has no name yet; idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._disk.remove(self._path)


class _Reader:
    """Frames in their order."""

    def __init__(self) -> None:
        self._head: tuple[int, int] | None = None
        self.named: object = None
        self._loading = LoadingTable()
        self._counts = [0, 0]
        self._ended = False

    def take(self, payload: bytes) -> None:
        try:
            tag, *values = msgpack.unpackb(payload)
            if self._ended or (tag == "head") != (self._head is None):
                raise CorruptMessage(f"a frame {tag!r} where none may be")
            if tag == "head":
                self._head = (int(values[0]), int(values[1]))
                self.named = values[2] if len(values) > 2 else None
            elif tag == "states":
                self._loading.add(values[0])
                self._counts[0] += len(values[0])
            elif tag == "aborted":
                self._loading.add_aborted(values[0])
                self._counts[1] += len(values[0])
            elif tag == "end":
                self._ended = values == self._counts
        except (TypeError, ValueError, IndexError, msgpack.UnpackException) as error:
            raise CorruptMessage(f"a frame that cannot be read: {error}") from None

    def finish(self) -> Snapshot:
        if self._head is None or not self._ended:
            raise CorruptMessage("the snapshot is cut short")
        return Snapshot(self._head[1], self._loading.frozen(self._head[0]), self.named)


def _read_old(file: File) -> Snapshot:
    if file.size() > checkpoint.MAX_BYTES:
        raise CorruptMessage(f"{file.size()} bytes, expected at most {checkpoint.MAX_BYTES}")
    data = checkpoint.decode(checkpoint.Kind.PRODUCERS, file.pread(file.size(), 0))
    epoch, table_bytes = _unpack(data)
    table = ProducerTable()
    restore(table, table_bytes, -1)
    return Snapshot(epoch, table.freeze(-1))


def restore(table: ProducerTable, data: bytes, offset: int) -> None:
    """Replace ``table`` by what :meth:`ProducerTable.snapshot` gave at ``offset``. Raises
    CorruptMessage."""
    try:
        rows, aborted = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise CorruptMessage(f"producer snapshot at offset {offset}: {error}") from None
    loading = LoadingTable()
    loading.add(rows)
    loading.add_aborted(aborted)
    table.load(loading.frozen(offset))


class LoadingTable:
    """A table that is read from a snapshot, piece by piece. Raises CorruptMessage."""

    def __init__(self) -> None:
        self._states: StateMap[State] = StateMap()
        self._open: dict[int, int] = {}
        self._aborted: list[AbortedTransaction] = []
        self._streams = 0

    def add(self, rows: Any) -> None:
        """Take over some states."""
        try:
            for row in rows:
                key, state = row_to_state(row)
                self._states.put(key, state)
                self._streams += is_stream(state)
                if isinstance(state, ProducerState) and state.is_open:
                    self._open[int.from_bytes(key[1], "big")] = state.open_offset
        except (ValueError, TypeError) as error:
            raise CorruptMessage(f"producer snapshot: {error}") from None

    def add_aborted(self, rows: Any) -> None:
        """Take over some aborted transactions, in the order of their markers."""
        try:
            self._aborted += [AbortedTransaction(*numbers_of(row, 3)) for row in rows]
        except (ValueError, TypeError) as error:
            raise CorruptMessage(f"producer snapshot: {error}") from None

    def frozen(self, offset: int) -> FrozenTable:
        """What was read, of a snapshot taken at ``offset``."""
        aborted = tuple(self._aborted)
        return FrozenTable(offset, self._states.freeze(), self._open, aborted, self._streams)


def _at(table: FrozenTable, offset: int) -> FrozenTable:
    return replace(table, offset=offset)


def replaying(
    segments: Sequence[Segment], table: ProducerTable, start: int, end: int
) -> Iterator[Boundary]:
    """As :func:`replay`, batch by batch: the end of each."""
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
            header = verify(data)
            table.note(header, read_detail(data, 0, header), step.base_offset)
            yield Boundary(step.end, step.next_offset)


def replay(segments: Sequence[Segment], table: ProducerTable, start: int, end: int) -> None:
    """Feed the batches with offsets in ``start..end`` to ``table``.

    Raises CorruptMessage when a batch has rotted, or the lengths in a segment lead nowhere.
    """
    for _ in replaying(segments, table, start, end):
        pass


def replay_some(segments: Sequence[Segment], table: ProducerTable, start: int, end: int) -> int:
    """Feed the first batches of ``start..end`` to ``table``, as many as take no more than some
    milliseconds; the offset to go on from. Raises CorruptMessage."""
    segment = next((each for each in segments if each.next_offset > start), None)
    if segment is None:
        return end
    first = segment.find(segment.readable_from(max(start, segment.base_offset)))
    if first is None:
        return segment.next_offset
    size = 0
    for count, step in enumerate(segment.walk(Boundary(first.position, first.base_offset))):
        if step.base_offset >= end or count == SLICE_BATCHES or size >= SLICE_BYTES:
            return step.base_offset
        data = segment.file.pread(step.end - step.position, step.position)
        header = verify(data)
        table.note(header, read_detail(data, 0, header), step.base_offset)
        size += len(data)
    return segment.next_offset


def _unpack(payload: bytes) -> tuple[int, bytes]:
    try:
        epoch, data = msgpack.unpackb(payload)
    except (TypeError, ValueError, msgpack.UnpackException) as error:
        raise CorruptMessage(f"producer snapshot: {error}") from None
    if type(epoch) is not int or type(data) is not bytes:
        raise CorruptMessage("producer snapshot: expected an epoch and bytes")
    return epoch, data
