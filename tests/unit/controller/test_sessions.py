"""Sessions and the limit on fencing storms (controller/DESIGN 3)."""

from __future__ import annotations

import pytest

from paceline.types import NodeId
from paceline_node.controller.liveness import Sessions


def nodes(*numbers: int) -> list[NodeId]:
    return [NodeId(number) for number in numbers]


def test_a_session_ends_after_its_time() -> None:
    sessions = Sessions(4.0)
    sessions.registered(NodeId(0), 10.0)
    assert sessions.alive(NodeId(0), 13.9)
    assert not sessions.alive(NodeId(0), 14.0)
    sessions.heard(NodeId(0), 12.0, 5)
    assert sessions.alive(NodeId(0), 15.9)
    assert sessions.next_expiry(nodes(0)) == 16.0
    assert sessions.next_expiry([]) == float("inf")


def test_proof_of_death_ends_it_at_once() -> None:
    sessions = Sessions(4.0)
    sessions.registered(NodeId(0), 10.0)
    sessions.end(NodeId(0))
    assert not sessions.alive(NodeId(0), 10.0)
    assert sessions.due(nodes(0), 9, 10.0) == (0,)


def test_heard_since() -> None:
    sessions = Sessions(4.0)
    sessions.registered(NodeId(0), 10.0)
    assert sessions.heard_since(NodeId(0), 9.0)
    assert not sessions.heard_since(NodeId(0), 10.0)
    assert not sessions.heard_since(NodeId(1), 0.0)


def test_a_new_controller_gives_everybody_a_full_session() -> None:
    sessions = Sessions(4.0)
    sessions.registered(NodeId(7), 1.0)
    sessions.reset(nodes(0, 1), 100.0)
    assert sessions.alive(NodeId(0), 103.9)
    assert sessions.due(nodes(0, 1), 2, 103.9) == ()
    assert not sessions.alive(NodeId(7), 3.0)


def test_image_offset_never_goes_back_within_a_process() -> None:
    sessions = Sessions(4.0)
    assert sessions.image_offset(NodeId(0)) == 0
    sessions.heard(NodeId(0), 1.0, 9)
    sessions.heard(NodeId(0), 2.0, 7)
    assert sessions.image_offset(NodeId(0)) == 9
    sessions.registered(NodeId(0), 3.0)
    assert sessions.image_offset(NodeId(0)) == 0


def test_shutdown_point_is_where_it_was_first_asked_for() -> None:
    sessions = Sessions(4.0)
    assert sessions.shutdown_point(NodeId(0), 5) == 5
    sessions.registered(NodeId(0), 1.0)
    assert sessions.shutdown_point(NodeId(0), 6) == 6
    assert sessions.shutdown_point(NodeId(0), 9) == 6


def test_a_third_may_expire_at_once() -> None:
    sessions = Sessions(4.0)
    sessions.reset(nodes(0, 1, 2), 0.0)
    sessions.heard(NodeId(0), 3.0, 0)
    sessions.heard(NodeId(1), 3.0, 0)
    assert sessions.due(nodes(0, 1, 2), 3, 4.0) == (2,)


@pytest.mark.parametrize(("total", "per_second"), [(2, 1), (3, 1), (9, 1), (20, 2), (45, 4)])
def test_a_storm_is_slowed_down(total: int, per_second: int) -> None:
    everybody = nodes(*range(total))
    sessions = Sessions(4.0)
    sessions.reset(everybody, 0.0)
    first = sessions.due(everybody, total, 4.0)
    assert first == tuple(everybody[:per_second])
    rest = everybody[per_second:]
    assert sessions.due(rest, total, 4.5) == ()
    assert sessions.next_expiry(rest) == 5.0
    assert sessions.due(rest, total, 5.0)


def test_heartbeats_end_a_storm() -> None:
    everybody = nodes(*range(6))
    sessions = Sessions(4.0)
    sessions.reset(everybody, 0.0)
    assert sessions.due(everybody, 6, 4.0) == (0,)
    for node in everybody[2:]:
        sessions.heard(node, 4.1, 0)
    assert sessions.due(everybody[1:], 6, 5.0) == (1,)


def test_the_longest_silent_go_first() -> None:
    sessions = Sessions(4.0)
    for node, heard in ((0, 3.0), (1, 1.0), (2, 2.0)):
        sessions.registered(NodeId(node), heard)
    assert sessions.due(nodes(0, 1, 2), 3, 10.0) == (1,)
    assert sessions.due(nodes(0, 2), 3, 11.0) == (2,)


def test_postponed_by_what_the_controller_could_not_hear() -> None:
    sessions = Sessions(4.0)
    sessions.reset(nodes(0), 0.0)
    sessions.postpone(3.0)
    assert sessions.due(nodes(0), 9, 6.9) == ()
    assert sessions.due(nodes(0), 9, 7.0) == (0,)
