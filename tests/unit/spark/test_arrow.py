from __future__ import annotations

import itertools

import pyarrow as pa
import pytest

from paceline.spark.arrow import FIRST_MS, HEADERS, RecordColumns, schema
from paceline.spark.options import ARROW_COLUMNS
from paceline.types import Compression, TopicPartition
from paceline.wire.batch import APPEND_TIME, build_batch, read_header
from paceline.wire.records import Record, decode_records

AT = TopicPartition("orders", 3)


def collect(batches: list[list[Record]], columns=ARROW_COLUMNS, *, rows=100, size=10**9):
    made = RecordColumns(AT, columns, rows=rows, size_bytes=size)
    out: list[pa.RecordBatch] = []
    offset = 0
    for records in batches:
        stored = build_batch(records, base_offset=offset, leader_epoch=7)
        offset += len(records)
        out += made.add(read_header(stored), decode_records(stored))
    return [*out, *made.rest()]


def test_every_column_byte_for_byte() -> None:
    records = [
        Record(-1, 1_700_000_000_123, b"k\xff", b"\x00v", (("a", b"\xfe"), ("a", None))),
        Record(-1, -1, None, None),
        Record(-1, 5, b"", b"", (("n\udcff", b""),)),
    ]
    [batch] = collect([records])
    assert batch.schema == schema(ARROW_COLUMNS)
    rows = batch.to_pydict()
    assert rows["key"] == [b"k\xff", None, b""]
    assert rows["value"] == [b"\x00v", None, b""]
    assert rows["topic"] == ["orders"] * 3
    assert rows["partition"] == [3] * 3
    assert rows["offset"] == [0, 1, 2]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [
        1_700_000_000_123_000,
        None,
        5_000,
    ]
    assert rows["timestampType"] == [0, -1, 0]
    assert rows["headers"] == [
        [{"key": "a", "value": b"\xfe"}, {"key": "a", "value": None}],
        None,
        [{"key": "n\ufffd", "value": b""}],
    ]
    assert rows["rawHeaders"] == [None, None, [{"key": b"n\xff", "value": b""}]]
    assert rows["leaderEpoch"] == [7] * 3
    assert rows["timestampMs"] == [1_700_000_000_123, -1, 5]


def test_a_batch_that_unpacks_to_much_is_cut() -> None:
    """What a stored batch has on disk says nothing of its records: all were one Arrow batch."""
    records = [Record(-1, 1, None, bytes(1000)) for _ in range(5000)]
    made = RecordColumns(AT, ("offset", "value"), rows=10**6, size_bytes=100_000)
    stored = build_batch(records, compression=Compression.ZSTD)
    assert len(stored) < 50_000
    batches = [*made.add(read_header(stored), decode_records(stored)), *made.rest()]
    assert [batch.num_rows for batch in batches] == [100] * 50
    assert [n for batch in batches for n in batch.column("offset").to_pylist()] == list(range(5000))


def test_times_that_have_no_date_are_told_as_they_are() -> None:
    given = [-1, -2, -62_135_596_800_001, 253_402_300_800_000, 2**60]
    [batch] = collect([[Record(-1, each, None, b"v") for each in given]])
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [
        None,
        -2_000,
        None,
        None,
        None,
    ]
    assert batch.to_pydict()["timestampMs"] == given
    assert batch.to_pydict()["timestampType"] == [-1, 0, 0, 0, 0]


def test_only_the_columns_asked_for() -> None:
    [batch] = collect([[Record(-1, 1, b"k", b"v")]], ("offset", "value"))
    assert batch.schema.names == ["offset", "value"]
    assert not batch.schema.field("offset").nullable


def test_headers_of_a_batch_without_any_are_null() -> None:
    [batch] = collect([[Record(-1, 1, b"k", b"v")] * 2])
    assert batch.column("headers").type == HEADERS
    assert batch.column("headers").null_count == 2


def test_batches_close_at_rows_or_bytes_and_lose_nothing() -> None:
    stored = [[Record(-1, 1, None, bytes(100))] * 30 for _ in range(10)]
    by_rows = collect(stored, rows=64)
    assert [batch.num_rows for batch in by_rows] == [64, 64, 64, 64, 44]
    by_size = collect(stored, size=6000)
    assert max(batch.num_rows for batch in by_size) <= 60
    for cut in (by_rows, by_size):
        offsets = [offset for batch in cut for offset in batch.column("offset").to_pylist()]
        assert offsets == list(range(300))


def test_nothing_gives_nothing() -> None:
    assert collect([]) == []


def test_batches_of_either_kind_of_time_in_one() -> None:
    made = RecordColumns(AT, ("timestamp", "timestampType"), rows=100, size_bytes=10**9)
    for stamp, flags in itertools.product((7, -1), (0, APPEND_TIME)):
        stored = build_batch([Record(-1, stamp, None, b"v")] * 2, flags=flags)
        assert not list(made.add(read_header(stored), decode_records(stored)))
    [batch] = made.rest()
    stamps = batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert stamps == [7000] * 4 + [None] * 4
    assert batch.column("timestampType").to_pylist() == [0, 0, 1, 1, -1, -1, 1, 1]


@pytest.mark.parametrize("stamp", [7, -1, FIRST_MS - 1])
def test_one_time_for_all(stamp: int) -> None:
    [batch] = collect([[Record(-1, stamp, None, b"v")] * 3])
    date = 7000 if stamp == 7 else None
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [date] * 3
    assert batch.column("timestampType").to_pylist() == [-1 if stamp == -1 else 0] * 3
    assert batch.column("timestampMs").to_pylist() == [stamp] * 3
