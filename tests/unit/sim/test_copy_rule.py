"""What must hold between a group's offsets and the copies of what it has read."""

from __future__ import annotations

import pytest

from paceline_cluster.chaos.copies import Copying
from paceline_cluster.sim.foreign_clients.copy_rule import CopyRule, Read

RECORDS = [Read(0, 0, b"a  "), Read(0, 1, b"b"), Read(1, 0, b"c"), Read(0, 2, b"never read")]
COPIES = [b"0 0 a", b"1 0 c", b"0 1 b"]
OFFSETS = {0: 2, 1: 1}


def rule() -> CopyRule:
    return CopyRule(Copying("orders", 2, "copiers", "copies", 1))


def test_each_record_below_the_offsets_once_and_in_order() -> None:
    assert rule().judge(OFFSETS, RECORDS, COPIES) is None


def test_nothing_was_read() -> None:
    assert rule().judge({}, RECORDS, []) is None


@pytest.mark.parametrize(
    "copies",
    [
        COPIES[:-1],
        [*COPIES, b"0 1 b"],
        [*COPIES, b"0 2 never read"],
        [b"0 1 b", b"1 0 c", b"0 0 a"],
        [b"0 0 another", *COPIES[1:]],
    ],
    ids=["missing", "twice", "not committed", "out of order", "another value"],
)
def test_copies_that_are_not_so(copies: list[bytes]) -> None:
    assert "orders/0 was read up to 2" in str(rule().judge(OFFSETS, RECORDS, copies))


def test_an_offset_that_was_said_to_be_committed_stays() -> None:
    judged = rule()
    judged.committed({0: 3})
    assert "at 2 of partition 0" in str(judged.judge(OFFSETS, RECORDS, COPIES))


def test_whoever_asks_later_is_told_no_less() -> None:
    judged = rule()
    early = judged.floor()
    judged.committed({0: 2})
    judged.found(early, {0: 0})
    assert judged.judge(OFFSETS, RECORDS, COPIES) is None
    judged.found(judged.floor(), {0: 1})
    assert "after a transaction that moved it to 2" in str(judged.judge(OFFSETS, RECORDS, COPIES))
