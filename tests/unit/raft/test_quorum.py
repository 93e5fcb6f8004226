"""The trio driver: elections, batching, restarts, snapshots, membership, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from paceline.errors import (
    DuplicateBrokerRegistration,
    InvalidRequest,
    NotController,
    RemoteProtocolError,
    StorageError,
    Throttled,
)
from paceline.types import NodeId
from paceline_cluster.sim.raft.durable import member
from paceline_node.controller.quorum import QuorumSettings
from paceline_node.settings.counts import JOINING
from tests.unit.raft.cluster import DELAY_S, SETTINGS, Cluster, Machine, Node, cluster_of


async def test_three_nodes_elect_and_replicate(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        await cluster.commit(leader, b"a", b"b")
        await cluster.agree([b"a", b"b"], range(3))
        assert {node.live.leader_id for node in cluster.nodes.values()} == {leader.number}
        assert leader.roles[-1].term == leader.live.term


async def test_election_within_its_bound(autojump_clock: MockClock) -> None:
    """Liveness V1: twice the longest election timeout and one second."""
    async with cluster_of(3) as cluster:
        start = trio.current_time()
        await cluster.elect()
        assert trio.current_time() - start <= 2 * 2.0 + 1


async def test_who_starts_does_not_wait_for_a_timeout(autojump_clock: MockClock) -> None:
    """Voters that start, even one after the other, elect as soon as a majority is there."""
    async with cluster_of(3) as cluster:
        start = trio.current_time()
        await cluster.elect()
        assert trio.current_time() - start < 0.05
        for number in range(3):
            await cluster.kill(number)
        for number in (2, 0, 1):
            await trio.sleep(0.3)
            await cluster.start(number)
        start = trio.current_time()
        await cluster.elect()
        assert trio.current_time() - start < 0.15, "at most one heartbeat until it asks again"


async def test_who_starts_waits_for_a_silent_voter_with_patience(
    autojump_clock: MockClock,
) -> None:
    """It may be the only one that has everything. Then the two go on, in terms above its own."""
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        term = leader.live.term
        for number in range(3):
            await cluster.kill(number)
        await cluster.start(2)
        await cluster.start(0)
        await trio.sleep(3.9)
        assert cluster.leader() is None
        again = await cluster.elect()
        assert again.live.term > term + 1000


async def test_a_failover_waits_for_nobody(autojump_clock: MockClock) -> None:
    """Neither in processes that run for long, nor in one that was started just now and has caught
    up with the leader that dies."""
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        follower = (leader.number + 1) % 3
        await cluster.kill(follower)
        await cluster.start(follower)
        await cluster.commit(leader, b"a")
        await cluster.until(lambda: cluster.nodes[follower].machine.values == [b"a"])
        await cluster.kill(leader.number, notify=True)
        start = trio.current_time()
        again = await cluster.elect()
        assert trio.current_time() - start < 0.5
        assert again.live.term < 1000


async def test_who_starts_beside_a_leader_disturbs_nobody(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        term = leader.live.term
        follower = (leader.number + 1) % 3
        await cluster.kill(follower)
        await trio.sleep(0.5)
        await cluster.start(follower)
        await cluster.until(lambda: cluster.nodes[follower].live.leader_id == leader.number)
        assert {node.live.term for node in cluster.nodes.values()} == {term}
        assert leader.live.is_leader


async def test_addresses_are_known_before_any_election(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        assert cluster.nodes[1].live.addresses[NodeId(2)] == ("host-2", 7401)
        assert [voter.node_id for voter in cluster.nodes[0].configs[0].voters] == [0, 1, 2]


async def test_proposals_of_one_moment_share_one_entry_round(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        await trio.sleep(0.5)
        syncs, sent = leader.disk.sync_count, cluster.sent
        places = [leader.live.propose([b"%d" % i]) for i in range(100)]
        await cluster.until(lambda: leader.live.applied_index >= places[-1][0])
        assert [index for index, _ in places] == list(range(places[0][0], places[0][0] + 100))
        assert leader.disk.sync_count - syncs == 1
        assert cluster.sent - sent <= 8


async def test_commit_takes_one_round_trip(autojump_clock: MockClock) -> None:
    """The leader's own sync runs while the followers' round trip does."""
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        await trio.sleep(0.3)
        for node in cluster.nodes.values():
            node.disk.sync_delay_s = lambda: 0.001
        start = trio.current_time()
        index, _ = leader.live.propose([b"a"])
        await cluster.until(lambda: leader.live.applied_index >= index, every_s=0.0001)
        assert trio.current_time() - start == pytest.approx(2 * DELAY_S + 0.001, abs=0.0003)


async def test_not_the_leader(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        await cluster.until(
            lambda: all(n.live.leader_id is not None for n in cluster.nodes.values())
        )
        follower = cluster.nodes[(leader.number + 1) % 3]
        with pytest.raises(NotController, match=f"node {leader.number} leads"):
            follower.live.propose([b"x"])
        with pytest.raises(NotController):
            await follower.live.read_barrier()
        with pytest.raises(NotController):
            follower.live.membership.admit(member(9))
        with pytest.raises(NotController):
            follower.live.transfer_leadership()


async def test_only_so_many_nodes_may_ask_to_join(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        members = leader.live.membership
        for number in range(JOINING.bound):
            members.admit(member(10 + number))
        with pytest.raises(Throttled, match=f"{JOINING.bound} nodes"):
            members.admit(member(9))
        members.admit(member(10))  # who has asked may ask again


async def test_leader_cut_off(autojump_clock: MockClock) -> None:
    """It steps down; what it took alone is lost, and the loss can be told by the term."""
    async with cluster_of(3) as cluster:
        old = await cluster.elect()
        await cluster.commit(old, b"a")
        cluster.cut(old.number)
        index, term = old.live.propose([b"lost"])
        await cluster.until(lambda: not old.live.is_leader)
        new = await cluster.elect()
        assert new is not old
        await cluster.commit(new, b"b")
        cluster.cuts.clear()
        await cluster.agree([b"a", b"b"], range(3))
        assert old.live.applied_index >= index
        assert old.live.term > term


async def test_proof_of_death_needs_no_timeout(autojump_clock: MockClock) -> None:
    """controller/RAFT 2.5: a few message delays after the refusal there is a new leader."""
    async with cluster_of(3) as cluster:
        old = await cluster.elect()
        await cluster.commit(old, b"a")
        start = trio.current_time()
        await cluster.kill(old.number, notify=True)
        new = await cluster.elect()
        assert trio.current_time() - start < 0.05
        assert new.machine.values == [b"a"]


@pytest.mark.parametrize("power", [False, True])
async def test_restart_of_all(autojump_clock: MockClock, power: bool) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        for i in range(5):
            await cluster.commit(leader, b"%d" % i)
        for number in range(3):
            await cluster.kill(number, power=power)
        for number in range(3):
            await cluster.start(number)
        await cluster.elect()
        await cluster.agree([b"0", b"1", b"2", b"3", b"4"], range(3))


SMALL = replace(SETTINGS, snapshot_entries=20)


async def test_snapshot_install_on_a_node_that_was_away(autojump_clock: MockClock) -> None:
    limits = replace(SMALL.limits, keep_entries=5, chunk_bytes=64)
    async with cluster_of(3, settings=replace(SMALL, limits=limits)) as cluster:
        leader = await cluster.elect()
        away = cluster.nodes[(leader.number + 1) % 3]
        await cluster.kill(away.number)
        values = [b"%03d" % i for i in range(100)]
        for value in values:
            await cluster.commit(leader, value)
        await cluster.start(away.number)
        await cluster.agree(values, range(3))
        assert [name for name in away.disk.list("metadata") if name.endswith(".snapshot")]
        await cluster.kill(away.number, power=True)
        await cluster.start(away.number)
        await cluster.agree(values, range(3))


async def test_restart_from_own_snapshot(autojump_clock: MockClock) -> None:
    async with cluster_of(1, settings=SMALL) as cluster:
        node = await cluster.elect()
        values = [b"%03d" % i for i in range(50)]
        for value in values:
            await cluster.commit(node, value)
        await cluster.kill(0, power=True)
        await cluster.start(0)
        assert len(node.machine.values) >= 20
        await cluster.elect()
        await cluster.agree(values, [0])


class Rounds(trio.abc.Instrument):
    """Counts how often the loop has looked at what else is due."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += 1


async def test_much_is_applied_in_turns(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others run between the parts of what one commit brings; a read waits for all of it, and a
    member that is away takes it from a snapshot."""
    async with cluster_of(3, settings=replace(SETTINGS, snapshot_entries=2)) as cluster:
        leader = await cluster.elect()
        await cluster.kill(next(n for n in cluster.nodes if n != leader.number))
        seen: list[int] = []
        rounds = Rounds()
        trio.lowlevel.add_instrument(rounds)
        apply = Machine.apply

        def watched(self: Machine, index: int, term: int, records: Sequence[bytes]) -> None:
            if self is leader.machine:
                seen.append(rounds.count)
            apply(self, index, term, records)

        monkeypatch.setattr(Machine, "apply", watched)
        values = [b"%d" % number for number in range(1000)]
        for first in range(0, 1000, 100):
            leader.live.propose(values[first : first + 100])
        await cluster.agree(values, [leader.number])
        assert len(set(seen)) >= 4, "more than 250 records in one turn"
        assert max(map(seen.count, seen)) <= 3
        for node in cluster.nodes.values():
            if node.quorum is None:
                await cluster.start(node.number)
        await cluster.agree(values, range(3))


async def test_read_barrier(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        await cluster.commit(leader, b"a")
        before = leader.live.commit_index
        assert await leader.live.read_barrier() >= before
        cluster.cut(leader.number)
        with pytest.raises(NotController, match="lost"), trio.fail_after(5):
            await leader.live.read_barrier()


async def test_cancelled_read_barrier(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        cluster.cut(leader.number)
        with trio.move_on_after(0.2) as scope:
            await leader.live.read_barrier()
        assert scope.cancelled_caught
        cluster.cuts.clear()
        assert await leader.live.read_barrier() > 0


async def test_transfer(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        old = await cluster.elect()
        target = old.live.transfer_leadership()
        await cluster.until(lambda: cluster.nodes[target].live.is_leader, within_s=0.2)
        back = cluster.nodes[target].live
        await cluster.until(lambda: back.applied_index >= back.last_index)
        assert back.transfer_leadership(NodeId(old.number)) == old.number
        await cluster.until(lambda: old.quorum is not None and old.live.is_leader, within_s=0.2)
        with pytest.raises(InvalidRequest):
            old.live.transfer_leadership(NodeId(77))


def voters(node: Node) -> list[int]:
    return [int(voter.node_id) for voter in node.live.voters]


async def ask_until(cluster: Cluster, node: Node, reached: Callable[[], bool]) -> None:
    """What a joining node does: it asks the leader again and again."""
    for _ in range(100):
        leader = cluster.leader()
        if leader is not None:
            with suppress(DuplicateBrokerRegistration):  # its old disk was heard a moment ago
                leader.live.membership.admit(node.member)
        if reached():
            return
        await trio.sleep(0.1)
    raise AssertionError("; ".join(cluster.describe()))


async def test_join_and_grow_to_three_voters(autojump_clock: MockClock) -> None:
    async with cluster_of(1) as cluster:
        leader = await cluster.elect()
        await cluster.commit(leader, b"a")
        await cluster.start(1)
        await ask_until(cluster, cluster.nodes[1], lambda: len(leader.live.learners) == 1)
        await cluster.agree([b"a"], [0, 1])
        await trio.sleep(3)
        assert voters(leader) == [0]
        await cluster.start(2)
        await ask_until(cluster, cluster.nodes[2], lambda: voters(leader) == [0, 1, 2])
        await cluster.agree([b"a"], range(3))


async def test_wiped_voter_is_healed(autojump_clock: MockClock) -> None:
    """controller/RAFT 4.3: it comes back with an empty directory and a new identity."""
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        await cluster.commit(leader, b"a")
        wiped = cluster.nodes[(leader.number + 1) % 3]
        await cluster.kill(wiped.number)
        wiped.disk.wipe()
        wiped.disk_number += 1
        await cluster.start(wiped.number)
        await ask_until(
            cluster, wiped, lambda: wiped.member in leader.live.voters and len(voters(leader)) == 3
        )
        await cluster.agree([b"a"], range(3))


async def test_moved_node_tells_its_new_address(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        moved = replace(cluster.nodes[(leader.number + 1) % 3].member, host="elsewhere", port=1)
        leader.live.membership.admit(moved)
        await cluster.until(
            lambda: all(
                node.live.addresses[moved.node_id] == ("elsewhere", 1)
                for node in cluster.nodes.values()
            )
        )


async def test_membership_by_hand(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        other = (leader.number + 1) % 3
        await cluster.start(3)
        leader.live.membership.admit(member(3))
        await cluster.until(lambda: member(3) in leader.live.config.members, every_s=0.0001)
        with pytest.raises(InvalidRequest, match="not caught up"):
            leader.live.membership.add_voter(NodeId(3), None)
        await trio.sleep(1)
        index, _ = leader.live.membership.add_voter(NodeId(3), None)
        await cluster.until(lambda: leader.live.applied_index >= index)
        assert len(voters(leader)) == 4
        index, _ = leader.live.membership.remove(NodeId(other))
        await cluster.until(lambda: leader.live.applied_index >= index)
        assert other not in voters(leader)
        with pytest.raises(InvalidRequest, match="not a member"):
            leader.live.membership.remove(NodeId(other))


async def test_forced_removal(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        dead = (leader.number + 1) % 3
        last = (leader.number + 2) % 3
        await cluster.kill(dead, notify=True)
        with pytest.raises(InvalidRequest, match="would remain"):
            leader.live.membership.remove(NodeId(last))
        leader.live.membership.remove(NodeId(last), force=True)
        assert len(voters(leader)) == 2


async def test_failed_disk_ends_the_quorum(autojump_clock: MockClock) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        leader.disk.fail_next("sync")
        leader.live.propose([b"x"])
        await cluster.until(lambda: leader.quorum is None)
        assert isinstance(leader.failure, StorageError | ExceptionGroup)
        failures = leader.failure
        while isinstance(failures, ExceptionGroup):
            failures = failures.exceptions[0]
        assert isinstance(failures, StorageError)
        await cluster.until(lambda: cluster.leader() is not None and cluster.leader() is not leader)


async def test_hostile_bytes(autojump_clock: MockClock) -> None:
    captured: list[bytes] = []
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        honest = cluster.send
        cluster.send = lambda s, t, d: captured.append(d)  # type: ignore[method-assign]
        await trio.sleep(0.3)
        cluster.send = honest  # type: ignore[method-assign]
        follower = cluster.nodes[(leader.number + 1) % 3]
        with pytest.raises(RemoteProtocolError):
            follower.live.receive(NodeId(leader.number), captured[0][:-1])
        with pytest.raises(RemoteProtocolError):
            follower.live.receive(NodeId(leader.number), b"\x63" + captured[0][1:])
        with pytest.raises(RemoteProtocolError, match="in the name of"):
            follower.live.receive(NodeId(follower.number), captured[0])


async def test_a_stopped_process_does_not_campaign_for_time_it_slept(
    autojump_clock: MockClock,
) -> None:
    """Ticks are not made up for after a stall."""
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        await trio.sleep(0.2)
        terms = leader.live.term
        autojump_clock.jump(30)
        await trio.sleep(1)
        assert cluster.leader() is leader
        assert leader.live.term == terms


async def test_a_leader_whose_process_was_stopped_is_not_sure_until_a_majority_confirms_it(
    autojump_clock: MockClock,
) -> None:
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        await trio.sleep(0.2)
        assert leader.live.is_sure()
        autojump_clock.jump(0.5)
        assert leader.live.is_sure()  # nobody elects another one so soon
        autojump_clock.jump(1.0)
        assert leader.live.is_leader
        assert not leader.live.is_sure()
        await cluster.until(leader.live.is_sure)
        assert cluster.leader() is leader
        for other in {0, 1, 2} - {leader.number}:
            cluster.cuts |= {(leader.number, other), (other, leader.number)}
        autojump_clock.jump(1.0)
        for _ in range(30):
            assert not leader.live.is_sure()
            await trio.sleep(0.1)


async def test_who_needs_no_others_is_always_sure(autojump_clock: MockClock) -> None:
    async with cluster_of(1) as cluster:
        leader = await cluster.elect()
        autojump_clock.jump(30)
        assert leader.live.is_sure()


def test_settings_profiles() -> None:
    assert SETTINGS.timing.tick_s == pytest.approx(0.05)
    assert SETTINGS.timing.election_ticks == 20
    assert QuorumSettings().timing == SETTINGS.timing


async def test_a_member_on_an_old_copy_of_its_disk_is_told_everything_again(
    autojump_clock: MockClock,
) -> None:
    """The leader remembers that it had acknowledged more than it has now."""
    async with cluster_of(3) as cluster:
        leader = await cluster.elect()
        follower = cluster.nodes[(leader.number + 1) % 3]
        await cluster.commit(leader, b"a")
        await cluster.agree([b"a"], [0, 1, 2])
        await cluster.kill(follower.number)
        old = {name: follower.disk.content(name) for name in _metadata(follower)}
        await cluster.start(follower.number)
        for value in (b"b", b"c", b"d"):
            await cluster.commit(leader, value)
        await cluster.agree([b"a", b"b", b"c", b"d"], [0, 1, 2])
        await cluster.kill(follower.number)
        for name in _metadata(follower):
            follower.disk.remove(name)
        for name, content in old.items():
            file = follower.disk.create(name)
            file.append([content])
            file.close()
        await cluster.start(follower.number)
        await cluster.agree([b"a", b"b", b"c", b"d"], [0, 1, 2])
        await cluster.until(lambda: leader.live.membership.forgetful == {follower.member.id})


def _metadata(node: Node) -> list[str]:
    """All of it goes back in time, and what would tell, too."""
    directories = ("metadata", "metadata.copy")
    names = [f"{path}/{name}" for path in directories for name in node.disk.list(path)]
    return [*names, "metadata.mark"]
