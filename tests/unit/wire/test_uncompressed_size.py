"""What compressed records say of the size that they unpack to."""

from __future__ import annotations

import gzip
import io
import random

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import MessageTooLarge
from paceline.types import Compression
from paceline.wire.batch import build_raw_batch, validate_client_batches
from paceline.wire.compression import MAX_DECOMPRESSED_BYTES, compress
from paceline.wire.uncompressed_size import unpacks_beyond

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
MIB = 1024 * 1024


def _plain(size: int, *, dull: bool) -> bytes:
    return bytes(size) if dull else random.Random(size).randbytes(size)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dull", [True, False])
@pytest.mark.parametrize("size", [1, 1000, 70_000, 128 * 1024, MIB, 3 * MIB + 17])
def test_of_our_own_producers(codec: Compression, dull: bool, size: int) -> None:
    data = memoryview(compress(codec, _plain(size, dull=dull)))
    block = 4 * MIB  # a format's blocks are told as full but for the last
    assert not unpacks_beyond(codec, data, size)
    if size > block:
        assert unpacks_beyond(codec, data, size - block)


FOREIGN = {
    "gzip": (Compression.GZIP, gzip.compress),
    "snappy without frames": (
        Compression.SNAPPY,
        lambda data: bytes(cramjam.snappy.compress_raw(data)),
    ),
    "zstd, streamed": (Compression.ZSTD, lambda data: _streamed(cramjam.zstd.Compressor(), data)),
    "lz4, streamed": (Compression.LZ4, lambda data: _streamed(cramjam.lz4.Compressor(), data)),
}


def _streamed(compressor: object, data: bytes) -> bytes:
    source = io.BytesIO(data)
    while piece := source.read(100_000):
        compressor.compress(piece)  # type: ignore[attr-defined]
    return bytes(compressor.finish())  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("dull", [True, False])
def test_of_other_producers(name: str, dull: bool) -> None:
    codec, compressed = FOREIGN[name]
    size = 9 * MIB
    data = memoryview(compressed(_plain(size, dull=dull)))
    assert not unpacks_beyond(codec, data, size)
    assert unpacks_beyond(codec, data, size - 4 * MIB)


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_that_no_reader_can_unpack_is_refused(codec: Compression) -> None:
    fits = compress(codec, bytes(MAX_DECOMPRESSED_BYTES))
    bomb = compress(codec, bytes(60 * MIB))
    limit = 16 * MIB  # snappy packs no better than to a twentieth
    batch = build_raw_batch(fits, record_count=5, attributes=codec)
    assert validate_client_batches(batch, max_batch_bytes=limit)
    batch = build_raw_batch(bomb, record_count=5, attributes=codec)
    with pytest.raises(MessageTooLarge, match="5 records unpack to more than 33554432 bytes"):
        validate_client_batches(batch, max_batch_bytes=limit)


@given(st.sampled_from(CODECS), st.binary(max_size=200), st.booleans())
def test_noise_is_no_error_here(codec: Compression, noise: bytes, has_magic: bool) -> None:
    magic = bytes(compress(codec, b""))[:8] if has_magic else b""
    unpacks_beyond(codec, memoryview(magic + noise), 1000)
