"""Damaged replicas are reported, refetched and rejoin; full and failing disks
(replication/DESIGN 6, storage/DESIGN 2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog

from paceline.errors import CorruptMessage, ErrorCode, StorageFull
from paceline.types import Acks
from paceline.wire.batch import validate_client_batches
from paceline_node.env import Disk, File
from paceline_node.replication.partition import Partition
from paceline_node.storage.producers import ProducerTable
from tests.integration.replication.cluster import TestCluster, batch, produce, running_cluster
from tests.integration.replication.test_replication import settled, values


class BrokenSyncDisk:
    """The real disk, whose syncs fail once told to."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    async def sync(self, files: Sequence[File]) -> None:
        if self.broken:
            raise OSError(5, "Input/output error")
        await self._disk.sync(files)


def flip(partition: Partition, root: Path, offset: int) -> None:
    """Flip one bit in the value of the record at ``offset``, behind the broker's back."""
    found = partition.log.locate(offset, 1, partition.log_end_offset)
    assert found is not None
    with (root / found.file.path).open("r+b") as file:
        file.seek(found.position + found.size - 2)
        byte = file.read(1)
        file.seek(found.position + found.size - 2)
        file.write(bytes([byte[0] ^ 1]))


def rot_length(partition: Partition, root: Path, offset: int) -> None:
    """Spoil the length of the batch at ``offset``, behind the broker's back."""
    found = partition.log.locate(offset, 1, partition.log_end_offset)
    assert found is not None
    with (root / found.file.path).open("r+b") as file:
        file.seek(found.position + 8)
        file.write(b"\x40")


async def written(cluster: TestCluster, count: int = 6) -> Partition:
    await cluster.create_topic("t", min_insync_replicas="2")
    leader = cluster.leader("t")
    assert leader is not None
    for number in range(count):
        await produce(leader, batch(b"value %d" % number))
    await settled(cluster, "t")
    return leader


async def test_bit_flip_on_a_follower_is_found_and_repaired(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await written(cluster)
        node = next(n for n in cluster.nodes.values() if n.node_id != leader.leader)
        damaged = node.partition("t")
        flip(damaged, node.root, 2)
        node.manager.repairs.suspect(damaged, 2)
        await cluster.wait(lambda: node.manager.repairs.repaired_count == 1)
        await cluster.wait(lambda: node.node_id in leader.isr)
        await produce(leader, batch(b"after"))
        await settled(cluster, "t")
        expected = [b"value %d" % number for number in range(6)] + [b"after"]
        assert values(damaged, from_follower=True) == expected


async def test_bit_flip_found_at_start_is_named_and_repaired(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await written(cluster)
        node = next(n for n in cluster.nodes.values() if n.node_id != leader.leader)
        flip(node.partition("t"), node.root, 1)
        await node.manager.maintenance.checkpoint()
        await cluster.kill(node.node_id)
        again = await cluster.start(node.node_id)
        await cluster.wait(lambda: again.manager.repairs.repaired_count == 1)
        await cluster.wait(lambda: node.node_id in leader.isr)
        await settled(cluster, "t")
        assert not again.partition("t").log.damaged
        expected = [b"value %d" % number for number in range(6)]
        assert values(again.partition("t"), from_follower=True) == expected


async def test_damaged_leader_hands_over_and_is_repaired(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await written(cluster)
        node = cluster.nodes[leader.leader]
        flip(leader, node.root, 3)
        leader.suspect(3)
        await cluster.wait(
            lambda: (moved := cluster.leader("t")) is not None and moved.leader != node.node_id
        )
        moved = cluster.leader("t")
        assert moved is not None
        await cluster.wait(lambda: node.manager.repairs.repaired_count == 1)
        await cluster.wait(lambda: node.node_id in moved.isr)
        await produce(moved, batch(b"after"))
        await settled(cluster, "t")
        assert values(leader, from_follower=True)[-1] == b"after"


async def test_a_reader_asks_again_until_the_controller_has_said_who_leads(tmp_path: Path) -> None:
    """One that came between a leader's own discovery and the next leader gave up at once."""
    async with running_cluster(tmp_path) as cluster:
        leader = await written(cluster)
        node = cluster.nodes[leader.leader]
        node.controller.cut = True
        flip(leader, node.root, 3)
        leader.suspect(3)
        await cluster.wait(lambda: bool(leader.log.damaged))
        with pytest.raises(CorruptMessage, match=r"offset 3 is damaged.*ask again") as refused:
            leader.read(3, 1)
        assert refused.value.retriable
        assert refused.value.code is ErrorCode.STORAGE_ERROR
        node.controller.cut = False
        await cluster.wait(lambda: node.manager.repairs.repaired_count == 1)
        await settled(cluster, "t")


async def test_a_reader_is_told_at_once_what_nobody_else_can_have(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, count=1) as cluster:
        await cluster.create_topic("t", replicas=1)
        leader = cluster.leader("t")
        assert leader is not None
        for number in range(6):
            await produce(leader, batch(b"value %d" % number))
        flip(leader, cluster.nodes[0].root, 3)
        leader.suspect(3)
        await cluster.wait(lambda: cluster.registration("t").damaged == (0,))
        with pytest.raises(CorruptMessage, match="offset 3 is damaged") as refused:
            leader.read(3, 1)
        assert not refused.value.retriable
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


async def test_a_damaged_leader_gives_up_what_nobody_fetched_and_is_repaired(
    tmp_path: Path,
) -> None:
    """While it is damaged it fetches nothing, so its end that nobody has must not be in the way."""
    async with running_cluster(tmp_path) as cluster:
        leader = await written(cluster)
        node = cluster.nodes[leader.leader]
        epoch = leader.leader_epoch
        tail = batch(b"nobody has this")

        def stepped_down(partition: Partition) -> None:
            """As if it had written this last, a moment before."""
            if partition is leader and partition.leader_epoch > epoch:
                headers = validate_client_batches(tail)
                partition.log.append_leader(tail, epoch, 1000, headers)
                unwatch()

        unwatch = node.manager.watch_roles(stepped_down, lambda _: None)
        flip(leader, node.root, 3)
        leader.suspect(3)
        await cluster.wait(
            lambda: (moved := cluster.leader("t")) is not None and moved.leader != node.node_id
        )
        moved = cluster.leader("t")
        assert moved is not None
        await produce(moved, batch(b"after"))
        await cluster.wait(lambda: node.manager.repairs.repaired_count == 1)
        await cluster.wait(lambda: node.node_id in moved.isr)
        await settled(cluster, "t")
        expected = [b"value %d" % number for number in range(6)] + [b"after"]
        assert values(leader, from_follower=True) == expected


async def test_damage_met_by_a_cut_is_repaired_and_no_producer_is_forgotten(tmp_path: Path) -> None:
    """What the cut has to read again for the producer table, and cannot."""
    async with running_cluster(tmp_path) as cluster:
        await cluster.create_topic("t", min_insync_replicas="2", segment_bytes="1024")
        forked = cluster.leader("t")
        assert forked is not None
        node, epoch = cluster.nodes[forked.leader], forked.leader_epoch
        forked.log.producers = forked.log.state.table = ProducerTable(journal_batches=2)
        for number in range(6):
            await produce(forked, batch(bytes(400), producer=(5, 0, number)))
        await settled(cluster, "t")
        rot_length(forked, node.root, 0)

        def stepped_down(partition: Partition) -> None:
            """As if it had written this last, a moment before."""
            if partition is forked and partition.leader_epoch > epoch:
                unwatch()
                for number in range(10):
                    tail = batch(bytes(400), producer=(5, 0, 6 + number))
                    forked.log.append_leader(tail, epoch, 1000, validate_client_batches(tail))

        unwatch = node.manager.watch_roles(stepped_down, lambda _: None)
        cluster.elect("t", (node.node_id + 1) % 3)
        await cluster.wait(lambda: node.manager.repairs.repaired_count == 1)
        leader = cluster.leader("t")
        assert leader is not None
        await cluster.wait(lambda: node.node_id in leader.isr)
        await produce(leader, batch(b"after", producer=(5, 0, 6)))
        await settled(cluster, "t")
        assert forked.log.producers.snapshot() == leader.log.producers.snapshot()
        assert values(forked, from_follower=True) == values(leader)


async def test_full_disk_refuses_writes_definitely(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        leader = await written(cluster, 1)
        node = cluster.nodes[leader.leader]
        node.manager.context.admission.storage_full = True
        with pytest.raises(StorageFull):
            await produce(leader, batch(b"x"))
        assert leader.log_end_offset == 1
        node.manager.context.admission.storage_full = False
        await produce(leader, batch(b"x"))


async def test_failed_sync_ends_the_node_and_acknowledges_nothing(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, count=2) as cluster:
        disks: list[BrokenSyncDisk] = []

        def wrap(disk: Disk) -> Disk:
            disks.append(BrokenSyncDisk(disk))
            return disks[0]

        await cluster.start(2, wrap=wrap)
        await cluster.create_topic("t", min_insync_replicas="2")
        if cluster.registration("t").leader != 2:
            cluster.elect("t", 2)
        leader = cluster.leader("t")
        assert leader is not None
        await produce(leader, batch(b"good"))
        await settled(cluster, "t")  # whoever leads next knows it to be committed, too
        disks[0].broken = True
        node = cluster.nodes[2]
        before = leader.high_watermark
        answers: list[object] = []
        data = batch(b"bad")
        leader.produce(
            data,
            validate_client_batches(data),
            acks=Acks.ALL,
            timeout_s=5.0,
            done=answers.append,
        )
        await cluster.wait(lambda: bool(node.failures))
        assert node.manager.health.offline
        assert leader.high_watermark == before
        await cluster.kill(2)
        assert len(answers) <= 1
        moved = cluster.leader("t")
        assert moved is not None
        assert values(moved)[0] == b"good"


async def test_records_that_no_replica_can_read_are_told_of_and_trimmed_away(
    tmp_path: Path,
) -> None:
    """All three damaged at one place: one goes on leading without those records, and the others
    cannot be repaired from it. Deleting what is lost makes all of them whole."""
    with structlog.testing.capture_logs() as logs:
        async with running_cluster(tmp_path) as cluster:
            await written(cluster)
            for node in cluster.nodes.values():
                flip(node.partition("t"), node.root, 2)
                node.partition("t").suspect(2)
            await cluster.wait(lambda: len(cluster.registration("t").damaged) == 3)
            await cluster.wait(lambda: cluster.leader("t") is not None)
            chosen = cluster.leader("t")
            assert chosen is not None
            assert chosen.isr == (chosen.leader,)
            await cluster.wait(lambda: _told(logs) >= {0, 1, 2} - {chosen.leader})
            with pytest.raises(CorruptMessage, match="offset 2 is damaged"):
                chosen.read(2, 1)
            chosen.trim(3)
            await cluster.wait(lambda: len(cluster.registration("t").isr) == 3)
            await cluster.wait(lambda: cluster.leader("t") is not None)
            assert not cluster.registration("t").damaged
            leader = cluster.leader("t")
            assert leader is not None
            await produce(leader, batch(b"after"))
            await settled(cluster, "t")
            expected = [b"value 3", b"value 4", b"value 5", b"after"]
            for node in cluster.nodes.values():
                assert values(node.partition("t"), from_follower=True) == expected


def _told(logs: list[Any]) -> set[int]:
    """Nodes whose log says what an operator can do."""
    return {each["node"] for each in logs if "paceline topic trim" in each["event"]}
