"""How many groups there may be: none uses up those of another family, unused ones make room."""

from __future__ import annotations

import pytest

from paceline.errors import GroupFull
from paceline_node.groups.committed_offsets import Commit, OffsetRule
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.v1_groups import MemberRef
from tests.unit.groups.desk import Desk

MOST = 3


def key(name: object, family: Family = Family.KAFKA) -> GroupKey:
    return GroupKey(family, f"g{name}", "t" if family is Family.CURSUS else "")


def commit(desk: Desk, group: GroupKey) -> None:
    desk.engine.kafka.check_new(group)
    desk.engine.offsets.commit(group, [Commit("t", 0, 1)], OffsetRule.FREE)


def test_a_family_uses_up_no_places_of_another() -> None:
    """V1's groups are never forgotten: a client that joined many shut everybody's new ones out."""
    desk = Desk(GroupLimits(groups_max=MOST))
    for number in range(MOST):
        desk.engine.v1.join(f"g{number}", "t", "me", None, 3)
    with pytest.raises(GroupFull):
        desk.engine.v1.join("more", "t", "me", None, 3)
    for number in range(MOST):
        desk.engine.cursus.register(key(number, Family.CURSUS), 3)
        commit(desk, key(number))
    for family in (Family.KAFKA, Family.CURSUS):
        with pytest.raises(GroupFull, match=r"groups\.groups_max"):
            desk.engine.kafka.check_new(key("more", family))


def test_what_a_group_has_counts_once() -> None:
    desk = Desk(GroupLimits(groups_max=MOST))
    for number in range(MOST):
        desk.engine.kafka.check_new(key(number))
        desk.engine.transactional.stage(
            desk.engine.transactional.ticket(key(number), 7), 0, 1, [Commit("t", 1, 1)]
        )
        commit(desk, key(number))
    desk.engine.offsets.forget_group(key(0))
    commit(desk, key("another"))
    with pytest.raises(GroupFull):
        desk.engine.kafka.check_new(key("more"))


def test_groups_without_members_and_offsets_make_room() -> None:
    desk = Desk(GroupLimits(groups_max=MOST, unused_kept_s=60.0))
    used, joined, unused = (key(name, Family.CURSUS) for name in ("used", "joined", "unused"))
    for group in (used, joined, unused):
        desk.engine.cursus.register(group, 3)
    desk.engine.offsets.commit(used, [Commit("t", 0, 1)], OffsetRule.FREE)
    desk.engine.cursus.join(joined, "me", 3)
    newcomer = key("new", Family.CURSUS)
    with pytest.raises(GroupFull):
        desk.engine.cursus.register(newcomer, 3)
    desk.advance(30)
    desk.engine.cursus.join(joined, "me", 3)
    with pytest.raises(GroupFull):
        desk.engine.cursus.register(newcomer, 3)
    desk.advance(31)
    desk.engine.cursus.join(joined, "me", 3)
    desk.engine.cursus.register(newcomer, 3)
    assert set(desk.engine.store.groups) == {used, joined, newcomer}
    with pytest.raises(GroupFull):
        desk.engine.cursus.register(key("more", Family.CURSUS), 3)


def test_committed_offsets_are_bounded() -> None:
    """A group for each name and an offset for each partition were as many as anybody liked."""
    desk = Desk(GroupLimits(offsets_max=4))
    some = [Commit("t", number, 1) for number in range(3)]
    desk.engine.offsets.commit(key(0), some, OffsetRule.FREE)
    with pytest.raises(GroupFull, match=r"groups\.offsets_max"):
        desk.engine.offsets.commit(key(1), some, OffsetRule.FREE)
    desk.engine.offsets.commit(key(1), some[:1] * 2, OffsetRule.FREE)
    with pytest.raises(GroupFull):
        desk.engine.transactional.stage(
            desk.engine.transactional.ticket(key(2), 7), 0, 1, [Commit("t", 1, 1)]
        )
    for group in (key(0), key(1)):  # those that are there move on
        desk.engine.offsets.commit(group, [Commit("t", 0, 2)], OffsetRule.FREE)
    desk.engine.transactional.stage(
        desk.engine.transactional.ticket(key(0), 7), 0, 1, [Commit("t", 1, 5)]
    )
    desk.engine.offsets.commit(key(1, Family.CURSUS), some, OffsetRule.FORWARD)
    desk.engine.v1.join("g", "t", "me", None, 3)
    desk.engine.offsets.forget(key(0), [("t", 2)])
    with pytest.raises(GroupFull):  # the pending one has its place
        desk.engine.offsets.commit(key(2), [Commit("t", 0, 1)], OffsetRule.FREE)
    assert desk.engine.transactional.settle(key(0), 7, 1, (), commits=True)
    desk.advance(2)
    desk.engine.offsets.commit(key(2), [Commit("t", 0, 1)], OffsetRule.FREE)


def test_v1_offsets_are_bounded_too() -> None:
    desk = Desk(GroupLimits(offsets_max=1))
    joined = desk.engine.v1.join("g", "t", "me", None, 2)
    member = MemberRef("g", "t", "me", joined.generation, 2)
    desk.engine.v1.commit(member, 0, 1)
    with pytest.raises(GroupFull):
        desk.engine.v1.commit(member, 1, 1)
    desk.engine.v1.commit(member, 0, 2)


def test_a_generation_of_v1_never_begins_anew() -> None:
    desk = Desk(GroupLimits(groups_max=1, unused_kept_s=60.0))
    desk.engine.v1.join("g", "t", "me", None, 3)
    desk.advance(1000)
    with pytest.raises(GroupFull):
        desk.engine.v1.join("more", "t", "me", None, 3)
