"""Record batches: golden bytes, limits, stamping, CRC, what clients may send."""

import struct
from contextlib import nullcontext, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import (
    CorruptMessage,
    InvalidRecord,
    MessageTooLarge,
    PacelineError,
    UnsupportedCompression,
)
from paceline.types import MAX_RECORD_BYTES, Compression
from paceline.wire.batch import (
    APPEND_TIME,
    CLIENT_ATTRIBUTES,
    CONTROL,
    DELETE_HORIZON,
    EXTENDED,
    HEADER_BYTES,
    MAX_STORED_BATCH_BYTES,
    TRANSACTIONAL,
    BatchExtension,
    PayloadKind,
    ProducerNamespace,
    TimestampType,
    TruncatedBatch,
    build_batch,
    build_raw_batch,
    build_value_batch,
    iter_batches,
    iter_range,
    read_extension,
    read_header,
    stamp,
    validate_client_batches,
    verify,
)
from paceline.wire.checksum import crc32c
from paceline.wire.records import Record, decode_records

RECORDS = [
    Record(0, 1700000000000, b"user1", b"created"),
    Record(1, 1700000000003, None, b"paid", (("trace", b"\x01\x02"), ("empty", None))),
    Record(2, 1699999999990, b"user1", None),
    Record(3, 1700000000003, b"", b""),
]

# Written by kafka-python 3.0.12 (DefaultRecordBatchBuilder, magic 2) from the same records.
GOLDEN = bytes.fromhex(
    "0000000000000000000000720000000002f1b593e20000000000030000018bcfe568000000018bcfe56803ffff"
    "ffffffffffffffffffffffff00000004240000000a75736572310e637265617465640034000602010870616964"
    "040a74726163650401020a656d70747901160013040a757365723101000c000606000000"
)
GOLDEN_TRANSACTIONAL = bytes.fromhex(
    "0000000000000000000000440000000002d27963500010000000000000018bcfe568000000018bcfe568000000"
    "00000000126700030000001100000001240000000a75736572310e6372656174656400"
)
# The same writer, two values of 40 times "pace", per codec.
GOLDEN_COMPRESSED = {
    Compression.GZIP: (
        "00000000000000000000005c0000000002f03718c30001000000010000018bcfe568000000018bcfe56800ffff"
        "ffffffffffffffffffffffff000000021f8b08005cf1016b02ff3bc7c4c0c0c07880a920313975306386734087"
        "320d058702009150682352010000"
    ),
    Compression.SNAPPY: (
        "00000000000000000000006d000000000255382d7f0002000000010000018bcfe568000000018bcfe56800ffff"
        "ffffffffffffffffffffffff0000000282534e4150505900000000010000000100000028d2022cce0200000001"
        "c00270616365fe0400fe04006e0400000001a9040201fea900fea9008aa900"
    ),
    Compression.LZ4: (
        "0000000000000000000000670000000002faded5df0003000000010000018bcfe568000000018bcfe56800ffff"
        "ffffffffffffffffffffffff0000000204224d18684052010000000000007e1f000000cfce0200000001c00270"
        "6163650400891000a9001f02a9008c50706163650000000000"
    ),
    Compression.ZSTD: (
        "0000000000000000000000580000000002bddf425f0004000000010000018bcfe568000000018bcfe56800ffff"
        "ffffffffffffffffffffffff0000000228b52ffd605200ed000090ce0200000001c0027061636500ce02000002"
        "02002196a14a66ca2501"
    ),
}

EXTENSION = BatchExtension(
    kind=PayloadKind.EVENTS,
    namespace=ProducerNamespace.SEGMENT_PRAVEGA,
    producer_key=bytes(range(16)),
    producer_epoch=7,
    first_sequence=100,
    last_sequence=102,
    base_position=4096,
    event_count=3,
)
# One extended batch by the layout of wire/DESIGN 2.1, put together field by field in
# test_published_extension_vector; other implementations may check themselves against it.
EXTENDED_VECTOR = bytes.fromhex(
    "00000000000000050000006f0000000902db9446d60080000000020000018bcfe568000000018bcfe56800ffff"
    "ffffffffffffffffffffffff0000000301010300000102030405060708090a0b0c0d0e0f000000000000000700"
    "000000000000640000000000000066000000000000100000000003657631657632"
)


def patched(batch: bytes | bytearray, at: int, form: str, value: int) -> bytearray:
    """A copy with one field replaced and the CRC made right again."""
    copy = bytearray(batch)
    struct.pack_into(form, copy, at, value)
    struct.pack_into(">I", copy, 17, crc32c(memoryview(copy)[21:]))
    return copy


# --- golden bytes --------------------------------------------------------------------------


def test_bytes_are_those_of_an_independent_writer() -> None:
    assert build_batch(RECORDS, leader_epoch=0) == GOLDEN
    assert decode_records(GOLDEN) == RECORDS


def test_producer_fields_and_flags_are_those_of_an_independent_writer() -> None:
    batch = build_batch(
        RECORDS[:1],
        producer_id=4711,
        producer_epoch=3,
        base_sequence=17,
        flags=TRANSACTIONAL,
        leader_epoch=0,
    )
    assert batch == GOLDEN_TRANSACTIONAL
    header = verify(batch)
    assert header.is_transactional
    assert header.has_producer
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4711, 3, 17)


@pytest.mark.parametrize("codec", list(GOLDEN_COMPRESSED))
def test_reads_what_an_independent_writer_compressed(codec: Compression) -> None:
    batch = bytes.fromhex(GOLDEN_COMPRESSED[codec])
    assert verify(batch).compression == codec
    assert decode_records(batch) == [
        Record(offset, 1700000000000, None, b"pace" * 40) for offset in range(2)
    ]


def test_header_fields() -> None:
    header = read_header(GOLDEN)
    assert header.base_offset == 0
    assert header.last_offset == 3
    assert header.next_offset == 4
    assert header.size_bytes == len(GOLDEN)
    assert header.record_count == 4
    assert header.base_timestamp == 1700000000000
    assert header.max_timestamp == 1700000000003
    assert header.timestamp_type is TimestampType.CREATE
    assert header.payload_start == HEADER_BYTES
    assert header.last_sequence == -1
    flags = (header.is_control, header.is_transactional, header.is_extended, header.has_producer)
    assert not any(flags)


def test_last_sequence_wraps() -> None:
    batch = build_value_batch(
        [b"a", b"b", b"c"], timestamp_ms=0, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2
    )
    assert read_header(batch).last_sequence == 0


def test_value_batch_equals_the_batch_of_records() -> None:
    values = [b"one", None, b"three"]
    keys = [None, b"k", b""]
    records = [Record(-1, 5, key, value) for key, value in zip(keys, values, strict=True)]
    assert build_value_batch(values, keys, timestamp_ms=5) == build_batch(records)


def test_missing_timestamps_are_filled_in() -> None:
    batch = build_batch([Record(value=b"a"), Record(value=b"b", timestamp_ms=9)], timestamp_ms=7)
    assert [record.timestamp_ms for record in decode_records(batch)] == [7, 9]


# --- extension -----------------------------------------------------------------------------


def test_published_extension_vector() -> None:
    body = b"ev1ev2"
    by_hand = b"".join(
        (
            struct.pack(">hiqqqhii", 0x80, 2, 1700000000000, 1700000000000, -1, -1, -1, 3),
            bytes((1, 1, 3, 0)),
            bytes(range(16)),
            struct.pack(">qqqqi", 7, 100, 102, 4096, 3),
            body,
        )
    )
    head = struct.pack(">qiibI", 5, 9 + len(by_hand), 9, 2, crc32c(by_hand))
    assert head + by_hand == EXTENDED_VECTOR
    built = build_raw_batch(
        body,
        record_count=3,
        base_timestamp=1700000000000,
        max_timestamp=1700000000000,
        extension=EXTENSION,
    )
    stamp(built, 0, 5, 9)
    assert built == EXTENDED_VECTOR
    header = verify(EXTENDED_VECTOR)
    assert header.is_extended
    assert not header.has_producer
    assert EXTENDED_VECTOR[header.payload_start :] == body
    assert read_extension(EXTENDED_VECTOR) == EXTENSION


@pytest.mark.parametrize(
    ("at", "value"), [(61, 2), (62, 6), (63, 4), (64, 1)], ids=["version", "kind", "space", "zero"]
)
def test_unknown_extension_bytes_are_refused(at: int, value: int) -> None:
    with pytest.raises(CorruptMessage, match="extension"):
        read_extension(patched(EXTENDED_VECTOR, at, ">B", value))


def test_a_plain_batch_has_no_extension() -> None:
    with pytest.raises(CorruptMessage, match="has no extension"):
        read_extension(GOLDEN)


def test_empty_placeholder_keeps_its_offsets() -> None:
    batch = build_raw_batch(b"", record_count=0, last_offset_delta=9, base_offset=40)
    header = verify(batch)
    assert (header.last_offset, header.next_offset, header.record_count) == (49, 50, 0)
    assert decode_records(batch) == []


# --- reading -------------------------------------------------------------------------------


def test_iteration_gives_positions_and_ends_at_the_buffer() -> None:
    buffer = GOLDEN + GOLDEN_TRANSACTIONAL + EXTENDED_VECTOR
    found = [(position, header.record_count) for position, header in iter_batches(buffer)]
    second = len(GOLDEN)
    third = second + len(GOLDEN_TRANSACTIONAL)
    assert found == [(0, 4), (second, 1), (third, 3)]
    assert [position for position, _ in iter_batches(memoryview(buffer), second)] == [second, third]
    assert list(iter_batches(b"")) == []


@pytest.mark.parametrize(
    ("bases", "end", "error"),
    [
        ([100, 103, 106], 109, None),
        ([100, 231, 106], 109, "base offset 231, expected 103"),
        ([108, 103, 106], 109, "base offset 108, expected 100"),
        ([100, 103], 109, "end at offset 106, expected 109"),
    ],
)
def test_a_range_of_a_log_has_batches_in_a_row(
    bases: list[int], end: int, error: str | None
) -> None:
    """The checksum of a batch says nothing of where it belongs."""
    batch = build_batch([Record(value=b"v")] * 3)
    buffer = bytearray()
    for base in bases:
        stamp(batch, 0, base, 0)
        buffer += batch
    with nullcontext() if error is None else pytest.raises(CorruptMessage, match=error):
        assert [header.base_offset for _, header in iter_range(buffer, 100, end)] == bases


def test_every_cut_is_reported_with_what_is_needed() -> None:
    buffer = GOLDEN + GOLDEN_TRANSACTIONAL
    for size in range(len(buffer)):
        batches = iter_batches(buffer[:size])
        whole = sum(size >= end for end in (len(GOLDEN), len(buffer)))
        for _ in range(whole):
            next(batches)
        start = whole * len(GOLDEN)
        if size == start:
            assert next(batches, None) is None
            continue
        with pytest.raises(TruncatedBatch) as caught:
            next(batches)
        expected = len(GOLDEN) if whole == 0 else len(GOLDEN_TRANSACTIONAL)
        assert caught.value.needed_bytes == (
            HEADER_BYTES if size - start < HEADER_BYTES else expected
        )


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (0, ">q", -1, "base offset -1"),
        (0, ">q", 2**63 - 4, "base offset"),
        (8, ">i", -1, "size of 11 bytes"),
        (8, ">i", 48, "size of 60 bytes"),
        (8, ">i", 2**31 - 1, "size of"),
        (8, ">i", MAX_STORED_BATCH_BYTES - 11, "size of"),
        (16, ">b", 1, "magic 1"),
        (16, ">b", 3, "magic 3"),
        (23, ">i", -1, "last offset delta -1"),
        (57, ">i", -1, "-1 records"),
        (57, ">i", 5, "5 records in 4 offsets"),
    ],
)
def test_limits_are_checked_before_anything(at: int, form: str, value: int, message: str) -> None:
    batch = patched(GOLDEN, at, form, value)
    with pytest.raises(CorruptMessage, match=message) as caught:
        read_header(batch)
    assert not isinstance(caught.value, TruncatedBatch)


def test_an_extended_batch_has_room_for_its_extension() -> None:
    batch = patched(build_raw_batch(bytes(55), record_count=1), 21, ">h", EXTENDED)
    with pytest.raises(CorruptMessage, match="size of 116 bytes outside 117"):
        read_header(batch)


def test_stamp_changes_offset_and_epoch_only() -> None:
    buffer = bytearray(GOLDEN + GOLDEN)
    stamp(buffer, len(GOLDEN), 1234, 56)
    assert buffer[: len(GOLDEN)] == GOLDEN
    header = verify(buffer, len(GOLDEN))
    assert (header.base_offset, header.leader_epoch, header.next_offset) == (1234, 56, 1238)
    stamp(buffer, len(GOLDEN), 0, 0)
    assert buffer == GOLDEN + GOLDEN


def test_every_flipped_bit_is_found_except_in_offset_and_epoch() -> None:
    stamped_by_leader = {*range(8), *range(12, 16)}
    for at in range(len(EXTENDED_VECTOR)):
        for bit in range(8):
            batch = bytearray(EXTENDED_VECTOR)
            batch[at] ^= 1 << bit
            if at in stamped_by_leader and not (at == 0 and bit == 7):
                assert verify(batch).crc == read_header(EXTENDED_VECTOR).crc
            else:
                with pytest.raises(CorruptMessage):
                    verify(batch)


# --- what clients may send -----------------------------------------------------------------


def test_ordinary_batches_are_accepted() -> None:
    buffer = build_batch(RECORDS) + build_value_batch([b"x"] * 10, timestamp_ms=1)
    assert [header.record_count for header in validate_client_batches(buffer)] == [4, 10]
    for codec in Compression:
        (header,) = validate_client_batches(memoryview(build_batch(RECORDS, compression=codec)))
        assert header.compression == codec


@pytest.mark.parametrize("bit", range(3, 16))
def test_reserved_and_unknown_attribute_bits_are_refused(bit: int) -> None:
    value = 1 << bit if bit < 15 else -(1 << 15)
    batch = patched(build_value_batch([bytes(100)], timestamp_ms=1), 21, ">h", value)
    with pytest.raises(InvalidRecord):
        validate_client_batches(batch)


def test_transactional_batches_need_a_caller_that_verified_them() -> None:
    with pytest.raises(InvalidRecord, match="attributes 0x0010"):
        validate_client_batches(GOLDEN_TRANSACTIONAL)
    allowed = CLIENT_ATTRIBUTES | TRANSACTIONAL
    assert validate_client_batches(GOLDEN_TRANSACTIONAL, allowed_attributes=allowed)


@pytest.mark.parametrize("flag", [CONTROL, APPEND_TIME, DELETE_HORIZON, EXTENDED])
def test_broker_written_kinds_are_refused_from_clients(flag: int) -> None:
    batch = build_raw_batch(bytes(100), record_count=1, attributes=flag)
    with pytest.raises(InvalidRecord):
        validate_client_batches(batch)


@pytest.mark.parametrize(
    ("batch", "error", "message"),
    [
        (b"", InvalidRecord, "no batch"),
        (GOLDEN[:-1], CorruptMessage, "125 of 126 bytes"),
        (GOLDEN[:60], CorruptMessage, "60 bytes"),
        (GOLDEN + b"\0", CorruptMessage, "batch at byte 126"),
        (GOLDEN[:-1] + b"\1", CorruptMessage, "CRC-32C"),
        (patched(GOLDEN, 16, ">b", 1), InvalidRecord, "magic 1"),
        (patched(GOLDEN, 23, ">i", 4), InvalidRecord, "4 records with last offset delta 4"),
        (patched(GOLDEN, 57, ">i", 3), InvalidRecord, "3 records"),
        (patched(GOLDEN, 57, ">i", 0), InvalidRecord, "0 records"),
        (patched(GOLDEN, 43, ">q", -2), InvalidRecord, "producer id -2"),
        (patched(GOLDEN, 43, ">q", 5), InvalidRecord, "producer 5"),
        (patched(GOLDEN, 21, ">h", 6), UnsupportedCompression, "codec 6"),
    ],
)
def test_refusals(batch: bytes, error: type[PacelineError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        validate_client_batches(batch)
    assert type(caught.value) is error or isinstance(caught.value, TruncatedBatch)


def test_sequence_without_producer_is_tolerated() -> None:
    """Some clients leave sequence 0 beside producer -1."""
    assert validate_client_batches(patched(GOLDEN, 53, ">i", 0))


def test_size_limit_is_for_batches_of_several_records() -> None:
    fits = build_value_batch([bytes(500), bytes(500)], timestamp_ms=1)
    length = len(fits) - 12
    assert validate_client_batches(fits, max_batch_bytes=length)
    with pytest.raises(MessageTooLarge, match=f"{length} bytes in 2 records"):
        validate_client_batches(fits, max_batch_bytes=length - 1)
    alone = build_value_batch([bytes(2 * 1024 * 1024)], timestamp_ms=1)
    assert validate_client_batches(alone)


def test_record_cap() -> None:
    assert build_value_batch([bytes(MAX_RECORD_BYTES)], timestamp_ms=1)
    with pytest.raises(MessageTooLarge):
        build_value_batch([bytes(MAX_RECORD_BYTES + 64 * 1024)], timestamp_ms=1)


@given(st.binary(max_size=300))
def test_garbage_is_a_typed_error(data: bytes) -> None:
    with pytest.raises(PacelineError):
        validate_client_batches(data)


@given(st.data())
def test_damaged_heads_never_raise_anything_untyped(data: st.DataObject) -> None:
    """A structured mutation: fields replaced under a right CRC get past the checksum."""
    batch = data.draw(st.sampled_from([GOLDEN, GOLDEN_TRANSACTIONAL, EXTENDED_VECTOR]))
    at = data.draw(st.integers(0, len(batch) - 1))
    batch = patched(batch, at, ">B", data.draw(st.integers(0, 255)))
    with suppress(PacelineError):
        headers = validate_client_batches(batch)
        assert sum(header.size_bytes for header in headers) == len(batch)
        assert len(decode_records(batch)) == headers[0].record_count
