"""Scripted stories of membership: joining, replacing, removing, healing a wiped voter."""

from __future__ import annotations

import pytest

from paceline.errors import InvalidRequest
from paceline.types import NodeId
from paceline_cluster.sim.raft.durable import member
from paceline_node.controller.raft_leader import Leader
from paceline_node.controller.raft_membership import (
    Surroundings,
    plan,
    with_learner,
    with_voter,
    without,
)
from paceline_node.controller.raft_messages import Append
from paceline_node.controller.raft_types import Config, Role
from tests.sim.raft.script import E, Script


def change(quorum: Script, leader: int, config: Config) -> None:
    quorum.do(leader, lambda core: core.propose_config(config))


def node(number: int) -> NodeId:
    return NodeId(number)


def test_replace_leader() -> None:
    """A learner joins, is promoted, and the old leader leaves; the others go on at once."""
    quorum = Script(3)
    quorum.elect(0)
    quorum.add_empty(3)
    change(quorum, 0, with_learner(quorum[0].core.config, member(3)))
    quorum.tick_all(3)
    change(quorum, 0, with_voter(quorum[0].core.config, node(3)))
    quorum.tick_all(2)
    change(quorum, 0, without(quorum[0].core.config, node(0)))
    quorum.deliver()
    assert quorum[0].role is Role.FOLLOWER
    leaders = [n for n in (1, 2, 3) if quorum[n].role is Role.LEADER]
    assert len(leaders) == 1
    quorum.propose(leaders[0], b"after")
    quorum.deliver()
    assert [quorum[n].values() for n in (1, 2, 3)] == [[b"after"]] * 3


def test_a_leaving_leader_does_not_count_itself() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(0, [2])
    change(quorum, 0, without(quorum[0].core.config, node(0)))
    quorum.deliver()
    # Of the new voters 1 and 2 only 1 has the entry; 0 and 1 are no majority of them.
    assert quorum[0].commit < quorum[0].core.log.config_index
    assert quorum[0].role is Role.LEADER
    quorum.heal()
    quorum.tick_all(2)
    assert quorum[0].role is Role.FOLLOWER
    assert quorum[1].core.log.config_index <= quorum[1].commit


def test_the_only_holder_of_its_own_removal_can_still_win() -> None:
    """Leader 0 of two voters removed itself, stored that alone, and fell: the other cannot win
    against its longer log, so it must campaign although it is no voter any more."""
    quorum = Script(2)
    quorum.elect(0)
    change(quorum, 0, without(quorum[0].core.config, node(0)))
    quorum.wire.clear()
    quorum.crash(0)
    quorum.restart(0)
    for _ in range(8):
        quorum.tick_all(E)
    assert quorum[1].role is Role.LEADER
    assert quorum[1].core.config.voter_ids == {quorum.id(1)}


def test_removed_node_does_not_disrupt() -> None:
    """It never hears that it was removed, and asks for votes for ever."""
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(2)
    change(quorum, 0, without(quorum[0].core.config, node(2)))
    quorum.deliver()
    assert quorum[0].core.log.config_index <= quorum[0].commit
    quorum.heal()
    term = quorum[0].term
    quorum.tick_all(8 * E)
    assert quorum[2].role is Role.PRE_CANDIDATE
    assert quorum[0].role is Role.LEADER
    assert (quorum[0].term, quorum[1].term) == (term, term)


def test_a_change_is_undone_with_its_entry() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(0)
    change(quorum, 0, without(quorum[0].core.config, node(2)))
    assert len(quorum[0].core.config.voters) == 2
    quorum.elect(1)
    quorum.heal()
    quorum.tick_all(3)
    assert quorum[0].role is Role.FOLLOWER
    assert len(quorum[0].core.config.voters) == 3


def test_one_change_at_a_time() -> None:
    quorum = Script(3)
    quorum.elect(0)
    change(quorum, 0, with_learner(quorum[0].core.config, member(3)))
    with pytest.raises(InvalidRequest, match="earlier membership change"):
        change(quorum, 0, with_learner(quorum[0].core.config, member(4)))
    quorum.deliver()
    change(quorum, 0, with_learner(quorum[0].core.config, member(4)))


def test_removal_that_would_stop_the_quorum_is_refused() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.crash(2)
    quorum.tick_all(E + 1)
    with pytest.raises(InvalidRequest, match="1 live voters would remain of 2"):
        change(quorum, 0, without(quorum[0].core.config, node(1)))
    change(quorum, 0, without(quorum[0].core.config, node(2)))
    quorum.deliver()
    assert len(quorum[1].core.config.voters) == 2
    assert quorum[1].core.log.config_index <= quorum[1].commit


def single_server_race(quorum: Script) -> tuple[int, int]:
    """The 2015 counterexample to single-server change. Four voters; leader 0 adds 4 but reaches
    nobody; 1 is elected, removes 0 and commits with 2; 0 is elected again by 4 and 3 and commits
    with its own configuration. Returns the commit index of both sides."""
    quorum.elect(0)
    quorum.add_empty(4)
    change(quorum, 0, with_learner(quorum[0].core.config, member(4)))
    quorum.tick_all(4)
    # 0 adds 4 as a voter: the entry reaches 4 only.
    quorum.cut(0, [1, 2, 3])
    change(quorum, 0, with_voter(quorum[0].core.config, node(4)))
    quorum.deliver()
    # 1 leads by 2 and 3, and takes 0 out; its first entry and the change reach 2 only.
    for other in (1, 2, 3):
        quorum[other].core.state.leader = None
    quorum.do(1, lambda core: core.campaign())
    quorum.deliver(lambda m: not isinstance(m, Append))
    assert quorum[1].role is Role.LEADER
    quorum.wire.clear()
    for voter in (2, 3):
        leadership = quorum[1].core.leadership
        assert leadership is not None
        leadership.progress[quorum.id(voter)].probe(quorum[1].core.log.last_index)
    change(quorum, 1, without(quorum[1].core.config, node(0)))
    quorum.cut(1, [0, 3, 4])
    quorum.tick(1)
    quorum.deliver()
    first = quorum[1].commit
    # 0 leads again by 3 and 4 of its five voters, and commits an entry of its own.
    quorum.heal()
    quorum.cut(0, [1, 2])
    quorum.cut(4, [1, 2])
    quorum.cut(3, [1, 2])
    quorum[3].core.state.leader = None
    quorum[4].core.state.leader = None
    if quorum[0].core.is_leader:
        quorum.tick(0, 2 * E)
    for _ in range(3):
        quorum.do(0, lambda core: core.campaign())
        quorum.deliver()
    return first, quorum[0].commit


def test_single_server_race() -> None:
    """The new leader may not change anything before an entry of its term is committed."""
    with pytest.raises(InvalidRequest, match="this term, is not committed"):
        single_server_race(Script(4))


def test_single_server_race_is_caught_without_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def mutant(self: Leader) -> bool:
        return self._state.log.config_index <= self._state.commit

    monkeypatch.setattr(Leader, "may_change_config", mutant)
    quorum = Script(4)
    first, second = single_server_race(quorum)
    changed = quorum[1].core.log.config_index
    assert first >= changed
    assert second >= changed
    at_first = quorum[1].core.log.entry(changed)
    at_second = quorum[0].core.log.entry(changed)
    # Two different entries are committed at one index.
    assert at_first != at_second


def test_wiped_voter_is_nobody_until_it_is_admitted() -> None:
    """Row 34 of tests/sim/README.md: never votes with amnesia."""
    quorum = Script(3)
    quorum.elect(0)
    quorum.propose(0, b"a")
    quorum.deliver()
    quorum.crash(2)
    quorum.wipe(2)
    quorum.tick_all(4 * E)
    assert quorum[2].core.log.last_index == 0
    assert quorum[2].term == 0
    assert quorum[0].role is Role.LEADER
    # With another voter gone the rest is no majority: the wiped node cannot help out.
    quorum.crash(1)
    quorum.tick_all(3 * E)
    assert quorum[0].role is not Role.LEADER
    assert quorum[2].term == 0


def test_wiped_voter_is_healed() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.propose(0, b"a")
    quorum.deliver()
    quorum.crash(2)
    quorum.wipe(2)
    quorum.tick_all(2)
    steps = 0
    for _ in range(20):
        leadership = quorum[0].core.leadership
        assert leadership is not None
        joining = {node(2): member(2, disk=1)}
        seen = Surroundings(leadership.live(), leadership.caught_up(), joining)
        planned = plan(quorum[0].core.config, seen)
        if planned is not None:
            change(quorum, 0, planned)
            steps += 1
        quorum.tick_all(2)
    assert steps == 2
    assert quorum[0].core.config.voter_ids == {quorum.id(0), quorum.id(1), quorum.id(2)}
    assert quorum[0].core.config.learners == ()
    quorum.crash(1)
    quorum.propose(0, b"b")
    quorum.deliver()
    assert quorum[2].commit == quorum[0].commit


def test_messages_for_the_old_disk_are_dropped() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.propose(0, b"a")
    meant_for_old = [m for m in quorum.wire if m.to.node == 2]
    assert meant_for_old
    quorum.wipe(2)
    for message in meant_for_old:
        quorum.hand_over(message)
    assert quorum[2].core.log.last_index == 0


def test_learner_catches_up_by_snapshot_and_log() -> None:
    quorum = Script(1)
    quorum.elect(0)
    for i in range(30):
        quorum.propose(0, b"%d" % i)
    quorum.compact(0)
    quorum.add_empty(1)
    change(quorum, 0, with_learner(quorum[0].core.config, member(1)))
    quorum.tick_all(40)
    leadership = quorum[0].core.leadership
    assert leadership is not None
    assert quorum[1].core.log.last_index == quorum[0].core.log.last_index
    assert leadership.caught_up() == {quorum.id(1)}
    assert quorum[1].core.config.learners == (member(1),)
