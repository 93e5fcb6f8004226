"""A leader epoch lies outside its batch's checksum. One that rotted in the newest batches, above
the last checkpoint of the epochs, is damage of that batch: nobody leads or follows by it.
"""

from __future__ import annotations

import pytest
import trio.testing

from paceline.wire.batch import iter_batches
from tests.integration.replication.cluster import batch, produce
from tests.integration.replication.test_replication import values
from tests.sim.replication.memory_cluster import RECORDS, MemoryCluster, memory_cluster

EPOCH_AT = 12
EPOCH_BYTES = 4
END = len(RECORDS)


def rot_epoch(cluster: MemoryCluster, number: int, offset: int, change: int) -> None:
    """Change the leader epoch of the batch at ``offset`` of a node's replica by ``change``."""
    disk = cluster.disks[number]
    for path, _ in list(disk.files()):
        if not (path.startswith("topics/t-0.") and path.endswith(".log")):
            continue
        content = bytearray(disk.content(path))
        for at, header in iter_batches(bytes(content)):
            if header.base_offset == offset:
                place = slice(at + EPOCH_AT, at + EPOCH_AT + EPOCH_BYTES)
                content[place] = (header.leader_epoch + change).to_bytes(EPOCH_BYTES, "big")
                disk.overwrite(path, bytes(content))
                return
    raise AssertionError(f"no batch at {offset}")


def lose_proofs(cluster: MemoryCluster, number: int) -> None:
    """What says beside the log of which leader epochs it is."""
    disk = cluster.disks[number]
    for path, _ in list(disk.files()):
        if path == "durable.marks" or (path.startswith("topics/t-0.") and "epochs" in path):
            disk.lose(path)


@pytest.mark.parametrize(
    ("change", "offset"), [(1, END - 1), (256, END - 1), (-1, END - 1), (1, END - 7)]
)
@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_a_rotten_epoch_is_damage_of_its_batch(
    role: str, change: int, offset: int, autojump_clock: trio.testing.MockClock
) -> None:
    async with memory_cluster() as cluster:
        await cluster.written(RECORDS[:3], min_insync_replicas="2")
        numbers = list(cluster.nodes)
        for number in numbers:
            await cluster.kill(number)
        for number in numbers:
            await cluster.start(number)
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3)
        leader = cluster.leader("t")
        assert leader is not None
        for value in RECORDS[3:]:
            await produce(leader, batch(value))
        await cluster.wait(lambda: cluster.all_at("t", END))
        told = leader.log.epochs.epoch_at(offset)
        hurt = leader.leader if role == "leader" else cluster.follower().node_id
        for number in numbers:
            await cluster.kill(number)
        rot_epoch(cluster, hurt, offset, change)
        await cluster.start(hurt)
        for number in numbers:
            if number != hurt:
                await cluster.start(number)
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3, timeout_s=60)
        leader = cluster.leader("t")
        assert leader is not None
        await produce(leader, batch(b"more"))
        await cluster.wait(lambda: cluster.all_at("t", END + 1))
        for node in cluster.nodes.values():
            assert values(node.partition("t"), from_follower=True) == [*RECORDS, b"more"]
            assert node.partition("t").log.epochs.epoch_at(offset) == told
            assert not node.failures


@pytest.mark.parametrize("offset", [END - 1, END - 7])
async def test_a_follower_takes_no_epoch_that_its_leader_does_not_vouch_for(
    offset: int, autojump_clock: trio.testing.MockClock
) -> None:
    """One bit of a running leader's file, and a follower that comes back: it must not take the
    batch for one of a newer term, or its log would be the longest after all went down."""
    async with memory_cluster() as cluster:
        await cluster.written(RECORDS[:3], min_insync_replicas="2")
        behind = cluster.follower().node_id
        await cluster.kill(behind)
        leader = cluster.leader("t")
        assert leader is not None
        for value in RECORDS[3:]:
            await produce(leader, batch(value))
        for _ in range(3):  # terms without a single write
            led = cluster.registration("t").leader
            await cluster.kill(led)
            await cluster.wait(lambda led=led: cluster.registration("t").leader not in (-1, led))
            await cluster.start(led)
            await cluster.wait(lambda: len(cluster.registration("t").isr) == 2)
        leader = cluster.leader("t")
        assert leader is not None
        told = leader.log.epochs.epoch_at(offset)
        rot_epoch(cluster, leader.leader, offset, 2)
        await cluster.start(behind)
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3, timeout_s=60)
        leader = cluster.leader("t")
        assert leader is not None
        await produce(leader, batch(b"more"))
        await cluster.wait(lambda: cluster.all_at("t", END + 1))
        for node in cluster.nodes.values():
            assert values(node.partition("t"), from_follower=True) == [*RECORDS, b"more"]
            assert node.partition("t").log.epochs.epoch_at(offset) == told
            assert not node.failures


@pytest.mark.parametrize("change", [1 << 24, 1 << 30])
@pytest.mark.parametrize("is_orderly", [True, False])
@pytest.mark.parametrize("role", ["leader", "follower"])
async def test_an_epoch_that_has_not_begun_is_damage(
    role: str, is_orderly: bool, change: int, autojump_clock: trio.testing.MockClock
) -> None:
    """Neither table nor mark are there to tell, and the log may be elected."""
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS, min_insync_replicas="2")
        told = leader.log.epochs.epoch_at(END - 1)
        hurt = leader.leader if role == "leader" else cluster.follower().node_id
        numbers = list(cluster.nodes)
        for number in [*[n for n in numbers if n != hurt], hurt]:  # the last one leads again
            await (cluster.stop(number) if is_orderly else cluster.kill(number))
        rot_epoch(cluster, hurt, END - 1, change)
        lose_proofs(cluster, hurt)
        await cluster.start(hurt)
        for number in numbers:
            if number != hurt:
                await cluster.start(number)
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3, timeout_s=60)
        led = cluster.leader("t")
        assert led is not None
        await produce(led, batch(b"more"))
        await cluster.wait(lambda: cluster.all_at("t", END + 1))
        for node in cluster.nodes.values():
            assert values(node.partition("t"), from_follower=True) == [*RECORDS, b"more"]
            assert node.partition("t").log.epochs.epoch_at(END - 1) == told
            assert not node.failures


@pytest.mark.parametrize("is_orderly", [True, False])
async def test_an_epoch_that_nothing_else_knows_makes_no_log_the_longest(
    is_orderly: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """A node was behind; its last batch says that it is of the newest term, which wrote nothing."""
    async with memory_cluster() as cluster:
        await cluster.written(RECORDS[:5], min_insync_replicas="2")
        behind = cluster.follower().node_id
        await (cluster.stop(behind) if is_orderly else cluster.kill(behind))
        leader = cluster.leader("t")
        assert leader is not None
        for value in RECORDS[5:]:
            await produce(leader, batch(value))
        await cluster.wait(lambda: cluster.all_at("t", END))
        for number in list(cluster.nodes):
            await cluster.kill(number)
        rot_epoch(cluster, behind, 4, 1)
        lose_proofs(cluster, behind)
        first, second = (number for number in range(3) if number != behind)
        await cluster.start(behind)
        await cluster.start(first)
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 2, timeout_s=60)
        await cluster.start(second)
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3, timeout_s=60)
        led = cluster.leader("t")
        assert led is not None
        await produce(led, batch(b"more"))
        await cluster.wait(lambda: cluster.all_at("t", END + 1))
        for node in cluster.nodes.values():
            assert values(node.partition("t"), from_follower=True) == [*RECORDS, b"more"]
            assert not node.failures


async def test_a_repair_mends_an_epoch_table_that_was_made_from_rot(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The last batch of a sealed segment says that a later term began there, and nothing is left
    that knows better: the whole segment behind was called damaged, again after each repair."""
    async with memory_cluster() as cluster:
        leader = await cluster.written(RECORDS[:5], min_insync_replicas="2")
        for node in cluster.nodes.values():
            node.partition("t").log.seal()
        for value in RECORDS[5:10]:
            await produce(leader, batch(value))
        led = leader.leader
        await cluster.kill(led)
        await cluster.wait(lambda: cluster.registration("t").leader not in (-1, led))
        await cluster.start(led)
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3)
        newer = cluster.leader("t")
        assert newer is not None
        for value in RECORDS[10:]:
            await produce(newer, batch(value))
        await cluster.wait(lambda: cluster.all_at("t", END))
        hurt = cluster.follower().node_id
        await cluster.kill(hurt)
        rot_epoch(cluster, hurt, 4, 1)
        lose_proofs(cluster, hurt)
        await cluster.start(hurt)
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3, timeout_s=60)
        here = cluster.nodes[hurt]
        await here.manager.repairs.scrub_round()
        await cluster.wait(lambda: len(cluster.registration("t").isr) == 3, timeout_s=60)
        log = here.partition("t").log
        assert log.epochs == newer.log.epochs
        assert log.damaged == ()
        await here.manager.repairs.scrub_round()
        assert log.damaged == ()
        for node in cluster.nodes.values():
            assert values(node.partition("t"), from_follower=True) == RECORDS
            assert not node.failures
