"""Codec ids of record batches to compressors; decompression never exceeds a given output bound.

What the codecs write can be read by Kafka's clients, which fixes two formats::

    snappy   82 'SNAPPY' 00 | i32 version 1 | i32 compatible 1 | { u32 n | n bytes raw snappy }*
             (the framing of the xerial library; a bare raw block is accepted on reading)
    lz4      04 22 4d 18 | 60 40 82 | { u32le n | n bytes }* | 00 00 00 00
             (independent 64 KiB blocks, no checksums: Kafka's reader refuses dependent blocks;
             bit 31 of n marks a block stored as it is; any standard frame is accepted on reading)

gzip and zstd are their standard formats. Compression takes as long as it takes: callers move work
above some 64 KiB to a thread (DESIGN 5); the codecs release the interpreter lock.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import cramjam

from paceline.errors import CorruptMessage, UnsupportedCompression
from paceline.types import MAX_RECORD_BYTES, Compression

Buffer = bytes | bytearray | memoryview

MAX_DECOMPRESSED_BYTES = 2 * MAX_RECORD_BYTES
"""Output bound of one batch unless the caller sets its own."""

_ZSTD_LEVEL = 3
_FIRST_GUESS_BYTES = 16 * 1024
_GROWTH = 4

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_LENGTH = struct.Struct(">I")

# Magic, FLG (version 1, independent blocks), BD (64 KiB blocks), the checksum byte of those two.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_LENGTH = struct.Struct("<I")
_LZ4_STORED = 0x80000000
_LZ4_END = b"\x00\x00\x00\x00"


_LONGEST_SHORT_LITERAL = 59
"""Tags of snappy's longer literals say in how many bytes behind them the length stands."""

_INTO: dict[int, Callable[[Any, Any], int]] = {
    Compression.GZIP: cramjam.gzip.decompress_into,
    Compression.LZ4: cramjam.lz4.decompress_into,
    Compression.ZSTD: cramjam.zstd.decompress_into,
}


def compress(codec: Compression, data: Buffer) -> bytes:
    """``data`` in the format of ``codec``."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec is Compression.SNAPPY:
        return _compress_snappy(data)
    if codec is Compression.LZ4:
        return _compress_lz4(data)
    return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))


def decompress(codec: int, data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The bytes that were compressed, at most ``max_bytes`` of them.

    Memory stays within a small multiple of the output bound, whatever ``data`` claims about
    itself. Raises UnsupportedCompression for an unknown codec id, CorruptMessage for malformed
    input and for output that does not fit.
    """
    if codec == Compression.NONE:
        if len(data) > max_bytes:
            raise CorruptMessage(f"{len(data)} bytes exceed the limit of {max_bytes}")
        return bytes(data)
    if codec == Compression.SNAPPY:
        return _decompress_snappy(data, max_bytes)
    if codec == Compression.GZIP:
        return _decompress_growing("gzip", cramjam.gzip.decompress_into, data, max_bytes)
    if codec == Compression.LZ4:
        return _decompress_growing("lz4", cramjam.lz4.decompress_into, data, max_bytes)
    if codec == Compression.ZSTD:
        return _decompress_growing("zstd", cramjam.zstd.decompress_into, data, max_bytes)
    raise UnsupportedCompression(f"compression codec {codec} is unknown")


def decompress_head(codec: int, data: Buffer, size: int) -> bytes:
    """At least the first ``size`` bytes that were compressed, or as many as there are; of framed
    snappy its first block. Raises as :func:`decompress`; what comes later is not looked at."""
    if codec == Compression.SNAPPY:
        view = memoryview(data)
        at = len(_XERIAL_HEADER)
        if view[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            (length,) = _XERIAL_LENGTH.unpack(bytes(view[at : at + 4]).rjust(4, b"\0"))
            view = view[at + 4 : at + 4 + length]
        return _snappy_head(view)
    output = bytearray(size)
    decompress_into = _INTO.get(codec)
    if decompress_into is None:
        return decompress(codec, data, max_bytes=size)
    try:
        decompress_into(data, output)
    except cramjam.DecompressionError as error:
        if not _is_overflow(error):
            raise CorruptMessage(str(error)) from None
    return bytes(output)


def _snappy_head(block: memoryview) -> bytes:
    """The literal that a block of snappy begins with."""
    at = 0
    while at < len(block) and block[at] >= 0x80:  # the size, a varint
        at += 1
    tag = block[at + 1] if at + 1 < len(block) else 1
    if tag & 3:
        raise CorruptMessage("snappy: a block begins with no literal")
    start = at + 2 + max(0, (tag >> 2) - _LONGEST_SHORT_LITERAL)
    return bytes(block[start : start + _LONGEST_SHORT_LITERAL])


def _decompress_growing(
    name: str, decompress_into: Callable[[Any, Any], int], data: Buffer, max_bytes: int
) -> bytes:
    """Decode into a fixed buffer, a larger one after each overflow: a bomb costs no more memory.

    The library reports overflow and damage by the same exception, so only the largest buffer's
    failure is final. Sizes grow geometrically, which keeps the repeated work below a third.
    """
    size = min(max_bytes, max(_FIRST_GUESS_BYTES, _GROWTH * len(data)))
    while True:
        output = bytearray(size)
        try:
            written = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if not _is_overflow(error):
                raise CorruptMessage(f"{name}: {error}") from None
            if size == max_bytes:
                raise CorruptMessage(f"{name}: output exceeds the limit of {max_bytes}") from None
            size = min(max_bytes, size * _GROWTH)
        else:
            with memoryview(output) as view:
                return bytes(view[:written])


def _is_overflow(error: Exception) -> bool:
    return "write whole buffer" in str(error)


def _compress_snappy(data: Buffer) -> bytes:
    parts = [_XERIAL_HEADER]
    for block in _blocks(data, _XERIAL_BLOCK_BYTES):
        packed = bytes(cramjam.snappy.compress_raw(block))
        parts += (_XERIAL_LENGTH.pack(len(packed)), packed)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, max_bytes: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, max_bytes)
    if len(view) < len(_XERIAL_HEADER):
        raise CorruptMessage(f"snappy: stream header of {len(view)} bytes is cut short")
    position = len(_XERIAL_HEADER)
    room = max_bytes
    parts = []
    while position < len(view):
        if position + 4 > len(view):
            raise CorruptMessage("snappy: block length is cut short")
        (size,) = _XERIAL_LENGTH.unpack_from(view, position)
        position += 4
        if size > len(view) - position:
            raise CorruptMessage(f"snappy: block of {size} bytes in {len(view) - position}")
        block = _decompress_snappy_block(view[position : position + size], room)
        parts.append(block)
        room -= len(block)
        position += size
    return b"".join(parts)


def _decompress_snappy_block(data: memoryview, max_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > max_bytes:
            raise CorruptMessage(f"snappy: output of {size} exceeds the limit of {max_bytes}")
        output = bytearray(size)
        cramjam.snappy.decompress_raw_into(data, output)
    except cramjam.DecompressionError as error:
        raise CorruptMessage(str(error)) from None
    return bytes(output)


def _compress_lz4(data: Buffer) -> bytes:
    parts = [_LZ4_HEADER]
    for block in _blocks(data, _LZ4_BLOCK_BYTES):
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts += (_LZ4_LENGTH.pack(len(packed)), packed)
        else:
            parts += (_LZ4_LENGTH.pack(len(block) | _LZ4_STORED), bytes(block))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _blocks(data: Buffer, size: int) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(view), size):
        yield view[start : start + size]
