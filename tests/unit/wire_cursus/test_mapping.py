"""The table of wire/DESIGN 4: what Cursus writes it reads back, and others see it in full."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import InvalidRecord
from paceline.wire.batch import build_batch
from paceline.wire.cursus.batch import CursusRecord
from paceline.wire.cursus_record_mapping import columns_of, cursus_of, record_of
from paceline.wire.records import Record, decode_records, encode_values
from tests.unit.wire_cursus.test_batches import records


@given(st.lists(records, min_size=1, max_size=5))
@settings(deadline=None)
def test_a_cursus_record_comes_back_through_the_log(written: list[CursusRecord]) -> None:
    batch = build_batch([record_of(record) for record in written], timestamp_ms=7)
    read = decode_records(batch)
    expected = [record._replace(offset=i) for i, record in enumerate(written)]
    assert [cursus_of(record) for record in read] == expected
    # Columns and records say the same.
    columns = columns_of(written)
    assert encode_values(columns.values, columns.keys, encoded_headers=columns.headers) == bytes(
        batch[61:]
    )


@given(
    st.none() | st.binary(max_size=20),
    st.none() | st.binary(max_size=20),
    st.lists(st.tuples(st.text(max_size=12), st.none() | st.binary(max_size=12)), max_size=4),
)
@settings(deadline=None)
def test_what_others_wrote_shows(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    shown = cursus_of(Record(5, 1, key, value, tuple(headers)))
    assert (shown.offset, shown.key, shown.payload) == (5, key or b"", value or b"")


def test_fields_and_their_headers() -> None:
    record = CursusRecord(3, 7, b"py-1", b"k", -2, b"v", b"Made", 2, 9, b'{"a":1}')
    assert record_of(record, timestamp_ms=11) == Record(
        3,
        11,
        b"k",
        b"v",
        (
            ("cursus.producer", b"py-1"),
            ("cursus.seq", b"7"),
            ("cursus.epoch", b"-2"),
            ("cursus.event_type", b"Made"),
            ("cursus.schema_version", b"2"),
            ("cursus.aggregate_version", b"9"),
            ("cursus.metadata", b'{"a":1}'),
        ),
    )
    assert record_of(CursusRecord(payload=b"")) == Record(0, -1, None, b"", ())


@pytest.mark.parametrize(
    "header",
    [
        ("cursus.seq", b"-1"),
        ("cursus.seq", b"x"),
        ("cursus.seq", b"9223372036854775808"),
        ("cursus.schema_version", b"2147483648"),
        ("cursus.producer", bytes(65_536)),
        ("cursus.other", b"1"),
        ("cursus.metadata", None),
    ],
)
def test_headers_that_cursus_could_not_have_written_are_hidden(
    header: tuple[str, bytes | None],
) -> None:
    assert cursus_of(Record(0, -1, None, b"v", (header,))) == CursusRecord(payload=b"v")


def test_a_key_too_long_for_cursus_is_named_by_its_offset() -> None:
    with pytest.raises(InvalidRecord, match="offset 9: the key has 65536 bytes"):
        cursus_of(Record(9, -1, bytes(65_536), b"v"))
    assert cursus_of(Record(9, -1, bytes(65_535), b"v")).key == bytes(65_535)
