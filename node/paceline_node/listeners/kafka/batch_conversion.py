"""Stored batches in forms that a Kafka client can read.

Most slices go out as they lie in the file, once their batches were checked. Nobody but this node
can tell that a batch is out of its place, and Kafka's clients have no way to tell us of a bad
checksum: librdkafka does not look at it unless told to, and others come back for the same bytes
without end. Two are made anew: batches with our
extension (wire/DESIGN 2.2), which other readers would take for records, and everything for clients
from before batches, who read message sets. Empty batches at the begin stay behind
(``compacted_gaps.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from paceline.errors import CorruptMessage
from paceline.wire.batch import (
    PayloadKind,
    build_batch,
    build_raw_batch,
    iter_batches,
    read_extension,
    verify,
)
from paceline.wire.batch_header import (
    CONTROL,
    CRC_START,
    EXTENDED,
    EXTENSION_BYTES,
    HEADER_BYTES,
    BatchHeader,
    batch_crc,
    outline,
    outline_with_crc,
    read_header,
)
from paceline.wire.checksum import crc32c
from paceline.wire.kafka.message_set import write_message_set
from paceline.wire.records import Record, decode_records
from paceline_node.client_memory import Portion
from paceline_node.env import Host
from paceline_node.loop_turns import Turns
from paceline_node.net.transport import FilePart, ended_early, is_cached, read_part
from paceline_node.services.records.fetch import ReadResult

_WINDOW_BYTES = 256 * 1024
_INLINE_BYTES = 64 * 1024
"""A larger slice is converted in a thread."""
_ROOM_BYTES = 16 * 1024 * 1024
_SOURCE_BYTES = 1024 * 1024
"""As much is converted at once, or one batch."""
_UNITS_AT_ONCE = 4000
"""After so many batches or pages, which take some milliseconds, others have a turn."""
_PAGE_BYTES = 4096


Reader = Callable[[int, int], ReadResult]
"""What there is from an offset on, about so many bytes. Raises what reading raises."""


class Made(NamedTuple):
    """What of a slice is to be sent. Where nothing in it holds a record, that is ``records`` of no
    bytes and the last of its empty batches; ``next_offset`` is behind what was looked at."""

    records: FilePart | bytes
    next_offset: int
    emptied: BatchHeader | None = None


class _Checked(NamedTuple):
    """What a slice's batches are. ``begin``: where the first lies that is not empty,
    -1 if all are; then ``last`` is where the last one does."""

    is_extended: bool
    begin: int
    last: int


class Wanted(NamedTuple):
    """What a reader of message sets asked for."""

    offset: int
    max_bytes: int
    magic: int


class Converter:
    """Makes what cannot be sent as it is stored, for one answer.

    What is made lies in memory, so that an answer holds about 16 MiB of it at most, which are taken
    of ``room`` before: once it does, the slices that are left are answered empty, and the client
    asks again.
    """

    def __init__(self, room: Portion, host: Host, turns: Turns) -> None:
        self._room = room
        self._host = host
        self._turns = turns
        self._is_room_taken = False
        self._room_bytes = _ROOM_BYTES

    async def _take_room(self) -> None:
        if not self._is_room_taken:
            await self._room.take(_ROOM_BYTES)
            self._is_room_taken = True

    async def batches(self, part: FilePart, next_offset: int) -> Made:
        """The slice up to ``next_offset`` from its first batch on that is not empty, as it is; or
        the begin of it in memory with its extended batches as plain ones. Raises
        CorruptMessage."""
        checked = await self._checked(part, next_offset)
        if not checked.is_extended:
            if checked.begin < 0:
                head = await _read(part, checked.last - part.position, HEADER_BYTES)
                return Made(b"", next_offset, verify(head))
            passed = checked.begin - part.position
            if passed:
                part = FilePart(part.file, checked.begin, part.size - passed)
            return Made(part, next_offset)
        if self._room_bytes <= 0:
            return Made(b"", next_offset)
        await self._take_room()
        data = await _begin_of(part)
        made = (
            _plain(data)
            if len(data) <= _INLINE_BYTES
            else await self._host.run_blocking(lambda: _plain(data))
        )
        assert isinstance(made.records, bytes), "made in memory"
        self._room_bytes -= len(made.records)
        return made

    async def message_set(
        self, part: FilePart, next_offset: int, wanted: Wanted, read: Reader
    ) -> bytes:
        """Records from the offset wanted on, uncompressed; reads on past batches that hold none
        (services/DESIGN 4.1). Raises CorruptMessage, and what reading on raises."""
        if self._room_bytes <= 0:
            return b""
        await self._take_room()
        wanted = wanted._replace(max_bytes=min(wanted.max_bytes, self._room_bytes))
        while True:
            await self._checked(part, next_offset)
            data = await _begin_of(part)
            convert = partial(_message_set, wanted=wanted)
            if len(data) <= _INLINE_BYTES:
                found, seen_to = convert(data)
            else:
                found, seen_to = await self._host.run_blocking(partial(convert, data))
            if found:
                self._room_bytes -= len(found)
                return found
            more = read(seen_to, max(wanted.max_bytes, 1)).slice
            if more is None:
                return b""
            part, next_offset = FilePart(more.file, more.position, more.size), more.next_offset

    async def _checked(self, part: FilePart, next_offset: int) -> _Checked:
        """Reads every batch, many at once where they are small. Raises CorruptMessage for one whose
        checksum is wrong, where sizes on the disk do not add up, or where offsets do not lead,
        batch after batch, to ``next_offset``: no checksum covers where a batch begins."""
        attributes, expected, units = 0, -1, 0
        begin = last = -1
        position, end = part.position, part.position + part.size
        while position < end:
            window = await _window(part, position, end)
            if len(window) < HEADER_BYTES:
                raise CorruptMessage(f"{len(window)} bytes are left where a batch should begin")
            at = 0
            view = memoryview(window)
            while at + HEADER_BYTES <= len(window):
                size, flags, base_offset, behind, crc = outline_with_crc(window, at)
                if base_offset != expected >= 0:
                    raise CorruptMessage(
                        f"a batch of base offset {base_offset}, expected {expected}"
                    )
                if at + size <= len(window):
                    found = crc32c(view[at + CRC_START : at + size])
                elif at:
                    break  # the next window begins with it
                else:
                    found = await _large_crc(part, position, size, window)
                if found != crc:
                    raise CorruptMessage(
                        f"batch of base offset {base_offset}: CRC-32C {found:08x}, "
                        f"header says {crc:08x}"
                    )
                expected = behind
                attributes |= flags
                if begin < 0:
                    last = position + at
                    if size > HEADER_BYTES or flags & CONTROL:
                        begin = last
                at += size
                units += 1 + size // _PAGE_BYTES
            position += at
            if units >= _UNITS_AT_ONCE:
                units = 0
                await self._turns.next()
        if expected != next_offset:
            raise CorruptMessage(f"batches end at offset {expected}, expected {next_offset}")
        return _Checked(bool(attributes & EXTENDED), begin, last)


async def _large_crc(part: FilePart, position: int, size: int, window: bytes) -> int:
    """The CRC of the batch at ``position``, of which ``window`` is the begin."""
    batch_end, end = position + size, part.position + part.size
    if batch_end > end:
        raise CorruptMessage(f"a batch of {size} bytes, of which the slice has {end - position}")
    found = batch_crc(window, 0, len(window))
    position += len(window)
    while position < batch_end:
        window = await _window(part, position, batch_end)
        if not window:
            raise ended_early(part.file, position)
        found = crc32c(window, found)
        position += len(window)
    return found


async def _begin_of(part: FilePart) -> bytes:
    """The whole batches among the first bytes of a slice, at least one."""
    data = await _read(part, 0, min(_SOURCE_BYTES, part.size))
    end = 0
    while end < part.size:
        if end + HEADER_BYTES > len(data):
            break
        size = outline(data, end)[0]
        if end + size > len(data):
            break
        end += size
    if end:
        return data[:end]
    size = outline(data, 0)[0]
    if size > part.size:
        raise CorruptMessage(f"a batch of {size} bytes in a slice of {part.size}")
    return data + await _read(part, len(data), size - len(data))


async def _read(part: FilePart, start: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += await read_part(part.file, size - len(data), part.position + start + len(data))
    return data


async def _window(part: FilePart, position: int, end: int) -> bytes:
    size = min(_WINDOW_BYTES, end - position)
    source = part.file.fileno()
    if source is None or is_cached(source, position, size):
        data = part.file.pread(size, position)
        if data is not None:
            return data
    return await part.file.read(size, position)


def _plain(data: bytes) -> Made:
    """From the first batch on that is not empty."""
    out = bytearray()
    made: bytes | bytearray
    for position, header in iter_batches(data):
        made = data[position : position + header.size_bytes]
        if header.attributes & EXTENDED:
            verify(data, position)
            made = _transcoded(data, position, header)
        if out or not _is_empty(plain := read_header(made)):
            out += made
    return Made(bytes(out), header.next_offset, None if out else plain)


def _is_empty(header: BatchHeader) -> bool:
    return not (header.record_count or header.is_control)


def _transcoded(data: bytes, position: int, header: BatchHeader) -> bytearray:
    """A batch without extension that covers the same offsets."""
    if read_extension(data, position).kind is PayloadKind.RECORDS:
        # Only the extension goes: compaction may have left fewer records than offsets.
        start = position + HEADER_BYTES + EXTENSION_BYTES
        return _like(
            header,
            data[start : position + header.size_bytes],
            record_count=header.record_count,
            attributes=header.attributes & ~EXTENDED,
        )
    records = decode_records(data, position)
    if not records:
        return _like(header, b"", record_count=0, attributes=0)  # the end of a segment, say
    if len(records) != header.last_offset_delta + 1:
        raise CorruptMessage(
            f"batch at offset {header.base_offset}: {len(records)} Events for "
            f"{header.last_offset_delta + 1} offsets"
        )
    return build_batch(
        records,
        timestamp_ms=header.base_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
    )


def _like(header: BatchHeader, payload: bytes, *, record_count: int, attributes: int) -> bytearray:
    return build_raw_batch(
        payload,
        record_count=record_count,
        last_offset_delta=header.last_offset_delta,
        attributes=attributes,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
    )


def _message_set(data: bytes, wanted: Wanted) -> tuple[bytes, int]:
    """The records, and the offset behind the last batch looked at."""
    records: list[Record] = []
    next_offset = wanted.offset
    size = 0
    for position, header in iter_batches(data):
        verify(data, position)
        next_offset = header.next_offset
        if header.is_control:
            continue
        fresh = [each for each in decode_records(data, position) if each.offset >= wanted.offset]
        records += fresh
        size += sum(len(each.key or b"") + len(each.value or b"") for each in fresh)
        if records and size >= wanted.max_bytes:
            break
    return (
        write_message_set(records, magic=wanted.magic, max_bytes=wanted.max_bytes),
        next_offset,
    )
