"""Scripted stories of elections, leases and safety; each message is delivered by hand.

The list: etcd's interaction tests, Raft's figure 8, vote amnesia and the
like. Replication, snapshots and membership have their own files.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline_cluster.sim.raft.durable import member_id
from paceline_node.controller.raft_leader import Leader
from paceline_node.controller.raft_messages import (
    Append,
    AppendResponse,
    Grant,
    RaftMessage,
    TimeoutNow,
    VoteKind,
    VoteRequest,
    VoteResponse,
)
from paceline_node.controller.raft_progress import majority_index
from paceline_node.controller.raft_types import UNKNOWN_ENTRY, MemberId, Role
from tests.sim.raft.script import E, Script

NEWS = (UNKNOWN_ENTRY, False, 1)
"""Of voters: none."""


def test_election_and_first_commit() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.propose(0, b"a")
    quorum.deliver()
    assert [quorum[n].role for n in range(3)] == [Role.LEADER, Role.FOLLOWER, Role.FOLLOWER]
    assert [quorum[n].values() for n in range(3)] == [[b"a"]] * 3
    assert [quorum[n].leader for n in range(3)] == [0, 0, 0]


def test_one_voter_leads_alone() -> None:
    quorum = Script(1)
    quorum.tick(0, 2 * E)
    assert quorum[0].role is Role.LEADER
    quorum.propose(0, b"a")
    assert quorum[0].values() == [b"a"]


def test_a_node_without_data_never_founds_a_quorum() -> None:
    quorum = Script(1)
    quorum.add_empty(5)
    quorum.tick(5, 10 * E)
    assert quorum[5].role is Role.FOLLOWER
    assert quorum.wire == []


def test_check_quorum_deposes_a_cut_off_leader() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(0)
    quorum.tick(0, E - 1)
    assert quorum[0].role is Role.LEADER
    quorum.tick(0, 2)
    assert quorum[0].role is not Role.LEADER
    assert quorum[0].term == 2


def test_prevote_keeps_the_term_of_a_partitioned_node() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(2)
    quorum.tick(2, 20 * E)
    quorum.deliver()
    assert quorum[2].role is Role.PRE_CANDIDATE
    assert quorum[2].term == 2
    quorum.heal()
    quorum.tick_all(2)
    assert quorum[0].role is Role.LEADER
    assert quorum[0].term == 2
    assert quorum[2].leader == 0


def test_followers_of_a_live_leader_ignore_candidates() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.do(2, lambda core: core.campaign())
    quorum.deliver()
    assert quorum[2].role is Role.PRE_CANDIDATE
    request = VoteRequest(quorum.id(2), quorum.id(1), 9, VoteKind.REAL, 99, 8, *NEWS)
    quorum.do(1, lambda core: core.step(request))
    assert quorum[1].term == 2
    assert quorum.wire == []
    forced = VoteRequest(quorum.id(2), quorum.id(1), 9, VoteKind.FORCED, 99, 8, *NEWS)
    quorum.do(1, lambda core: core.step(forced))
    assert quorum[1].term == 9
    assert quorum[1].core.state.vote == quorum.id(2)


def test_a_node_stuck_in_a_higher_term_is_freed() -> None:
    """etcd: prevote with check quorum. Its refusal of the leader's Append brings a new term."""
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(2)
    quorum.do(2, lambda core: core.campaign(VoteKind.FORCED))
    quorum.deliver()
    assert quorum[2].term == 3
    quorum.heal()
    quorum.tick_all(4 * E)
    leaders = [node.number for node in quorum.nodes.values() if node.role is Role.LEADER]
    assert len(leaders) == 1
    assert {node.term for node in quorum.nodes.values()} == {quorum[leaders[0]].term}
    assert quorum[leaders[0]].term >= 3


def test_learner_asked_to_vote_must_vote() -> None:
    """Its configuration may be older than the candidate's, which knows it as a voter."""
    quorum = Script(3, learners=[3])
    quorum.elect(0)
    quorum[3].core.state.leader = None
    request = VoteRequest(quorum.id(1), quorum.id(3), 7, VoteKind.REAL, 50, 6, *NEWS)
    quorum.do(3, lambda core: core.step(request))
    answers = [message for message in quorum.wire if isinstance(message, VoteResponse)]
    assert [answer.grant for answer in answers] == [Grant.SURE]
    assert quorum[3].durable.hard_state.vote == quorum.id(1)


def forced_vote(quorum: Script, voter: MemberId, *, life: int) -> None:
    """Member 0 hears a vote of this voter for this process of it."""
    response = VoteResponse(
        voter, quorum.id(0), 2, VoteKind.FORCED, Grant.SURE, 1, 0, 0, 0, 0, candidate_life=life
    )
    quorum.do(0, lambda core: core.step(response))


def test_votes_of_strangers_do_not_count() -> None:
    quorum = Script(3)
    quorum.cut(0)
    quorum.do(0, lambda core: core.campaign(VoteKind.FORCED))
    life = quorum[0].core.state.life
    for stranger in (member_id(1, disk=1), member_id(7), member_id(2, disk=4)):
        forced_vote(quorum, stranger, life=life)
    assert quorum[0].role is Role.CANDIDATE


def test_a_vote_for_an_earlier_process_does_not_count() -> None:
    """It asked with a log that this one may not have any more."""
    quorum = Script(3)
    quorum.cut(0)
    quorum.do(0, lambda core: core.campaign(VoteKind.FORCED))
    life = quorum[0].core.state.life
    forced_vote(quorum, quorum.id(1), life=life + 1)
    assert quorum[0].role is Role.CANDIDATE
    forced_vote(quorum, quorum.id(1), life=life)
    assert quorum[0].role is Role.LEADER


def test_a_log_that_is_behind_wins_no_votes() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(2)
    quorum.propose(0, b"a")
    quorum.deliver()
    quorum.heal()
    quorum.crash(0)
    quorum[1].core.state.leader = None
    quorum.do(2, lambda core: core.campaign())
    quorum.deliver()
    assert quorum[2].role is not Role.LEADER
    quorum.elect(1)
    assert quorum[1].values() == [b"a"]


def test_vote_amnesia() -> None:
    """A vote leaves only after it is stored; a crash before that forgets a vote nobody saw."""
    quorum = Script(3)
    quorum.hold = {2}
    first = VoteRequest(quorum.id(0), quorum.id(2), 5, VoteKind.REAL, 1, 1, *NEWS)
    quorum.do(2, lambda core: core.step(first))
    assert quorum.wire == []
    quorum.crash(2)
    quorum.restart(2)
    second = VoteRequest(quorum.id(1), quorum.id(2), 5, VoteKind.REAL, 1, 1, *NEWS)
    quorum.do(2, lambda core: core.step(second))
    quorum.persist(2)
    assert [type(message) for message in quorum.wire] == [VoteResponse]
    quorum.crash(2)
    quorum.restart(2)
    third = VoteRequest(quorum.id(0), quorum.id(2), 5, VoteKind.REAL, 1, 1, *NEWS)
    quorum.do(2, lambda core: core.step(third))
    quorum.persist(2)
    answer = quorum.wire[-1]
    assert isinstance(answer, VoteResponse)
    assert answer.grant is Grant.REFUSED


def test_candidate_counts_its_own_vote_when_it_is_stored() -> None:
    quorum = Script(1)
    quorum.hold = {0}
    quorum.tick(0, 2 * E)
    assert quorum[0].role is Role.CANDIDATE
    quorum.persist(0)
    assert quorum[0].role is Role.LEADER


def test_leader_counts_itself_by_its_synced_index() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.hold = {0}
    quorum.cut(0, [2])
    quorum.propose(0, b"a")
    quorum.deliver()
    index = quorum[0].core.log.last_index
    assert quorum[1].durable.last_index == index
    assert quorum[0].commit == index - 1
    quorum.persist(0)
    assert quorum[0].commit == index


def test_figure_8() -> None:
    """(c) to (d): an entry of an old term on a majority is not committed by counting, because a
    leader with a newer last entry may still replace it."""
    assert run_figure_8() == (True, True)


def test_figure_8_is_caught_without_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def mutant(self: Leader) -> None:
        state = self._state
        matches = [
            state.log.stable_index if voter == state.me else self.progress[voter].match
            for voter in state.log.config.voter_ids
        ]
        state.commit_to(max(state.commit, majority_index(matches)))

    monkeypatch.setattr(Leader, "advance_commit", mutant)
    assert run_figure_8() == (False, False)


def run_figure_8() -> tuple[bool, bool]:
    """Whether the old entry stayed uncommitted on the majority, and nobody lost a commit."""
    quorum = Script(5)
    quorum.elect(0)
    # (a) term 2: the old entry reaches node 1 only.
    quorum.cut(0, [2, 3, 4])
    quorum.propose(0, b"old")
    quorum.deliver()
    old = quorum[0].core.log.last_index
    quorum.crash(0)
    quorum.heal()
    # (b) term 3: node 4 leads by the votes of 2 and 3, and keeps its first entry to itself.
    quorum.cut(4, [1])
    for number in (1, 2, 3):
        quorum[number].core.state.leader = None
    quorum.do(4, lambda core: core.campaign())
    quorum.deliver(lambda message: not isinstance(message, Append))
    assert quorum[4].role is Role.LEADER
    quorum.wire.clear()
    quorum.crash(4)
    quorum.heal()
    # (c) node 0 leads again; the old entry reaches a majority, its own first entry does not.
    quorum.restart(0)
    for number in (1, 2, 3):
        quorum[number].core.state.leader = None
    quorum.do(0, lambda core: core.campaign())
    quorum.deliver(lambda message: not isinstance(message, Append))
    if quorum[0].role is not Role.LEADER:
        quorum.do(0, lambda core: core.campaign())
        quorum.deliver(lambda message: not isinstance(message, Append))
    assert quorum[0].role is Role.LEADER
    quorum.wire.clear()
    quorum.tick(0)
    for _ in range(6):
        trimmed = [cut_behind(message, old) for message in quorum.wire]
        quorum.wire = [message for message in trimmed if message.to.node in (0, 1, 2)]
        for message in quorum.wire[:]:
            quorum.wire.remove(message)
            quorum.hand_over(message)
        quorum.tick(0)
    holders = [n for n in (0, 1, 2) if quorum[n].durable.has(old, 2)]
    assert holders == [0, 1, 2]
    stayed = quorum[0].commit < old
    # (d) node 4 comes back and is elected by 3 and by what is left: its entry replaces the old.
    quorum.crash(0)
    quorum.wire.clear()
    quorum.restart(4)
    for number in (1, 2, 3):
        quorum[number].core.state.leader = None
    for _ in range(3):
        quorum.do(4, lambda core: core.campaign())
        quorum.deliver(lambda message: not isinstance(message, Append))
    assert quorum[4].role is Role.LEADER
    quorum.tick_all(4)
    return stayed, all(node.core.state.apart is None for node in quorum.nodes.values())


def cut_behind(message: RaftMessage, last: int) -> RaftMessage:
    """An Append without the entries behind ``last``: they were in a packet that got lost."""
    if not isinstance(message, Append):
        return message
    return replace(message, entries=tuple(e for e in message.entries if e.index <= last))


def test_transfer() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.propose(0, b"a")
    quorum.do(0, lambda core: core.transfer(quorum.id(2)))
    quorum.deliver()
    assert quorum[2].role is Role.LEADER
    assert quorum[2].term == 3
    assert quorum[0].leader == 2
    assert quorum[2].values() == [b"a"]


def test_transfer_waits_for_a_target_that_is_behind() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(2)
    quorum.propose(0, b"a", b"b")
    quorum.deliver()
    quorum.do(0, lambda core: core.transfer(quorum.id(2)))
    assert not any(isinstance(message, TimeoutNow) for message in quorum.wire)
    quorum.heal()
    quorum.tick_all(1)
    assert quorum[2].role is Role.LEADER


def test_transfer_to_a_dead_node_is_given_up() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.crash(2)
    quorum.do(0, lambda core: core.transfer(quorum.id(2)))
    with pytest.raises(Exception, match="leadership is moving"):
        quorum.propose(0, b"refused")
    quorum.tick_all(E)
    assert quorum[0].role is Role.LEADER
    quorum.propose(0, b"taken")
    quorum.deliver()
    assert quorum[1].values() == [b"taken"]


def test_proof_of_death_elects_at_once() -> None:
    """Both survivors learn of the death at the same moment, and no clock ticks
    (controller/RAFT 2.5)."""
    quorum = Script(3)
    quorum.elect(0)
    quorum.crash(0)
    quorum.do(1, lambda core: core.peer_refused(quorum.id(0).node))
    quorum.do(2, lambda core: core.peer_refused(quorum.id(0).node))
    quorum.deliver()
    assert quorum[1].role is Role.LEADER
    assert quorum[2].leader == 1


@pytest.mark.parametrize("first", [1, 2])
def test_proof_of_death_reaches_one_before_the_other(first: int) -> None:
    """The first request is ignored by a node that still believes in the leader; when that one
    learns of the death the two agree without waiting for a clock."""
    quorum = Script(3)
    quorum.elect(0)
    quorum.crash(0)
    second = 3 - first
    quorum.do(first, lambda core: core.peer_refused(quorum.id(0).node))
    quorum.deliver()
    assert quorum[first].role is Role.PRE_CANDIDATE
    quorum.do(second, lambda core: core.peer_refused(quorum.id(0).node))
    quorum.deliver()
    assert sorted(node.role.value for node in quorum.nodes.values() if node.number) == [
        "follower",
        "leader",
    ]


def test_the_longer_log_wins_when_both_know_of_the_death() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(1)
    quorum.propose(0, b"a")
    quorum.deliver()
    quorum.heal()
    quorum.crash(0)
    quorum.do(1, lambda core: core.peer_refused(quorum.id(0).node))
    quorum.do(2, lambda core: core.peer_refused(quorum.id(0).node))
    quorum.deliver()
    assert quorum[2].role is Role.LEADER
    assert quorum[1].values() == [b"a"]


def test_refusal_by_a_follower_changes_nothing_for_others() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.crash(2)
    quorum.do(1, lambda core: core.peer_refused(quorum.id(2).node))
    quorum.do(0, lambda core: core.peer_refused(quorum.id(2).node))
    quorum.deliver()
    assert quorum[0].role is Role.LEADER
    assert quorum[1].leader == 0
    leadership = quorum[0].core.leadership
    assert leadership is not None
    assert quorum.id(2) not in leadership.live()


def test_a_wrong_proof_is_corrected_by_the_next_heartbeat() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.do(1, lambda core: core.peer_refused(quorum.id(0).node))
    quorum.tick_all(2)
    assert quorum[0].role is Role.LEADER
    assert quorum[0].term == 2
    assert quorum[1].leader == 0


def test_a_read_needs_a_majority_of_this_moment() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.propose(0, b"a")
    quorum.deliver()
    quorum.do(0, lambda core: core.read_index(1))
    assert quorum[0].reads == []
    quorum.deliver()
    assert [(read.context, read.index) for read in quorum[0].reads] == [(1, quorum[0].commit)]
    quorum.cut(0)
    quorum.do(0, lambda core: core.read_index(2))
    quorum.deliver()
    assert len(quorum[0].reads) == 1
    quorum.tick(0, 2 * E)
    assert [(read.context, read.index) for read in quorum[0].reads[1:]] == [(2, -1)]


def test_a_read_waits_for_the_first_commit_of_the_term() -> None:
    quorum = Script(3)
    quorum.hold = {0, 1, 2}
    quorum.do(0, lambda core: core.campaign())
    quorum.persist(0)
    quorum.deliver()
    for _ in range(4):
        quorum.persist(1)
        quorum.persist(0)
        quorum.deliver(lambda message: not isinstance(message, Append))
    assert quorum[0].role is Role.LEADER
    quorum.do(0, lambda core: core.read_index(7))
    assert quorum[0].reads == []
    quorum.hold = set()
    for number in range(3):
        quorum.persist(number)
    quorum.deliver()
    assert [read.context for read in quorum[0].reads] == [7]
    assert quorum[0].reads[0].index >= 2


def test_old_leader_hears_of_its_deposition() -> None:
    """It finds out from a refusal that carries the newer term, not only by its own clock."""
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(0)
    quorum.elect(1)
    quorum.heal()
    quorum.do(0, lambda core: core.tick())
    quorum.deliver()
    assert quorum[0].role is Role.FOLLOWER
    assert quorum[0].term == quorum[1].term


def test_duplicated_and_late_answers_are_harmless() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.propose(0, b"a")
    seen: list[AppendResponse] = []

    def remember(message: object) -> bool:
        if isinstance(message, AppendResponse):
            seen.append(message)
        return True

    quorum.deliver(remember)
    commit = quorum[0].commit
    quorum.propose(0, b"b")
    quorum.wire.clear()
    for message in seen * 3:
        quorum.hand_over(message)
    assert quorum[0].commit == commit
