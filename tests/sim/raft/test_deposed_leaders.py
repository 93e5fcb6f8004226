"""A leader that was deposed without knowing it, and a voter that has forgotten who deposed it
(controller/RAFT 2.9), message by message.

Node 2 leads and is stopped, or cut off; 0 and 1 elect 1, which commits ``late``. Then the disk of 0
goes back in time, and 0 hears 2 before anybody else.
"""

from __future__ import annotations

import pytest

from paceline_node.controller.raft import TERMS_AHEAD
from paceline_node.controller.raft_messages import (
    Append,
    AppendResponse,
    Grant,
    TimeoutNow,
    VoteKind,
)
from paceline_node.controller.raft_types import RaftTiming, Role
from tests.sim.raft.script import E, Script

PATIENCE = 4 * E
PATIENT = RaftTiming(0.05, 1, E, PATIENCE)


def tick_only(quorum: Script, numbers: tuple[int, ...], count: int) -> None:
    """Time passes for these; the others are stopped."""
    for _ in range(count):
        for number in numbers:
            quorum.tick(number)
        quorum.deliver()


def leading(quorum: Script) -> int:
    (leader,) = (n for n, node in quorum.nodes.items() if n != 1 and node.role is Role.LEADER)
    return leader


def deposed(how: str) -> Script:
    """Node 2 believes to lead, 0 has started on an old copy, and 1 is cut off."""
    quorum = Script(3, timing=PATIENT)
    quorum.elect(2)
    quorum.propose(2, b"early")
    quorum.tick_all(PATIENCE + 1)
    copy = quorum.copy_of(0)
    if how == "stopped":
        quorum.cut(2)
        quorum.elect(1)
    else:
        quorum.do(2, lambda core: core.transfer(quorum.id(1)))
        quorum.settle(2)
        quorum.deliver(lambda message: isinstance(message, TimeoutNow))
        quorum.cut(2)
        quorum.deliver()
    assert quorum[1].role is Role.LEADER
    quorum.propose(1, b"late")
    tick_only(quorum, (0, 1), 3)
    assert [quorum[number].values() for number in (0, 1)] == 2 * [[b"early", b"late"]]
    quorum.crash(0)
    quorum.age(0, copy)
    quorum.heal()
    quorum.cut(1)
    assert quorum[2].role is Role.LEADER
    return quorum


@pytest.mark.parametrize("how", ["stopped", "handed over"])
def test_who_forgot_who_leads_is_no_majority_with_the_leader_of_before(how: str) -> None:
    quorum = deposed(how)
    quorum.do(2, lambda core: core.read_index(7))
    quorum.tick_all(E)
    quorum.propose(2, b"other")
    quorum.tick_all(PATIENCE - E - 1)
    assert quorum[0].leader == 2
    assert b"other" not in quorum[2].values()
    assert quorum[2].reads == []
    quorum.heal()
    quorum.tick_all(4 * E)
    assert [quorum[n].values() for n in (0, 1, 2)] == 3 * [[b"early", b"late"]]
    assert {read.index for read in quorum[2].reads} == {-1}


@pytest.mark.parametrize("how", ["stopped", "handed over"])
def test_nor_is_its_vote_a_sure_one(how: str) -> None:
    quorum = deposed(how)
    quorum.tick_all(3)
    assert quorum[0].leader == 2
    assert quorum[0].core.state.word() is Grant.WAITS


def test_time_ends_the_wait_in_a_term_that_goes_far_ahead() -> None:
    """So who was waited for stands apart when it comes back, and disturbs nobody."""
    quorum = deposed("stopped")
    quorum.propose(2, b"other")
    quorum.tick_all(PATIENCE + 3 * E)
    leader = leading(quorum)
    quorum.propose(leader, b"more")
    quorum.tick_all(2)
    assert quorum[2].values() == quorum[0].values() == [b"early", b"other", b"more"]
    assert {quorum[number].core.state.word() for number in (0, 2)} == {Grant.SURE}
    assert quorum[leader].term > quorum[1].term + TERMS_AHEAD / 2
    quorum.heal()
    quorum.tick_all(4 * E)
    assert quorum[1].core.state.apart is not None
    assert quorum[1].values() == [b"early", b"late"]
    assert quorum[leader].role is Role.LEADER


def test_who_is_heard_again_at_the_last_moment_is_not_overtaken() -> None:
    """Node 0 is patient no more when it hears 2; 1 is heard with it."""
    quorum = deposed("stopped")
    quorum.cut(2)
    tick_only(quorum, (0, 1), PATIENCE + 1)
    quorum.heal()
    quorum.wire.clear()
    quorum.propose(2, b"other")
    quorum.deliver(lambda message: 1 not in (message.sender.node, message.to.node))
    assert quorum[2].values() == [b"early"]
    quorum.tick_all(4 * E)
    assert [quorum[n].values() for n in (0, 1, 2)] == 3 * [[b"early", b"late"]]


def test_a_restart_costs_nothing_while_all_are_there() -> None:
    quorum = Script(3, timing=PATIENT)
    quorum.elect(2)
    quorum.tick_all(3)
    quorum.restart(0)
    quorum.tick_all(2)
    assert quorum[0].core.state.word() is Grant.SURE
    quorum.cut(1)
    quorum.propose(2, b"more")
    quorum.tick_all(1)
    assert b"more" in quorum[2].values()


def test_two_that_start_again_wait_for_each_other_only() -> None:
    quorum = Script(3, timing=PATIENT)
    quorum.elect(2)
    quorum.tick_all(3)
    for number in (0, 1):
        quorum.restart(number)
    quorum.propose(2, b"more")
    quorum.tick_all(3)
    assert b"more" in quorum[2].values()
    assert {quorum[number].core.state.word() for number in (0, 1)} == {Grant.SURE}


def test_a_minority_that_is_dead_makes_a_restart_cost_the_patience() -> None:
    quorum = Script(3, timing=PATIENT)
    quorum.elect(2)
    quorum.tick_all(3)
    quorum.crash(1)
    for _ in range(2):
        quorum.restart(0)
        leader = leading(quorum)
        before = quorum[leader].commit
        quorum.propose(leader, b"more")
        quorum.tick_all(PATIENCE - 1)
        assert quorum[leader].role is Role.LEADER
        assert quorum[leader].commit == before
        quorum.tick_all(3 * E)
        assert quorum[leading(quorum)].commit > before
        assert quorum[0].core.state.word() is Grant.SURE


def test_answers_of_a_process_that_is_over_do_not_make_the_next_one_sure() -> None:
    quorum = Script(3, timing=PATIENT)
    quorum.elect(2)
    quorum.tick_all(3)
    late: list[AppendResponse] = []
    quorum.tick(2)
    quorum.deliver(lambda message: isinstance(message, Append))
    late += [m for m in quorum.wire if isinstance(m, AppendResponse) and m.sender.node == 0]
    assert [answer.word for answer in late] == [Grant.SURE]
    quorum.wire.clear()
    quorum.crash(1)
    quorum.restart(0)
    quorum.tick_all(1)
    quorum.hand_over(late[0])
    quorum.propose(2, b"more")
    quorum.tick_all(3)
    assert b"more" not in quorum[2].values()


def test_a_vote_that_was_forgotten_counts_once_among_five() -> None:
    """Node 4 voted for 1, whose votes are still under way when 4 starts on an old copy, follows 0
    and a majority with it, and is asked for a vote in the same term by 3."""
    quorum = Script(5, timing=PATIENT)
    quorum.elect(0)
    quorum.tick_all(PATIENCE + 1)
    copy = quorum.copy_of(4)
    for number in (1, 2, 3, 4):
        quorum[number].core.state.leader = None
    quorum.do(1, lambda core: core.campaign())
    quorum.deliver(lambda message: message.kind is VoteKind.PRE)
    quorum.deliver(lambda message: {message.sender.node, message.to.node} == {1, 4})
    term = quorum[1].term
    assert (quorum[1].role, quorum[4].term) == (Role.CANDIDATE, term)
    quorum.crash(4)
    quorum.age(4, copy)
    late, quorum.wire = quorum.wire, []
    quorum.cut(1)
    quorum.tick(0)
    quorum.deliver()
    quorum.tick(0)
    quorum.deliver()
    assert quorum[4].leader == 0
    quorum.cut(2)
    quorum.propose(0, b"late")
    quorum.tick(0, 2)
    quorum.deliver()
    assert b"late" not in quorum[0].values(), "nor does it count for a leader"
    quorum.heal()
    quorum.cut(0)
    quorum.tick(0, 2 * E)
    assert quorum[0].role is not Role.LEADER
    quorum.heal()
    quorum[2].core.state.leader = None
    quorum.hand_over(next(message for message in late if message.to.node == 2))
    quorum.deliver(lambda message: message.to.node == 1 and message.sender.node == 2)
    assert quorum[1].role is Role.LEADER
    quorum.wire = []
    quorum.cut(1)
    quorum.cut(2)
    for number in (0, 3, 4):
        quorum[number].core.state.leader = None
    quorum.do(3, lambda core: core.campaign())
    quorum.deliver()
    assert quorum[3].role is Role.PRE_CANDIDATE
    tick_only(quorum, (0, 3, 4), PATIENCE + 2 * E)
    (leader,) = (number for number in (0, 3, 4) if quorum[number].role is Role.LEADER)
    assert quorum[leader].term > term
    quorum.heal()
    tick_only(quorum, (0, 1, 2, 3, 4), 2 * E)
    assert quorum[4].core.state.word() is Grant.SURE
