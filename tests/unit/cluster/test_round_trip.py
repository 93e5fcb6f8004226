"""What ``scripts/show-round-trip`` calls wrong: the judge must see each flaw of a copy."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from paceline.spark.jobs.restoring import ORIGIN_HEADER
from paceline_cluster.round_trip.drawing import Drawn, record
from paceline_cluster.round_trip.model import Copy, Log, judge

COUNT = 6


def archived() -> Log:
    """Three records in each of two partitions."""
    log = Log("t", is_compacted=False, partitions=2)
    for number in range(COUNT):
        log.records[number % 2, number // 2] = Drawn(b"k%d" % (number % 2), b"v", (), number)
    log.archive()
    return log


def copies(log: Log) -> list[Copy]:
    """As a right restore leaves them."""
    return [
        Copy(place[0], place[1], drawn, (ORIGIN_HEADER, b"t/%d/%d" % place))
        for place, drawn in sorted(log.records.items())
    ]


@pytest.mark.parametrize("by_key", [False, True])
def test_a_right_copy_is_right(*, by_key: bool) -> None:
    log = archived()
    assert judge(log, copies(log), by_key=by_key) == []


@pytest.mark.parametrize("flaw", ["lost", "repeated", "unknown", "changed", "misplaced", "order"])
def test_each_flaw_is_seen(flaw: str) -> None:
    log = archived()
    made = copies(log)
    match flaw:
        case "lost":
            del made[2]
        case "repeated":
            made.append(replace(made[5], offset=9))
        case "unknown":
            made.append(replace(made[5], offset=9, origin=("paceline.restored", b"t/1/99")))
        case "changed":
            made[1] = replace(made[1], record=replace(made[1].record, value=b""))
        case "misplaced":
            made[5] = replace(made[5], partition=0, offset=9)
        case "order":
            made[0], made[1] = replace(made[0], offset=1), replace(made[1], offset=0)
    [told] = judge(log, made, by_key=False)
    assert flaw in told


def test_a_key_in_two_partitions_is_seen() -> None:
    log = archived()
    made = copies(log)
    made[5] = replace(made[5], partition=0, offset=9)
    [told] = judge(log, made, by_key=True)
    assert "misplaced" in told


def test_what_a_cleaner_may_have_removed_may_be_missing_and_nothing_else() -> None:
    log = archived()
    log = replace(log, is_compacted=True, must={}, may={}, _seen=set())
    log.archive()
    assert (set(log.must), set(log.may)) == (
        {(0, 2), (1, 2)},
        {(0, 0), (0, 1), (1, 0), (1, 1)},
    )
    last = [copy for copy in copies(log) if copy.offset == 2]
    assert judge(log, last, by_key=False) == []
    assert judge(log, last[1:], by_key=False) == ["t: 1 lost: (0, 2)"]


def test_what_was_trimmed_before_it_was_archived_is_loss() -> None:
    log = archived()
    log.starts[0] = 3
    assert not log.trimmed_unseen(), "all of it was archived before"
    log.records[0, 3], log.records[0, 4] = (
        record(random.Random(1), is_compacted=False),
        Drawn(None, None, (), -1),
    )
    log.starts[0] = 4
    assert log.trimmed_unseen()
    log.archive()
    assert (0, 3) not in log.must
    assert (0, 4) in log.must
