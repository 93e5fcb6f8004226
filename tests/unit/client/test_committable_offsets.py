"""What a program may still commit of what it was handed before partitions moved."""

from __future__ import annotations

from paceline.client.committable_offsets import CommittableOffsets
from paceline.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def handed(
    claims: CommittableOffsets, at: TopicPartition, first: int, count: int
) -> dict[TopicPartition, int]:
    """So many records of a batch; the positions behind them."""
    claims.take(at, first + 10)
    for end in range(first + 1, first + count + 1):
        claims.take(at, end)
    return {at: first + count}


def moved(
    claims: CommittableOffsets, before: dict[TopicPartition, int], now: int
) -> dict[TopicPartition, int]:
    """Given up, and won back where others ended; the positions."""
    claims.give_up(before)
    after = dict.fromkeys(before, now)
    claims.begin(after)
    return after


def test_an_offset_of_an_assignment_that_is_over_is_stale() -> None:
    claims = CommittableOffsets()
    claims.begin({A: 0})
    now = moved(claims, handed(claims, A, 0, 5), 0)
    assert claims.stale({A: 5}, now) == claims.stale({A: 1}, now) == [A]
    now = handed(claims, A, 0, 3)
    assert claims.stale({A: 4}, now) == [A], "it has not come again yet"
    assert claims.stale({A: 3}, now) == []
    now = moved(claims, now, 9)
    for offset in (1, 3, 4, 5):
        assert claims.stale({A: offset}, now) == [A], "others have committed more"
    assert claims.stale({A: 9}, now) == []
    now = handed(claims, A, 9, 2)
    assert claims.stale({A: 5}, now) == [A], "however far this one reads"
    assert claims.stale({A: 11}, now) == []


def test_who_holds_a_partition_may_set_it_back_and_on() -> None:
    claims = CommittableOffsets()
    claims.begin({A: 20, B: 0})
    now = handed(claims, A, 20, 5)
    for offset in (3, 22, 25, 90):
        assert claims.stale({A: offset}, now) == []
    moved(claims, now, 30)
    claims.let_go([A])
    claims.begin({A: 2})
    assert claims.stale({A: 2}, {A: 2}) == []
    assert claims.stale({A: 1}, {A: 2}) == [], "it has said that it lets go"


def test_what_was_hidden_behind_the_last_record_is_stale_too() -> None:
    claims = CommittableOffsets()
    claims.begin({A: 0})
    claims.take(A, 5)
    claims.give_up({A: 8})
    claims.begin({A: 20})
    assert claims.stale({A: 8}, {A: 20}) == [A]
    assert claims.stale({A: 9}, {A: 20}) == []


def test_what_was_given_up_before_it_was_committed_is_owed() -> None:
    claims = CommittableOffsets()
    claims.begin({A: 0, B: 0})
    now = handed(claims, A, 0, 3) | handed(claims, B, 0, 2)
    claims.keep({B: 2})
    assert claims.owed(now) == []
    claims.give_up(now)
    assert claims.owed({}) == [A]
    claims.tell([A])
    assert claims.owed({}) == [A], "until something is taken anew"
    claims.begin({B: 2})
    claims.take(B, 3)
    assert claims.owed({B: 3}) == []


def test_what_a_batch_has_left_is_not_owed() -> None:
    claims = CommittableOffsets()
    claims.begin({A: 0})
    now = handed(claims, A, 0, 3)
    claims.keep({A: 3})
    claims.give_up(now)
    assert claims.owed({}) == []
    claims.begin({A: 3})
    claims.take(A, 13)
    claims.give_up({A: 13})
    assert claims.owed({}) == [A], "a batch that was handed out whole is"


def test_what_is_read_again_as_far_is_owed_no_more() -> None:
    claims = CommittableOffsets()
    claims.begin({A: 0})
    now = moved(claims, handed(claims, A, 0, 3), 0)
    assert claims.owed(now) == [A]
    now = handed(claims, A, 0, 2)
    assert claims.owed(now) == [A]
    assert claims.owed(handed(claims, A, 2, 1)) == []


def test_an_answer_may_come_after_the_partition_is_gone() -> None:
    claims = CommittableOffsets()
    claims.begin({A: 0})
    claims.give_up(handed(claims, A, 0, 3))
    claims.keep({A: 2})
    assert claims.owed({}) == [A]
    claims.keep({A: 3})
    assert claims.owed({}) == []


def test_what_is_taken_late_is_owed() -> None:
    claims = CommittableOffsets()
    claims.begin({A: 0})
    claims.give_up({A: 0})
    claims.begin({A: 0})
    claims.take_late(A, 1)
    assert claims.owed({A: 0}) == claims.stale({A: 1}, {A: 0}) == [A]


def test_nothing_is_owed_of_a_topic_that_is_gone_nor_of_what_was_let_go() -> None:
    claims = CommittableOffsets()
    claims.begin({A: 0, B: 0})
    now = handed(claims, A, 0, 3) | handed(claims, B, 0, 3)
    claims.end({A: now[A]})
    assert claims.owed({}) == []
    assert claims.stale({A: 3}, {}) == [A]
    claims.give_up({B: 3})
    claims.let_go_of_all()
    assert claims.owed({}) == []


def test_what_was_put_back_is_not_owed() -> None:
    claims = CommittableOffsets()
    claims.begin({A: 0})
    claims.take(A, 9)
    claims.put_back(A, 3)
    claims.keep({A: 3})
    claims.give_up({A: 3})
    assert claims.owed({}) == []
    assert claims.stale({A: 3}, {}) == [A]
    claims.put_back(A, 1)  # it is held no more
