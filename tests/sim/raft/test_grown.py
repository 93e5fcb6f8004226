"""The disk of a voter goes back to before others voted, or to before one of them left; and rules
broken, which seeds must find. PACELINE_SEEDS as in test_random.py, a quarter of them to find
broken rules, an eighth to find none."""

from __future__ import annotations

import os

import pytest

from paceline_cluster.sim.raft.checks import Violation
from paceline_cluster.sim.raft.durable import Durable, member
from paceline_cluster.sim.raft.grown import simulate_grown
from paceline_node.controller import raft, raft_ballot
from paceline_node.controller.raft_ballot import Ballot
from paceline_node.controller.raft_membership import with_learner, with_voter, without
from paceline_node.controller.raft_messages import Append
from paceline_node.controller.raft_types import (
    Apart,
    Config,
    EntryAt,
    MemberId,
    Outlived,
    RaftTiming,
    Role,
)
from tests.sim.raft.script import E, Script

SEEDS = max(1, int(os.environ.get("PACELINE_SEEDS", "200")) // 4)
RUNS = max(1, SEEDS // 2)
FIRST = int(os.environ.get("PACELINE_FIRST_SEED", "0"))
PATIENCE = 4 * E
PATIENT = RaftTiming(0.05, 1, E, PATIENCE)


def test_the_disk_of_the_first_voter_is_old() -> None:
    worlds = [simulate_grown(seed) for seed in range(FIRST, FIRST + RUNS)]
    if RUNS >= 25:
        assert sum(bool(world.checker.false_terms) for world in worlds) > len(worlds) / 4


def is_caught(seeds: int, *, first: int = 0) -> bool:
    for seed in range(first, first + seeds):
        try:
            simulate_grown(seed)
        except Violation:
            return True
    return False


def test_a_leader_without_the_newest_voters_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft, "lacks_voters", lambda *_: False)
    assert is_caught(SEEDS, first=22)


def test_a_lone_voter_leads_in_the_next_term(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raft, "TERMS_AHEAD", 0)
    monkeypatch.setattr(Ballot, "knows_every_term", lambda *_: True)
    assert is_caught(SEEDS, first=10)


def test_two_ask_those_who_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    def voters_of_two(config: Config) -> frozenset[MemberId]:
        voters = frozenset(config.voter_ids)
        return voters if len(voters) > 1 else frozenset(config.member_ids)

    monkeypatch.setattr(raft_ballot, "_everybody", voters_of_two)
    assert is_caught(SEEDS)


def test_who_stood_apart_goes_on_with_those_who_know_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(raft, "refutes", lambda *_: False)
    assert is_caught(SEEDS, first=260)


# --- message by message ---------------------------------------------------------------------------


def change(quorum: Script, leader: int, config: Config) -> None:
    quorum.do(leader, lambda core: core.propose_config(config))
    quorum.deliver()
    quorum.tick_all(2)


def grown(voters: int) -> tuple[Script, Durable]:
    """Node 0 voted alone and let others vote; its disk before that."""
    quorum = Script(1, learners=range(1, voters), timing=PATIENT)
    quorum.elect(0)
    quorum.tick_all(2)
    copy = quorum.copy_of(0)
    for number in range(1, voters):
        change(quorum, 0, with_voter(quorum[0].core.config, member(number).node_id))
    assert len(quorum[0].core.config.voters) == voters
    quorum.propose(0, b"known")
    quorum.deliver()
    quorum.tick_all(2)
    return quorum, copy


def back_on(quorum: Script, copy: Durable) -> None:
    """Node 0 starts on the old copy, and leads by itself."""
    quorum.age(0, copy)
    quorum.do(0, lambda core: core.campaign())
    quorum.tick(0, PATIENCE + E)
    assert quorum[0].role is Role.LEADER
    quorum.propose(0, b"false")


def leaders(quorum: Script) -> list[int]:
    return [n for n, node in quorum.nodes.items() if node.role is Role.LEADER]


def test_those_who_know_better_go_on_without_it() -> None:
    quorum, copy = grown(3)
    quorum.crash(0)
    quorum.elect(1)
    quorum.tick_all(E)
    back_on(quorum, copy)
    quorum.tick_all(4 * E)
    leader = next(n for n in leaders(quorum) if n != 0)
    quorum.propose(leader, b"on")
    quorum.deliver()
    quorum.tick_all(2)
    assert leaders(quorum) == [leader]
    for number in (1, 2):
        assert quorum[number].values() == [b"known", b"on"]
        assert quorum[number].core.state.apart is None
    assert isinstance(quorum[0].core.state.apart, Outlived)


def test_they_elect_though_it_leads_already() -> None:
    quorum, copy = grown(3)
    for number in (0, 1, 2):
        quorum.crash(number)
    quorum.wire.clear()
    back_on(quorum, copy)
    quorum.restart(1)
    quorum.restart(2)
    quorum.tick_all(PATIENCE + 4 * E)
    assert leaders(quorum) in ([1], [2])
    assert isinstance(quorum[0].core.state.apart, Outlived)


def test_a_removed_voter_and_an_old_copy_are_no_majority() -> None:
    quorum = Script(3, learners=[3], timing=PATIENT)
    quorum.elect(0)
    quorum.tick_all(2)
    copy = quorum.copy_of(0)
    quorum.crash(2)
    change(quorum, 0, without(quorum[0].core.config, member(2).node_id))
    change(quorum, 0, with_voter(quorum[0].core.config, member(3).node_id))
    quorum.propose(0, b"known")
    quorum.deliver()
    quorum.tick_all(2)
    for number in (0, 1, 3):
        quorum.crash(number)
    quorum.wire.clear()
    quorum.age(0, copy)
    quorum.restart(2)
    quorum.tick_all(PATIENCE + 4 * E)
    assert leaders(quorum) in ([0], [2]), "nobody was there who knew better"
    quorum.restart(1)
    quorum.restart(3)
    quorum.tick_all(PATIENCE + 6 * E)
    leader = next(n for n in leaders(quorum) if n in (1, 3))
    quorum.propose(leader, b"on")
    quorum.deliver()
    quorum.tick_all(2)
    assert [quorum[n].values()[-2:] for n in (1, 3)] == 2 * [[b"known", b"on"]]
    assert quorum[0].core.state.apart is not None


def test_a_lone_voter_hears_of_others_who_cannot_elect_without_it() -> None:
    quorum, copy = grown(2)
    for number in (0, 1):
        quorum.crash(number)
    quorum.wire.clear()
    back_on(quorum, copy)
    quorum.restart(1)
    quorum.tick_all(PATIENCE + 4 * E)
    assert leaders(quorum) == []
    assert quorum[0].core.state.apart == Outlived(quorum.id(1), 3)
    assert quorum[1].core.log.config.voter_ids == {quorum.id(0), quorum.id(1)}


@pytest.mark.parametrize(("newer", "remains"), [(0, Role.LEADER), (1, Role.FOLLOWER)])
def test_two_leaders_of_one_term(newer: int, remains: Role) -> None:
    quorum = Script(3, timing=PATIENT)
    quorum.elect(0)
    core = quorum[0].core
    since = EntryAt(1 + newer, core.state.term)
    other = Append(quorum.id(1), quorum.id(0), core.state.term, 1, 1, 1, 1, 0, since)
    quorum.do(0, lambda core: core.step(other))
    assert quorum[0].role is remains
    assert core.state.leader in (None, quorum.id(0))


def test_learners_change_no_voters() -> None:
    quorum, _ = grown(3)
    log = quorum[0].core.log
    before = log.newest_voters_since
    quorum.add_empty(7)
    change(quorum, 0, with_learner(log.config, member(7)))
    assert log.newest_voters_since == before
    assert log.snapshot_at(log.last_index, b"").voters_since == before


def with_two_voters_once() -> tuple[Script, Durable]:
    """Of {0, 1} and a learner, 1 goes before it hears that 2 votes; 0 and 2 go on. The disk of 0
    from before that."""
    quorum = Script(2, learners=[2], timing=PATIENT)
    quorum.elect(0)
    quorum.tick_all(2)
    copy = quorum.copy_of(0)
    quorum.crash(1)
    change(quorum, 0, with_voter(quorum[0].core.config, member(2).node_id))
    quorum.propose(0, b"known")
    quorum.deliver()
    quorum.tick_all(2)
    assert quorum[2].values() == [b"known"]
    for number in (0, 2):
        quorum.crash(number)
    quorum.wire.clear()
    return quorum, copy


@pytest.mark.parametrize("late", [0, 1, E, PATIENCE - 2 * E])
def test_two_wait_for_a_third_who_may_vote_since(late: int) -> None:
    quorum, copy = with_two_voters_once()
    quorum.age(0, copy)
    quorum.restart(1)
    for number in (0, 1):
        quorum.do(number, lambda core: core.campaign())
    quorum.tick_all(late)
    quorum.restart(2)
    quorum.do(2, lambda core: core.campaign())
    quorum.tick_all(PATIENCE + 4 * E)
    assert [quorum[n].values() for n in (0, 1, 2)] == 3 * [[b"known"]]


def test_two_do_not_wait_for_ever() -> None:
    quorum, copy = with_two_voters_once()
    quorum.age(0, copy)
    quorum.restart(1)
    quorum.tick_all(PATIENCE + 4 * E)
    assert leaders(quorum) in ([0], [1])


def test_who_may_vote_since_is_heard_by_many_voters() -> None:
    quorum = Script(3, learners=[3, 4], timing=PATIENT)
    quorum.elect(0)
    quorum.tick_all(2)
    copy = quorum.copy_of(0)
    quorum.crash(1)
    change(quorum, 0, with_voter(quorum[0].core.config, member(3).node_id))
    change(quorum, 0, with_voter(quorum[0].core.config, member(4).node_id))
    quorum.propose(0, b"known")
    quorum.deliver()
    quorum.tick_all(2)
    for number in (0, 2, 3, 4):
        quorum.crash(number)
    quorum.wire.clear()
    quorum.age(0, copy)
    for number in (1, 4):
        quorum.restart(number)
    quorum.tick_all(PATIENCE + 4 * E)
    assert leaders(quorum) == [4]
    assert [quorum[n].values() for n in (0, 1, 4)] == 3 * [[b"known"]]


def test_who_stood_apart_from_an_older_copy_votes_for_who_shows_it() -> None:
    """Node 1 had heard that it votes, but not that this is committed; so it hears its old leader,
    which denies what it knows to be committed."""
    quorum = Script(1, learners=[1, 2], timing=PATIENT)
    quorum.elect(0)
    quorum.tick_all(2)
    copy = quorum.copy_of(0)
    quorum.propose(0, b"early")
    quorum.deliver()
    quorum.tick_all(2)
    add = with_voter(quorum[0].core.config, member(1).node_id)
    quorum.do(0, lambda core: core.propose_config(add))
    for receiver in (1, 0):
        quorum.deliver(lambda message, number=receiver: message.to == quorum.id(number))
    quorum.crash(1)
    change(quorum, 0, with_voter(quorum[0].core.config, member(2).node_id))
    quorum.propose(0, b"known")
    quorum.deliver()
    quorum.tick_all(2)
    for number in (0, 2):
        quorum.crash(number)
    quorum.wire.clear()
    back_on(quorum, copy)
    quorum.restart(1)
    quorum.tick_all(2)
    assert isinstance(quorum[1].core.state.apart, Apart)
    quorum.restart(2)
    quorum.tick_all(PATIENCE + 4 * E)
    assert leaders(quorum) == [2]
    assert [quorum[n].values() for n in (1, 2)] == 2 * [[b"early", b"known"]]
    assert isinstance(quorum[0].core.state.apart, Outlived)
