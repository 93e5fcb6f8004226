"""What a rebalance of a large group costs: counted in steps, for time depends on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from paceline.errors import (
    CoordinatorNotAvailable,
    NotCoordinator,
    RebalanceInProgress,
    UnknownMember,
)
from paceline_node.groups.committed_offsets import Commit
from paceline_node.groups.kafka_answers import AT_ONCE
from paceline_node.groups.kafka_rounds import Synced
from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.records import Phase
from paceline_node.state_machines.machine import Deferred
from tests.unit.groups.desk import Desk
from tests.unit.groups.members import DELAY_S, KEY, Client, value_of


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of Python ``work`` runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def rebalance(count: int) -> Desk:
    """Members join one by one, are assigned, and join again for a newcomer."""
    desk = Desk(GroupLimits(members_max=5000))
    clients = [Client(desk) for _ in range(count)]
    for client in clients:
        client.ask()
    desk.advance(DELAY_S + 0.01)
    for client in clients:
        client.take()
    leader = next(client for client in clients if client.leads)
    waiting = [client.sync() for client in clients if client is not leader]
    leader.sync(*[(each.id, each.id.encode()) for each in clients])
    desk.advance(0.0)
    assert all(value_of(answer) is not None for answer in waiting)
    newcomer = Client(desk)
    for client in (newcomer, *clients):
        client.ask()
    desk.advance(0.0)
    assert len(newcomer.take().member_id) > 0
    return desk


def test_a_rebalance_costs_as_many_steps_a_member_however_large_the_group_is() -> None:
    small, large = (lines_of(lambda n=n: rebalance(n)) / n for n in (50, 400))
    assert large < small * 1.5


def test_looking_for_pending_offsets_costs_the_same_however_many_there_are() -> None:
    desk = Desk()
    offsets = desk.engine.transactional

    def stage(count: int) -> None:
        commits = [Commit("t", at, 1) for at in range(count)]
        offsets.stage(offsets.ticket(KEY, 7), 0, 1, commits)

    def look() -> None:
        assert offsets.is_pending(KEY, "t", 0)
        assert not offsets.is_pending(KEY, "u", 0)

    stage(1)
    few = lines_of(look)
    stage(2000)
    assert lines_of(look) == few


@pytest.mark.parametrize("count", [1, 300])
def test_members_that_leave_or_are_silent_are_no_more(count: int) -> None:
    """The sums over a group stay right when members come and go within a round."""
    desk = rebalance(count)
    desk.advance(60.0)
    assert desk.engine.kafka.member_count(KEY) == 0
    desk.check_fold()


MANY = 300


def joined(count: int = MANY) -> tuple[Desk, Client, list[Client], list[Deferred[Synced]]]:
    """A group whose leader has still to assign, and the answers that the others wait for."""
    desk = Desk(GroupLimits(members_max=5000))
    clients = [Client(desk) for _ in range(count)]
    for client in clients:
        client.ask()
    desk.advance(DELAY_S + 0.01)
    for client in clients:
        client.take()
    leader = next(client for client in clients if client.leads)
    others = [client for client in clients if client is not leader]
    return desk, leader, others, [client.sync() for client in others]


def assign(leader: Client, *others: Client) -> Deferred[Synced]:
    answer = leader.sync(*[(each.id, each.id.encode()) for each in (leader, *others)])
    assert isinstance(answer, Deferred)
    return answer


def test_no_step_of_a_rebalance_does_more_than_a_little_for_each_member() -> None:
    """The end of the joining and that of the assigning made all the members' records and woke all
    who waited: 395 lines for each member."""
    desk = Desk(GroupLimits(members_max=5000))
    clients = [Client(desk) for _ in range(MANY)]
    steps: list[int] = []

    def wake(seconds: float) -> None:
        desk.time += seconds
        while desk.engine.next_alarm() <= desk.time:
            steps.append(lines_of(desk.engine.on_alarm))

    for client in clients:
        steps.append(lines_of(client.ask))
    wake(DELAY_S + 0.01)
    for client in clients:
        client.take()
    for client in sorted(clients, key=lambda each: each.leads):
        assigned = [(each.id, each.id.encode()) for each in clients] if client.leads else []
        steps.append(lines_of(lambda c=client, a=assigned: c.sync(*a)))
    wake(0.0)
    assert desk.engine.kafka.state(KEY) == "Stable"
    assert max(steps) < 200 * MANY


def test_answers_to_many_members_are_given_in_turns_and_the_group_changes_at_once() -> None:
    desk, leader, others, answers = joined()
    answer = assign(leader, *others)
    seen = [0]
    while desk.engine.next_alarm() <= desk.time:
        is_stable = desk.engine.store.groups[KEY].phase is Phase.STABLE
        given = sum(each.value is not None for each in answers)
        assert given - seen[-1] <= AT_ONCE
        assert is_stable or not given
        assigned = {each.assignment for each in desk.engine.store.groups[KEY].members}
        assert len(assigned) == (MANY if is_stable else 1)
        seen.append(given)
        desk.engine.on_alarm()
    assert value_of(answer).assignment == leader.id.encode()
    for each, given in zip(others, answers, strict=True):
        assert value_of(given).assignment == each.id.encode()
    desk.check_fold()


@pytest.mark.parametrize("who", ["leader", "another"])
def test_who_leaves_while_the_assignment_is_stored_begins_another_round(who: str) -> None:
    desk, leader, others, answers = joined()
    answer = assign(leader, *others)
    desk.engine.on_alarm()
    (leader if who == "leader" else others[7]).leave()
    desk.advance(0.0)
    for each in (answer, *answers):
        assert isinstance(each.value, RebalanceInProgress | UnknownMember), each.value
    assert not any(each.assignment for each in desk.engine.store.groups[KEY].members)
    assert desk.engine.kafka.state(KEY) == "PreparingRebalance"
    desk.check_fold()


def test_an_assignment_that_cannot_be_stored_is_handed_in_again() -> None:
    desk, leader, others, answers = joined()
    desk.refuses = True
    answer = assign(leader, *others)
    desk.advance(0.0)
    assert isinstance(answer.value, CoordinatorNotAvailable)
    desk.refuses = False
    again = assign(leader, *others)
    desk.advance(0.0)
    for each, given in zip([leader, *others], [again, *answers], strict=True):
        assert value_of(given).assignment == each.id.encode()


def test_who_asks_again_for_an_assignment_on_its_way_into_records_gets_it() -> None:
    desk, leader, others, answers = joined()
    first = assign(leader, *others)
    desk.engine.on_alarm()
    second = assign(leader, *others)
    desk.advance(0.0)
    assert isinstance(first.value, RebalanceInProgress)
    assert value_of(second).assignment == leader.id.encode()
    assert all(value_of(each) is not None for each in answers)


@pytest.mark.parametrize("alarms", [0, 1, 4])
def test_all_who_wait_hear_of_another_coordinator(alarms: int) -> None:
    desk, leader, others, answers = joined()
    answer = assign(leader, *others)
    for _ in range(alarms):
        desk.engine.on_alarm()
    desk.engine.resign(NotCoordinator("another one is elected"))
    assert all(each.value is not None for each in (answer, *answers))
    given = sum(isinstance(each.value, Synced) for each in answers)
    assert (given > 0) == (alarms == 4)
    assert given < len(answers)
