"""Majorities, progress, the log view, snapshots in chunks, membership arithmetic."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import ConfigurationError, InvalidRequest, RemoteProtocolError
from paceline.types import NodeId
from paceline_cluster.sim.raft.durable import CLUSTER, member, member_id
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_membership import (
    Surroundings,
    check_change,
    plan,
    wanted_voters,
    with_learner,
    with_voter,
    without,
)
from paceline_node.controller.raft_messages import SnapshotChunk
from paceline_node.controller.raft_progress import (
    Mode,
    Progress,
    has_majority,
    majority,
    majority_index,
)
from paceline_node.controller.raft_snapshot import (
    SnapshotAssembly,
    SnapshotTransfer,
    decode_snapshot,
    encode_snapshot,
)
from paceline_node.controller.raft_trust import Trust
from paceline_node.controller.raft_types import (
    UNKNOWN_ENTRY,
    Config,
    Entry,
    EntryKind,
    MemberId,
    RaftTiming,
    Snapshot,
)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=7))
def test_majority_index_is_held_by_a_majority(matches: list[int]) -> None:
    index = majority_index(matches)
    assert sum(match >= index for match in matches) >= majority(len(matches))
    assert sum(match >= index + 1 for match in matches) < majority(len(matches))


def test_two_majorities_share_a_voter() -> None:
    for count in range(1, 8):
        voters = [member_id(number) for number in range(count)]
        quorums = [set(c) for c in combinations(voters, majority(count))]
        assert all(first & second for first in quorums for second in quorums)
        assert all(has_majority(quorum, voters) for quorum in quorums)
    assert not has_majority([member_id(0)], [])
    assert majority_index([]) == 0


def log_of(*terms: int, snapshot: Snapshot | None = None) -> RaftLog:
    base = snapshot or Snapshot(1, 1, Config((member(0),)), b"")
    entries = [
        Entry(base.index + 1 + i, term, EntryKind.RECORDS, b"%d" % term)
        for i, term in enumerate(terms)
    ]
    return RaftLog(base, entries, base=None)


def test_log_view() -> None:
    log = log_of(2, 2, 3)
    assert (log.last_index, log.last_term, log.stable_index) == (4, 3, 4)
    assert [log.term_at(index) for index in range(6)] == [None, 1, 2, 2, 3, None]
    assert [entry.index for entry in log.slice(2, 4)] == [2, 3]
    assert len(log.batch(2, max_bytes=1, max_entries=9)) == 1
    assert len(log.batch(2, max_bytes=2, max_entries=9)) == 2
    assert len(log.batch(2, max_bytes=99, max_entries=2)) == 2
    assert log.is_up_to_date(3, 4)
    assert log.is_up_to_date(4, 1)
    assert not log.is_up_to_date(3, 3)
    assert not log.is_up_to_date(2, 9)


def test_hint_skips_terms() -> None:
    log = log_of(2, 2, 5, 5, 5)
    assert log.hint(6, 5) == 6
    assert log.hint(6, 4) == 3
    assert log.hint(50, 2) == 3
    assert log.hint(6, 1) == 1


def test_stable_index_follows_sequences_and_truncation() -> None:
    log = log_of(2)
    log.append(Entry(3, 2, EntryKind.NOOP))
    log.expect(1)
    log.append(Entry(4, 2, EntryKind.NOOP))
    log.expect(2)
    assert log.stable_index == 2
    log.truncate(4)
    log.append(Entry(4, 3, EntryKind.NOOP))
    log.expect(3)
    log.confirm(2)
    assert log.stable_index == 3
    log.confirm(3)
    assert log.stable_index == 4


def config_entry(index: int, config: Config, term: int = 2) -> Entry:
    return Entry(index, term, EntryKind.CONFIG, config.to_bytes())


def test_configurations_live_and_die_with_their_entries() -> None:
    one, two = Config((member(0),)), Config((member(0),), (member(1),))
    log = RaftLog(Snapshot(1, 1, one, b""), [config_entry(2, two)], base=None)
    assert (log.config, log.config_index) == (two, 2)
    assert log.config_at(1) == one
    log.truncate(2)
    assert (log.config, log.config_index) == (one, 1)
    log.append(config_entry(2, two))
    log.append(Entry(3, 2, EntryKind.NOOP))
    log.compact(Snapshot(3, 2, log.config_at(3), b""), keep=0)
    assert log.config == two
    assert log.base_index == 3
    log.compact(Snapshot(2, 2, two, b"older"), keep=0)
    assert log.snapshot.index == 3


def test_compaction_keeps_entries_for_slow_peers() -> None:
    log = log_of(*[2] * 20)
    log.compact(Snapshot(15, 2, log.config, b""), keep=5)
    assert log.base_index == 10
    assert log.term_at(10) == 2
    assert log.entry(11).index == 11
    with pytest.raises(AssertionError, match="compacted"):
        log.slice(10, 12)


def test_progress_backs_off_and_recovers() -> None:
    progress = Progress(next=10, heard_tick=0, trust=Trust())
    assert progress.rejected(9, 5)
    assert progress.next == 6
    assert not progress.rejected(9, 2), "an answer to an older probe"
    progress.accepted(5)
    assert (progress.mode, progress.match, progress.next) == (Mode.REPLICATE, 5, 6)
    progress.next = 20
    assert not progress.rejected(4, 1), "below what it is known to have"
    assert progress.rejected(19, 7)
    assert (progress.mode, progress.next) == (Mode.PROBE, 8)


def test_catch_up_rounds() -> None:
    progress = Progress(next=1, heard_tick=0, trust=Trust(), round_target=10)
    progress.match = 9
    progress.note_round(12, 5)
    assert progress.good_rounds == 0
    progress.match = 10
    progress.note_round(12, 5)
    assert (progress.good_rounds, progress.round_target) == (1, 12)
    progress.match = 12
    progress.note_round(100, 5)
    assert progress.good_rounds == 0, "the leader ran away meanwhile"


# --- snapshots -----------------------------------------------------------------------------------


SNAPSHOT = Snapshot(9, 4, Config((member(0), member(1)), (member(2),)), b"state" * 20)


def test_snapshot_bytes() -> None:
    data = encode_snapshot(SNAPSHOT, CLUSTER)
    assert decode_snapshot(data, CLUSTER) == SNAPSHOT
    for size in range(len(data)):
        with pytest.raises(RemoteProtocolError):
            decode_snapshot(data[:size], CLUSTER)
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(RemoteProtocolError):
            decode_snapshot(bytes(damaged), CLUSTER)
    with pytest.raises(RemoteProtocolError, match="of cluster"):
        decode_snapshot(data, member(0).directory_id)


@given(st.integers(1, 300), st.lists(st.integers(0, 20), max_size=12))
def test_chunks_in_any_order(chunk_bytes: int, noise: list[int]) -> None:
    """Repeated and misplaced chunks never spoil the whole; the regular ones complete it."""
    transfer = SnapshotTransfer(9, 4, encode_snapshot(SNAPSHOT, CLUSTER), chunk_bytes)
    assembly = SnapshotAssembly()

    def chunk(offset: int) -> SnapshotChunk:
        data = transfer.data[offset : offset + chunk_bytes]
        total = len(transfer.data)
        return SnapshotChunk(
            member_id(0), member_id(1), 5, 9, 4, UNKNOWN_ENTRY, total, transfer.crc, offset, data
        )

    offsets = list(range(0, len(transfer.data), chunk_bytes))
    whole = None
    for offset in offsets:
        for wrong in noise:
            other = offsets[wrong % len(offsets)]
            if other != offset:
                assert assembly.add(chunk(other)) is None
        whole = assembly.add(chunk(offset))
    assert whole == transfer.data


# --- membership ----------------------------------------------------------------------------------


def ids(*numbers: int) -> frozenset[MemberId]:
    return frozenset(member_id(number) for number in numbers)


THREE = Config((member(0), member(1), member(2)))


def test_changes() -> None:
    four = with_learner(THREE, member(3))
    assert four.learners == (member(3),)
    assert with_voter(four, NodeId(3)).voter_ids == ids(0, 1, 2, 3)
    assert without(four, NodeId(3)) == THREE
    replaced = with_learner(THREE, member(2, disk=1))
    assert replaced.voter_ids == ids(0, 1)
    assert replaced.learners == (member(2, disk=1),)
    assert replaced.addresses()[NodeId(2)] == ("host-2", 7401)
    with pytest.raises(InvalidRequest, match="not a learner"):
        with_voter(THREE, NodeId(7))
    with pytest.raises(InvalidRequest, match="not a member"):
        without(THREE, NodeId(7))


def test_change_rules() -> None:
    everybody = ids(0, 1, 2, 3)
    with pytest.raises(InvalidRequest, match="one voter may change"):
        check_change(THREE, Config((member(0),)), live=everybody)
    with pytest.raises(InvalidRequest, match="last voter"):
        check_change(Config((member(0),)), Config(), live=everybody)
    two = Config((member(0), member(1)))
    with pytest.raises(InvalidRequest, match="1 live voters would remain of 2, 2 are needed"):
        check_change(THREE, two, live=ids(0, 2))
    check_change(THREE, two, live=ids(0, 2), force=True)
    check_change(THREE, two, live=ids(0, 1))
    check_change(THREE, with_learner(THREE, member(3)), live=ids(0))


@pytest.mark.parametrize(
    ("nodes", "most", "voters"),
    [(1, 3, 1), (2, 3, 1), (3, 3, 3), (4, 5, 3), (5, 5, 5), (9, 3, 3), (3, 1, 1)],
)
def test_wanted_voters(nodes: int, most: int, voters: int) -> None:
    assert wanted_voters(nodes, most=most) == voters


def seen(
    live: frozenset[MemberId],
    caught_up: frozenset[MemberId] = frozenset(),
    **joining: int,
) -> Surroundings:
    nodes = {NodeId(int(name[1:])): member(int(name[1:]), disk) for name, disk in joining.items()}
    return Surroundings(live, caught_up, nodes)


def test_plan_heals_only_with_a_majority_of_the_others() -> None:
    wiped = member(2, disk=1)
    healed = plan(THREE, seen(ids(0, 1), n2=1))
    assert healed is not None
    assert (healed.voter_ids, healed.learners) == (ids(0, 1), (wiped,))
    assert plan(THREE, seen(ids(0), n2=1)) is None
    assert plan(Config((member(0),)), seen(ids(), n0=1)) is None
    # The old disk is back as well: whoever asks last is taken for the node, never both.
    assert plan(healed, seen(ids(0, 1))) is None


def test_plan_does_not_replace_a_node_that_is_there() -> None:
    assert plan(THREE, seen(ids(0, 1, 2), n2=1)) is None
    listening = Config((member(0),), (member(1),))
    assert plan(listening, seen(ids(0, 1), n1=1)) is None
    replaced = plan(listening, seen(ids(0), n1=1))
    assert replaced is not None
    assert replaced.learners == (member(1, disk=1),)


def test_plan_grows_in_odd_steps() -> None:
    one = Config((member(0),), (member(1), member(2)))
    assert plan(one, seen(ids(0, 1, 2), ids(1))) is None
    first = plan(one, seen(ids(0, 1, 2), ids(1, 2)))
    assert first is not None
    assert first.voter_ids == ids(0, 1)
    second = plan(first, seen(ids(0, 1, 2), ids(2)))
    assert second is not None
    assert second.voter_ids == ids(0, 1, 2)
    assert plan(second, seen(ids(0, 1, 2))) is None
    assert plan(first, seen(ids(0, 1), ids(2))) is None, "a dead learner is not promoted"


def test_plan_lets_go_of_a_silent_member_with_a_retired_directory() -> None:
    gone = {member(2).directory_id}
    learning = Config((member(0), member(1)), (member(2),))

    def planned(config: Config, live: frozenset[MemberId]) -> Config | None:
        around = Surroundings(live, frozenset(), {}, retired=gone.__contains__)
        return plan(config, around)

    for config in (THREE, learning):
        left = planned(config, ids(0, 1))
        assert left is not None
        assert (left.voter_ids, left.learners) == (ids(0, 1), ())
        assert planned(config, ids(0, 1, 2)) is None, "it is there"
    assert planned(THREE, ids(0)) is None, "two of two must be live to commit it"
    assert planned(Config((member(2),)), ids()) is None


def test_plan_updates_an_address() -> None:
    moved = member(1).__class__(member(1).node_id, member(1).directory_id, "there", 9)
    surroundings = Surroundings(ids(0, 1, 2), frozenset(), {moved.node_id: moved})
    change = plan(THREE, surroundings)
    assert change is not None
    assert change.voter_ids == THREE.voter_ids
    assert change.addresses()[moved.node_id] == ("there", 9)


def test_timing_is_checked() -> None:
    assert RaftTiming.of(heartbeat_ms=40, election_ms=300) == RaftTiming(0.02, 2, 15, 60)
    with pytest.raises(ConfigurationError, match="two heartbeats"):
        RaftTiming.of(heartbeat_ms=100, election_ms=150)
    with pytest.raises(ConfigurationError, match="positive"):
        RaftTiming(tick_s=0)
