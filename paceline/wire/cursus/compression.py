"""Finding out how a frame is compressed, and the compressors that users register.

Clients compress a batch as a whole and say nowhere how, so its first bytes have to tell (DESIGN
2.3). None of these can begin a plain batch, an envelope or a command::

    1f 8b                        gzip
    04 22 4d 18                  LZ4 frame
    28 b5 2f fd                  zstd
    82 53 4e 41 50 50 59 00      snappy in xerial's framing
    varint, literal tag, ba 7c   a bare snappy block, which is what the Go client writes

A registered compressor (``CursusCompressor`` on the protocol's page) has no such bytes: those that
a listener names are tried when nothing else parses, and count only where a batch results
(DESIGN 2.4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from paceline.errors import ConfigurationError, CorruptMessage
from paceline.types import Compression
from paceline.wire.compression import decompress, decompress_head
from paceline.wire.cursus.batch import MAGIC
from paceline.wire.cursus.errors import undecodable
from paceline.wire.cursus.frames import MAX_FRAME_BYTES

_MAGICS = (
    (b"\x1f\x8b", Compression.GZIP),
    (b"\x04\x22\x4d\x18", Compression.LZ4),
    (b"\x28\xb5\x2f\xfd", Compression.ZSTD),
    (b"\x82SNAPPY\x00", Compression.SNAPPY),
)
_MAX_VARINT_BYTES = 4
_LITERAL_BYTES = {60: 1, 61: 2, 62: 3, 63: 4}
"""Literal tags from 60 on have their length in so many bytes behind them."""
BUILT_IN = ("gzip", "lz4", "none", "snappy", "zstd")


@runtime_checkable
class CursusCompressor(Protocol):
    """One algorithm. ``decompress`` raises whatever it likes for bytes that are not its own; it
    must bound its own memory, as nobody else can."""

    @property
    def name(self) -> str:
        """What settings and clients call it, such as ``brotli``."""

    def compress(self, data: bytes) -> bytes:
        """``data`` in this format."""

    def decompress(self, data: bytes) -> bytes:
        """What :meth:`compress` was given."""


class CompressorRegistry:
    """The compressors that users added, by name."""

    def __init__(self, compressors: Iterable[CursusCompressor] = ()) -> None:
        self._by_name: dict[str, CursusCompressor] = {}
        for compressor in compressors:
            self.register(compressor)

    def register(self, compressor: CursusCompressor) -> None:
        """Add one. Raises ConfigurationError for what is no compressor, and for a name taken."""
        if not isinstance(compressor, CursusCompressor):
            raise ConfigurationError(
                f"{compressor!r} is no compressor: it needs name, compress and decompress"
            )
        name = compressor.name
        if name in BUILT_IN or name in self._by_name:
            raise ConfigurationError(f"compressor {name!r}: the name is taken")
        self._by_name[name] = compressor

    def named(self, names: Iterable[str]) -> tuple[CursusCompressor, ...]:
        """Those of ``names``, in that order. Raises ConfigurationError for an unknown one."""
        found = []
        for name in names:
            compressor = self._by_name.get(name)
            if compressor is None:
                known = ", ".join(sorted(self._by_name)) or "none"
                raise ConfigurationError(f"compressor {name!r} is not registered; known: {known}")
            found.append(compressor)
        return tuple(found)


def codec_of(body: bytes) -> Compression:
    """What the first bytes of a frame say; NONE when they are of no known format."""
    for magic, codec in _MAGICS:
        if body.startswith(magic):
            return codec
    return Compression.SNAPPY if _is_snappy_block(body) else Compression.NONE


def _is_snappy_block(body: bytes) -> bool:
    """Whether this is a snappy block whose content begins with the batch's magic."""
    size = at = 0
    while at < len(body):
        byte = body[at]
        size |= (byte & 0x7F) << (7 * at)
        at += 1
        if byte < 0x80:
            break
        if at == _MAX_VARINT_BYTES:
            return False
    if at >= len(body) or not 0 < size <= MAX_FRAME_BYTES or body[at] & 3:
        return False
    start = at + 1 + _LITERAL_BYTES.get(body[at] >> 2, 0)
    return body[start : start + len(MAGIC)] == MAGIC


def decompressed_batch(codec: Compression, body: bytes) -> bytes:
    """The batch as it was before compression, at most 64 MiB. Raises CursusError, for what is no
    batch without unpacking more of it than a batch's head."""
    try:
        if not decompress_head(codec, body, len(MAGIC)).startswith(MAGIC):
            raise undecodable("decompress")
        return decompress(codec, body, max_bytes=MAX_FRAME_BYTES)
    except CorruptMessage:
        raise undecodable("decompress") from None


def try_registered(compressor: CursusCompressor, body: bytes) -> bytes | None:
    """What ``compressor`` makes of ``body`` if that begins as a batch does, else None."""
    try:
        plain = compressor.decompress(body)
    except Exception:  # noqa: BLE001  a user's code says by any exception that it is not its format
        return None
    if isinstance(plain, bytes) and plain.startswith(MAGIC) and len(plain) <= MAX_FRAME_BYTES:
        return plain
    return None
