"""Codecs: round trips, foreign formats, bombs, damage."""

import gzip
from collections.abc import Callable
from contextlib import suppress

import cramjam
import kafka.codec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import CorruptMessage, UnsupportedCompression
from paceline.types import Compression
from paceline.wire.compression import compress, decompress

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
TEXT = b"GET /index.html 200\n" * 20_000


@given(st.sampled_from(list(Compression)), st.binary(max_size=2000), st.integers(1, 50))
def test_round_trip(codec: Compression, data: bytes, times: int) -> None:
    data *= times
    assert decompress(codec, compress(codec, data), max_bytes=len(data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_round_trip_over_block_borders_and_views(codec: Compression) -> None:
    for size in (32 * 1024, 64 * 1024, 64 * 1024 + 1, len(TEXT)):
        packed = compress(codec, memoryview(TEXT)[:size])
        assert len(packed) < size // 4
        assert decompress(codec, memoryview(b"??" + packed)[2:]) == TEXT[:size]


@pytest.mark.parametrize("codec", list(Compression))
def test_output_bound_is_exact(codec: Compression) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, max_bytes=len(TEXT)) == TEXT
    with pytest.raises(CorruptMessage, match=r"exceed.* limit of"):
        decompress(codec, packed, max_bytes=len(TEXT) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_cut_anywhere_is_a_typed_error(codec: Compression) -> None:
    """A prefix never decodes to the whole; what a codec cannot tell from a shorter stream is
    caught by the record count."""
    packed = compress(codec, TEXT[:200])
    for size in range(len(packed)):
        try:
            found = decompress(codec, packed[:size])
        except CorruptMessage:
            continue
        assert len(found) < 200


@given(st.sampled_from(CODECS), st.binary(max_size=300))
def test_garbage_is_a_typed_error(codec: Compression, data: bytes) -> None:
    with suppress(CorruptMessage):
        assert len(decompress(codec, data, max_bytes=4096)) <= 4096


@given(st.sampled_from(CODECS), st.data())
def test_a_damaged_byte_never_escapes_the_bound(codec: Compression, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, TEXT[:3000]))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] ^= data.draw(st.integers(1, 255))
    with suppress(CorruptMessage):
        assert len(decompress(codec, packed, max_bytes=3000)) <= 3000


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec(codec: int) -> None:
    with pytest.raises(UnsupportedCompression, match=f"codec {codec}"):
        decompress(codec, b"abc")


def test_reads_what_others_write() -> None:
    """Raw snappy, standard lz4 frames with linked blocks and checksums, joined gzip members."""
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT
    assert decompress(Compression.LZ4, bytes(cramjam.lz4.compress(TEXT))) == TEXT
    joined = gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:])
    assert decompress(Compression.GZIP, joined) == TEXT


def test_snappy_claim_is_checked_before_it_is_allocated() -> None:
    four_gib = b"\xff\xff\xff\xff\x0f"
    with pytest.raises(CorruptMessage, match="exceeds the limit"):
        decompress(Compression.SNAPPY, four_gib + b"\x00")


def test_xerial_block_lengths_are_checked() -> None:
    packed = bytearray(compress(Compression.SNAPPY, b"abc" * 100))
    packed[16:20] = b"\xff\xff\xff\xff"
    with pytest.raises(CorruptMessage, match="block of 4294967295 bytes"):
        decompress(Compression.SNAPPY, packed)
    with pytest.raises(CorruptMessage, match="cut short"):
        decompress(Compression.SNAPPY, packed[:18])


def test_formats_that_kafka_clients_insist_on() -> None:
    assert compress(Compression.SNAPPY, b"x").startswith(b"\x82SNAPPY\x00\0\0\0\x01\0\0\0\x01")
    frame = compress(Compression.LZ4, TEXT)
    assert frame[:7].hex() == "04224d18604082", "independent blocks, no checksums"
    assert frame.endswith(bytes(4))
    noise = cramjam.gzip.compress(TEXT)  # does not shrink any further
    stored = compress(Compression.LZ4, bytes(noise))
    assert bytes(cramjam.lz4.decompress(stored)) == bytes(noise)


@pytest.mark.parametrize(
    ("codec", "encode", "decode"),
    [
        (Compression.GZIP, kafka.codec.gzip_encode, kafka.codec.gzip_decode),
        (Compression.SNAPPY, kafka.codec.snappy_encode, kafka.codec.snappy_decode),
        (Compression.LZ4, kafka.codec.lz4_encode, kafka.codec.lz4_decode),
        (Compression.ZSTD, kafka.codec.zstd_encode, kafka.codec.zstd_decode),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_kafka_python_reads_what_we_write_and_we_what_it_writes(
    codec: Compression, encode: Callable[[bytes], bytes], decode: Callable[[bytes], bytes]
) -> None:
    for data in (b"x", bytes(range(256)) * 1000):
        assert decompress(codec, encode(data)) == data
        assert bytes(decode(compress(codec, data))) == data
