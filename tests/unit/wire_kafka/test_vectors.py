"""The record batches of spec kafka 4, byte for byte."""

from __future__ import annotations

import pytest

from paceline.wire.batch import build_batch
from paceline.wire.batch_header import stamp, verify
from paceline.wire.end_marker import EndMarker, build_end_marker, read_end_marker
from paceline.wire.records import Record, decode_records

NOW = 1_700_000_000_000
SENT = bytes.fromhex(
    "000000000000000000000046ffffffff02eac6ddbc0000000000010000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff0000000210000000026b027600160000020102770202680231"
)
STORED = bytes.fromhex(
    "0000000000000064000000460000000702eac6ddbc0000000000010000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff0000000210000000026b027600160000020102770202680231"
)
MARKERS = {
    True: "00000000000000660000004200000007020f7d9c690030000000000000018bcfe568000000018bcfe56800"
    "0000000000000fa10002ffffffff000000012000000008000000010c00000000000300",
    False: "0000000000000066000000420000000702fb434a210030000000000000018bcfe568000000018bcfe56800"
    "0000000000000fa10002ffffffff000000012000000008000000000c00000000000300",
}


def test_a_batch_as_sent_and_as_stored() -> None:
    records = [
        Record(-1, NOW, b"k", b"v"),
        Record(-1, NOW, None, b"w", (("h", b"1"),)),
    ]
    made = build_batch(records)
    assert made == SENT
    stamp(made, 0, 100, 7)
    assert made == STORED
    verify(made)
    assert [each.offset for each in decode_records(made)] == [100, 101]


@pytest.mark.parametrize("commits", MARKERS)
def test_end_markers(commits: bool) -> None:
    marker = EndMarker(commits, coordinator_epoch=3)
    made = build_end_marker(marker, producer_id=4001, producer_epoch=2, timestamp_ms=NOW)
    stamp(made, 0, 102, 7)
    assert made == bytes.fromhex(MARKERS[commits])
    verify(made)
    assert read_end_marker(made) == marker
