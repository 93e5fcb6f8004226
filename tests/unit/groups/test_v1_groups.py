"""V1 groups: the rules of groups/DESIGN 3, one by one, and a state machine against a model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paceline.assignors.registry import BrokerAssignor
from paceline.errors import (
    CoordinatorNotAvailable,
    GroupFull,
    GroupNotFound,
    IllegalGeneration,
    PacelineError,
    PartitionNotOwned,
    UnknownMember,
)
from paceline_node.groups.context import GroupContext
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.records import Group
from paceline_node.groups.v1_groups import MemberRef, Membership, V1Groups, v1_key
from tests.unit.broken_rules import assert_found
from tests.unit.groups.desk import Desk

SESSION_S = 10.0


def member(name: str, generation: int, *, topic: str = "t", count: int = 3) -> MemberRef:
    return MemberRef("g", topic, name, generation, count)


def join(desk: Desk, name: str, assignor: str | None = None, *, topic: str = "t") -> Membership:
    return desk.engine.v1.join("g", topic, name, assignor, 3)


def test_the_first_join_is_generation_two() -> None:
    assert join(Desk(), "a") == Membership(2, (0, 1, 2))


def test_joining_again_changes_nothing_and_writes_nothing() -> None:
    desk = Desk()
    join(desk, "a")
    written = len(desk.log)
    assert join(desk, "a") == Membership(2, (0, 1, 2))
    assert len(desk.log) == written


def test_another_assignor_is_a_generation_of_its_own() -> None:
    desk = Desk()
    join(desk, "a")
    assert join(desk, "b", "range") == Membership(4, (2,))
    assert join(desk, "a", "range") == Membership(4, (0, 1))
    assert join(desk, "a") == Membership(4, (0, 1)), "no assignor keeps the group's"


def test_another_topic_clears_the_group() -> None:
    desk = Desk()
    join(desk, "a")
    join(desk, "b")
    assert join(desk, "c", topic="u") == Membership(5, (0, 1, 2))
    with pytest.raises(GroupNotFound):
        desk.engine.v1.heartbeat(member("a", 5, topic="t"))
    with pytest.raises(UnknownMember):
        desk.engine.v1.heartbeat(member("a", 5, topic="u"))


def test_the_order_of_refusals() -> None:
    desk = Desk()
    with pytest.raises(GroupNotFound):
        desk.engine.v1.sync(member("a", 1))
    join(desk, "a")
    with pytest.raises(IllegalGeneration):
        desk.engine.v1.sync(member("stranger", 1))
    with pytest.raises(UnknownMember):
        desk.engine.v1.sync(member("stranger", 2))
    with pytest.raises(IllegalGeneration):
        desk.engine.v1.commit(member("a", 1), 9, 1)
    with pytest.raises(PartitionNotOwned):
        desk.engine.v1.commit(member("a", 2), 9, 1)


def test_leaving_gives_the_partitions_to_the_others() -> None:
    desk = Desk()
    join(desk, "a")
    join(desk, "b")
    desk.engine.v1.leave(member("b", 3))
    assert desk.engine.v1.sync(member("a", 4)) == Membership(4, (0, 1, 2))
    desk.engine.v1.leave(member("a", 4))
    assert join(desk, "a").generation == 6, "an empty group keeps its generation"


def test_a_session_is_over_after_more_than_the_timeout() -> None:
    desk = Desk()
    join(desk, "a")
    desk.advance(SESSION_S)
    desk.engine.v1.heartbeat(member("a", 2))
    desk.advance(SESSION_S + 0.01)
    with pytest.raises(IllegalGeneration):
        desk.engine.v1.heartbeat(member("a", 2))


def test_silent_members_go_together_in_one_generation() -> None:
    desk = Desk()
    for name in ("a", "b", "c"):
        join(desk, name)
    desk.advance(SESSION_S / 2)
    desk.engine.v1.heartbeat(member("c", 4))
    desk.advance(SESSION_S / 2 + 0.01)
    assert desk.engine.v1.sync(member("c", 5)) == Membership(5, (0, 1, 2))


def test_commits_and_offset_reads_do_not_keep_a_session() -> None:
    desk = Desk()
    join(desk, "a")
    for _ in range(4):
        desk.advance(SESSION_S / 4)
        desk.engine.v1.commit(member("a", 2), 0, 1)
        desk.engine.offsets.fetch(v1_key("g"), "t", 0)
    desk.advance(0.01)
    with pytest.raises(IllegalGeneration):
        desk.engine.v1.commit(member("a", 2), 0, 1)


def test_commits_are_free() -> None:
    desk = Desk()
    join(desk, "a")
    for offset in (10**12, 5, 0):
        desk.engine.v1.commit(member("a", 2), 1, offset)
        stored = desk.engine.offsets.fetch(v1_key("g"), "t", 1)
        assert stored is not None
        assert stored.offset == offset


def test_new_partitions_of_the_topic_are_assigned_at_the_next_command() -> None:
    desk = Desk()
    join(desk, "a")
    with pytest.raises(IllegalGeneration):
        desk.engine.v1.heartbeat(member("a", 2, count=5))
    grown = desk.engine.v1.sync(member("a", 3, count=5))
    assert grown == Membership(3, (0, 1, 2, 3, 4))


def test_after_a_failover_members_have_a_fresh_session() -> None:
    desk = Desk()
    join(desk, "a")
    desk.advance(SESSION_S - 1)
    desk.fail_over()
    desk.advance(SESSION_S - 1)
    desk.engine.v1.heartbeat(member("a", 2))
    desk.fail_over()
    desk.advance(SESSION_S + 1)
    with pytest.raises(IllegalGeneration):
        desk.engine.v1.heartbeat(member("a", 2))


def test_nothing_changes_when_nothing_can_be_written() -> None:
    desk = Desk()
    join(desk, "a")
    desk.refuses = True
    for change in (
        lambda: join(desk, "b"),
        lambda: join(desk, "a", "range"),
        lambda: desk.engine.v1.leave(member("a", 2)),
        lambda: desk.engine.v1.commit(member("a", 2), 0, 1),
    ):
        with pytest.raises(CoordinatorNotAvailable):
            change()
    desk.advance(SESSION_S + 0.5)  # its end cannot be written either, and is tried again
    desk.refuses = False
    desk.advance(2.0)
    group = desk.engine.store.groups[v1_key("g")]
    assert (group.generation, group.members) == (3, ())


def test_limits() -> None:
    desk = Desk(GroupLimits(groups_max=2, members_max=2))
    join(desk, "a")
    join(desk, "b")
    with pytest.raises(GroupFull, match=r"groups\.members_max"):
        join(desk, "c")
    desk.engine.v1.join("h", "t", "a", None, 3)
    with pytest.raises(GroupFull, match=r"groups\.groups_max"):
        desk.engine.v1.join("i", "t", "a", None, 3)


NAMES = st.sampled_from(["a", "b", "c", "d"])


class V1Machine(RuleBasedStateMachine):
    """Members come, go, fall silent and commit, coordinators change; a model says what holds."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk()
        self.told: dict[str, Membership] = {}
        self.generation = 0
        self.owners: dict[tuple[int, int], str] = {}
        self.offsets: dict[int, int] = {}

    def hear(self, name: str, membership: Membership) -> None:
        assert membership.generation >= self.generation, "a generation went back"
        self.generation = membership.generation
        self.told[name] = membership
        for partition in membership.partitions:
            owner = self.owners.setdefault((membership.generation, partition), name)
            assert owner == name, "two owners in one generation"

    def ref(self, name: str) -> MemberRef:
        return member(name, self.told[name].generation)

    @rule(name=NAMES, assignor=st.sampled_from([None, "range", "round_robin"]))
    def join(self, name: str, assignor: str | None) -> None:
        self.hear(name, join(self.desk, name, assignor))

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.told)))
        try:
            self.hear(name, self.desk.engine.v1.sync(self.ref(name)))
        except (IllegalGeneration, UnknownMember, GroupNotFound):
            del self.told[name]

    @precondition(lambda self: self.told)
    @rule(data=st.data(), partition=st.integers(0, 3), offset=st.integers(0, 9))
    def commit(self, data: st.DataObject, partition: int, offset: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.told)))
        try:
            self.desk.engine.v1.commit(self.ref(name), partition, offset)
        except PartitionNotOwned:
            assert partition not in self.told[name].partitions
        except (IllegalGeneration, UnknownMember):
            del self.told[name]
        else:
            assert partition in self.told[name].partitions, "a commit of what is not owned"
            assert self.told[name].generation == self.generation
            self.offsets[partition] = offset

    @precondition(lambda self: self.told)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.told)))
        with suppress(IllegalGeneration, UnknownMember):
            self.desk.engine.v1.leave(self.ref(name))
        del self.told[name]

    @rule(seconds=st.sampled_from([0.1, 4.0, 9.9, 10.1, 30.0]))
    def wait(self, seconds: float) -> None:
        self.desk.advance(seconds)

    @rule()
    def fail_over(self) -> None:
        self.desk.fail_over()

    @rule(refuses=st.booleans(), name=NAMES)
    def writes_fail_for_a_while(self, refuses: bool, name: str) -> None:
        self.desk.refuses = refuses
        try:
            self.hear(name, join(self.desk, name))
        except PacelineError:
            assert refuses
        self.desk.refuses = False

    @invariant()
    def all_partitions_have_one_owner(self) -> None:
        group = self.desk.engine.store.groups.get(v1_key("g"))
        if group is None:
            return
        owned = sorted(p for each in group.members for p in each.partitions)
        assert owned == (list(range(3)) if group.members else [])
        assert group.generation >= self.generation
        stored = {at[1]: o.offset for at, o in self.desk.engine.offsets.fetch_all(v1_key("g"))}
        assert stored == self.offsets

    @invariant()
    def the_state_is_the_fold(self) -> None:
        self.desk.check_fold()


TestV1Machine = V1Machine.TestCase
TestV1Machine.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


Patch = AbstractContextManager[object]


def members_leave_without_a_new_generation() -> Patch:
    honest = GroupContext.write_group

    def mutant(self: GroupContext, key: GroupKey, group: Group) -> None:
        known = self.group(key)
        if known is not None and len(group.members) < len(known.members):
            group = replace(group, generation=known.generation)
        honest(self, key, group)

    return mock.patch.object(GroupContext, "write_group", mutant)


def old_generations_are_accepted() -> Patch:
    honest = V1Groups._check

    def mutant(self: V1Groups, ref: MemberRef) -> Group:
        group = self._context.group(ref.key)
        return honest(self, ref if group is None else replace(ref, generation=group.generation))

    return mock.patch.object(V1Groups, "_check", mutant)


def everybody_is_assigned_everything() -> Patch:
    def mutant(self: BrokerAssignor, members: list[str], count: int) -> dict[str, tuple[int, ...]]:
        return {each: tuple(range(count)) for each in members}

    return mock.patch.object(BrokerAssignor, "assign", mutant)


@pytest.mark.parametrize(
    "broken",
    [
        members_leave_without_a_new_generation,
        old_generations_are_accepted,
        everybody_is_assigned_everything,
    ],
)
def test_the_machine_finds_a_broken_rule(broken: Callable[[], Patch]) -> None:
    assert_found(V1Machine, broken())
