"""The driver where a voter's disk went back in time: the vote of an earlier start, what the mark
says of the commit, and how a member that follows nobody says so (controller/RAFT 2.7, 2.8)."""

from __future__ import annotations

import copy
from contextlib import suppress
from uuid import UUID

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from paceline.errors import InvalidRequest, NotController
from paceline.types import NodeId
from paceline.wire.checksum import crc32c
from paceline_cluster.sim.raft.durable import CLUSTER, member, member_id
from paceline_node.controller import raft_mark
from paceline_node.controller.raft_mark import Promised, PromiseMark, mark_of
from paceline_node.controller.raft_store import RaftStore
from paceline_node.controller.raft_types import HardState, Start
from paceline_node.storage.memory_disk import MemoryDisk
from tests.unit.raft.cluster import Cluster, cluster_of

PATH = "metadata"
LATER = Start(2, UUID(int=2))


async def only(cluster: Cluster, *numbers: int) -> None:
    """These nodes start, one after the other; all others are down."""
    for number in list(cluster.nodes):
        await cluster.kill(number)
    for number in numbers:
        await cluster.start(number)


async def test_an_earlier_start_neither_gets_nor_lends_a_vote(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        await cluster.commit(leader, b"a")
        await cluster.agree([b"a"], [0, 1, 2])
        cluster.registered.starts[member_id(0)] = LATER
        cluster.nodes[0].start = Start(1, UUID(int=9))
        with capture_logs() as logs:
            await only(cluster, 0, 2)
            await trio.sleep(30)
        assert cluster.leader() is None
        told = [each for each in logs if "its vote does not count" in each["event"]]
        assert [(each["node"], each["start"], each["registered"]) for each in told] == [(2, 1, 2)]
        await cluster.start(1)
        assert (await cluster.elect()).number in (1, 2)


@pytest.mark.parametrize("start", [LATER, Start(3, UUID(int=3))], ids=["itself", "a later one"])
async def test_a_registered_process_and_its_successor_vote(
    autojump_clock: MockClock, start: Start
) -> None:
    async with cluster_of(3) as cluster:
        await cluster.elect()
        cluster.registered.starts[member_id(0)] = LATER
        cluster.nodes[0].start = start
        await only(cluster, 0, 2)
        await cluster.elect()


async def test_a_directory_that_holds_less_than_it_has_said_has_no_vote(
    autojump_clock: MockClock,
) -> None:
    """However long who knows more stays away: 0 and 2 would be a majority."""
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        await cluster.commit(leader, b"early")
        await cluster.agree([b"early"], [0, 1, 2])
        await cluster.kill(0)
        old = copy.deepcopy(cluster.nodes[0].disk)
        await cluster.start(0)
        leader = await cluster.elect()
        await cluster.commit(leader, b"noted")
        await cluster.agree([b"early", b"noted"], [0, 1, 2])
        cluster.registered.held[member_id(0)] = cluster.nodes[0].machine.index
        await cluster.kill(2)
        leader = await cluster.elect(within_s=10)
        await cluster.commit(leader, b"late")
        await cluster.agree([b"early", b"noted", b"late"], [0, 1])
        await only(cluster)
        cluster.nodes[0].disk = old
        with capture_logs() as logs:
            await only(cluster, 0, 2)
            await trio.sleep(60)
        assert cluster.leader() is None
        [told] = [each for each in logs if "its vote does not count" in each["event"]]
        assert told["node"] == 2
        assert told["holds"] < told["held"]
        await cluster.start(1)
        await cluster.elect(within_s=30)
        await cluster.agree([b"early", b"noted", b"late"], [0, 1, 2])


async def test_a_member_that_stands_apart_says_so_and_keeps_what_it_has(
    autojump_clock: MockClock,
) -> None:
    """The disk of 0 goes back in time; 2 was away; 1 has what the first two committed."""
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        await cluster.commit(leader, b"early")
        await cluster.agree([b"early"], [0, 1, 2])
        await cluster.kill(0)
        old = copy.deepcopy(cluster.nodes[0].disk)
        await cluster.start(0)
        await cluster.kill(2)
        leader = await cluster.elect(within_s=10)
        await cluster.commit(leader, b"late")
        await cluster.commit(leader, b"later")
        await cluster.agree([b"early", b"late", b"later"], [0, 1])
        await only(cluster)
        cluster.nodes[0].disk = old
        with capture_logs() as logs:
            await cluster.start(0)
            await cluster.start(2)
            leader = await cluster.elect(within_s=10)
            await cluster.commit(leader, b"other")
            await cluster.start(1)
            await cluster.until(lambda: bool(cluster.nodes[1].live.other_history))
            await trio.sleep(10)
        assert "force-quorum" in cluster.nodes[1].live.other_history
        assert "node format --replace" in cluster.nodes[1].live.other_history
        assert f"node {leader.number} leads" in cluster.nodes[1].live.other_history
        assert [each["log_level"] for each in logs if "does not follow" in each["event"]] == [
            "error"
        ]
        assert b"other" not in cluster.nodes[1].machine.values
        assert leader.live.is_leader
        assert not leader.live.other_history
        await cluster.agree([b"early", b"other"], [0, 2])
        await cluster.kill(1)
        store = await RaftStore.open(cluster.nodes[1].disk, PATH, CLUSTER)
        store.close()
        log = store.recovery.log
        data = [entry.data for entry in log.slice(log.base_index + 1, log.last_index + 1)]
        assert any(b"later" in each for each in data)
        assert not any(b"other" in each for each in data)


async def test_the_mark_says_how_far_the_log_is_committed(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        await cluster.commit(leader, b"a", b"b")
        index = leader.live.commit_index
        await cluster.until(
            lambda: all(node.live.commit_index >= index for node in cluster.nodes.values())
        )
        await only(cluster)
        for node in cluster.nodes.values():
            store = await RaftStore.open(node.disk, PATH, CLUSTER)
            store.close()
            assert store.known_commit == index
            assert store.recovery.log.last_index >= index


PROMISED = Promised(HardState(7, member(1).id), 3, 99, 42)


async def test_a_mark_of_an_earlier_version_knows_no_commit() -> None:
    disk = MemoryDisk()
    mark = await PromiseMark.open(disk, PATH)
    mark.write(PROMISED)
    mark.close()
    mark = await PromiseMark.open(disk, PATH)
    mark.close()
    assert mark.found == PROMISED
    file = await disk.open(mark_of(PATH))
    body = file.pread(44, 0)
    file.pwrite((body + crc32c(body).to_bytes(4, "big")).ljust(64, b"\0"), 0)
    file.close()
    mark = await PromiseMark.open(disk, PATH)
    mark.close()
    assert mark.found == PROMISED._replace(committed=-1)


def test_an_earlier_version_reads_a_mark_of_this_one() -> None:
    slot = raft_mark._encode(PROMISED)
    assert len(slot) == 64
    assert slot[44:48] == crc32c(slot[:44]).to_bytes(4, "big")
    assert NodeId(1) == PROMISED.state.vote.node  # type: ignore[union-attr]


@pytest.mark.parametrize("at", range(64))
def test_a_rotten_mark_says_less_and_nothing_wrong(at: int) -> None:
    slot = bytearray(raft_mark._encode(PROMISED))
    slot[at] ^= 0x10
    found = raft_mark._decode(bytes(slot))
    assert found in (None, PROMISED, PROMISED._replace(committed=-1))


@pytest.mark.parametrize("is_killed", [True, False])
async def test_an_old_answer_does_not_count_for_everybody(
    autojump_clock: MockClock, is_killed: bool
) -> None:
    """``c`` starts, is granted a pre-vote by ``b`` and cut off; the others elect and commit; ``a``
    comes back on an older copy, and hears ``c`` only."""
    async with cluster_of(3) as cluster:
        first = await cluster.elect()
        await cluster.commit(first, b"early")
        await cluster.agree([b"early"], [0, 1, 2])
        await trio.sleep(3)
        a, b, c = first.number, (first.number + 1) % 3, (first.number + 2) % 3
        old = copy.deepcopy(first.disk)
        await trio.sleep(3)
        await cluster.kill(c)
        cluster.cut(a)
        await trio.sleep(0.95)
        await cluster.start(c)
        await trio.sleep(0.15)
        cluster.cuts.clear()
        cluster.cut(c)
        leader = await cluster.elect()
        assert leader.number != c
        await cluster.commit(leader, b"late")
        await cluster.kill(a)
        if is_killed and leader.number == b:
            await cluster.kill(b)
        cluster.nodes[a].disk = old
        cluster.cuts.clear()
        cluster.cut(b)
        await cluster.start(a)
        await trio.sleep(1.5)
        assert not any(cluster.nodes[number].live.is_leader for number in (a, c))
        cluster.cuts.clear()
        if cluster.nodes[b].quorum is None:
            await cluster.start(b)
        await cluster.agree([b"early", b"late"], [0, 1, 2])


async def test_a_copy_from_before_others_voted_leads_nobody(autojump_clock: MockClock) -> None:
    """It was the only voter then. The others run, and can be reached all the time."""
    async with cluster_of(1) as cluster:
        first = await cluster.elect()
        await cluster.commit(first, b"early")
        await cluster.start(1)
        await _admitted(cluster, 1, learners=1)
        old = copy.deepcopy(first.disk)
        await cluster.start(2)
        await _admitted(cluster, 2, learners=0)
        await trio.sleep(5)
        await cluster.kill(0, notify=True)
        leader = await cluster.elect()
        await cluster.commit(leader, b"late")
        term = leader.live.term
        first.disk = old
        await cluster.start(0)
        await cluster.agree([b"early", b"late"], [0, 1, 2])
        assert (leader.live.is_leader, leader.live.term) == (True, term)


async def _admitted(cluster: Cluster, number: int, *, learners: int) -> None:
    """Let a node in, and wait until so many members listen only."""

    def is_so() -> bool:
        leader = cluster.leader()
        if leader is None:
            return False
        with suppress(InvalidRequest, NotController):
            leader.live.membership.admit(cluster.nodes[number].member)
        known = {each.node_id for each in (*leader.live.voters, *leader.live.learners)}
        return number in known and len(leader.live.learners) == learners

    await cluster.until(is_so)


async def test_the_mark_holds_the_syncs_of_the_logs_beside_the_promises() -> None:
    disk = MemoryDisk()
    mark = await PromiseMark.open(disk, PATH)
    mark.write(PROMISED)
    mark.note_syncs(9)
    assert mark.to_ride(), "news rides at once"
    assert not mark.to_ride()
    mark.close()
    whole = disk.content(mark_of(PATH))
    for place in range(len(whole)):
        disk.overwrite(
            mark_of(PATH), whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        )
        mark = await PromiseMark.open(disk, PATH)
        mark.close()
        assert mark.syncs == (0 if 64 <= place < 76 else 9)
        assert (mark.found == PROMISED) == (place >= 60)
    disk.overwrite(mark_of(PATH), whole[:64])
    mark = await PromiseMark.open(disk, PATH)
    mark.close()
    assert (mark.found, mark.syncs) == (PROMISED, 0)
