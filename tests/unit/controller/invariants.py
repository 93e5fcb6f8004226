"""The membership invariants of replication/DESIGN 2 that the controller alone must keep."""

from __future__ import annotations

from paceline.types import NO_NODE
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import PartitionRegistration


def check_shape(partition: PartitionRegistration) -> None:
    """I12, the part that needs no brokers."""
    isr, elr, lkelr = set(partition.isr), set(partition.elr), set(partition.lkelr)
    replicas = set(partition.replicas)
    for members in (partition.replicas, partition.isr, partition.elr, partition.lkelr):
        assert len(set(members)) == len(members), partition
    assert isr <= replicas, partition
    assert elr <= replicas, partition
    assert lkelr <= replicas, partition
    assert set(partition.marks) <= replicas, partition
    assert not isr & elr, partition
    assert not lkelr & (isr | elr), partition
    assert partition.leader == NO_NODE or partition.leader in isr, partition
    assert partition.leader not in partition.marks, partition
    assert 1 <= partition.min_isr <= len(replicas), partition
    if len(isr) >= partition.min_isr:
        assert not elr, partition
        assert not lkelr, partition


def check_step(old: PartitionRegistration, new: PartitionRegistration) -> None:
    """I9 for one change of one partition."""
    assert new.partition_epoch == old.partition_epoch + 1, (old, new)
    assert new.leader_epoch in (old.leader_epoch, old.leader_epoch + 1), (old, new)
    if new.leader != old.leader:
        assert new.leader_epoch == old.leader_epoch + 1, (old, new)


def check_image(image: Image) -> None:
    """I12 with brokers: nobody fenced is in sync or leads. Damaged replicas count for nothing where
    anybody sound is left."""
    for partition in image.partitions():
        check_shape(partition)
        complete = {*partition.isr, *partition.elr}
        assert complete <= {*partition.damaged} or complete.isdisjoint(partition.damaged), partition
        for node in partition.isr:
            assert not image.brokers[node].fenced, partition
        if partition.leader != NO_NODE:
            assert image.brokers[partition.leader].electable, partition


def check_entry(before: Image, records: tuple[object, ...]) -> None:
    """I9 for every partition record of one entry."""
    known: dict[tuple[object, int], PartitionRegistration] = {}
    for record in records:
        if not isinstance(record, PartitionRegistration):
            continue
        key = (record.topic_id, record.partition)
        old = known.get(key) or before.find_partition(record.topic_id, record.partition)
        if old is not None:
            check_step(old, record)
        known[key] = record
