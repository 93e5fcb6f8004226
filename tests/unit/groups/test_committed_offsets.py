"""Offsets of all families: rules of commits, forgetting, what operators may do, imports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import (
    CoordinatorNotAvailable,
    GroupNotFound,
    NonEmptyGroup,
    OffsetRegression,
)
from paceline_node.groups.committed_offsets import Commit, OffsetRule
from paceline_node.groups.inspection import Inspection
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.v1_files import entries_of, parse_groups, parse_offsets
from paceline_node.groups.v1_groups import MemberRef, v1_key
from paceline_node.state_machines.alarms import Alarms
from tests.unit.groups.desk import Desk

KAFKA = GroupKey(Family.KAFKA, "g")
CURSUS = GroupKey(Family.CURSUS, "g", "orders")
DAY_S = 24 * 3600.0


def commit(desk: Desk, key: GroupKey, *offsets: int, rule: OffsetRule = OffsetRule.FREE) -> None:
    commits = [Commit("t", at, offset) for at, offset in enumerate(offsets)]
    desk.engine.offsets.commit(key, commits, rule)


def stored(desk: Desk, key: GroupKey) -> list[int]:
    return [offset.offset for _, offset in desk.engine.offsets.fetch_all(key)]


# --- rules ----------------------------------------------------------------------------------------


def test_forward_commits_never_fall_and_are_all_or_nothing() -> None:
    desk = Desk()
    commit(desk, CURSUS, 5, 5, rule=OffsetRule.FORWARD)
    with pytest.raises(OffsetRegression, match="at 5, got 4"):
        commit(desk, CURSUS, 6, 4, rule=OffsetRule.FORWARD)
    assert stored(desk, CURSUS) == [5, 5]
    written = len(desk.log)
    commit(desk, CURSUS, 5, 5, rule=OffsetRule.FORWARD)
    assert len(desk.log) == written, "an equal one changes nothing"
    commit(desk, CURSUS, 5, 7, rule=OffsetRule.FORWARD)
    assert stored(desk, CURSUS) == [5, 7]


def test_free_commits_go_anywhere() -> None:
    desk = Desk()
    commit(desk, KAFKA, 5)
    commit(desk, KAFKA, 3)
    assert stored(desk, KAFKA) == [3]


def test_groups_of_one_name_are_apart() -> None:
    desk = Desk()
    other = GroupKey(Family.CURSUS, "g", "invoices")
    for at, key in enumerate((KAFKA, CURSUS, other, v1_key("g"))):
        commit(desk, key, at)
    assert [stored(desk, key) for key in (KAFKA, CURSUS, other, v1_key("g"))] == [
        [0],
        [1],
        [2],
        [3],
    ]


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    desk = Desk()
    for key in (KAFKA, v1_key("g")):
        commit(desk, key, 1, 2)
        desk.engine.offsets.commit(key, [Commit("other", 0, 3)], OffsetRule.FREE)
    desk.delete_topic("t")
    desk.advance(0.0)
    assert [stored(desk, key) for key in (KAFKA, v1_key("g"))] == [[3], [3]]
    desk.check_fold()


# --- retention ------------------------------------------------------------------------------------


def aged(**limits: float) -> Desk:
    return Desk(GroupLimits(retention_s=7 * DAY_S, retention_check_s=600.0, **limits))


def test_offsets_of_idle_groups_are_forgotten() -> None:
    desk = aged()
    commit(desk, KAFKA, 1, 2)
    desk.advance(6.9 * DAY_S)
    assert stored(desk, KAFKA) == [1, 2]
    desk.engine.offsets.commit(KAFKA, [Commit("t", 0, 9)], OffsetRule.FREE)
    desk.advance(0.2 * DAY_S)
    assert stored(desk, KAFKA) == [9], "one that was committed later stays"
    desk.advance(7 * DAY_S)
    assert stored(desk, KAFKA) == []
    desk.check_fold()


def test_what_an_open_transaction_has_pending_outlives_the_retention_time() -> None:
    """Its end finds it, and the offset that it would replace is there until then."""
    desk = aged()
    commit(desk, KAFKA, 1, 2)
    transactional = desk.engine.transactional
    transactional.stage(transactional.ticket(KAFKA, 7), 0, 1, [Commit("t", 0, 5)])
    desk.advance(8 * DAY_S)
    assert stored(desk, KAFKA) == [1], "the other one is old, and nobody's"
    assert transactional.is_pending(KAFKA, "t", 0)
    assert transactional.settle(KAFKA, 7, 1, (), commits=True)
    assert stored(desk, KAFKA) == [5]
    desk.check_fold()


def test_a_group_with_members_keeps_its_offsets() -> None:
    desk = aged(v1_session_s=1e9)
    desk.engine.v1.join("g", "t", "c", None, 1)
    desk.engine.v1.commit(MemberRef("g", "t", "c", 2, 1), 0, 5)
    desk.advance(30 * DAY_S)
    assert stored(desk, v1_key("g")) == [5]


def test_a_v1_group_loses_its_offsets_but_never_its_generation() -> None:
    desk = aged()
    desk.engine.v1.join("g", "t", "c", None, 1)
    desk.engine.v1.commit(MemberRef("g", "t", "c", 2, 1), 0, 5)
    desk.advance(30 * DAY_S)
    assert stored(desk, v1_key("g")) == []
    assert desk.engine.v1.join("g", "t", "c", None, 1).generation == 4


def test_retention_waits_when_nothing_can_be_written() -> None:
    desk = aged()
    commit(desk, KAFKA, 1)
    desk.refuses = True
    desk.advance(8 * DAY_S)
    assert stored(desk, KAFKA) == [1]
    desk.refuses = False
    desk.advance(1200)
    assert stored(desk, KAFKA) == []


def test_many_groups_are_looked_at_in_turns() -> None:
    desk = Desk(GroupLimits(retention_s=7 * DAY_S, retention_check_s=DAY_S / 2))
    for number in range(1000):
        commit(desk, GroupKey(Family.KAFKA, f"g{number}"), number)
    desk.advance(8 * DAY_S)
    assert not desk.engine.store.offsets


# --- operators ------------------------------------------------------------------------------------


def test_deleting_a_group_deletes_its_offsets() -> None:
    desk = Desk()
    desk.engine.v1.join("g", "t", "c", None, 1)
    with pytest.raises(NonEmptyGroup):
        Inspection(desk.engine).delete_piece(v1_key("g"))
    desk.engine.v1.leave(MemberRef("g", "t", "c", 2, 1))
    commit(desk, v1_key("g"), *range(1200))
    while not Inspection(desk.engine).delete_piece(v1_key("g")):
        pass
    assert not desk.engine.store.groups
    assert not desk.engine.store.offsets
    desk.check_fold()
    with pytest.raises(GroupNotFound):
        Inspection(desk.engine).delete_piece(v1_key("g"))


def test_a_deletion_that_cannot_be_written_is_refused() -> None:
    desk = Desk()
    commit(desk, KAFKA, 1)
    desk.refuses = True
    with pytest.raises(CoordinatorNotAvailable):
        Inspection(desk.engine).delete_piece(KAFKA)
    assert stored(desk, KAFKA) == [1]


def test_offsets_of_what_members_read_are_kept() -> None:
    desk = Desk()
    desk.engine.v1.join("g", "t", "c", None, 1)
    commit(desk, v1_key("g"), 1)
    desk.engine.offsets.commit(v1_key("g"), [Commit("old", 0, 2)], OffsetRule.FREE)
    asked = [("t", 0), ("old", 0), ("no", 1)]
    kept, is_last = Inspection(desk.engine).delete_piece_of_offsets(v1_key("g"), asked)
    assert is_last
    assert kept == {("t", 0)}
    assert stored(desk, v1_key("g")) == [1]


def test_listing_with_filters() -> None:
    desk = Desk()
    desk.engine.v1.join("g", "t", "c", None, 1)
    commit(desk, KAFKA, 1)

    def listed(families: set[Family] = frozenset(), states: set[str] = frozenset()) -> list[object]:
        found = Inspection(desk.engine).groups(desk.engine.store.all_keys(), families, states)
        return [(each.key, each.state, each.member_count, each.generation) for each in found]

    v1, kafka = (v1_key("g"), "Stable", 1, 2), (KAFKA, "Empty", 0, 0)
    assert listed() == [v1, kafka]
    assert listed({Family.KAFKA}) == [kafka]
    assert listed(states={"Stable"}) == [v1]


def test_describing_says_how_long_a_member_was_silent() -> None:
    desk = Desk()
    desk.engine.v1.join("g", "t", "c", None, 2)
    desk.advance(3)
    described = Inspection(desk.engine).describe(v1_key("g"))
    [member] = described.members
    assert member.silent_s == pytest.approx(3)
    assert member.assigned == (("t", (0, 1)),)
    # Its session is over and its leaving not written yet: it was silent for a session at least.
    desk.engine.sessions.forget(v1_key("g"), member.member.member_id)
    [member] = Inspection(desk.engine).describe(v1_key("g")).members
    assert member.silent_s == pytest.approx(member.member.session_timeout_ms / 1000)
    assert Inspection(desk.engine).describe(KAFKA).state == "Dead"


# --- imports --------------------------------------------------------------------------------------


def test_an_empty_log_begins_with_what_was_found() -> None:
    groups = parse_groups(
        b'{"g":{"topic":"t","generation":7,"member_order":["c"],"assignments":{"c":[0]},'
        b'"members":[{"consumer_id":"c","last_heartbeat_unix_ms":5}]}}'
    )
    offsets = parse_offsets(b'{"g":{"t":{"0":3}}}', now_ms=1)
    desk = Desk(imports=[entry for _, entry in entries_of(groups, offsets)])
    assert desk.engine.store.begun is not None
    assert desk.engine.store.begun.imported == 2
    desk.engine.v1.heartbeat(MemberRef("g", "t", "c", 7, 1))
    assert stored(desk, v1_key("g")) == [3]


# --- alarms ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100)), max_size=30))
def test_each_name_is_woken_once_at_the_earliest_time_asked_for(
    asked: list[tuple[str, float]],
) -> None:
    alarms: Alarms[str] = Alarms()
    expected: dict[str, float] = {}
    for name, at in asked:
        alarms.ask(name, at)
        expected[name] = min(at, expected.get(name, at))
    woken = []
    while (at := alarms.next()) < float("inf"):
        name = alarms.pop_due(at)
        assert name is not None
        woken.append((at, name))
    assert sorted(woken) == sorted((at, name) for name, at in expected.items())
    assert woken == sorted(woken, key=lambda each: each[0])
