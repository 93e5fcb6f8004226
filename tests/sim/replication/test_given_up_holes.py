"""One disk rots, and the log start passes what is bad before anybody repairs it. What the bad
records have said comes from the leader: a batch that is sent again is known to that replica, once
it leads.
"""

from __future__ import annotations

import pytest
import trio
import trio.testing

from paceline_node.replication.partition import Partition
from tests.integration.replication.cluster import batch, produce
from tests.sim.replication.memory_cluster import MemoryCluster, memory_cluster
from tests.sim.replication.test_states import joins, leads

BEFORE, MINE, END = 5, 3, 9
"""Records before those of producer 7; its own; and one behind them."""


async def written(cluster: MemoryCluster, **configs: str) -> Partition:
    await cluster.create_topic("t", min_insync_replicas="2", **configs)
    leader = await leads(cluster, 0)
    for number in range(BEFORE):
        await produce(leader, batch(b"before %d" % number))
    for sequence in range(MINE):
        await produce(leader, batch(b"mine %d" % sequence, producer=(7, 0, sequence)))
    await produce(leader, batch(b"behind"))
    await cluster.wait(lambda: cluster.all_at("t", END))
    for node in cluster.nodes.values():
        await node.manager.maintenance.checkpoint()
    return leader


async def trim(cluster: MemoryCluster, leader: Partition, offset: int) -> None:
    reached = trio.Event()
    leader.trim(offset)
    leader.trims.when_reached(offset, reached.set)
    await cluster.wait(reached.is_set)


async def all_end_and_one_rots(cluster: MemoryCluster) -> None:
    """All processes end; what producer 7 wrote rots on node 0."""
    segment = cluster.nodes[0].partition("t").log.segments[0]
    places = [segment.find(BEFORE + sequence) for sequence in range(MINE)]
    for number in tuple(cluster.nodes):
        await cluster.kill(number)
    content = bytearray(cluster.disks[0].content(segment.path()))
    for place in places:
        assert place is not None
        content[place.position + 64] ^= 1
    cluster.disks[0].overwrite(segment.path(), bytes(content))


async def knows_a_batch_sent_again(cluster: MemoryCluster) -> None:
    await cluster.wait(lambda: len(cluster.registration("t").isr) == 3, 60.0)
    leader = await leads(cluster, 0)
    again = await produce(leader, batch(b"mine 2", producer=(7, 0, MINE - 1)))
    assert again.duplicate
    assert again.base_offset == BEFORE + MINE - 1


async def test_rot_below_a_trimmed_start(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster() as cluster:
        leader = await written(cluster)
        await trim(cluster, leader, BEFORE + MINE)
        await all_end_and_one_rots(cluster)
        for number in range(3):
            await cluster.start(number)
        await knows_a_batch_sent_again(cluster)


async def test_rot_that_expires_while_no_one_leads(autojump_clock: trio.testing.MockClock) -> None:
    async with memory_cluster() as cluster:
        await written(cluster, retention_ms="60000", segment_ms="60000")
        await all_end_and_one_rots(cluster)
        await trio.sleep(130)
        node = await cluster.start(0)
        await cluster.wait(lambda: 0 in cluster.registration("t").damaged)
        await trio.sleep(65)
        maintenance, log = node.manager.maintenance, node.partition("t").log
        await maintenance.enforce_retention()
        await maintenance.read_expired()
        await maintenance.enforce_retention()
        assert (log.log_start_offset, log.damaged) == (END, ())
        await trio.sleep(5)
        assert 0 in cluster.registration("t").damaged, "it may not call itself repaired"
        for number in (1, 2):
            await cluster.start(number)
        await knows_a_batch_sent_again(cluster)


async def test_a_lost_end_of_a_log_that_was_trimmed_to_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with memory_cluster() as cluster:
        leader = await written(cluster)
        await trim(cluster, leader, END)
        segment = leader.log.segments[0]
        path, kept = segment.path(), segment.find(3)
        assert kept is not None
        for number in (2, 1, 0):
            await cluster.stop(number)
        content = cluster.disks[0].content(path)
        cluster.disks[0].overwrite(path, content[: kept.position])
        for number in range(3):
            await cluster.start(number, clean=True)
        await knows_a_batch_sent_again(cluster)


async def test_an_operator_may_let_it_lead(autojump_clock: trio.testing.MockClock) -> None:
    """Nobody else is left: then what it knows counts, others begin with that, and no second word is
    needed at the next start."""
    async with memory_cluster() as cluster:
        leader = await written(cluster)
        await trim(cluster, leader, BEFORE + MINE)
        await all_end_and_one_rots(cluster)
        await cluster.start(0)
        await trio.sleep(5)
        assert cluster.registration("t").leader == -1
        cluster.elect_uncleanly("t", 0)
        await cluster.wait(lambda: not cluster.registration("t").damaged)
        for number in (1, 2):
            await joins(cluster, number)
        await cluster.kill(0)
        await joins(cluster, 0)
        assert not cluster.registration("t").damaged


@pytest.mark.parametrize("number", [0, 2])
async def test_what_rots_among_deleted_records_is_nobodys_damage(
    number: int, autojump_clock: trio.testing.MockClock
) -> None:
    """The log starts in the middle of a segment, and a scrub reads all of it. The replica was
    called damaged, its good records were cut, and nothing ever repaired what no leader has."""
    async with memory_cluster() as cluster:
        leader = await written(cluster)
        await trim(cluster, leader, END - 1)
        await cluster.wait(
            lambda: all(
                n.partition("t").log_start_offset == END - 1 for n in cluster.nodes.values()
            )
        )
        node = cluster.nodes[number]
        [segment] = node.partition("t").log.segments
        place = segment.find(3)
        assert place is not None
        content = bytearray(cluster.disks[number].content(segment.path()))
        content[place.position + 64] ^= 1
        cluster.disks[number].overwrite(segment.path(), bytes(content))
        await node.manager.repairs.scrub_round()
        log = node.partition("t").log
        assert not log.is_damaged
        assert (log.log_start_offset, log.log_end_offset) == (END - 1, END)
        assert await leads(cluster, 0) is leader
        assert len(cluster.registration("t").isr) == 3
