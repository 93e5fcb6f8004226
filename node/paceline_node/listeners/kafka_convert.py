"""Stored batches in forms that a Kafka client can read.

Most slices go out as they lie in the file. Two are made anew: batches with our extension (SETTLED
B2, P6), which other readers would take for records, and everything for clients from before batches,
who read message sets.
"""

from __future__ import annotations

from typing import NamedTuple

import trio

from paceline.wire.batch import build_batch, build_raw_batch, iter_batches, verify
from paceline.wire.batch_header import EXTENDED, HEADER_BYTES, BatchHeader, size_and_attributes
from paceline.wire.kafka.message_set import write_message_set
from paceline.wire.records import Record, decode_records
from paceline_node.peers.transport import FilePart, is_cached, read_part
from paceline_node.replication.partition import Partition

_WINDOW_BYTES = 64 * 1024
_INLINE_BYTES = 64 * 1024
"""A larger slice is converted in a thread."""


class Wanted(NamedTuple):
    """What a reader of message sets asked for."""

    offset: int
    max_bytes: int
    magic: int


class Converter:
    """Makes what cannot be sent as it is stored."""

    async def batches(self, part: FilePart) -> FilePart | bytes:
        """The slice as it is, or in memory with its extended batches as plain ones. Raises
        CorruptMessage."""
        if not await _has_extension(part):
            return part
        data = await _read(part)
        if part.size <= _INLINE_BYTES:
            return _plain(data)
        return await trio.to_thread.run_sync(_plain, data)

    async def message_set(self, part: FilePart, wanted: Wanted, partition: Partition) -> bytes:
        """Records from the offset wanted on, uncompressed; reads on past batches that hold none
        (SETTLED B10). Raises CorruptMessage, and what reading on raises."""
        while True:
            data = await _read(part)
            if part.size <= _INLINE_BYTES:
                found, next_offset = _message_set(data, wanted)
            else:
                found, next_offset = await trio.to_thread.run_sync(_message_set, data, wanted)
            if found:
                return found
            more = partition.read(next_offset, max(wanted.max_bytes, 1)).slice
            if more is None:
                return b""
            part = FilePart(more.file, more.position, more.size)


async def _read(part: FilePart) -> bytes:
    data = b""
    while len(data) < part.size:
        data += await read_part(part.file, part.size - len(data), part.position + len(data))
    return data


async def _has_extension(part: FilePart) -> bool:
    """Looks at the head of every batch, at many at once where batches are small."""
    position, end = part.position, part.position + part.size
    while position < end:
        window = await _window(part, position, end)
        at = 0
        while at + HEADER_BYTES <= len(window):
            size, attributes = size_and_attributes(window, at)
            if attributes & EXTENDED:
                return True
            at += size
        position += at
    return False


async def _window(part: FilePart, position: int, end: int) -> bytes:
    size = min(_WINDOW_BYTES, end - position)
    source = part.file.fileno()
    if source is None or is_cached(source, position, size):
        return part.file.pread(size, position)
    return await part.file.read(size, position)


def _plain(data: bytes) -> bytes:
    out = bytearray()
    for position, header in iter_batches(data):
        if header.attributes & EXTENDED:
            verify(data, position)
            out += _transcoded(decode_records(data, position), header)
        else:
            out += data[position : position + header.size_bytes]
    return bytes(out)


def _transcoded(records: list[Record], header: BatchHeader) -> bytearray:
    """A batch without extension that covers the same offsets; what is not a record (the end of a
    segment) leaves it empty."""
    if len(records) == header.last_offset_delta + 1:
        return build_batch(
            records,
            timestamp_ms=header.base_timestamp,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
        )
    return build_raw_batch(
        b"",
        record_count=0,
        last_offset_delta=header.last_offset_delta,
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
