"""One member's disk as it was some time ago, message by message (controller/RAFT 2.6, 2.7).

Node 0 is the one whose disk goes back in time, node 2 the one that was away, and node 1 has all
that is committed.
"""

from __future__ import annotations

import pytest

from paceline_cluster.sim.raft.durable import CLUSTER, Durable
from paceline_node.controller.raft_messages import Append, SnapshotChunk
from paceline_node.controller.raft_snapshot import SnapshotTransfer, encode_snapshot
from paceline_node.controller.raft_types import UNKNOWN_ENTRY, Config, RaftTiming, Role, Snapshot
from tests.sim.raft.script import E, Script

PATIENCE = 4 * E
PATIENT = RaftTiming(0.05, 1, E, PATIENCE)
FAR = 1_000_000


def forgotten(quorum: Script, *, first_leader: int = 1) -> Durable:
    """Entry ``late`` is committed by 0 and 1, and all are down; the disk of 0 before that."""
    quorum.elect(first_leader)
    quorum.propose(first_leader, b"early")
    quorum.deliver()
    quorum.tick_all(2)
    copy = quorum.copy_of(0)
    quorum.crash(2)
    if first_leader != 1:
        quorum.elect(1)
    quorum.propose(1, b"late")
    quorum.deliver()
    quorum.tick_all(2)
    assert [quorum[n].values() for n in (0, 1)] == 2 * [[b"early", b"late"]]
    return copy


def all_down(quorum: Script) -> None:
    for number in (0, 1, 2):
        quorum.crash(number)
    quorum.wire.clear()


def back_without_1(quorum: Script, copy: Durable) -> int:
    """The other two go on, on the old copy; who leads them."""
    all_down(quorum)
    quorum.age(0, copy)
    quorum.restart(2)
    for number in (0, 2):
        quorum.do(number, lambda core: core.campaign())
    quorum.deliver()
    quorum.tick_all(PATIENCE + 4 * E)
    leader = next(number for number in (0, 2) if quorum[number].role is Role.LEADER)
    quorum.propose(leader, b"other")
    quorum.deliver()
    quorum.tick_all(2)
    return leader


def assert_stands_apart(quorum: Script) -> None:
    node = quorum[1]
    apart = node.core.state.apart
    assert apart is not None
    assert apart.leader.node in (0, 2)
    assert apart.index <= node.core.state.known_commit
    assert (node.role, node.leader) == (Role.FOLLOWER, None)
    log = node.core.log
    data = [entry.data for entry in log.slice(log.base_index + 1, log.last_index + 1)]
    assert b"late" in data
    assert b"other" not in data


def test_whoever_starts_waits_for_the_one_that_has_everything() -> None:
    quorum = Script(3, timing=PATIENT)
    copy = forgotten(quorum)
    all_down(quorum)
    quorum.age(0, copy)
    quorum.restart(2)
    for number in (0, 2):
        quorum.do(number, lambda core: core.campaign())
    quorum.tick_all(PATIENCE - 1)
    assert {quorum[number].role for number in (0, 2)} <= {Role.FOLLOWER, Role.PRE_CANDIDATE}
    quorum.restart(1)
    quorum.do(1, lambda core: core.campaign())
    quorum.deliver()
    assert quorum[1].role is Role.LEADER
    quorum.tick_all(3)
    assert quorum[0].values()[-1:] == quorum[2].values()[-1:] == [b"late"]


def test_patience_is_for_voters_only_and_ends() -> None:
    quorum = Script(3, learners=[3], timing=PATIENT)
    quorum.down |= {3}
    quorum.do(0, lambda core: core.campaign())
    quorum.deliver()
    assert quorum[0].role is Role.LEADER, "a silent learner does not count"
    all_down(quorum)
    for number in (0, 1):
        quorum.restart(number)
    quorum.tick_all(PATIENCE + 4 * E)
    assert {quorum[number].role for number in (0, 1)} == {Role.LEADER, Role.FOLLOWER}


def test_a_refusal_makes_it_wait_as_silence_does() -> None:
    """Whoever has the longer log will ask by itself."""
    quorum = Script(3, timing=PATIENT)
    copy = forgotten(quorum)
    all_down(quorum)
    quorum.age(0, copy)
    quorum.restart(1)
    quorum.restart(2)
    quorum.do(2, lambda core: core.campaign())
    quorum.deliver()
    quorum.tick(2, 3)
    quorum.deliver()
    assert quorum[2].role is Role.PRE_CANDIDATE
    quorum.do(1, lambda core: core.campaign())
    quorum.deliver()
    assert quorum[1].role is Role.LEADER


@pytest.mark.parametrize("back", [1, E, 3 * E])
def test_who_is_heard_by_one_of_two_is_not_overtaken(back: int) -> None:
    """Nodes 0 and 1 do not hear each other; 2 hears both, and tells 0 of the longer log of 1."""
    quorum = Script(3, timing=PATIENT)
    copy = forgotten(quorum)
    all_down(quorum)
    quorum.age(0, copy)
    quorum.restart(2)
    quorum.cut(1, [0])
    quorum.tick_all(back)
    quorum.restart(1)
    quorum.tick_all(PATIENCE + 4 * E)
    assert quorum[1].role is Role.LEADER
    quorum.heal()
    quorum.tick_all(3)
    assert {quorum[n].values()[-1] for n in (0, 1, 2)} == {b"late"}


@pytest.mark.parametrize("back", [1, E, 2 * E, 3 * E])
def test_who_is_heard_is_not_overtaken_among_five_of_which_one_is_dead(back: int) -> None:
    """Their patience ends in one moment."""
    quorum = Script(5, timing=PATIENT)
    quorum.elect(2)
    quorum.tick_all(2)
    copy = quorum.copy_of(0)
    quorum.crash(3)
    quorum.crash(4)
    quorum.propose(2, b"late")
    quorum.tick_all(2)
    assert {quorum[n].values()[-1] for n in (0, 1, 2)} == {b"late"}
    for number in quorum.nodes:
        quorum.crash(number)
    quorum.wire.clear()
    quorum.age(0, copy)
    for number in (3, 4):
        quorum.restart(number)
    quorum.tick_all(back)
    quorum.restart(2)
    quorum.tick_all(PATIENCE + 6 * E)
    assert {quorum[n].values()[-1] for n in (0, 2, 3, 4)} == {b"late"}


def test_who_asks_is_waited_for_though_it_hears_nobody() -> None:
    quorum = Script(3, timing=PATIENT)
    copy = forgotten(quorum)
    all_down(quorum)
    quorum.age(0, copy)
    for number in (1, 2):
        quorum.restart(number)
    quorum.cuts |= {(0, 1), (2, 1)}
    quorum.tick_all(PATIENCE + 10 * E)
    assert Role.LEADER not in {node.role for node in quorum.nodes.values()}
    quorum.heal()
    quorum.tick_all(3 * E)
    assert {quorum[n].values()[-1] for n in (0, 1, 2)} == {b"late"}


@pytest.mark.parametrize("is_1_cut", [False, True])
def test_who_was_only_cut_off_is_not_elected_by_an_old_disk_either(is_1_cut: bool) -> None:
    """Node 2 runs on, and need not wait on its own account; the voter that just started does."""
    quorum = Script(3, timing=PATIENT)
    quorum.elect(1)
    quorum.propose(1, b"early")
    quorum.tick_all(3)
    copy = quorum.copy_of(0)
    quorum.cut(2)
    quorum.propose(1, b"late")
    quorum.tick_all(10 * E)
    assert quorum[1].values() == [b"early", b"late"] == quorum[0].values()
    quorum.crash(0)
    if not is_1_cut:
        quorum.crash(1)
    quorum.age(0, copy)
    quorum.heal()
    if is_1_cut:
        quorum.cut(1)
    quorum.tick_all(PATIENCE - 1)
    assert {quorum[number].role for number in (0, 2)} <= {Role.FOLLOWER, Role.PRE_CANDIDATE}
    if is_1_cut:
        quorum.heal()
    else:
        quorum.restart(1)
        quorum.do(1, lambda core: core.campaign())
    quorum.tick_all(4 * E)
    assert {quorum[n].values()[-1] for n in (0, 1, 2)} == {b"late"}
    quorum.crash(1)
    quorum.tick_all(4 * E)
    assert Role.LEADER in {quorum[n].role for n in (0, 2)}, "who has caught up waits for nobody"


def test_a_vote_that_was_forgotten_makes_no_term_twice() -> None:
    """Node 0 voted for 1 in a term that 2 would begin next; time ends the wait for 1."""
    quorum = Script(3, timing=PATIENT)
    quorum.elect(2)
    quorum.propose(2, b"early")
    quorum.tick_all(3)
    copy = quorum.copy_of(0)
    quorum.cut(2)
    quorum.elect(1)
    assert quorum[1].term == quorum[2].term + 1
    quorum.tick(2, 2 * E)
    assert quorum[2].role is not Role.LEADER
    quorum.crash(0)
    quorum.crash(1)
    quorum.wire.clear()
    quorum.age(0, copy)
    quorum.heal()
    quorum.tick_all(PATIENCE + 4 * E)
    leader = next(number for number in (0, 2) if quorum[number].role is Role.LEADER)
    assert quorum[leader].term > quorum[1].term


def test_a_lone_voter_waits_for_nobody() -> None:
    quorum = Script(1, timing=PATIENT)
    quorum.do(0, lambda core: core.campaign())
    assert quorum[0].role is Role.LEADER


@pytest.mark.parametrize("first_leader", [1, 2])
def test_who_comes_back_with_what_was_committed_is_not_overwritten(first_leader: int) -> None:
    quorum = Script(3, timing=PATIENT)
    leader = back_without_1(quorum, forgotten(quorum, first_leader=first_leader))
    term = quorum[leader].term
    quorum.restart(1)
    quorum.do(1, lambda core: core.campaign())
    quorum.deliver()
    quorum.tick_all(10 * E)
    assert_stands_apart(quorum)
    assert (quorum[leader].role, quorum[leader].term) == (Role.LEADER, term), "nor disturbs it"
    # Another leader of theirs changes nothing.
    quorum.do(leader, lambda core: core.transfer(quorum.id(2 - leader)))
    quorum.tick_all(10 * E)
    assert quorum[2 - leader].role is Role.LEADER
    assert_stands_apart(quorum)


def test_a_term_that_is_given_out_twice_is_told_by_its_entries() -> None:
    """Without patience the two begin a term that 1 has seen already."""
    quorum = Script(3)
    leader = back_without_1(quorum, forgotten(quorum, first_leader=2))
    assert quorum[leader].term == quorum[1].term
    quorum.restart(1)
    log = quorum[leader].core.log
    last, me = log.last_index, quorum.id(leader)
    entries = tuple(log.slice(last - 1, last + 1))
    prev = log.term_at(last - 2)
    assert prev is not None
    append = Append(
        me, quorum.id(1), log.last_term, last - 2, prev, last, 0, 0, UNKNOWN_ENTRY, entries
    )
    quorum.do(1, lambda core: core.step(append))
    assert_stands_apart(quorum)


def test_one_that_was_only_cut_off_is_not_overwritten_either() -> None:
    quorum = Script(3, timing=PATIENT)
    copy = forgotten(quorum)
    quorum.crash(0)
    quorum.cut(1)
    quorum.age(0, copy)
    quorum.restart(2)
    quorum.tick_all(PATIENCE + 4 * E)
    leader = next(number for number in (0, 2) if quorum[number].role is Role.LEADER)
    quorum.propose(leader, b"other")
    quorum.tick_all(2)
    quorum.heal()
    quorum.tick_all(10 * E)
    assert_stands_apart(quorum)


def test_nor_by_a_snapshot_of_the_other_history() -> None:
    quorum = Script(3, timing=PATIENT)
    leader = back_without_1(quorum, forgotten(quorum))
    for _ in range(12):
        quorum.propose(leader, b"more")
        quorum.deliver()
    quorum.tick_all(2)
    quorum.compact(leader)
    assert quorum[leader].core.log.base_index > quorum[1].core.log.last_index
    quorum.restart(1)
    quorum.tick_all(10 * E)
    assert_stands_apart(quorum)
    assert quorum[1].installed == []


def forced(quorum: Script, number: int) -> None:
    """A snapshot of ``force-quorum`` on node 0 reaches ``number``."""
    term = max(node.term for node in quorum.nodes.values()) + 1
    config = Config((quorum.bootstrap.config.voters[0],), quorum.bootstrap.config.voters[1:])
    snapshot = Snapshot(FAR, term, config, b"forced")
    data = encode_snapshot(snapshot, CLUSTER)
    transfer = SnapshotTransfer(FAR, term, data, len(data))
    chunk = SnapshotChunk(
        quorum.id(0),
        quorum.id(number),
        term,
        FAR,
        term,
        UNKNOWN_ENTRY,
        len(data),
        transfer.crc,
        0,
        data,
    )
    quorum.do(number, lambda core: core.step(chunk))


@pytest.mark.parametrize("is_apart", [False, True])
def test_a_forced_history_replaces_all_that_was_known(is_apart: bool) -> None:
    quorum = Script(3, timing=PATIENT)
    copy = forgotten(quorum)
    if is_apart:
        back_without_1(quorum, copy)
    quorum.restart(1)
    quorum.tick_all(3)
    assert (quorum[1].core.state.apart is not None) == is_apart
    forced(quorum, 1)
    assert quorum[1].core.state.apart is None
    assert [snapshot.index for snapshot in quorum[1].installed] == [FAR]
    assert quorum[1].leader == 0


def test_a_leader_that_has_everything_is_followed_again() -> None:
    quorum = Script(3, timing=PATIENT)
    copy = forgotten(quorum)
    good = quorum.copy_of(0)
    back_without_1(quorum, copy)
    quorum.restart(1)
    quorum.tick_all(3)
    assert_stands_apart(quorum)
    for number in (0, 2):
        quorum.crash(number)
    quorum.wire.clear()
    good.hard_state = quorum[2].durable.hard_state
    quorum.age(0, good)
    quorum[0].core.state.set_term(quorum[1].term + 1)
    quorum[0].core.state.set_vote(quorum.id(0))
    quorum[0].core._become_leader()
    quorum.settle(0)
    quorum.tick_all(3)
    assert quorum[1].core.state.apart is None
    assert quorum[1].leader == 0
