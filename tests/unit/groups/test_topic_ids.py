"""Offsets of topics that were deleted, and made anew, with or without a coordinator watching."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.errors import GroupNotFound, IllegalGeneration, UnknownTopicOrPartition
from paceline_node.groups.committed_offsets import Commit, OffsetRule
from paceline_node.groups.cursus_groups import CursusMember, cursus_key
from paceline_node.groups.inspection import Inspection
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.records import (
    Kind,
    Offset,
    Pending,
    PendingKey,
    decode,
    group_entry,
    offset_entry,
    pending_entry,
)
from paceline_node.groups.v1_files import entries_of, parse_offsets
from paceline_node.groups.v1_groups import MemberRef, v1_key
from paceline_node.state_machines.machine import Entry
from tests.unit.groups.consumers import stable
from tests.unit.groups.desk import START_MS, Desk

KAFKA = GroupKey(Family.KAFKA, "g")
PRODUCER = 7


def commit(desk: Desk, key: GroupKey, offset: int, topic: str = "t") -> None:
    desk.engine.offsets.commit(key, [Commit(topic, 0, offset)], OffsetRule.FREE)


def fetch(desk: Desk, key: GroupKey, topic: str = "t") -> int | None:
    found = desk.engine.offsets.fetch(key, topic, 0)
    return None if found is None else found.offset


def stage(desk: Desk, serial: int, topic: str = "t") -> None:
    offsets = desk.engine.transactional
    offsets.stage(offsets.ticket(KAFKA, PRODUCER), 0, serial, [Commit(topic, 0, 50)])


# --- offsets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("recreate", [False, True])
@pytest.mark.parametrize("key", [KAFKA, v1_key("g"), GroupKey(Family.COORDINATOR, "g")], ids=str)
def test_a_deletion_that_no_coordinator_saw_is_made_up_for(key: GroupKey, recreate: bool) -> None:
    desk = Desk()
    commit(desk, key, 5)
    commit(desk, key, 6, "other")
    desk.delete_topic("t", recreate=recreate, told=False)
    desk.fail_over()
    assert fetch(desk, key) is None, "at once, before anything was swept"
    assert [at for at, _ in desk.engine.offsets.fetch_all(key)] == [("other", 0)]
    desk.advance(0.0)
    assert desk.engine.store.offsets[key].keys() == {("other", 0)}
    desk.check_fold()


def test_a_topic_of_the_same_name_begins_without_the_offsets_of_the_old_one() -> None:
    """Deleted and made anew between two looks of the coordinator."""
    desk = Desk()
    commit(desk, KAFKA, 500)
    desk.delete_topic("t", recreate=True)
    assert fetch(desk, KAFKA) is None
    commit(desk, KAFKA, 3)
    desk.advance(0.0)
    assert fetch(desk, KAFKA) == 3, "the sweep takes nothing of the new one"


def test_what_is_committed_for_the_old_topic_counts_for_nothing() -> None:
    desk = Desk()
    old = desk.topics.get("t")
    desk.delete_topic("t", recreate=True)
    late = [Commit("t", 0, 500, topic_id=old), Commit("other", 0, 7)]
    desk.engine.offsets.commit(KAFKA, late, OffsetRule.FREE)
    assert (fetch(desk, KAFKA), fetch(desk, KAFKA, "other")) == (None, 7)
    desk.delete_topic("t")
    commit(desk, KAFKA, 500)
    assert fetch(desk, KAFKA) is None


def test_forward_commits_begin_anew_with_the_topic() -> None:
    desk = Desk()
    commit(desk, KAFKA, 500)
    desk.delete_topic("t", recreate=True)
    desk.engine.offsets.commit(KAFKA, [Commit("t", 0, 3)], OffsetRule.FORWARD)
    assert fetch(desk, KAFKA) == 3


def test_what_could_not_be_forgotten_is_tried_again() -> None:
    desk = Desk()
    commit(desk, KAFKA, 5)
    desk.delete_topic("t")
    desk.refuses = True
    desk.advance(5.0)
    assert KAFKA in desk.engine.store.offsets
    desk.refuses = False
    desk.advance(1.1)
    assert KAFKA not in desk.engine.store.offsets


def test_a_sweep_takes_small_steps() -> None:
    desk = Desk()
    for number in range(3000):
        key = GroupKey(Family.KAFKA, f"g{number}")
        desk.engine.offsets.commit(key, [Commit("t", at, 1) for at in range(3)], OffsetRule.FREE)
    desk.delete_topic("t")
    steps = []
    while desk.engine.next_alarm() <= desk.time:
        before = len(desk.log)
        desk.engine.on_alarm()
        steps.append(len(desk.log) - before)
    assert sum(steps) == 9000
    assert max(steps) <= 2000


# --- transactions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("recreate", [False, True])
def test_pending_offsets_go_with_their_topic(recreate: bool) -> None:
    desk = Desk()
    stage(desk, 1)
    desk.delete_topic("t", recreate=recreate)
    assert not desk.engine.transactional.is_pending(KAFKA, "t", 0), "nobody waits for them"
    desk.engine.transactional.settle(KAFKA, PRODUCER, 1, (), commits=True)
    assert fetch(desk, KAFKA) is None
    assert not desk.engine.store.pending


def test_held_offsets_are_of_the_topic_in_which_they_were_reached() -> None:
    desk = Desk()
    old = desk.topics.get("t")
    desk.delete_topic("t", recreate=True)
    held = [Commit("t", 0, 50, topic_id=old)]
    desk.engine.transactional.settle(KAFKA, PRODUCER, 1, held, commits=True)
    assert fetch(desk, KAFKA) is None


def test_a_deleted_group_does_not_come_back_with_a_transaction() -> None:
    desk = Desk()
    commit(desk, KAFKA, 5)
    stage(desk, 1)
    Inspection(desk.engine).delete_piece(KAFKA)
    assert not desk.engine.transactional.is_pending(KAFKA, "t", 0)
    desk.engine.transactional.settle(KAFKA, PRODUCER, 1, (), commits=True)
    assert fetch(desk, KAFKA) is None
    desk.fail_over()
    assert not list(desk.engine.store.all_keys())


# --- groups ---------------------------------------------------------------------------------------


def test_a_driven_group_commits_nothing_of_a_deleted_topic() -> None:
    """Its consumers report positions, which are stored before the next assignment."""
    crew, [c] = stable("a", t=1, u=1)
    c.owned = {("t", 0): 40, ("u", 0): 30}
    crew.pass_time(5.0, c)
    assert (crew.committed("t", 0), crew.committed("u", 0)) == (40, 30)
    c.owned = {("t", 0): 41, ("u", 0): 31}
    crew.desk.delete_topic("t")
    crew.topics_changed(u=1)
    crew.pass_time(5.0, c)
    assert (crew.committed("t", 0), crew.committed("u", 0)) == (None, 31)
    crew.desk.topics = crew.desk.topics.create("t")
    assert crew.committed("t", 0) is None


def test_a_driven_group_reads_a_topic_made_anew_from_its_beginning() -> None:
    crew, [c] = stable("a", t=1)
    c.owned = {("t", 0): 40}
    crew.pass_time(5.0, c)
    generation = crew.generation
    crew.desk.delete_topic("t", recreate=True)
    crew.topics_changed(t=1)
    crew.pass_time(5.0, c)
    assert crew.generation == generation + 1, "the same number of partitions, another topic"
    assert c.owned == {("t", 0): 0}
    assert crew.committed("t", 0) in (None, 0)


def test_a_cursus_group_is_its_topics() -> None:
    desk = Desk()
    key = cursus_key("g", "t")
    told = desk.engine.cursus.join(key, "c", 1)
    who = CursusMember("g", "t", told.member, told.generation, 1)
    desk.engine.cursus.commit(who, [Commit("t", 0, 9)])
    desk.delete_topic("t", recreate=True, told=False)
    with pytest.raises(GroupNotFound):
        desk.engine.cursus.commit(who, [Commit("t", 0, 10)])
    assert not desk.engine.cursus.knows(key)
    assert desk.engine.cursus.join(key, "c", 1).generation == 1
    assert fetch(desk, key) is None


def test_a_v1_group_has_another_generation_for_another_topic() -> None:
    """Whoever read the old one is refused, and asks where to begin in the new one."""
    desk = Desk()
    told = desk.engine.v1.join("g", "t", "c", None, 1)
    who = MemberRef("g", "t", "c", told.generation, 1)
    desk.engine.v1.commit(who, 0, 500)
    desk.delete_topic("t", recreate=True)
    with pytest.raises(IllegalGeneration):
        desk.engine.v1.commit(who, 0, 501)
    told = desk.engine.v1.join("g", "t", "c", None, 1)
    assert fetch(desk, v1_key("g")) is None
    desk.engine.v1.commit(replace(who, generation=told.generation), 0, 2)
    assert fetch(desk, v1_key("g")) == 2
    desk.delete_topic("t")
    with pytest.raises(UnknownTopicOrPartition):
        desk.engine.v1.commit(replace(who, generation=told.generation, partition_count=0), 0, 3)


# --- what stands in older logs, and in files ------------------------------------------------------


def old(desk: Desk) -> None:
    """The log as if its records had been written without ids."""
    bare = []
    for entry in desk.log:
        change = decode(entry)
        if change is None or change.value is None:
            bare.append(entry)
        elif isinstance(change.value, Offset):
            key = change.key
            bare.append(offset_entry(*key, replace(change.value, topic_id=None)))  # type: ignore
        elif isinstance(change.value, Pending):
            pending = replace(change.value, topic_id=None)
            bare.append(pending_entry(PendingKey(*change.key), pending))  # type: ignore[misc]
        elif entry.key[1] == Kind.GROUP:
            bare.append(group_entry(change.key, replace(change.value, topic_id=None)))  # type: ignore
        else:
            bare.append(entry)
    desk.log = bare


def test_old_offsets_are_of_the_topic_that_there_is() -> None:
    desk = Desk()
    commit(desk, KAFKA, 5)
    stage(desk, 1)
    commit(desk, KAFKA, 6, "gone")
    desk.topics = desk.topics.delete("gone")
    old(desk)
    desk.fail_over()
    assert (fetch(desk, KAFKA), fetch(desk, KAFKA, "gone")) == (5, None)
    desk.advance(0.0)
    desk.topics = desk.topics.create("gone")
    assert (fetch(desk, KAFKA), fetch(desk, KAFKA, "gone")) == (5, None)
    stored = desk.engine.store.offsets[KAFKA]["t", 0]
    assert stored.topic_id == desk.topics.get("t"), "and it is written down"
    desk.delete_topic("t", recreate=True, told=False)
    desk.fail_over()
    assert fetch(desk, KAFKA) is None
    assert not desk.engine.transactional.is_pending(KAFKA, "t", 0)


def test_old_offsets_go_with_the_topic_before_they_are_swept() -> None:
    desk = Desk()
    commit(desk, KAFKA, 5)
    old(desk)
    desk.fail_over()
    desk.delete_topic("t", recreate=True)
    assert fetch(desk, KAFKA) is None
    desk.advance(0.0)
    assert KAFKA not in desk.engine.store.offsets


def test_offsets_from_files_wait_for_their_topic() -> None:
    found = parse_offsets(b'{"g": {"later": {"0": 9}}}', now_ms=START_MS)
    imports: list[Entry] = [entry for _, entry in entries_of((), found)]
    desk = Desk(imports=imports, topics=("later",))
    key = v1_key("g")
    desk.advance(10.0)
    desk.fail_over()
    desk.advance(0.0)
    assert fetch(desk, key, "later") == 9
    desk.topics = desk.topics.create("later")
    desk.engine.topics_changed()
    assert fetch(desk, key, "later") == 9
    desk.advance(0.0)
    desk.delete_topic("later", recreate=True)
    assert fetch(desk, key, "later") is None
