"""Records inside a batch: round trips, both decoders alike, damage of every kind."""

import struct
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import CorruptMessage, PacelineError
from paceline.types import Compression
from paceline.wire.batch import APPEND_TIME, build_batch, build_raw_batch, build_value_batch, stamp
from paceline.wire.records import (
    Record,
    decode_records,
    encode_values,
    encode_varint,
    read_varint,
)

HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp_ms=st.integers(0, 2**62),
        key=st.none() | st.binary(max_size=80),
        value=st.none() | st.binary(max_size=80),
        headers=HEADERS.map(tuple),
    ),
    min_size=1,
    max_size=12,
)
I64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_varint_vectors(number: int, encoded: str) -> None:
    assert encode_varint(number).hex() == encoded
    assert read_varint(b"\xff" + bytes.fromhex(encoded), 1) == (number, 1 + len(encoded) // 2)


@given(I64)
def test_varint_round_trip(number: int) -> None:
    encoded = encode_varint(number)
    assert read_varint(encoded + b"\xff", 0) == (number, len(encoded))


def test_varint_of_eleven_bytes_is_refused() -> None:
    with pytest.raises(CorruptMessage, match="longer than 10 bytes"):
        read_varint(b"\x80" * 10 + b"\x00", 0)


@given(RECORDS, st.sampled_from(list(Compression)), st.integers(0, 2**40))
def test_round_trip(records: list[Record], codec: Compression, base_offset: int) -> None:
    batch = build_batch(records, compression=codec)
    stamp(batch, 0, base_offset, 3)
    expected = [record._replace(offset=base_offset + index) for index, record in enumerate(records)]
    assert decode_records(batch) == expected
    assert decode_records(memoryview(b"xyz" + batch)[1:], 2) == expected


@given(
    st.lists(st.none() | st.binary(max_size=200), min_size=1, max_size=90),
    st.data(),
)
def test_columns_round_trip(values: list[bytes | None], data: st.DataObject) -> None:
    count = len(values)
    keys = data.draw(
        st.none() | st.lists(st.none() | st.binary(max_size=70), min_size=count, max_size=count)
    )
    deltas = data.draw(
        st.none() | st.lists(st.integers(-(2**40), 2**40), min_size=count, max_size=count)
    )
    payload = encode_values(values, keys, timestamp_deltas=deltas)
    batch = build_raw_batch(payload, record_count=count, base_timestamp=2**41)
    decoded = decode_records(batch)
    assert [record.value for record in decoded] == values
    assert [record.key for record in decoded] == (keys or [None] * count)
    stamps = [record.timestamp_ms - 2**41 for record in decoded]
    assert stamps == (deltas or [0] * count)


def test_offset_deltas_of_every_width() -> None:
    """One, two and three bytes: the encoder treats each width as a run of its own."""
    count = 8192 + 70
    values = [b"%d" % number for number in range(count)]
    batch = build_value_batch(values, timestamp_ms=1)
    decoded = decode_records(batch)
    assert [record.offset for record in decoded] == list(range(count))
    assert [record.value for record in decoded] == values


@pytest.mark.parametrize("size", [0, 1, 56, 57, 63, 64, 8180, 8191, 8192, 2**20])
def test_lengths_round_varint_borders(size: int) -> None:
    batch = build_batch([Record(key=bytes(size), value=b"v" * size)], timestamp_ms=0)
    assert decode_records(batch) == [Record(0, 0, bytes(size), b"v" * size)]


@pytest.mark.parametrize(
    "stamps",
    [
        (-(2**62), 2**62),
        (2**62, -(2**62) - 1),
        (-(2**63), 2**63 - 1, 0, -2),
        (2**63 - 1, -(2**63)),
        (1, -(2**63)),
    ],
)
def test_times_farther_apart_than_a_delta_can_say(stamps: tuple[int, ...]) -> None:
    """Deltas wrap as 64-bit numbers do elsewhere. A span of 2^63 ms gave another record's time."""
    records = [Record(number, each, value=b"") for number, each in enumerate(stamps)]
    assert decode_records(build_batch(records)) == records


def test_values_may_be_views() -> None:
    source = bytearray(b"abcdef")
    batch = build_value_batch([memoryview(source)[:3], source], timestamp_ms=0)
    assert [record.value for record in decode_records(batch)] == [b"abc", b"abcdef"]


def test_append_time_wins_over_the_records_own() -> None:
    payload = encode_values([b"a", b"b"], timestamp_deltas=[0, 5])
    batch = build_raw_batch(
        payload, record_count=2, attributes=APPEND_TIME, base_timestamp=10, max_timestamp=99
    )
    assert [record.timestamp_ms for record in decode_records(batch)] == [99, 99]


def test_header_names_that_are_not_text_survive() -> None:
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    records = [Record(value=b"v", timestamp_ms=0, headers=((name, b"x"),))]
    assert decode_records(build_batch(records))[0].headers == ((name, b"x"),)


# --- damage --------------------------------------------------------------------------------

SAMPLE = [
    Record(0, 1000, b"key-one", b"v" * 70, (("name", b"value"), ("null", None))),
    Record(1, 1200, None, b"second"),
    Record(2, 900, b"k" * 70, None),
]


def with_payload(payload: bytes, *, count: int = len(SAMPLE), last_delta: int = 2) -> bytearray:
    return build_raw_batch(payload, record_count=count, last_offset_delta=last_delta)


def sample_payload() -> bytes:
    return bytes(build_batch(SAMPLE)[61:])


def test_every_cut_of_the_payload_is_named_with_its_offset() -> None:
    payload = sample_payload()
    for size in range(len(payload)):
        batch = with_payload(payload[:size])
        stamp(batch, 0, 77, 0)
        with pytest.raises(CorruptMessage, match="batch at offset 77: "):
            decode_records(batch)


def test_every_replaced_byte_is_refused_or_harmless() -> None:
    """Without a CRC some changes are just other records; none may escape the buffer or crash."""
    payload = sample_payload()
    for at in range(len(payload)):
        for value in range(256):
            changed = bytearray(payload)
            changed[at] = value
            batch = with_payload(bytes(changed))
            try:
                decoded = decode_records(batch)
            except CorruptMessage:
                continue
            assert len(decoded) == len(SAMPLE)


@pytest.mark.parametrize(
    ("payload", "count", "message"),
    [
        (sample_payload() + b"\0", 3, "1 bytes after the last record"),
        (sample_payload(), 2, "bytes after the last record"),
        (b"", 1, "1 records in 0 bytes"),
        (b"\x0c" + bytes(6), 1000, "1000 records in 7 bytes"),
        (bytes.fromhex("0c000004000000"), 1, "offset delta 2 above 0"),
        (bytes.fromhex("0c000001000000"), 1, "offset delta -1 after -1"),
        (bytes.fromhex("0c000000000000") * 2, 2, "offset delta 0 after 0"),
        (bytes.fromhex("0c000000030000"), 1, "key of -2 bytes"),
        (bytes.fromhex("0c000000010300"), 1, "value of -2 bytes"),
        (bytes.fromhex("0b000000010000"), 1, "ends outside 7 bytes"),
        (bytes.fromhex("0e000000010000"), 1, "ends outside 7 bytes"),
        (
            bytes.fromhex("0c0000000102" + "00"),
            1,
            "runs over the batch's end|ends at byte|value of",
        ),
    ],
)
def test_malformed_records(payload: bytes, count: int, message: str) -> None:
    batch = with_payload(payload, count=count, last_delta=count - 1)
    with pytest.raises(CorruptMessage, match=message):
        decode_records(batch)


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        ("03", "-2 headers in"),
        ("f8ffffff0f", "headers in"),
        ("0201", "header name of -1 bytes"),
        ("02fe7f", "header name of 8191 bytes"),
        ("020003", "header value of -2 bytes"),
        ("0200fe7f", "header value of 8191 bytes"),
    ],
)
def test_malformed_headers(tail: str, message: str) -> None:
    body = bytes.fromhex("0000000100") + bytes.fromhex(tail) + bytes(4)
    batch = with_payload(encode_varint(len(body)) + body, count=1, last_delta=0)
    with pytest.raises(CorruptMessage, match=message):
        decode_records(batch)


def test_a_bomb_is_stopped_at_the_bound() -> None:
    batch = build_value_batch([bytes(2**20)], timestamp_ms=0, compression=Compression.ZSTD)
    assert len(batch) < 2**12
    with pytest.raises(CorruptMessage, match="batch at offset 0: zstd: output exceeds"):
        decode_records(batch, max_bytes=2**20)
    assert len(decode_records(batch, max_bytes=2**20 + 100)) == 1


def test_a_lying_count_costs_no_memory() -> None:
    batch = with_payload(b"\x0c" + bytes(6), count=2**31 - 1, last_delta=2**31 - 2)
    with pytest.raises(CorruptMessage, match="2147483647 records in 7 bytes"):
        decode_records(batch)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.integers(0, 40), st.integers(0, 255))
def test_garbage_is_a_typed_error(payload: bytes, count: int, attributes: int) -> None:
    batch = bytearray(with_payload(payload, count=count, last_delta=max(0, count - 1)))
    struct.pack_into(">h", batch, 21, attributes & 0x7F)
    with suppress(PacelineError):
        assert len(decode_records(batch)) == count
