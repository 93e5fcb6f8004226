"""The policy of family ``coordinator``: rounds, times, errors, failovers (groups/DESIGN 6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from paceline.errors import (
    ErrorCode,
    GroupFull,
    IllegalGeneration,
    MessageTooLarge,
    NonEmptyGroup,
    PacelineError,
    UnknownMember,
)
from paceline.wire.consumer_protocol import Assignment
from paceline.wire.coordinator.messages import PingRequest, StopRequest
from paceline_node.groups.driven_groups import coordinator_key
from paceline_node.groups.inspection import Inspection
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.records import Phase
from tests.unit.groups.consumers import KEY, Crew, stable, starts, stops

# --- joining and rounds ---------------------------------------------------------------------------


def test_those_who_come_together_start_in_one_generation() -> None:
    crew, (a, b) = stable("a", "b")
    assert crew.generation == 1
    assert set(a.owned) == {("t", 0), ("t", 1)}
    assert set(b.owned) == {("t", 2), ("t", 3)}
    [start] = starts(a)
    assert (start.coordinator_epoch, start.generation) == (0, 1)
    assert [each.offset for each in start.partitions] == [0, 0]
    assert (start.partitions[0].leader_id, start.partitions[0].leader_epoch) == (1, 7)
    crew.desk.check_fold()


def test_the_generation_is_stored_before_anyone_is_started() -> None:
    crew = Crew(t=1)
    fake = crew.register("a", "t")
    crew.desk.advance(1.0)
    plan = crew.plan()
    assert plan is not None
    assert crew.generation == 1
    assert starts(fake) == []


def test_a_newcomer_stops_the_others_and_their_positions_are_committed() -> None:
    crew, (a,) = stable("a")
    a.owned[("t", 0)] = 42
    b = crew.register("b", "t")
    crew.pass_time(0.2, a, b)
    assert crew.state == "PreparingRebalance"
    crew.pass_time(0.5, a, b)
    assert [each.reason for each in stops(a)] == [0]
    assert stops(b) == []  # it had nothing
    assert crew.committed("t", 0) == 42
    assert crew.generation == 2
    assert a.owned[("t", 0)] == 42
    assert set(b.owned) == {("t", 2), ("t", 3)}


def test_an_empty_group_waits_at_most_three_seconds_for_more() -> None:
    crew = Crew(t=1)
    fakes = []
    for number in range(14):
        fakes.append(crew.register(f"c{number:02}", "t"))
        crew.pass_time(0.2, *fakes)
    assert crew.generation == 0
    fakes.append(crew.register("last", "t"))
    crew.pass_time(0.25, *fakes)
    assert crew.generation == 1


def test_what_changes_in_a_round_makes_another_one() -> None:
    crew, (a,) = stable("a")
    b = crew.register("b", "t")
    crew.desk.advance(0.4)
    assert isinstance(a.asked, StopRequest)
    c = crew.register("c", "t")
    crew.settle(a, b)
    assert crew.generation == 2  # c came before the assignment and is part of it
    d = crew.register("d", "t")
    assert crew.state == "CompletingRebalance"  # c has not answered its Start
    crew.settle(a, b, c, d)
    assert crew.state == "PreparingRebalance"
    crew.pass_time(0.5, a, b, c, d)
    assert crew.generation == 3
    assert [len(each.owned) for each in (a, b, c, d)] == [1, 1, 1, 1]


def test_a_ping_that_is_not_answered_delays_the_stop() -> None:
    crew, (a,) = stable("a")
    crew.desk.advance(2.0)
    assert isinstance(a.asked, PingRequest)
    b = crew.register("b", "t")
    crew.pass_time(0.5, b)
    assert isinstance(a.asked, PingRequest)
    a.answer()
    assert isinstance(a.asked, StopRequest)
    crew.settle(a, b)
    assert crew.state == "Stable"


def test_who_misses_the_stop_is_dropped_and_what_it_had_goes_to_others() -> None:
    crew, (a, b) = stable("a", "b")
    a.owned[("t", 1)] = 5  # never told
    c = crew.register("c", "t")
    crew.pass_time(12.0, b, c)
    assert not a.ended
    crew.pass_time(3.0, b, c)
    assert a.ended
    assert crew.state == "Stable"
    assert set(b.owned) | set(c.owned) == {("t", number) for number in range(4)}


def test_who_cannot_start_is_dropped_and_the_others_go_on() -> None:
    crew = Crew(t=2)
    a, b = crew.register("a", "t"), crew.register("b", "t")
    crew.desk.advance(0.5)
    crew.work()
    a.answer()
    b.answer(error=1)
    assert b.ended
    crew.pass_time(1.0, a)
    assert crew.state == "Stable"
    assert set(a.owned) == {("t", 0), ("t", 1)}


def test_after_four_failed_rounds_the_next_one_waits() -> None:
    crew = Crew(t=1)
    a = crew.register("a", "t")
    for number in range(4):
        other = crew.register(f"b{number}", "t")
        crew.pass_time(0.4, a)
        other.answer(error=1)
        crew.settle(a)
        assert crew.state == "PreparingRebalance"
    before = crew.generation
    crew.pass_time(1.9, a)
    assert crew.generation == before
    crew.pass_time(0.3, a)
    assert crew.generation == before + 1
    assert crew.state == "Stable"


def test_a_member_may_be_idle() -> None:
    _, (a, b) = stable("a", "b", t=1)
    assert (len(a.owned), len(b.owned)) == (1, 0)
    assert starts(b)[0].partitions == ()


def test_streams_share_as_the_range_assignor_of_0_8_did() -> None:
    crew = Crew(t=5)
    c1 = crew.register("C1", "t", streams=2)
    c2 = crew.register("C2", "t", streams=2)
    crew.pass_time(1.0, c1, c2)
    assert [(each.partition, each.stream) for each in starts(c1)[0].partitions] == [
        (0, 0),
        (1, 0),
        (2, 1),
    ]
    assert [(each.partition, each.stream) for each in starts(c2)[0].partitions] == [(3, 0), (4, 1)]


def test_the_last_consumer_leaves_an_empty_group_with_its_offsets() -> None:
    crew, (a,) = stable("a")
    a.owned[("t", 2)] = 9
    crew.pass_time(4.0, a)
    assert crew.committed("t", 2) == 9
    a.close()
    crew.pass_time(1.0)
    assert crew.state == "Empty"
    group = crew.engine.store.groups[KEY]
    assert (group.phase, group.generation, group.members) == (Phase.EMPTY, 2, ())
    assert crew.engine.next_alarm() > crew.desk.time + 100  # nothing volatile is left
    assert crew.committed("t", 2) == 9


# --- what is read ---------------------------------------------------------------------------------


def test_version_0_reads_every_topic_and_is_pinged_at_once() -> None:
    crew = Crew(one=1, two=2)
    a = crew.register("a", version=0)
    assert a.asked == PingRequest(coordinator_epoch=0, generation=-1)
    crew.pass_time(1.0, a)
    assert set(a.owned) == {("one", 0), ("two", 0), ("two", 1)}


def test_version_0_reads_what_is_listed_for_its_group() -> None:
    crew = Crew(t=1, u=1, v=1)
    crew.list_topics("u", "later")
    a = crew.register("a", version=0)
    named = crew.register("b", "t")
    crew.pass_time(1.0, a, named)
    assert (set(a.owned), set(named.owned)) == ({("u", 0)}, {("t", 0)})
    crew.topics_changed(t=1, u=1, v=2)
    crew.pass_time(1.0, a, named)
    assert crew.generation == 1
    crew.topics_changed(t=1, u=1, v=2, later=1)
    crew.pass_time(1.0, a, named)
    assert set(a.owned) == {("u", 0), ("later", 0)}
    crew.list_topics()
    crew.pass_time(1.0, a, named)
    assert crew.generation == 3
    assert {topic for topic, _ in a.owned} == {"t", "u", "v", "later"}


def test_patterns_white_and_black() -> None:
    crew = Crew(logs_a=1, logs_b=1, other=1)
    white = crew.register("w", "logs_.*", pattern_kind=1)
    black = crew.register("x", "logs_.*", pattern_kind=2)
    crew.pass_time(1.0, white, black)
    assert set(white.owned) == {("logs_a", 0), ("logs_b", 0)}
    assert set(black.owned) == {("other", 0)}


def test_partitions_and_topics_are_watched_but_only_those_subscribed() -> None:
    crew = Crew(t=1, u=1)
    a = crew.register("a", "t|v", pattern_kind=1)
    crew.pass_time(1.0, a)
    crew.topics_changed(t=1, u=7)
    crew.pass_time(1.0, a)
    assert crew.generation == 1
    for topics in ({"t": 3}, {"t": 3, "v": 1}, {"v": 1}):
        before = crew.generation
        crew.topics_changed(**topics)
        crew.pass_time(1.0, a)
        assert crew.generation == before + 1
        assert set(a.owned) == {(name, at) for name, count in topics.items() for at in range(count)}


def test_topics_that_a_consumer_may_not_read_are_not_told() -> None:
    crew = Crew(open=1, secret=1)
    a = crew.register("a", version=0, hidden=frozenset({"secret"}))
    crew.pass_time(1.0, a)
    assert set(a.owned) == {("open", 0)}


def test_more_partitions_than_a_start_can_count_are_left_unowned() -> None:
    crew = Crew(t=40_000)
    a = crew.register("a", "t")
    crew.pass_time(1.0, a)
    assert len(a.owned) == 32767


# --- the same consumer again ----------------------------------------------------------------------


def test_who_comes_back_as_it_was_is_started_again_without_a_round() -> None:
    crew, (a, b) = stable("a", "b")
    a.owned[("t", 0)] = 7
    crew.pass_time(4.0, a, b)
    again = crew.register("a", "t", generation=1)
    assert a.ended
    assert [each.reason for each in stops(a)] == [2]
    crew.pass_time(0.5, again, b)
    assert (crew.generation, crew.state) == (1, "Stable")
    assert again.owned == {("t", 0): 7, ("t", 1): 0}
    assert stops(b) == []
    a.close()  # the old connection's end changes nothing
    crew.pass_time(1.0, again, b)
    assert crew.generation == 1


def test_a_round_does_not_wait_for_one_who_was_replaced() -> None:
    crew, (_,) = stable("a")
    crew.register("b", "t")
    crew.desk.advance(0.4)  # a is told to stop, and registers anew instead of answering
    again = crew.register("a", "t")
    crew.work()
    assert crew.generation == 2
    crew.settle(again)
    assert len(again.owned) == 2


@pytest.mark.parametrize("change", [{"generation": 0}, {"generation": 1, "streams": 2}])
def test_who_comes_back_changed_makes_a_round(change: dict[str, int]) -> None:
    crew, (_, b) = stable("a", "b")
    again = crew.register("a", "t", **change)
    crew.pass_time(1.0, again, b)
    assert crew.generation == 2
    assert len(again.owned) + len(b.owned) == 4


def test_two_who_fight_over_an_id_are_told() -> None:
    crew, _ = stable("a")
    for _ in range(2):
        crew.register("a", "t")
        crew.desk.advance(1.0)
    with pytest.raises(PacelineError) as caught:
        crew.register("a", "t")
    assert caught.value.code == ErrorCode.FENCED_INSTANCE_ID
    crew.desk.advance(9.0)
    with pytest.raises(PacelineError):
        crew.register("a", "t")
    crew.desk.advance(2.0)
    assert crew.register("a", "t").told is not None


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (lambda crew: crew.register("", "t"), ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda crew: crew.register("é" * 128, "t"), ErrorCode.UNKNOWN_MEMBER_ID),
        (lambda crew: crew.register("a", interval_ms=99), ErrorCode.INVALID_SESSION_TIMEOUT),
        (lambda crew: crew.register("a", interval_ms=300_001), ErrorCode.INVALID_SESSION_TIMEOUT),
        (lambda crew: crew.register("a", retries=-1), ErrorCode.INVALID_SESSION_TIMEOUT),
        (lambda crew: crew.register("a", retries=101), ErrorCode.INVALID_SESSION_TIMEOUT),
        (
            lambda crew: crew.register("a", interval_ms=100_000, retries=3),
            ErrorCode.INVALID_SESSION_TIMEOUT,
        ),
        (lambda crew: crew.register("a", "t", streams=0), ErrorCode.INVALID_REQUEST),
        (lambda crew: crew.register("a", "t", streams=1001), ErrorCode.INVALID_REQUEST),
        (lambda crew: crew.register("a", "t", "t"), ErrorCode.INVALID_REQUEST),
        (lambda crew: crew.register("a", "(", pattern_kind=1), ErrorCode.INVALID_REQUEST),
        (
            lambda crew: crew.register("a", *[f"{'t' * 240}{at}" for at in range(400)]),
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
    ],
)
def test_what_cannot_be_registered(refused: Callable[[Crew], object], code: ErrorCode) -> None:
    crew = Crew(t=1)
    with pytest.raises(PacelineError) as caught:
        refused(crew)
    assert caught.value.code == code
    assert crew.state == "Empty"
    assert crew.engine.next_alarm() > crew.desk.time + 100


def test_groups_consumers_and_what_they_say_are_bounded() -> None:
    limits = GroupLimits(members_max=2, groups_max=1, member_bytes_max=300, group_bytes_max=400)
    crew = Crew(t=1)
    crew.desk = type(crew.desk)(limits, due=crew.due)
    crew.register("a", "t")
    crew.register("b", "t")
    with pytest.raises(GroupFull):
        crew.register("c", "t")
    with pytest.raises(GroupFull):
        crew.register("a", "t", group="another")
    crew.register("a", "t" * 200)
    with pytest.raises(MessageTooLarge):
        crew.register("b", "t" * 200)


def test_commits_of_the_present_generation_only() -> None:
    crew, _ = stable("a")
    check = crew.engine.coordinator.check_commit
    check(KEY, 1, "a")
    check(KEY, -1, "")  # of a time before generations
    with pytest.raises(IllegalGeneration):
        check(KEY, 0, "a")
    with pytest.raises(UnknownMember):
        check(KEY, 1, "b")
    with pytest.raises(UnknownMember):
        check(coordinator_key("other"), 1, "a")


def test_assignments_are_read_only_for_who_wants_to_know_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They were for everybody: 480 of 64 KB kept the event loop for 0.56 s."""
    crew, _ = stable("a", "b")
    read = []
    monkeypatch.setattr(Assignment, "from_bytes", read.append)
    assert len(Inspection(crew.engine).describe(KEY).members) == 2
    assert not read


def test_operators_see_the_group_and_cannot_delete_it_while_it_has_consumers() -> None:
    crew, (a, b) = stable("a", "b")
    crew.desk.advance(1.0)
    inspection = Inspection(crew.engine)
    [listing] = inspection.groups((KEY,), (), ())
    assert (listing.key, listing.state, listing.member_count) == (KEY, "Stable", 2)
    found = inspection.describe(KEY)
    assert [each.assigned for each in found.members] == [
        (("t", (0, 1)),),
        (("t", (2, 3)),),
    ]
    with pytest.raises(NonEmptyGroup):
        inspection.delete_piece(KEY)
    assert inspection.delete_piece_of_offsets(KEY, [("t", 0)]) == ({("t", 0)}, True)
    for each in (a, b):
        each.close()
    crew.pass_time(1.0)
    inspection.delete_piece(KEY)
    assert KEY not in crew.engine.store.groups
