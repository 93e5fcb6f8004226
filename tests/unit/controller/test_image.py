"""The image: applying records, structural sharing, snapshots (controller/DESIGN 1.2)."""

from __future__ import annotations

from uuid import UUID

import msgpack
import pytest

from paceline.errors import InvalidRequest, RemoteProtocolError, UnknownTopicOrPartition
from paceline.types import BrokerEpoch, NodeId, TopicId
from paceline.wire.message import Message
from paceline.wire.native.admin import (
    AlterTopic,
    Done,
    FenceBroker,
    RegisterExternal,
    UnregisterBroker,
)
from paceline.wire.peer.control import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from paceline_node.controller.image import Image, changed_topics
from paceline_node.controller.metadata_records import (
    BrokerChange,
    Config,
    DurableOffset,
    FeatureLevel,
    NoOp,
    RemoveTopic,
    Topic,
)
from tests.unit.controller.bench import CLUSTER, Bench


def rich() -> Bench:
    """A bit of everything that an image can hold."""
    bench = Bench()
    bench.start(0, 1, 2, 3)
    bench.create("orders", partitions=3)
    bench.create("audit", partitions=2, factor=2)
    bench.ask(AlterTopic("orders", {"retention.ms": "1000"}))
    bench.fence(2)
    bench.wipe(2)
    bench.register(2, trusted=False)
    bench.fence(3)
    bench.now += 10
    bench.ask(UnregisterBroker(NodeId(3)))
    bench.ask(RegisterExternal(NodeId(9), "h", 1, 1))
    bench.ask(FenceBroker(NodeId(1), True))
    epoch = bench.image.brokers[NodeId(0)].broker_epoch
    bench.ask(AllocateProducerIdsRequest(NodeId(0), epoch))
    bench.commit((Config("cluster", "", "color", "red"), FeatureLevel("groups", 2)))
    bench.commit((NoOp(1, (DurableOffset(NodeId(0), epoch, 7),)),))
    return bench


def test_snapshot_round_trip() -> None:
    image = rich().image
    assert Image.from_snapshot(image.to_snapshot()) == image
    assert Image.bootstrap(CLUSTER) == Image.from_snapshot(Image.bootstrap(CLUSTER).to_snapshot())


def test_every_prefix_gives_the_same_image_from_log_and_from_snapshot() -> None:
    bench = rich()
    image = Image.bootstrap(CLUSTER)
    restored = image
    for records in bench.entries:
        image = image.apply(image.offset + 1, records)
        restored = Image.from_snapshot(restored.to_snapshot())
        restored = restored.apply(restored.offset + 1, records)
        assert restored == image
        assert [*restored.topics] == [*image.topics], "order decides, so it must be the same"
    assert image == bench.image


@pytest.mark.parametrize("data", [b"", b"\x90", msgpack.packb([2, []]), msgpack.packb([1, 5])])
def test_broken_snapshots(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        Image.from_snapshot(data)


def test_what_is_not_touched_is_shared() -> None:
    old = rich().image
    assert old.apply(old.offset + 1, (NoOp(3),)).topics is old.topics
    orders, audit = (old.topic(name) for name in ("orders", "audit"))
    new = old.apply(old.offset + 1, (orders.partitions[0],))
    assert new.topics[audit.topic_id] is audit
    assert new.topics[orders.topic_id] is not orders
    assert new.brokers is old.brokers
    assert old.offset + 1 == new.offset


def test_changed_topics() -> None:
    bench = rich()
    old = bench.image
    assert list(changed_topics(old, old)) == []
    orders, audit = old.topic("orders").topic_id, old.topic("audit").topic_id
    bench.create("new")
    bench.commit((RemoveTopic(audit), Config("topic", "orders", "segment.ms", "9")))
    new = bench.image.topic("new").topic_id
    assert list(changed_topics(old, bench.image)) == [orders, new, audit]


def test_old_images_never_change() -> None:
    bench = rich()
    old = bench.image
    before = old.to_snapshot()
    bench.create("more", partitions=4)
    bench.heartbeat(2)
    bench.propose((0,))
    bench.start(5)
    assert old.to_snapshot() == before


def test_entries_are_applied_in_order() -> None:
    image = Image.bootstrap(CLUSTER)
    with pytest.raises(AssertionError, match="entry 1 applied at offset 1"):
        image.apply(1, ())


def test_change_of_a_replaced_registration_is_void() -> None:
    bench = rich()
    late = BrokerChange(NodeId(0), BrokerEpoch(1), fenced=True)
    bench.commit((late,))
    assert not bench.image.brokers[NodeId(0)].fenced


def test_configuration_of_a_removed_topic_is_void() -> None:
    bench = rich()
    bench.commit((Config("topic", "gone", "segment.ms", "9"),))
    assert bench.image.find_topic("gone") is None


def test_a_topic_record_of_a_known_topic_keeps_its_partitions() -> None:
    bench = rich()
    orders = bench.image.topic("orders")
    bench.commit((Topic(orders.topic_id, "orders", 5, "log", {"a": "b"}),))
    changed = bench.image.topic("orders")
    assert (changed.replication_factor, changed.configs) == (5, {"a": "b"})
    assert changed.partitions is orders.partitions


def test_cluster_configuration() -> None:
    bench = rich()
    assert bench.image.configs == {"color": "red"}
    bench.commit((Config("cluster", "", "color", None), Config("cluster", "", "size", "9")))
    assert bench.image.configs == {"size": "9"}


def test_lookups() -> None:
    image = rich().image
    with pytest.raises(UnknownTopicOrPartition, match="topic not found: nope"):
        image.topic("nope")
    with pytest.raises(UnknownTopicOrPartition, match="topic=orders partition=3"):
        image.partition("orders", 3)
    assert image.find_partition(TopicId(UUID(int=1)), 0) is None
    assert [b.node_id for b in image.active_brokers()] == [0, 1]


def test_producer_ids_are_handed_out_once() -> None:
    bench = Bench()
    bench.start(0, 1)
    blocks = []
    for node in (0, 1, 0):
        epoch = bench.image.brokers[NodeId(node)].broker_epoch
        blocks.append(bench.ask(AllocateProducerIdsRequest(NodeId(node), epoch)))
    assert blocks == [AllocateProducerIdsResponse(n, 1000) for n in (0, 1000, 2000)]


def test_what_is_no_request() -> None:
    class Odd(Message):
        pass

    for message in (Done(1), Odd()):
        with pytest.raises(InvalidRequest, match="no request to the controller"):
            Bench().ask(message)
