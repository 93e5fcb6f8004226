"""What a rebalance of a large group costs: counted in steps, for time depends on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

import pytest

from paceline_node.groups.limits import GroupLimits
from paceline_node.groups.offsets import Commit
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
    assert all(value_of(answer) is not None for answer in waiting)
    newcomer = Client(desk)
    for client in (newcomer, *clients):
        client.ask()
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
