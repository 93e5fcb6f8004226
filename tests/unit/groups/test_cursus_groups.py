"""Cursus's membership policy: places taken back, failovers, and what always holds."""

from __future__ import annotations

import random

import pytest

from paceline.errors import GroupNotFound, UnknownMember
from paceline_node.detailed_errors import NotOwner, Regression, StaleGeneration
from paceline_node.groups.committed_offsets import Commit
from paceline_node.groups.cursus_groups import CursusMember, CursusMembership, cursus_key
from paceline_node.groups.limits import GroupLimits
from tests.unit.groups.desk import Desk

KEY = cursus_key("g", "t")


def member(told: CursusMembership, generation: int | None = None, count: int = 6) -> CursusMember:
    return CursusMember(
        "g", "t", told.member, told.generation if generation is None else generation, count
    )


def committed(desk: Desk, partition: int) -> int:
    found = desk.engine.offsets.fetch(KEY, "t", partition)
    return 0 if found is None else found.offset


def test_a_member_refused_for_its_generation_takes_its_place_back_once() -> None:
    desk = Desk()
    first = desk.engine.cursus.join(KEY, "a", 6)
    desk.engine.cursus.join(KEY, "b", 6)
    with pytest.raises(StaleGeneration) as caught:
        desk.engine.cursus.heartbeat(member(first))
    assert (caught.value.current, caught.value.requested) == (2, 1)
    again = desk.engine.cursus.join(KEY, "a", 6)
    assert (again.generation, again.partitions) == (2, (0, 1, 2))
    other = desk.engine.cursus.join(KEY, "a", 6)  # nobody is fenced now: another process
    assert other.member != again.member
    assert other.generation == 3


def test_the_lowest_of_several_fenced_members_is_handed_over_first() -> None:
    desk = Desk()
    told = [desk.engine.cursus.join(KEY, "a", 6) for _ in range(3)]
    for each in told[:2]:
        with pytest.raises(StaleGeneration):
            desk.engine.cursus.heartbeat(member(each))
    parts = {each.member_id: each.partitions for each in desk.engine.store.groups[KEY].members}
    expected = [parts[each] for each in sorted(each.member for each in told[:2])]
    assert [desk.engine.cursus.join(KEY, "a", 6).partitions for _ in range(2)] == expected


def test_a_place_given_to_another_process_is_lost_to_the_one_before() -> None:
    """Replicas of a service may all be called the same. Two of them were one member for good."""
    desk = Desk()
    cursus = desk.engine.cursus
    first, second = cursus.join(KEY, "a", 6), cursus.join(KEY, "a", 6)
    with pytest.raises(StaleGeneration):
        cursus.heartbeat(member(first))
    third = cursus.join(KEY, "a", 6)
    assert (third.generation, third.partitions) == (2, cursus.sync(member(third)).partitions)
    for said in (member(first), member(first, generation=2)):
        with pytest.raises(UnknownMember):
            cursus.heartbeat(said)
    back = cursus.join(KEY, first.member, 6)
    assert back.generation == 3
    assert len({second.member, third.member, back.member}) == 3
    with pytest.raises(StaleGeneration):
        cursus.check_owner(member(third), third.partitions)


def test_what_a_member_said_before_it_joined_again_does_not_fence_it() -> None:
    desk = Desk()
    cursus = desk.engine.cursus
    first = cursus.join(KEY, "a", 6)
    cursus.join(KEY, "b", 6)
    for again in (False, True):
        with pytest.raises(StaleGeneration):
            cursus.heartbeat(member(first))
        if not again:
            assert cursus.join(KEY, first.member, 6).generation == 2
    assert cursus.join(KEY, "a", 6).generation == 3, "another process: nobody is fenced"
    assert desk.engine.store.groups[KEY].member(first.member) is not None


def test_generations_and_offsets_survive_a_coordinator() -> None:
    desk = Desk()
    told = desk.engine.cursus.join(KEY, "a", 6)
    desk.engine.cursus.commit(member(told), [Commit("t", 1, 10)])
    desk.fail_over()
    desk.engine.cursus.heartbeat(member(told))
    assert committed(desk, 1) == 10
    # A new coordinator waits a whole time-out before it removes anybody.
    desk.advance(desk.limits.cursus_session_s - 0.1)
    assert desk.engine.cursus.member_count(KEY) == 1
    desk.advance(desk.limits.cursus_session_s)
    with pytest.raises(UnknownMember):
        desk.engine.cursus.heartbeat(member(told))


def test_what_a_coordinator_forgets_lets_no_fenced_member_in() -> None:
    """Who was refused, and who had what before, is not in the log: without it more is refused, for
    a commit is judged by the generation and the assignment, which are."""
    desk = Desk()
    old = desk.engine.cursus.join(KEY, "a", 6)
    other = desk.engine.cursus.join(KEY, "b", 6)
    with pytest.raises(StaleGeneration):
        desk.engine.cursus.heartbeat(member(old))
    desk.fail_over()
    cursus = desk.engine.cursus
    for partition in (0, 5):  # one that it has still, one that it had
        with pytest.raises(StaleGeneration):
            cursus.commit(member(old), [Commit("t", partition, 9)])
        with pytest.raises(StaleGeneration):
            cursus.check_owner(member(old), [partition])
    again = cursus.join(KEY, "a", 6)
    # Nobody knows whether it was told of its generation: its place is another one's in the next.
    assert again.member != old.member
    assert (again.generation, again.partitions) == (other.generation + 1, (0, 1, 2))
    with pytest.raises(NotOwner):
        cursus.commit(member(again), [Commit("t", 5, 9)])
    assert [committed(desk, partition) for partition in (0, 5)] == [0, 0]
    # Refused before, and asking for its place only after: it gets another one, in a generation more
    # (as two processes of one name do), and its old place ends with its session.
    with pytest.raises(StaleGeneration):
        cursus.heartbeat(member(again, generation=2))
    desk.fail_over()
    renewed = desk.engine.cursus.join(KEY, "a", 6)
    assert renewed.member not in (old.member, again.member)
    assert renewed.generation == again.generation + 1
    with pytest.raises(StaleGeneration):
        desk.engine.cursus.commit(member(again), [Commit("t", 0, 9)])
    assert committed(desk, 0) == 0


def test_offsets_of_a_transaction_are_those_of_partitions_that_the_member_reads_now() -> None:
    """A plain commit may still move what it had; a transaction has read it, as others may have."""
    desk = Desk()
    cursus = desk.engine.cursus
    first = cursus.join(KEY, "a", 6)
    cursus.join(KEY, "b", 6)
    now = member(first, generation=2)
    cursus.check_owner(now, [0, 1, 2])
    with pytest.raises(NotOwner):
        cursus.check_owner(now, [2, 3])
    cursus.commit(now, [Commit("t", 3, 9)])
    assert committed(desk, 3) == 9


def test_members_who_fell_silent_together_go_in_one_generation() -> None:
    desk = Desk()
    for name in "abc":
        desk.engine.cursus.join(KEY, name, 6)
        desk.advance(0.1)
    keeper = desk.engine.cursus.join(KEY, "k", 6)
    for _ in range(4):
        desk.advance(2)
        desk.engine.cursus.heartbeat(member(keeper))
    desk.advance(3)
    with pytest.raises(StaleGeneration) as caught:
        desk.engine.cursus.heartbeat(member(keeper))
    assert caught.value.current == 5
    assert desk.engine.cursus.member_count(KEY) == 1


def test_a_grown_topic_is_assigned_anew() -> None:
    desk = Desk()
    told = desk.engine.cursus.join(KEY, "a", 2)
    with pytest.raises(StaleGeneration):
        desk.engine.cursus.heartbeat(member(told, count=4))
    assert desk.engine.cursus.join(KEY, told.member, 4).partitions == (0, 1, 2, 3)


def test_a_deleted_topic_takes_its_groups_along() -> None:
    desk = Desk()
    cursus = desk.engine.cursus
    cursus.commit(member(cursus.join(KEY, "a", 6)), [Commit("t", 0, 5)])
    other = cursus.join(cursus_key("g", "other"), "b", 6)
    desk.delete_topic("t")
    desk.advance(0.0)
    assert not cursus.knows(KEY)
    assert cursus.join(KEY, "a", 6).generation == 1
    assert committed(desk, 0) == 0
    cursus.heartbeat(CursusMember("g", "other", other.member, other.generation, 6))
    desk.check_fold()


def test_nobody_knows_a_group_before_it_is_there() -> None:
    desk = Desk()
    with pytest.raises(GroupNotFound):
        desk.engine.cursus.heartbeat(CursusMember("g", "t", "a-0000", 1, 6))
    assert not desk.engine.cursus.knows(KEY)
    desk.engine.cursus.register(KEY, 6)
    assert desk.engine.cursus.knows(KEY)
    assert desk.engine.store.groups[KEY].generation == 0


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens(seed: int) -> None:
    """Random members, commits, silences and failovers: generations never fall, every partition has
    one owner, offsets never go back, and the log alone gives the same state."""
    rng = random.Random(seed)
    desk = Desk(GroupLimits(cursus_session_s=5.0))
    known: dict[str, CursusMembership] = {}
    offsets = [0] * 6
    generation = refused = 0
    for _ in range(150):
        name = rng.choice("abcd")
        told = known.get(name)
        try:
            match rng.randrange(6):
                case 0 | 1:
                    known[name] = desk.engine.cursus.join(KEY, name, 6)
                case 2 if told is not None:
                    desk.engine.cursus.heartbeat(member(told))
                case 3 if told is not None:
                    partition, offset = rng.randrange(6), rng.randrange(50)
                    desk.engine.cursus.commit(member(told), [Commit("t", partition, offset)])
                case 4 if told is not None and rng.random() < 0.3:
                    desk.engine.cursus.leave(KEY, told.member, generation=None, by_base=False)
                case 5:
                    if rng.random() < 0.1:
                        desk.fail_over()
                    else:
                        desk.advance(rng.random() * 2)
        except (StaleGeneration, UnknownMember, NotOwner, Regression, GroupNotFound):
            refused += 1
        group = desk.engine.store.groups.get(KEY)
        if group is not None:
            assert group.generation >= generation
            generation = group.generation
            owned = sorted(p for each in group.members for p in each.partitions)
            assert owned == (list(range(6)) if group.members else [])
        now = [committed(desk, partition) for partition in range(6)]
        assert all(after >= before for before, after in zip(offsets, now, strict=True))
        offsets = now
    assert refused
    assert desk.replayed().store.groups == desk.engine.store.groups
    assert desk.replayed().store.offsets == desk.engine.store.offsets


@pytest.mark.parametrize("seed", range(12))
def test_no_two_processes_are_ever_one_member_of_a_generation(seed: int) -> None:
    """Processes that share names join under them or under what they were told, say late what they
    had to say before, die and come back; the coordinator moves."""
    rng = random.Random(seed)
    desk = Desk(GroupLimits(cursus_session_s=5.0))
    names = "aaabb"
    told: list[list[CursusMembership]] = [[] for _ in names]
    refused = 0
    for _ in range(400):
        number = rng.randrange(len(names))
        mine = told[number]
        try:
            match rng.randrange(6):
                case 0:
                    by_id = mine and rng.random() < 0.7
                    name = mine[-1].member if by_id else names[number]
                    joined = desk.engine.cursus.join(KEY, name, 6)
                    mine.append(joined)
                    others = [each for at, each in enumerate(told) if at != number]
                    held = {(each[-1].member, each[-1].generation) for each in others if each}
                    assert (joined.member, joined.generation) not in held
                case 1 | 2 | 3 if mine:
                    said = mine[-1] if rng.random() < 0.8 else rng.choice(mine)
                    desk.engine.cursus.heartbeat(member(said))
                case 4:
                    if rng.random() < 0.1:
                        desk.fail_over()
                    else:
                        desk.advance(rng.random() / 4)
                case 5 if rng.random() < 0.1:
                    mine.clear()
        except (StaleGeneration, UnknownMember, GroupNotFound):
            refused += 1
    assert refused
    desk.check_fold()
