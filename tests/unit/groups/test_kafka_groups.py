"""Groups of the Kafka protocol: barrier, sessions, static members, fencing, limits."""

from __future__ import annotations

import pytest

from paceline.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    FencedInstance,
    GroupFull,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroup,
    InvalidRequest,
    InvalidSessionTimeout,
    NotCoordinator,
    PacelineError,
    RebalanceInProgress,
    UnknownMember,
)
from paceline.wire.consumer_protocol import Subscription
from paceline_node.coordination.machine import Deferred
from paceline_node.groups.kafka_rounds import Joined, JoinRequest, Synced, SyncRequest
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.records import Protocol
from tests.unit.groups.desk import Desk

KEY = GroupKey(Family.KAFKA, "g")
RANGE = (Protocol("range", b"r"),)
DELAY_S = 0.3


def request(
    member_id: str = "",
    *,
    instance: str | None = None,
    protocols: tuple[Protocol, ...] = RANGE,
    session_ms: int = 10_000,
    rebalance_ms: int = 20_000,
    kind: str = "consumer",
    key: GroupKey = KEY,
) -> JoinRequest:
    return JoinRequest(key, member_id, instance, "app", session_ms, rebalance_ms, kind, protocols)


def value_of(answer: Joined | Synced | Deferred) -> object:
    """What was answered; None while the answer is due. Raises a refusal."""
    found = answer.value if isinstance(answer, Deferred) else answer
    if isinstance(found, PacelineError):
        raise found
    return found


class Client:
    """A member that does what the protocol asks of it, one request at a time."""

    def __init__(self, desk: Desk, *, instance: str | None = None, **request: object) -> None:
        self.desk = desk
        self.instance = instance
        self.request = request
        self.id = ""
        self.generation = -1
        self.leads = False
        self.members: tuple[str, ...] = ()
        self.answer: Joined | Deferred[Joined] | None = None

    def ask(self) -> None:
        """Send JOIN, with the id it is given where it needs one."""
        made = request(self.id, instance=self.instance, **self.request)
        answer = self.desk.engine.kafka.join(made)
        if isinstance(answer, Joined) and answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            self.ask()
            return
        self.answer = answer

    def is_answered(self) -> bool:
        assert self.answer is not None
        return value_of(self.answer) is not None

    def take(self) -> Joined:
        """The answer to JOIN, which must be there."""
        joined = value_of(self.answer)
        assert isinstance(joined, Joined), "JOIN is not answered yet"
        self.id, self.generation = joined.member_id, joined.generation
        self.leads = joined.leader == self.id
        self.members = tuple(each.member_id for each in joined.members)
        return joined

    def sync(self, *assigned: tuple[str, bytes]) -> Synced | Deferred[Synced]:
        return self.desk.engine.kafka.sync(
            SyncRequest(KEY, self.generation, self.id, self.instance, "", "", assigned)
        )

    def beat(self) -> None:
        self.desk.engine.kafka.heartbeat(KEY, self.generation, self.id, self.instance)

    def leave(self) -> tuple[ErrorCode, ...]:
        return self.desk.engine.kafka.leave(KEY, [(self.id, self.instance)])


def settle(*clients: Client) -> None:
    """All join, the leader assigns each its id's bytes, all sync."""
    for client in clients:
        client.ask()
    clients[0].desk.advance(DELAY_S + 0.01)
    for client in clients:
        client.take()
    leader = next(client for client in clients if client.leads)
    waiting = [client.sync() for client in clients if not client.leads]
    leader.sync(*[(each.id, each.id.encode()) for each in clients])
    for client, answer in zip([c for c in clients if not c.leads], waiting, strict=True):
        synced = value_of(answer)
        assert isinstance(synced, Synced)
        assert synced.assignment == client.id.encode()


# --- the barrier ----------------------------------------------------------------------------------


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


# --- static members -------------------------------------------------------------------------------


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    desk = Desk()
    one, two = Client(desk, instance="i1"), Client(desk, instance="i2")
    settle(one, two)
    old = two.id
    two.id = ""
    two.ask()
    joined = two.take()
    assert joined.generation == 1
    assert two.id != old
    assert joined.keep_assignment
    assert value_of(two.sync()).assignment == old.encode()
    one.beat()
    with pytest.raises(FencedInstance):
        desk.engine.kafka.heartbeat(KEY, 1, old, "i2")
    with pytest.raises(FencedInstance):
        desk.engine.kafka.join(request(old, instance="i2"))
    with pytest.raises(UnknownMember):
        desk.engine.kafka.heartbeat(KEY, 1, old, None)


def test_a_static_leader_that_comes_back_is_told_to_keep_the_assignment() -> None:
    desk = Desk()
    one, two = Client(desk, instance="i1"), Client(desk, instance="i2")
    settle(one, two)
    leader = one if one.leads else two
    leader.id = ""
    leader.ask()
    joined = leader.take()
    assert joined.keep_assignment
    assert joined.leader == leader.id
    assert len(joined.members) == 2


def test_a_static_member_with_another_subscription_does_rebalance() -> None:
    desk = Desk()
    one, two = Client(desk, instance="i1"), Client(desk, instance="i2")
    settle(one, two)
    two.id = ""
    two.request = {"protocols": (Protocol("range", b"other"),)}
    two.ask()
    assert not two.is_answered()
    one.ask()
    assert two.take().generation == 2


def test_a_static_member_keeps_its_place_through_a_round_it_misses() -> None:
    desk = Desk()
    one, two, three = Client(desk, instance="i1"), Client(desk, session_ms=30_000), Client(desk)
    one.request = {"session_ms": 60_000}
    settle(one, two)
    three.ask()
    two.ask()
    desk.advance(20.5)
    joined = two.take()
    assert joined.generation == 2
    assert one.id in {each.member_id for each in desk.engine.store.groups[KEY].members}


def test_static_members_leave_by_instance() -> None:
    desk = Desk()
    one, two = Client(desk, instance="i1"), Client(desk, instance="i2")
    settle(one, two)
    kafka = desk.engine.kafka
    assert kafka.leave(KEY, [("wrong", "i1")]) == (ErrorCode.FENCED_INSTANCE_ID,)
    assert kafka.leave(KEY, [("", "i9"), ("", "i1")]) == (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    )
    assert [each.instance_id for each in desk.engine.store.groups[KEY].members] == ["i2"]


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


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_ms", [0, 5999, 1_800_001])
def test_session_timeouts_have_bounds(session_ms: int) -> None:
    with pytest.raises(InvalidSessionTimeout):
        Desk().engine.kafka.join(request(session_ms=session_ms))


@pytest.mark.parametrize("rebalance_ms", [-1, 1_800_001])
def test_rebalance_timeouts_have_bounds(rebalance_ms: int) -> None:
    with pytest.raises(InvalidRequest):
        Desk().engine.kafka.join(request(rebalance_ms=rebalance_ms))


@pytest.mark.parametrize("name", ["", "x" * 256, "\ud800"])
def test_names_have_bounds(name: str) -> None:
    with pytest.raises(InvalidGroup):
        Desk().engine.kafka.join(request(key=GroupKey(Family.KAFKA, name)))


def test_sizes_have_bounds() -> None:
    desk = Desk(GroupLimits(member_bytes_max=2000, group_bytes_max=2000, members_max=2))
    large = (Protocol("range", bytes(1500)),)
    with pytest.raises(InvalidRequest, match=r"groups\.member_bytes_max"):
        desk.engine.kafka.join(request(protocols=(Protocol("range", bytes(2000)),)))
    settle(Client(desk, protocols=large))
    with pytest.raises(GroupFull, match=r"groups\.group_bytes_max"):
        desk.engine.kafka.join(request(protocols=large))
    desk.engine.kafka.join(request())
    with pytest.raises(GroupFull, match=r"groups\.members_max"):
        desk.engine.kafka.join(request())


def test_ids_of_groups_that_never_come_to_be_have_bounds() -> None:
    desk = Desk(GroupLimits(groups_max=3))
    for number in range(3):
        desk.engine.kafka.join(request(key=GroupKey(Family.KAFKA, f"g{number}")))
    with pytest.raises(GroupFull, match=r"groups\.groups_max"):
        desk.engine.kafka.join(request(key=GroupKey(Family.KAFKA, "one more")))
    desk.advance(11)
    desk.engine.kafka.join(request(key=GroupKey(Family.KAFKA, "one more")))


def test_what_members_read_is_seen_in_their_subscriptions() -> None:
    desk = Desk()
    subscription = Subscription(("orders",)).to_bytes()
    settle(Client(desk, protocols=(Protocol("range", subscription),)))
    assert desk.engine.kafka.reads(KEY, "orders")
    assert not desk.engine.kafka.reads(KEY, "other")
