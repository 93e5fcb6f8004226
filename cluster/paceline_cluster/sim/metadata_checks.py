"""Invariants of the metadata: on every image that any node applies (replication/DESIGN 2)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from paceline.types import NO_NODE, NodeId, TopicId
from paceline_node.controller.image import Image, changed_topics
from paceline_node.controller.metadata_records import PartitionRegistration

Fail = Callable[[str, str], None]


class MetadataChecks:
    """``newest`` is the newest image that any node has applied: all in it is committed."""

    def __init__(self, fail: Fail, changed: Callable[[Image, Image], None]) -> None:
        self._fail = fail
        self._changed = changed
        self.newest: Image | None = None
        self._digests: dict[int, int] = {}
        self._named: dict[str, tuple[TopicId, int, int]] = {}
        """Who has a name, and the highest leader epoch before it and up to now."""
        self.elections = 0

    def begin_anew(self) -> None:
        """The next image is the first that counts."""
        self.newest = None
        self._digests.clear()
        self._named.clear()

    def applied(self, node: int, image: Image) -> None:
        """A node went over to ``image``: I20, and the rules of one step for the newest one."""
        digest = zlib.crc32(image.to_snapshot())
        known = self._digests.setdefault(image.offset, digest)
        if known != digest:
            self._fail("I20", f"n{node} has another image at offset {image.offset} than others")
        newest = self.newest
        if newest is not None and image.offset <= newest.offset:
            return
        self.newest = image
        if newest is not None:
            self._check_brokers(newest, image)
            for before, after in _changed_partitions(newest, image):
                self._check_shape(after, image)
                self._check_name(before, after, image)
                if before is not None:
                    self._check_step(before, after)
            self._changed(newest, image)

    def _check_brokers(self, old: Image, new: Image) -> None:
        if old.brokers is new.brokers:
            return
        for node, broker in new.brokers.items():
            before = old.brokers.get(node)
            if before is not None and broker.broker_epoch < before.broker_epoch:
                self._fail("I17", f"broker epoch of n{node} fell to {broker.broker_epoch}")
            if before is None or before.broker_epoch == broker.broker_epoch:
                continue
            if not broker.trusted or broker.directory_id != before.directory_id:
                self._check_excluded(node, new)

    def _check_excluded(self, node: NodeId, image: Image) -> None:
        """I16. A lone replica is re-elected whatever its trust (controller/DESIGN 5.3)."""
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                members = (*partition.isr, *partition.elr)
                if node in members and len(partition.replicas) > 1:
                    self._fail("I16", f"untrusted n{node} in {partition}")

    def _check_shape(self, partition: PartitionRegistration, image: Image) -> None:
        isr, elr = set(partition.isr), set(partition.elr)
        full = len(isr) >= partition.min_isr
        fenced = {node for node in isr if image.brokers[node].fenced}
        if (
            not isr | elr <= set(partition.replicas)
            or isr & elr
            or (partition.leader != NO_NODE and partition.leader not in isr)
            or fenced
            or (full and (elr or partition.lkelr))
        ):
            self._fail("I12", f"{partition}, fenced {sorted(fenced)}")
        marked = (isr | elr) & set(partition.damaged)
        if marked and not isr | elr <= marked:
            self._fail("I16", f"damaged {sorted(marked)} count beside others in {partition}")

    def _check_name(
        self, before: PartitionRegistration | None, after: PartitionRegistration, image: Image
    ) -> None:
        """Leader epochs of a name never fall (controller/DESIGN 9.6)."""
        topic = image.topics[after.topic_id]
        if topic.kind == "segment":
            return
        owner, former, highest = self._named.get(topic.name, (topic.topic_id, -1, -1))
        if owner != topic.topic_id:
            former = highest
        if before is None and after.leader_epoch <= former:
            self._fail("I9", f"{topic.name} had leader epoch {former}, made anew: {after}")
        self._named[topic.name] = (topic.topic_id, former, max(highest, after.leader_epoch))

    def _check_step(self, before: PartitionRegistration, after: PartitionRegistration) -> None:
        moved = after.leader != before.leader
        self.elections += moved and after.leader != NO_NODE
        if after.partition_epoch <= before.partition_epoch:
            self._fail("I9", f"partition epoch does not rise: {before} -> {after}")
        if after.leader_epoch < before.leader_epoch or (
            moved and after.leader_epoch == before.leader_epoch
        ):
            self._fail("I9", f"leader epoch: {before} -> {after}")
        if after.recovery == 1 and before.recovery != 1:
            self._fail("I24", f"unclean election that nobody asked for: {after}")


def _changed_partitions(
    old: Image, new: Image
) -> Iterator[tuple[PartitionRegistration | None, PartitionRegistration]]:
    for topic_id in changed_topics(old, new):
        before, after = old.topics.get(topic_id), new.topics.get(topic_id)
        if after is None:
            continue
        for number, partition in after.partitions.items():
            was = None if before is None else before.partitions.get(number)
            if was is not partition and was != partition:
                yield was, partition


def find_partition(image: Image, topic_id: TopicId, partition: int) -> PartitionRegistration | None:
    """The registration in an image."""
    topic = image.topics.get(topic_id)
    return None if topic is None else topic.partitions.get(partition)
