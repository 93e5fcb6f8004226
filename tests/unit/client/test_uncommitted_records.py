"""What was taken before partitions moved."""

from __future__ import annotations

from paceline.client.uncommitted_records import UncommittedRecords
from paceline.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_first_record_counts() -> None:
    hands = UncommittedRecords()
    hands.take(A, 1)
    hands.take(A, 2)
    hands.take(B, 2)
    assert hands.stale([A, B], 2) == [A]


def test_what_was_sent_is_out_of_hand() -> None:
    hands = UncommittedRecords()
    hands.take(A, 1)
    hands.sent([A])
    hands.take(A, 2)
    assert hands.stale([A], 2) == []


def test_a_refusal_counts_until_more_is_taken() -> None:
    hands = UncommittedRecords()
    hands.take(A, 1)
    hands.refused([A])
    assert hands.stale([A], 2) == [A]
    hands.take(A, 2)
    assert hands.stale([A], 2) == []
    assert hands.stale([A], 3) == [A]


def test_a_seek_lets_go() -> None:
    hands = UncommittedRecords()
    hands.take(A, 1)
    hands.take(B, 1)
    hands.drop(A)
    assert hands.stale([A, B], 2) == [B]
    hands.drop_all()
    assert hands.stale([A, B], 2) == []


def test_a_lost_partition_is_stale_while_no_other_moves() -> None:
    hands = UncommittedRecords()
    hands.take(A, 1)
    hands.lose(A)
    assert hands.stale([A, B], 1) == [A]
