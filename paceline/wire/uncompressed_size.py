"""How much compressed records say of themselves that they unpack to, without unpacking them.

Readers unpack no more than a bound, so a batch that holds more can be read by nobody. Formats tell
their content's size, or lay it out in blocks that are full but for the last. Whoever lies here has
stored a batch that does not decode, as whoever sends noise has; readers name its offset.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from paceline.types import Compression

_MOST_BLOCKS = 4096
"""Looked at in one batch: far more than an honest one has below the bound."""
_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = 16
_LZ4_MAGIC = 0x184D2204
_LZ4_STORED = 0x8000_0000
_LZ4_LARGEST = MappingProxyType({4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22})
_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_BLOCK = 128 * 1024
_ZSTD_RAW, _ZSTD_RLE, _ZSTD_COMPRESSED = range(3)


def unpacks_beyond(codec: int, data: memoryview, limit: int) -> bool:
    """Whether ``data`` says that it unpacks to more than ``limit`` bytes. False also where that
    cannot be told: of no compression, and of what will not unpack at all."""
    parts = _PARTS.get(codec)
    if parts is None:
        return False
    total = 0
    try:
        for count, size in enumerate(parts(data)):
            total += size
            if total > limit:
                return True
            if count == _MOST_BLOCKS:
                return False
    except (struct.error, IndexError):
        return False
    return False


def _gzip(data: memoryview) -> Iterator[int]:
    yield struct.unpack_from("<I", data, len(data) - 4)[0]  # the trailer's last field


def _snappy(data: memoryview) -> Iterator[int]:
    if data[: len(_SNAPPY_MAGIC)] != _SNAPPY_MAGIC:
        yield _varint(data, 0)
        return
    at = _SNAPPY_HEADER
    while at < len(data):
        (size,) = struct.unpack_from(">I", data, at)
        yield _varint(data, at + 4)
        at += 4 + size


def _varint(data: memoryview, at: int) -> int:
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
        at += 1
    return value


def _lz4(data: memoryview) -> Iterator[int]:
    magic, flags, sizes = struct.unpack_from("<IBB", data)
    if magic != _LZ4_MAGIC:
        return
    at = 6
    if flags & 0x08:
        yield struct.unpack_from("<Q", data, at)[0]
        return
    at += 1 + (4 if flags & 0x01 else 0)
    largest = _LZ4_LARGEST.get(sizes >> 4 & 7, 0)
    behind = 4 if flags & 0x10 else 0
    (size,) = struct.unpack_from("<I", data, at)
    while size:
        at += 4 + (size & ~_LZ4_STORED) + behind
        (following,) = struct.unpack_from("<I", data, at)
        if size & _LZ4_STORED:
            yield size & ~_LZ4_STORED
        else:
            yield largest if following else 1
        size = following


def _zstd(data: memoryview) -> Iterator[int]:
    magic, descriptor = struct.unpack_from("<IB", data)
    if magic != _ZSTD_MAGIC:
        return
    at, largest = 5, _ZSTD_BLOCK
    is_single = bool(descriptor & 0x20)
    if not is_single:
        base = 1 << (10 + (data[at] >> 3))
        largest = min(largest, base + base // 8 * (data[at] & 7))
        at += 1
    at += (0, 1, 2, 4)[descriptor & 3]
    told = descriptor >> 6
    if told or is_single:
        width = (1, 2, 4, 8)[told]
        size = int.from_bytes(data[at : at + width], "little")
        yield size + (256 if width == 2 else 0)
        return
    is_last = False
    while not is_last:
        header = int.from_bytes(data[at : at + 3], "little")
        is_last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
        if at + 3 > len(data) or kind > _ZSTD_COMPRESSED:
            return
        at += 3 + (1 if kind == _ZSTD_RLE else size)
        if kind == _ZSTD_COMPRESSED:
            yield 1 if is_last else largest
        else:
            yield size


_PARTS: Mapping[int, Callable[[memoryview], Iterator[int]]] = MappingProxyType(
    {
        Compression.GZIP: _gzip,
        Compression.SNAPPY: _snappy,
        Compression.LZ4: _lz4,
        Compression.ZSTD: _zstd,
    }
)
