"""What a group's member may commit by itself: only what its reader has surely finished with."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.client.progress import Progress
from paceline.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_what_is_in_hand_is_not_done() -> None:
    progress = Progress()
    progress.begin({A: 5})
    assert progress.uncommitted() == {}
    progress.hand_out(A, 6)
    assert progress.holds
    assert progress.uncommitted() == {}
    progress.hand_back()
    assert progress.uncommitted() == {A: 6}
    progress.hand_out(A, 7)
    assert progress.uncommitted() == {A: 6}


def test_what_was_committed_is_not_committed_again() -> None:
    progress = Progress()
    progress.begin({A: 0, B: 0})
    progress.hand_out(B, 1)
    progress.hand_back()
    progress.committed({B: 1})
    assert progress.uncommitted() == {}


def test_a_partition_given_up_counts_no_more() -> None:
    progress = Progress()
    progress.begin({A: 0, B: 0})
    progress.hand_out(A, 9)
    progress.end([A])
    assert not progress.holds
    progress.hand_back()
    progress.committed({A: 9})
    assert progress.uncommitted() == {}
    # Owned again, it begins where the group says, whatever was in hand.
    progress.begin({A: 3})
    assert progress.uncommitted() == {}


def test_seeking_moves_what_will_be_committed() -> None:
    progress = Progress()
    progress.begin({A: 0})
    progress.hand_out(A, 8)
    progress.move(A, 2)
    assert progress.uncommitted() == {A: 2}
    progress.hand_back()
    assert progress.uncommitted() == {A: 2}


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["out", "back", "commit"]), st.sampled_from([A, B])), max_size=60
    )
)
def test_never_more_than_was_finished(steps: list[tuple[str, TopicPartition]]) -> None:
    progress = Progress()
    progress.begin({A: 0, B: 0})
    finished, handed = {A: 0, B: 0}, {A: 0, B: 0}
    in_hand: TopicPartition | None = None
    committed = {A: 0, B: 0}
    for what, at in steps:
        if what == "out" and in_hand is None:
            handed[at] += 1
            progress.hand_out(at, handed[at])
            in_hand = at
        elif what == "back" and in_hand is not None:
            finished[in_hand] = handed[in_hand]
            progress.hand_back()
            in_hand = None
        elif what == "commit":
            offsets = progress.uncommitted()
            assert all(committed[each] < offset for each, offset in offsets.items())
            committed.update(offsets)
            progress.committed(offsets)
            assert committed == finished


def test_what_the_reader_failed_on_is_not_passed_over() -> None:
    progress = Progress()
    progress.begin({A: 0, B: 0})
    progress.hand_out(A, 1)
    progress.hand_back()
    progress.hand_out(A, 2)
    progress.drop()
    assert not progress.holds
    progress.pass_over(A, 2)
    progress.pass_over(B, 7)
    progress.hand_back()
    assert progress.uncommitted() == {A: 1, B: 7}
    progress.move(A, 4)
    progress.pass_over(A, 5)
    assert progress.uncommitted() == {A: 5, B: 7}


def test_what_the_program_said_itself_is_not_taken_back() -> None:
    progress = Progress()
    progress.begin({A: 0})
    progress.hand_out(A, 3)
    progress.say({A: 3, B: 1})
    progress.committed({A: 3})
    assert progress.uncommitted() == {}
    progress.say({A: 6})
    progress.hand_back()
    assert progress.uncommitted() == {A: 6}
    progress.say({A: 2})
    assert progress.uncommitted() == {A: 6}


def test_of_a_batch_that_is_given_record_by_record_only_what_was_given_is_done() -> None:
    progress = Progress()
    progress.begin({A: 0})
    progress.hand_out(A, 9)
    progress.give(A, 1)
    assert progress.uncommitted() == {}
    progress.give(A, 2)
    assert progress.uncommitted() == {A: 1}
    progress.finish()
    progress.pass_over(A, 9)
    assert progress.uncommitted() == {A: 2}


def test_a_batch_behind_which_more_is_asked_for_is_done_to_its_end() -> None:
    progress = Progress()
    progress.begin({A: 0})
    progress.hand_out(A, 9)
    progress.give(A, 8)  # the last record; nothing is at 8
    progress.hand_back()
    assert progress.uncommitted() == {A: 9}


def test_whoever_leaves_behind_a_whole_batch_has_read_what_nobody_sees_behind_it() -> None:
    progress = Progress()
    progress.begin({A: 0})
    progress.hand_out(A, 9)
    progress.finish()
    progress.pass_over(A, 12)
    assert progress.uncommitted() == {A: 12}


def test_what_is_put_back_of_a_batch_is_not_done() -> None:
    progress = Progress()
    progress.begin({A: 0})
    progress.hand_out(A, 9)
    progress.give(A, 3)
    progress.put_back(A, 3)
    assert progress.uncommitted() == {}
    progress.hand_back()
    assert progress.uncommitted() == {A: 3}
    progress.put_back(A, 0)  # nothing is in hand
    assert progress.uncommitted() == {A: 3}
