from __future__ import annotations

from paceline.types import TopicPartition
from paceline_cluster.chaos.copies import Copying, Row, first_difference

AT = TopicPartition("orders", 1)


def rows(*offsets: int, value: bytes = b"digest") -> list[Row]:
    return [(offset, value) for offset in offsets]


def test_equal_copies_have_no_difference() -> None:
    assert first_difference(AT, 3, rows(0, 1, 2), rows(0, 1, 2)) is None


def test_what_was_not_copied_copied_twice_or_changed_is_told_with_its_place() -> None:
    cases: dict[str, list[Row]] = {
        "number 1 is the first to differ: the copy of offset 2": rows(0, 2),
        "number 1 is the first to differ: the copy of offset 0": rows(0, 0, 1, 2),
        "the copy of offset 3, expected no more copies": rows(0, 1, 2, 3),
        "no more copies, expected the copy of offset 2": rows(0, 1),
        "number 0 is the first to differ": rows(0, 1, 2, value=b"other"),
    }
    for told, copies in cases.items():
        problem = first_difference(AT, 3, copies, rows(0, 1, 2))
        assert problem is not None
        assert told in problem


def test_copies_of_a_partition_lie_in_one() -> None:
    copying = Copying("orders", 4, "copiers", "copies", 2)
    assert [copying.partition_of(at.partition) for at in copying.sources] == [0, 1, 0, 1]
