"""Leader epochs of a name never go back, whatever topics have it (controller/DESIGN 9.6)."""

from __future__ import annotations

import msgpack
import pytest

from paceline.types import LeaderEpoch, NodeId, PartitionEpoch
from paceline.wire.native.admin import (
    AddPartitions,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ElectLeader,
)
from paceline.wire.peer.control import CreateSegmentRequest, DeleteSegmentRequest
from paceline_node.controller import former_epochs
from paceline_node.controller.context import Draft
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import RemoveTopic, Topic
from paceline_node.controller.partition_change import Change
from tests.unit.controller.bench import Bench


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.start(0, 1, 2)
    return bench


def move(bench: Bench, times: int, number: int = 0, name: str = "orders") -> None:
    """Have a partition another leader, again and again."""
    for _ in range(times):
        partition = bench.partition(number, name)
        target = next(node for node in partition.isr if node != partition.leader)
        bench.ask(ElectLeader(name, number, target))


def epochs(bench: Bench, name: str = "orders") -> list[int]:
    return [each.leader_epoch for each in bench.image.topic(name).partitions.values()]


def delete(bench: Bench, name: str = "orders") -> None:
    bench.ask(DeleteTopic(name))


def restarted(bench: Bench) -> None:
    """Go on with what a snapshot says."""
    image = Image.from_snapshot(bench.image.to_snapshot())
    assert image == bench.image
    assert [*image.former_epochs] == [*bench.image.former_epochs], "the order decides who goes"
    bench.image = image


@pytest.mark.parametrize("snapshots", [False, True])
def test_a_new_topic_begins_above_all_partitions_of_the_old_one(
    bench: Bench, snapshots: bool
) -> None:
    bench.create(partitions=3)
    assert epochs(bench) == [0, 0, 0]
    move(bench, 5, 1)
    move(bench, 2, 2)
    for begins in (6, 7, 8):  # also where nothing has moved
        delete(bench)
        if snapshots:
            restarted(bench)
        bench.create(partitions=2)
        if snapshots:
            restarted(bench)
        assert epochs(bench) == [begins] * 2
        assert {each.partition_epoch for each in bench.image.partitions()} == {0}
        assert bench.image.former_epochs == {}, "it is the topic's now"
    move(bench, 1)
    bench.ask(AddPartitions("orders", 4))
    assert epochs(bench) == [9, 8, 8, 8], "those of the old topic had these numbers, too"
    delete(bench)
    bench.create()
    assert epochs(bench) == [10]
    bench.create("other")
    assert epochs(bench, "other") == [0]


def test_every_prefix_of_the_log_gives_the_same_as_a_snapshot(bench: Bench) -> None:
    bench.create(partitions=2)
    move(bench, 3)
    delete(bench)
    bench.create(partitions=2)
    bench.create("gone")
    delete(bench, "gone")
    bench.ask(AddPartitions("orders", 3))
    image = restored = Image.bootstrap(bench.image.cluster_id)
    for records in bench.entries:
        image = image.apply(image.offset + 1, records)
        restored = Image.from_snapshot(restored.to_snapshot())
        restored = restored.apply(restored.offset + 1, records)
        assert restored == image
    assert image == bench.image


def test_what_changes_a_topic_keeps_it(bench: Bench) -> None:
    bench.create()
    move(bench, 3)
    delete(bench)
    topic_id = bench.create()
    bench.ask(AlterTopic("orders", {"retention.ms": "1000"}))
    bench.commit((Topic(topic_id, "orders", 3, "log", bench.image.topic("orders").configs),))  # type: ignore[arg-type]
    bench.ask(AddPartitions("orders", 2))
    assert epochs(bench) == [4, 4]


def test_a_change_in_the_entry_that_removes_the_topic_counts(bench: Bench) -> None:
    topic_id = bench.create()
    draft = Draft(bench.image)
    draft.change(bench.partition(), Change(leader=NodeId(1)))
    bench.commit((*draft.records, RemoveTopic(topic_id)))
    assert bench.image.former_epochs == {"orders": 1}


def test_a_removal_of_what_is_not_there_changes_nothing(bench: Bench) -> None:
    topic_id = bench.create()
    move(bench, 1)
    delete(bench)
    before = bench.image.former_epochs
    bench.commit((RemoveTopic(topic_id),))
    assert bench.image.former_epochs is before


def test_those_that_went_first_are_forgotten_first(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert former_epochs.MAX_NAMES == 1_000
    monkeypatch.setattr(former_epochs, "MAX_NAMES", 3)
    for name in ("b", "a", "c"):
        bench.create(name)
        delete(bench, name)
    bench.create("b")
    delete(bench, "b")  # it went last now
    restarted(bench)
    assert [*bench.image.former_epochs.items()] == [("a", 0), ("c", 0), ("b", 1)]
    bench.create("d")
    delete(bench, "d")
    assert [*bench.image.former_epochs.items()] == [("c", 0), ("b", 1), ("d", 0)]
    for name, begins in {"a": 0, "b": 2, "c": 1, "d": 1}.items():
        bench.create(name)
        assert epochs(bench, name) == [begins]


def test_a_topic_needs_no_place_in_the_table(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it began with is known as long as it lives, however many go meanwhile."""
    monkeypatch.setattr(former_epochs, "MAX_NAMES", 1)
    bench.create()
    move(bench, 3)
    delete(bench)
    bench.create()
    for name in ("a", "b"):
        bench.create(name)
        delete(bench, name)
    bench.ask(AddPartitions("orders", 2))
    assert epochs(bench) == [4, 4]


def test_segments_take_no_place(bench: Bench) -> None:
    """They come and go all the time, under names of their own."""
    for number in range(3):
        bench.ask(CreateSegmentRequest(f"seg-{number}", 0, "a name"))
        move(bench, 2, 0, f"seg-{number}")
        bench.ask(DeleteSegmentRequest(f"seg-{number}", 0))
    bench.create("sc_st", kind="segment")
    for number in sorted(bench.image.topic("sc_st").partitions):
        bench.ask(DeleteSegmentRequest("sc_st", number))
    assert bench.image.find_topic("sc_st") is None
    assert bench.image.former_epochs == {}


def test_segments_hand_on_what_their_name_had(bench: Bench) -> None:
    bench.create()
    move(bench, 3)
    delete(bench)
    for number in (4, 7):
        bench.ask(CreateSegmentRequest("orders", number))
    assert epochs(bench) == [4, 4]
    move(bench, 2, 7)
    restarted(bench)
    for number in (4, 7):
        bench.ask(DeleteSegmentRequest("orders", number))
    bench.create()
    assert epochs(bench) == [7]


def test_snapshots_from_before_are_read(bench: Bench) -> None:
    """They know nothing of names that are gone, nor what a topic began with."""
    bench.create(partitions=2)
    bench.create("gone")
    move(bench, 1)
    before = bench.image
    delete(bench, "gone")
    version, state = msgpack.unpackb(bench.image.to_snapshot())
    *older, topics, gone = state
    assert gone == {"gone": 0}
    older.append([topic[:-1] for topic in topics])
    image = Image.from_snapshot(msgpack.packb([version, older]))
    assert image.former_epochs == {}
    assert image.topic("orders") == before.topic("orders")
    bench.image = image
    delete(bench)
    bench.ask(CreateTopic("orders", 1, 3))
    assert bench.partition().leader_epoch == LeaderEpoch(2)
    assert bench.partition().partition_epoch == PartitionEpoch(0)
