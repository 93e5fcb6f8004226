"""Scripted stories of replication and snapshots, after etcd's interaction tests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline_cluster.sim.raft.durable import Durable
from paceline_node.controller.raft_log import RaftLog
from paceline_node.controller.raft_messages import (
    Append,
    AppendResponse,
    Grant,
    SnapshotChunk,
    SnapshotResponse,
)
from paceline_node.controller.raft_progress import Mode, Progress
from paceline_node.controller.raft_types import UNKNOWN_ENTRY, Entry, EntryKind, Role
from tests.sim.raft.script import LIMITS, Script, ScriptNode


def progress(quorum: Script, leader: int, follower: int) -> Progress:
    leadership = quorum[leader].core.leadership
    assert leadership is not None
    return leadership.progress[quorum.id(follower)]


def write_log(quorum: Script, number: int, terms: list[int]) -> None:
    """Give a node a log of these terms behind the bootstrap, as if it had lived through them."""
    durable = Durable(quorum.bootstrap, term=max(terms, default=1))
    durable.append(
        [Entry(2 + i, term, EntryKind.RECORDS, b"%d" % term) for i, term in enumerate(terms)]
    )
    quorum.nodes[number] = ScriptNode(quorum, number, 0, durable)


FIGURE_7 = {
    "a": [2, 2, 2, 5, 5, 6, 6, 7, 7],
    "b": [2, 2, 2, 5],
    "c": [2, 2, 2, 5, 5, 6, 6, 7, 7, 7, 7],
    "d": [2, 2, 2, 5, 5, 6, 6, 7, 7, 7, 8, 8],
    "e": [2, 2, 2, 5, 5, 5, 5],
    "f": [2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4],
}


@pytest.mark.parametrize("case", sorted(FIGURE_7))
def test_probe_and_replicate(case: str) -> None:
    """Raft figure 7: whatever a follower's log looks like, it ends as the leader's, and hints skip
    whole terms: few refusals are needed."""
    quorum = Script(3)
    own = [2, 2, 2, 5, 5, 6, 6, 7, 7, 7]
    write_log(quorum, 0, own)
    write_log(quorum, 1, own)
    write_log(quorum, 2, FIGURE_7[case])
    for number in (0, 1, 2):
        if quorum[number].term < 8:
            quorum[number].core.state.set_term(8)
            quorum.settle(number)
    quorum.elect(0)
    refusals = 0

    def count(message: object) -> bool:
        nonlocal refusals
        refusals += isinstance(message, AppendResponse) and not message.ok
        return True

    quorum.tick(0)
    quorum.deliver(count)
    quorum.tick_all(2)
    assert quorum[2].terms() == [*own, 9]
    assert quorum[2].durable.entries == quorum[0].durable.entries
    assert refusals <= 3


def test_commit_index_travels_at_once() -> None:
    """Followers apply without waiting for a heartbeat."""
    quorum = Script(3)
    quorum.elect(0)
    quorum.propose(0, b"a")
    quorum.deliver()
    assert quorum[2].values() == [b"a"]


def test_lagging_commit_is_repaired_by_a_heartbeat() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.propose(0, b"a")
    quorum.deliver(lambda m: not (isinstance(m, Append) and not m.entries))
    quorum.wire.clear()
    assert quorum[2].values() == []
    quorum.tick(0)
    quorum.deliver()
    assert quorum[2].values() == [b"a"]


def test_commit_of_a_short_log_stops_at_what_it_has() -> None:
    """A heartbeat may carry a commit index beyond what the follower was shown to share."""
    quorum = Script(3)
    quorum.elect(0)
    base = quorum[2].core.log.last_index
    message = Append(
        quorum.id(0),
        quorum.id(2),
        2,
        base,
        quorum[2].core.log.last_term,
        base + 50,
        0,
        0,
        UNKNOWN_ENTRY,
    )
    quorum.do(2, lambda core: core.step(message))
    assert quorum[2].commit == base


def test_replicate_pause() -> None:
    """No more than the allowed number of Appends lie in flight, and no unbounded memory."""
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(2)
    for i in range(40):
        quorum.propose(0, b"%d" % i)
    pending = [m for m in quorum.wire if isinstance(m, Append) and m.to.node == 2 and m.entries]
    assert len(pending) <= LIMITS.inflight_appends
    quorum.deliver()
    quorum.heal()
    quorum.tick_all(3)
    assert quorum[2].values() == [b"%d" % i for i in range(40)]


def test_lost_appends_are_found_by_a_heartbeat() -> None:
    """etcd: heartbeat response recovers from probing."""
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(2)
    quorum.propose(0, b"a", b"b", b"c")
    quorum.deliver()
    assert progress(quorum, 0, 2).mode is Mode.REPLICATE
    quorum.heal()
    quorum.tick(0)
    quorum.deliver()
    assert quorum[2].values() == [b"a", b"b", b"c"]
    assert progress(quorum, 0, 2).mode is Mode.REPLICATE


def test_entries_lost_in_flight_and_compacted_meanwhile() -> None:
    """Nothing can be refused any more at the place where the follower stands: snapshot."""
    quorum = Script(3)
    quorum.elect(0)
    quorum.cut(2)
    for i in range(4 * LIMITS.keep_entries):
        quorum.propose(0, b"%d" % i)
        quorum.deliver()
    quorum.compact(0)
    quorum.heal()
    quorum.tick_all(3)
    assert quorum[2].installed
    assert quorum[2].core.log.last_index == quorum[0].core.log.last_index


def test_stale_append_does_not_shorten_the_log() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.propose(0, b"a")
    copies = [m for m in quorum.wire if isinstance(m, Append) and m.to.node == 1]
    quorum.deliver()
    quorum.propose(0, b"b")
    quorum.deliver()
    for message in copies:
        quorum.hand_over(message)
    quorum.deliver()
    assert quorum[1].values() == [b"a", b"b"]


def aba_race(quorum: Script) -> int:
    """A follower whose write of (2, term 2) is under way sees it replaced and brought back. Returns
    what it then believes to be on stable storage."""
    quorum.hold = {2}
    follower = quorum[2]
    leaders = {2: quorum.id(0), 3: quorum.id(1), 4: quorum.id(0)}
    old, other = Entry(2, 2, EntryKind.NOOP), Entry(2, 3, EntryKind.NOOP)
    for term, entries in ((2, (old,)), (3, (other,)), (4, (old, Entry(3, 4, EntryKind.NOOP)))):
        message = Append(leaders[term], quorum.id(2), term, 1, 1, 1, 0, 0, UNKNOWN_ENTRY, entries)
        quorum.do(2, lambda core, message=message: core.step(message))
    assert len(follower.pending) == 3
    quorum.persist(2, 1)
    return follower.core.log.stable_index


def test_async_storage_aba_race() -> None:
    """The end of the first write must not confirm the entry that came back later: on disk the
    second one may still replace it."""
    assert aba_race(Script(3)) == 1


def test_async_storage_aba_race_is_caught_without_the_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = RaftLog.truncate

    def mutant(self: RaftLog, index: int) -> None:
        before = list(self._unconfirmed)
        honest(self, index)
        self._unconfirmed.clear()
        self._unconfirmed.extend(before)

    monkeypatch.setattr(RaftLog, "truncate", mutant)
    assert aba_race(Script(3)) == 2


def lagging(entries: int = 12) -> Script:
    """Node 2 was away while the others compacted their logs."""
    quorum = Script(3)
    quorum.elect(0)
    quorum.crash(2)
    for i in range(entries):
        quorum.propose(0, b"%d" % i)
    quorum.deliver()
    quorum.compact(0)
    quorum.wire.clear()
    quorum.restart(2)
    return quorum


def test_slow_follower_after_compaction() -> None:
    quorum = lagging()
    quorum.tick_all(3)
    assert [snapshot.index for snapshot in quorum[2].installed] == [quorum[0].commit]
    assert quorum[2].core.log.config == quorum[0].core.log.config
    assert progress(quorum, 0, 2).mode is Mode.REPLICATE
    quorum.propose(0, b"more")
    quorum.deliver()
    assert quorum[2].values() == [b"more"]


def test_snapshot_is_answered_after_it_is_stored() -> None:
    quorum = lagging()
    quorum.hold = {2}
    quorum.tick(0)
    for _ in range(40):
        quorum.deliver(lambda m: not isinstance(m, AppendResponse) or m.sender.node != 2)
        if quorum[2].installed:
            break
        quorum.persist(2, len(quorum[2].pending) - 1 if quorum[2].installed else None)
        quorum.deliver()
        quorum.tick(0)
    assert quorum[2].installed
    assert progress(quorum, 0, 2).match < quorum[0].commit
    quorum.persist(2)
    quorum.deliver()
    quorum.persist(2)
    quorum.deliver()
    assert progress(quorum, 0, 2).match == quorum[0].core.log.last_index


def test_snapshot_to_a_node_that_restarts_in_the_middle() -> None:
    """What it had received is gone with its memory; it says so and gets the rest from the start."""
    quorum = lagging()
    quorum.tick(0)
    chunks = 0

    def few(message: object) -> bool:
        nonlocal chunks
        chunks += isinstance(message, SnapshotChunk)
        return not isinstance(message, SnapshotChunk) or chunks <= 3

    quorum.deliver(few)
    transfer = progress(quorum, 0, 2).transfer
    assert transfer is not None
    assert transfer.offset > 0
    assert quorum[2].installed == []
    quorum.crash(2)
    quorum.wire.clear()
    quorum.restart(2)
    quorum.tick_all(20)
    assert [snapshot.index for snapshot in quorum[2].installed] == [quorum[0].commit]
    assert quorum[2].core.log.last_index == quorum[0].core.log.last_index


def test_lost_chunk_is_sent_again() -> None:
    quorum = lagging()
    quorum.tick(0)
    quorum.wire = [m for m in quorum.wire if not isinstance(m, SnapshotChunk)]
    quorum.deliver()
    assert quorum[2].installed == []
    quorum.tick_all(20)
    assert quorum[2].installed


def test_duplicated_chunks_and_answers() -> None:
    quorum = lagging()
    quorum.tick(0)
    for _ in range(200):
        doubled = [m for m in quorum.wire for _ in range(2)]
        quorum.wire = []
        if not doubled:
            break
        for message in doubled:
            quorum.hand_over(message)
        quorum.tick(0)
        if quorum[2].installed and len(quorum.wire) > 50:
            break
    assert [snapshot.index for snapshot in quorum[2].installed] == [quorum[0].commit]


def test_damaged_chunk_restarts_the_transfer() -> None:
    quorum = lagging()
    quorum.tick(0)
    for _ in range(400):
        damaged = [
            replace(m, data=b"?" * len(m.data))
            if isinstance(m, SnapshotChunk) and m.offset == LIMITS.chunk_bytes and not damage_done
            else m
            for damage_done in [False]
            for m in quorum.wire
        ]
        quorum.wire = []
        for message in damaged:
            quorum.hand_over(message)
        if any(isinstance(m, SnapshotResponse) and m.next_offset == 0 for m in quorum.wire):
            break
        if not quorum.wire:
            quorum.tick(0)
    assert quorum[2].installed == []
    quorum.tick_all(20)
    assert [snapshot.index for snapshot in quorum[2].installed] == [quorum[0].commit]


def test_snapshot_ends_by_an_append_response() -> None:
    """etcd: snapshot succeeds via app resp. The follower catches up by other means, and the leader
    leaves the snapshot be."""
    quorum = lagging()
    quorum.tick(0)
    quorum.deliver(lambda m: not isinstance(m, SnapshotChunk))
    assert progress(quorum, 0, 2).mode is Mode.SNAPSHOT
    last = quorum[0].core.log.last_index
    head = quorum.id(2), quorum.id(0), 2
    answer = AppendResponse(*head, True, last, 0, 0, 0, 1, Grant.SURE)
    quorum.do(0, lambda core: core.step(answer))
    assert progress(quorum, 0, 2).mode is Mode.REPLICATE


def test_snapshot_that_is_outdated_when_it_arrives_is_followed_by_a_newer_one() -> None:
    """etcd: the same, but the follower is still behind the log's beginning."""
    quorum = lagging()
    quorum.tick(0)
    first = quorum[0].core.log.snapshot.index
    quorum.deliver(lambda m: not isinstance(m, SnapshotChunk))
    quorum.cut(2)
    for i in range(4 * LIMITS.keep_entries):
        quorum.propose(0, b"%d" % i)
    quorum.deliver(lambda m: not isinstance(m, SnapshotChunk))
    quorum.compact(0)
    quorum.heal()
    quorum.tick_all(40)
    assert quorum[2].installed[0].index == first
    assert quorum[2].core.log.last_index == quorum[0].core.log.last_index


def test_snapshot_below_the_commit_index_is_ignored() -> None:
    quorum = Script(3)
    quorum.elect(0)
    quorum.propose(0, b"a")
    quorum.deliver()
    before = quorum[2].core.log.last_index
    chunk = SnapshotChunk(quorum.id(0), quorum.id(2), 2, 1, 1, UNKNOWN_ENTRY, 3, 0, 0, b"abc")
    quorum.do(2, lambda core: core.step(chunk))
    assert quorum[2].installed == []
    assert quorum[2].core.log.last_index == before
    answer = quorum.wire[-1]
    assert isinstance(answer, AppendResponse)
    assert answer.match == quorum[2].commit


def test_proposals_share_one_append() -> None:
    quorum = Script(3)
    quorum.elect(0)
    for value in (b"a", b"b", b"c"):
        quorum[0].core.propose(value)
    quorum.settle(0)
    appends = [m for m in quorum.wire if isinstance(m, Append)]
    assert [len(message.entries) for message in appends] == [3, 3]
    assert quorum[0].role is Role.LEADER
