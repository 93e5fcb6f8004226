"""Static members (KIP-345, 814), and the limits of groups."""

from __future__ import annotations

import pytest

from paceline.errors import (
    ErrorCode,
    FencedInstance,
    GroupFull,
    InvalidGroup,
    InvalidRequest,
    InvalidSessionTimeout,
    RebalanceInProgress,
    UnknownMember,
)
from paceline.wire.consumer_protocol import Assignment, Subscription
from paceline_node.groups.kafka_rounds import Joined
from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.records import Protocol
from tests.unit.groups.desk import Desk
from tests.unit.groups.members import DELAY_S, KEY, Client, request, settle, value_of

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


@pytest.mark.parametrize(("topic", "keeps"), [("orders", True), ("others", False)])
def test_what_a_static_member_owned_is_no_other_subscription(topic: str, keeps: bool) -> None:
    """Its predecessor joined a second time and then named what it had."""
    desk = Desk()
    before = Subscription(("orders",), None, {"orders": [0, 1]}, 1).to_bytes()
    one, two = Client(desk, instance="i1"), Client(desk)
    one.request = {"protocols": (Protocol("range", before),)}
    settle(one, two)
    one.id = ""
    one.request = {"protocols": (Protocol("range", Subscription((topic,)).to_bytes()),)}
    one.ask()
    assert one.is_answered() is keeps
    if keeps:
        assert one.take().keep_assignment


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


# --- topics that grow -----------------------------------------------------------------------------

ORDERS = (Protocol("range", Subscription(("orders",)).to_bytes()),)


def two_that_came_back(desk: Desk) -> tuple[Client, Client]:
    """Static members that share the two partitions of a topic, both restarted in their sessions:
    none of them was told that it leads."""
    desk.enlarge("orders", 2)
    one, two = (
        Client(desk, instance="i1", protocols=ORDERS),
        Client(desk, instance="i2", protocols=ORDERS),
    )
    rebalance(desk, one, two)
    for client in (one, two):
        client.id = ""
        client.ask()
        assert client.take().keep_assignment
    return one, two


def rebalance(desk: Desk, one: Client, two: Client) -> None:
    """Both join, and their leader assigns each every other partition."""
    for client in (one, two):
        client.ask()
    desk.advance(DELAY_S + 0.01)
    for client in (one, two):
        client.take()
    leader, other = (one, two) if one.leads else (two, one)
    count = desk.partitions["orders"]
    leader.sync(
        *(
            (each.id, Assignment({"orders": list(range(at, count, 2))}).to_bytes())
            for at, each in enumerate((leader, other))
        )
    )
    other.sync()


@pytest.mark.parametrize("moves", [False, True])
def test_partitions_are_read_though_the_static_leader_was_not_told_that_it_leads(
    moves: bool,
) -> None:
    """It was told of another leader, so nobody watched the topic. The coordinator may move
    meanwhile, and the new one has not told anybody who leads."""
    desk = Desk()
    one, two = two_that_came_back(desk)
    desk.enlarge("orders", 6, told=not moves)
    if moves:
        desk.fail_over()
    desk.advance(0.1)
    with pytest.raises(RebalanceInProgress):
        one.beat()
    rebalance(desk, one, two)
    assert one.leads != two.leads
    desk.advance(1)
    desk.enlarge("orders", 7)  # a leader that knows watches by itself
    desk.advance(0.1)
    one.beat()


def test_a_static_leader_that_comes_back_to_a_larger_topic_assigns_anew() -> None:
    desk = Desk()
    one, two = two_that_came_back(desk)
    leader = one if desk.engine.store.groups[KEY].leader == one.id else two
    desk.enlarge("orders", 6, told=False)
    leader.id = ""
    leader.ask()
    assert not leader.is_answered()


def test_static_members_are_left_alone_while_their_topics_are_as_they_were() -> None:
    desk = Desk()
    one, two = two_that_came_back(desk)
    desk.enlarge("others", 6)
    desk.fail_over()
    desk.advance(0.1)
    one.beat()
    two.beat()


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_ms", [0, 5999, 1_800_001])
def test_session_timeouts_have_bounds(session_ms: int) -> None:
    with pytest.raises(InvalidSessionTimeout):
        Desk().engine.kafka.join(request(session_ms=session_ms))


def test_rebalance_timeouts_are_not_negative() -> None:
    with pytest.raises(InvalidRequest):
        Desk().engine.kafka.join(request(rebalance_ms=-1))


@pytest.mark.parametrize("rebalance_ms", [3_600_000, 86_400_000, 2**31 - 1])
def test_a_long_rebalance_timeout_keeps_nobody_waiting_for_the_dead(rebalance_ms: int) -> None:
    """max.poll.interval.ms of an hour or a day; one of the two is gone."""
    desk = Desk()
    one, two = Client(desk, rebalance_ms=rebalance_ms), Client(desk, rebalance_ms=rebalance_ms)
    settle(one, two)
    three = Client(desk, rebalance_ms=rebalance_ms)
    three.ask()
    one.ask()
    desk.advance(10.5)  # a session
    assert one.take().generation == three.take().generation == 2
    assert {each.member_id for each in desk.engine.store.groups[KEY].members} == {one.id, three.id}


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
    second, third = Client(desk), Client(desk)
    second.ask()
    with pytest.raises(GroupFull, match=r"groups\.members_max"):
        third.ask()


def handed_out(desk: Desk, key: GroupKey = KEY, session_ms: int = 1_800_000) -> str:
    told = desk.engine.kafka.join(request(key=key, session_ms=session_ms))
    assert isinstance(told, Joined)
    return told.member_id


def test_ids_that_nobody_comes_back_with_keep_nobody_out() -> None:
    """A client that asked for as many as there may be members, and went away, shut the group for
    the session time-out that it had named."""
    desk = Desk(GroupLimits(members_max=3))
    settle(Client(desk))
    ids = [handed_out(desk) for _ in range(50)]
    newcomer = Client(desk)
    newcomer.ask()
    with pytest.raises(UnknownMember):
        desk.engine.kafka.join(request(ids[0]))
    assert len(desk.engine.kafka._coordinated.handed_out[KEY]) <= 3


def test_ids_of_groups_that_never_come_to_be_keep_no_group_from_being() -> None:
    desk = Desk(GroupLimits(groups_max=3))
    keys = [GroupKey(Family.KAFKA, f"g{number}") for number in range(50)]
    ids = [handed_out(desk, key) for key in keys]
    settle(Client(desk))
    with pytest.raises(UnknownMember):
        desk.engine.kafka.join(request(ids[0], key=keys[0]))
    desk.engine.kafka.join(request(ids[-1], key=keys[-1]))
    assert len(desk.engine.kafka._coordinated.handed_out) <= 3


def test_a_round_waits_for_an_id_only_as_long_as_its_owner_needs() -> None:
    """Not for the session time-out of somebody who has gone, which may be half an hour."""
    desk = Desk()
    one = Client(desk, rebalance_ms=1_800_000)
    settle(one)
    gone = handed_out(desk)
    two = Client(desk, rebalance_ms=1_800_000)
    two.ask()
    one.ask()
    desk.advance(5)
    assert not one.is_answered(), "its owner may yet come"
    desk.advance(5.1)
    assert one.take().generation == two.take().generation == 2
    with pytest.raises(UnknownMember):
        desk.engine.kafka.join(request(gone))


def test_what_members_read_is_seen_in_their_subscriptions() -> None:
    desk = Desk()
    subscription = Subscription(("orders",)).to_bytes()
    settle(Client(desk, protocols=(Protocol("range", subscription),)))
    assert desk.engine.kafka.reads(KEY, "orders")
    assert not desk.engine.kafka.reads(KEY, "other")
