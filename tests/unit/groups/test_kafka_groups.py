"""Groups of the Kafka protocol: barrier, sessions, fencing, coordinators that come and go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    GroupFull,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroup,
    InvalidRequest,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMember,
)
from paceline_node.groups.committed_offsets import Commit
from paceline_node.groups.kafka_rounds import Joined, Synced, SyncRequest
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.records import Protocol
from tests.unit.groups.desk import Desk
from tests.unit.groups.members import DELAY_S, KEY, Client, request, settle, value_of

# --- the barrier ----------------------------------------------------------------------------------


@pytest.mark.parametrize("client_id", ["c" * 1024, "é" * 512])
def test_a_client_with_the_longest_id_can_join(client_id: str) -> None:
    desk = Desk()
    asked = replace(request(), client_id=client_id)
    told = desk.engine.kafka.join(asked)
    assert told.error is ErrorCode.MEMBER_ID_REQUIRED
    assert len(told.member_id.encode()) <= 1024
    desk.engine.kafka.join(replace(asked, member_id=told.member_id))
    desk.advance(DELAY_S + 0.01)
    assert desk.engine.kafka.member_count(KEY) == 1


def test_groups_of_pending_offsets_count_too() -> None:
    desk = Desk(GroupLimits(groups_max=2))
    for number in range(2):
        key = GroupKey(Family.KAFKA, f"g{number}")
        desk.engine.kafka.check_new(key)
        ticket = desk.engine.transactional.ticket(key, 7)
        desk.engine.transactional.stage(ticket, 0, 1, [Commit("t", 0, 1)])
    desk.engine.kafka.check_new(GroupKey(Family.KAFKA, "g0"))
    with pytest.raises(GroupFull):
        desk.engine.kafka.check_new(GroupKey(Family.KAFKA, "g2"))
    with pytest.raises(InvalidGroup):
        desk.engine.kafka.check_new(GroupKey(Family.KAFKA, "g" * 256))


def test_a_new_member_is_given_an_id_first() -> None:
    desk = Desk()
    joined = desk.engine.kafka.join(request())
    assert isinstance(joined, Joined)
    assert joined.error is ErrorCode.MEMBER_ID_REQUIRED
    assert joined.member_id.startswith("app-")
    assert not desk.engine.store.groups, "an id is not a member"


def test_the_first_of_a_group_waits_for_others() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    one.ask()
    desk.advance(DELAY_S - 0.01)
    assert not one.is_answered()
    two.ask()
    desk.advance(DELAY_S - 0.01)
    assert not one.is_answered(), "a newcomer puts the end off"
    desk.advance(0.02)
    assert (one.take().generation, two.take().generation) == (1, 1)
    assert one.leads
    assert one.members == (one.id, two.id)
    assert not two.members, "only the leader is told of the members"


def test_all_get_what_the_leader_assigned() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    settle(one, two)
    assert value_of(two.sync()) == Synced(two.id.encode(), "consumer", "range")
    desk.check_fold()


def test_a_newcomer_makes_everybody_join_again() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    settle(one)
    two.ask()
    assert not two.is_answered()
    with pytest.raises(RebalanceInProgress):
        one.beat()
    one.ask()
    assert (one.take().generation, two.take().generation) == (2, 2)


def test_who_does_not_join_in_time_is_out() -> None:
    desk = Desk()
    one, two, three = Client(desk), Client(desk), Client(desk)
    settle(one, two)
    three.ask()
    for _ in range(4):
        one.ask()  # joins, and joins again: it may
        desk.advance(4.9)
        with pytest.raises(RebalanceInProgress):
            two.beat()
    desk.advance(1)
    assert one.take().generation == 2
    with pytest.raises(UnknownMember):
        two.beat()


def test_a_round_waits_for_those_who_were_given_an_id() -> None:
    desk = Desk()
    one = Client(desk)
    settle(one)
    late = desk.engine.kafka.join(request())
    assert isinstance(late, Joined)
    two = Client(desk)
    two.ask()
    one.ask()
    assert not one.is_answered()
    answer = desk.engine.kafka.join(request(late.member_id))
    assert one.take().generation == 2
    assert value_of(answer).generation == 2


def test_an_id_that_nobody_uses_holds_up_nobody_for_ever() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    settle(one)
    desk.engine.kafka.join(request())
    two.ask()
    one.ask()
    assert not one.is_answered()
    desk.advance(10.1)
    assert one.take().generation == 2


def test_the_leader_joining_again_makes_a_new_generation() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    settle(one, two)
    follower, leader = (two, one) if one.leads else (one, two)
    follower.ask()
    assert follower.take().generation == 1, "a follower whose answer was lost is told again"
    leader.ask()
    assert not leader.is_answered()
    follower.ask()
    assert leader.take().generation == 2


def test_joining_twice_answers_the_last() -> None:
    desk = Desk()
    one = Client(desk)
    one.ask()
    first = one.answer
    one.ask()
    with pytest.raises(RebalanceInProgress):
        value_of(first)
    desk.advance(DELAY_S + 0.01)
    assert one.take().generation == 1


def test_who_does_not_sync_is_out_after_its_rebalance_timeout() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    one.ask()
    two.ask()
    desk.advance(DELAY_S + 0.01)
    one.take()
    two.take()
    leader, follower = (one, two) if one.leads else (two, one)
    waiting = follower.sync()
    for _ in range(5):
        desk.advance(4.1)
        try:
            leader.beat()
        except UnknownMember:
            break
    with pytest.raises(RebalanceInProgress):
        value_of(waiting)
    with pytest.raises(UnknownMember):
        leader.beat()


# --- protocols ------------------------------------------------------------------------------------


def test_the_protocol_with_most_votes_that_all_know() -> None:
    desk = Desk()
    both = (Protocol("a", b"1"), Protocol("b", b"2"))
    other = (Protocol("b", b"3"), Protocol("c", b"4"))
    one = Client(desk, protocols=both)
    two = Client(desk, protocols=other)
    one.ask()
    two.ask()
    desk.advance(DELAY_S + 0.01)
    joined = one.take()
    assert joined.protocol == "b"
    assert [each.metadata("b") for each in joined.members] == [b"2", b"3"]


def test_nothing_in_common_is_refused() -> None:
    desk = Desk()
    settle(Client(desk))
    with pytest.raises(InconsistentGroupProtocol):
        desk.engine.kafka.join(request(protocols=(Protocol("odd", b""),)))
    with pytest.raises(InconsistentGroupProtocol):
        desk.engine.kafka.join(request(kind="connect"))
    with pytest.raises(InconsistentGroupProtocol):
        desk.engine.kafka.join(request(protocols=()))


@pytest.mark.parametrize(
    "wanted",
    [
        {"kind": "k" * 1025},
        {"instance": "i" * 1025},
        {"member_id": "m" * 1025},
        {"protocols": (Protocol("ä" * 513, b""),)},
    ],
    ids=lambda wanted: next(iter(wanted)),
)
def test_names_that_not_every_version_could_tell_others_are_refused(wanted: dict) -> None:
    desk = Desk()
    with pytest.raises(InvalidRequest, match=r"a name of 102[56] bytes"):
        desk.engine.kafka.join(request(**wanted))


def test_an_empty_group_may_change_its_type() -> None:
    desk = Desk()
    one = Client(desk)
    settle(one)
    one.leave()
    two = Client(desk, kind="connect", protocols=(Protocol("odd", b""),))
    settle(two)
    assert desk.engine.store.groups[KEY].protocol_type == "connect"


# --- sessions -------------------------------------------------------------------------------------


def test_a_silent_member_is_out_and_the_others_join_again() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    settle(one, two)
    desk.advance(6)
    one.beat()
    desk.advance(5)
    with pytest.raises(RebalanceInProgress):
        one.beat()
    one.ask()
    assert one.take().generation == 2
    assert one.members == (one.id,)


def test_waiting_for_the_others_is_as_good_as_a_heartbeat() -> None:
    desk = Desk()
    one, two, three = Client(desk), Client(desk, rebalance_ms=60_000), Client(desk)
    settle(one, two)
    three.ask()
    one.ask()
    for _ in range(5):
        desk.advance(9)
        with pytest.raises(RebalanceInProgress):
            two.beat()
    two.ask()
    assert {one.take().generation, two.take().generation, three.take().generation} == {2}


def test_leaving_is_heard_at_once() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    settle(one, two)
    assert two.leave() == (ErrorCode.NONE,)
    assert two.leave() == (ErrorCode.UNKNOWN_MEMBER_ID,)
    with pytest.raises(RebalanceInProgress):
        one.beat()
    one.ask()
    assert one.take().generation == 2


def test_the_last_one_leaves_an_empty_group_in_a_higher_generation() -> None:
    desk = Desk()
    one = Client(desk)
    settle(one)
    one.leave()
    group = desk.engine.store.groups[KEY]
    assert (group.generation, group.members) == (2, ())
    assert desk.engine.kafka.state(KEY) == "Empty"
    settle(Client(desk))
    assert desk.engine.store.groups[KEY].generation == 3


def test_states_in_the_words_of_kafka() -> None:
    desk = Desk()
    one = Client(desk)
    one.ask()
    assert desk.engine.kafka.state(KEY) == "PreparingRebalance"
    desk.advance(DELAY_S + 0.01)
    one.take()
    assert desk.engine.kafka.state(KEY) == "CompletingRebalance"
    one.sync((one.id, b"x"))
    assert desk.engine.kafka.state(KEY) == "Stable"


def test_a_group_that_nobody_is_in_takes_no_room() -> None:
    """Whoever names groups that there are not would fill the coordinator's memory."""
    desk = Desk()
    kafka = desk.engine.kafka
    for number in range(3):
        with pytest.raises(UnknownMember):
            kafka.heartbeat(GroupKey(Family.KAFKA, f"g{number}"), 1, "stranger", None)
        kafka.join(request(key=GroupKey(Family.KAFKA, f"g{number}")))
        kafka.state(GroupKey(Family.KAFKA, f"h{number}"))
    assert not kafka._groups
    one = Client(desk)
    settle(one)
    assert list(kafka._groups) == [KEY]
    one.leave()
    assert not kafka._groups


# --- fencing --------------------------------------------------------------------------------------


def test_generations_and_strangers() -> None:
    desk = Desk()
    one = Client(desk)
    settle(one)
    kafka = desk.engine.kafka
    for generation, member_id, refusal in (
        (0, one.id, IllegalGeneration),
        (2, one.id, IllegalGeneration),
        (1, "stranger", UnknownMember),
    ):
        with pytest.raises(refusal):
            kafka.heartbeat(KEY, generation, member_id, None)
        with pytest.raises(refusal):
            kafka.sync(SyncRequest(KEY, generation, member_id, None, "", "", ()))
        with pytest.raises(refusal):
            kafka.check_commit(KEY, generation, member_id, None)
    with pytest.raises(UnknownMember):
        kafka.join(request("stranger"))


def test_who_may_commit() -> None:
    desk = Desk()
    kafka = desk.engine.kafka
    kafka.check_commit(KEY, -1, "", None)
    with pytest.raises(IllegalGeneration):
        kafka.check_commit(KEY, 3, "m", None)
    one, two = Client(desk), Client(desk)
    settle(one)
    kafka.check_commit(KEY, 1, one.id, None)
    with pytest.raises(UnknownMember):
        kafka.check_commit(KEY, -1, "", None)
    two.ask()
    kafka.check_commit(KEY, 1, one.id, None)  # what it read until now
    one.ask()
    one.take()
    with pytest.raises(RebalanceInProgress):
        kafka.check_commit(KEY, 2, one.id, None)


def test_sync_checks_what_the_member_believes() -> None:
    desk = Desk()
    one = Client(desk)
    settle(one)
    for kind, protocol in (("connect", ""), ("", "sticky")):
        with pytest.raises(InconsistentGroupProtocol):
            desk.engine.kafka.sync(SyncRequest(KEY, 1, one.id, None, kind, protocol, ()))


# --- coordinators come and go ---------------------------------------------------------------------


def test_members_survive_a_failover_in_their_generation() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    settle(one, two)
    desk.advance(9)
    desk.fail_over()
    desk.advance(9)
    one.beat()
    two.beat()
    assert value_of(two.sync()).assignment == two.id.encode()


def test_a_failover_tells_those_who_wait() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    settle(one)
    two.ask()
    desk.fail_over()
    with pytest.raises(NotCoordinator):
        value_of(two.answer)
    one.beat()  # the new coordinator knows of no newcomer


def test_a_generation_without_assignments_is_not_given_again() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    one.ask()
    two.ask()
    desk.advance(DELAY_S + 0.01)
    assert one.take().generation == 1
    two.take()
    desk.fail_over()
    with pytest.raises(RebalanceInProgress):
        one.beat()
    one.ask()
    two.ask()
    assert (one.take().generation, two.take().generation) == (2, 2)


def test_a_member_that_left_is_not_back_after_a_failover() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    settle(one, two)
    two.leave()
    desk.fail_over()
    with pytest.raises(UnknownMember):
        two.beat()
    with pytest.raises(RebalanceInProgress):
        one.beat()


def test_when_a_generation_cannot_be_written_all_are_told_and_may_try_again() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    settle(one)
    two.ask()
    desk.refuses = True
    one.ask()
    for client in (one, two):
        with pytest.raises(CoordinatorNotAvailable):
            client.take()
    desk.refuses = False
    two.ask()
    one.ask()
    assert (one.take().generation, two.take().generation) == (2, 2)


def test_when_assignments_cannot_be_written_the_leader_may_try_again() -> None:
    desk = Desk()
    one, two = Client(desk), Client(desk)
    one.ask()
    two.ask()
    desk.advance(DELAY_S + 0.01)
    one.take()
    two.take()
    waiting = two.sync()
    desk.refuses = True
    with pytest.raises(CoordinatorNotAvailable):
        one.sync((two.id, b"x"))
    desk.refuses = False
    assert value_of(waiting) is None
    one.sync((two.id, b"x"))
    assert value_of(waiting).assignment == b"x"
