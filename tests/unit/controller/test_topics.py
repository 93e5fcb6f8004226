"""Topics: create, delete, alter, grow (controller/DESIGN 9)."""

from __future__ import annotations

from uuid import UUID

import pytest

from paceline.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    LeaderNotAvailable,
    PacelineError,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from paceline.types import NO_NODE, NodeId
from paceline.wire.native.admin import (
    AddPartitions,
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    Done,
    FenceBroker,
    TopicCreated,
)
from paceline_node.controller.context import ControllerSettings, TopicDefaults
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import Config, PartitionRegistration
from tests.unit.controller.bench import TERM, Bench
from tests.unit.controller.invariants import check_image


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(number) for number in numbers)


def cluster(*registered: int) -> Bench:
    bench = Bench()
    bench.start(*registered)
    return bench


def created(bench: Bench, request: CreateTopic) -> TopicCreated:
    reply = bench.ask(request)
    assert isinstance(reply, TopicCreated)
    return reply


# --- create --------------------------------------------------------------------------------------


def test_defaults_and_leaders_at_once() -> None:
    bench = cluster(0, 1, 2)
    reply = created(bench, CreateTopic("orders"))
    topic = bench.image.topic("orders")
    assert reply == TopicCreated(topic.topic_id, 3, 3, bench.image.offset, TERM)
    assert topic.configs == {"min.insync.replicas": "2"}
    assert [p.leader for p in topic.partitions.values()] == [0, 1, 2]
    for partition in topic.partitions.values():
        assert set(partition.isr) == {0, 1, 2}
        assert partition.min_isr == 2
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    check_image(bench.image)


def test_a_repeated_wish_finds_the_topic_that_it_made() -> None:
    bench = cluster(0, 1, 2)
    wish = CreateTopic("orders", 2, token=UUID(int=1))
    first = created(bench, wish)
    topic = bench.image.topic("orders")
    again = created(bench, wish)
    assert (again.topic_id, again.partitions, again.existed) == (first.topic_id, 2, False)
    assert bench.image.topic("orders") is topic, "nothing was changed"
    assert Image.from_snapshot(bench.image.to_snapshot()).topic("orders").token == wish.token
    for other in (CreateTopic("orders", 2), CreateTopic("orders", 2, token=UUID(int=2))):
        with pytest.raises(TopicAlreadyExists):
            bench.ask(other)
    bench.ask(DeleteTopic("orders"))
    assert created(bench, wish).topic_id != first.topic_id


def test_lone_node_has_vacant_slots() -> None:
    bench = cluster(0)
    reply = created(bench, CreateTopic("orders", 1, 3))
    partition = bench.partition()
    assert reply.replication_factor == 3
    assert (partition.replicas, partition.slots) == ((0,), 3)
    assert partition.min_isr == 1, "effective: as many as are assigned"
    assert bench.image.topic("orders").configs["min.insync.replicas"] == "2"


def test_more_replicas_than_nodes_is_an_error_that_names_the_counts() -> None:
    bench = cluster(0, 1)
    with pytest.raises(InvalidReplicationFactor, match="factor 3, but 2 nodes registered"):
        bench.ask(CreateTopic("orders", 1, 3))


def test_auto_create_takes_what_there_is() -> None:
    bench = cluster(0, 1)
    assert created(bench, CreateTopic("orders", auto_create=True)).replication_factor == 2
    assert bench.partition().slots == 2


def test_dead_but_registered_nodes_count() -> None:
    bench = cluster(0, 1, 2)
    bench.fence(1)
    created(bench, CreateTopic("orders", 3, 3))
    for partition in bench.image.topic("orders").partitions.values():
        assert set(partition.replicas) == {0, 1, 2}
        assert set(partition.isr) == {0, 2}
        assert partition.replicas[2] == 1, "the dead one comes last"
    check_image(bench.image)


def test_min_isr_never_exceeds_the_factor_by_default() -> None:
    bench = cluster(0, 1, 2)
    created(bench, CreateTopic("orders", 1, 1))
    assert bench.image.topic("orders").configs["min.insync.replicas"] == "1"
    assert bench.partition().min_isr == 1


def test_assignment() -> None:
    bench = cluster(0, 1, 2)
    reply = created(bench, CreateTopic("orders", assignment=(nodes(2, 0), nodes(1, 2))))
    assert (reply.partitions, reply.replication_factor) == (2, 2)
    assert bench.partition(0).replicas == (2, 0)
    assert bench.partition(1).leader == 1


@pytest.mark.parametrize(
    ("request_", "error", "text"),
    [
        (CreateTopic("a b"), InvalidTopic, "'a b'"),
        (CreateTopic("."), InvalidTopic, "expected 1 to 249"),
        (CreateTopic("__groups"), InvalidTopic, "the broker's own"),
        (CreateTopic("t", kind="tree"), InvalidRequest, "'tree'"),
        (CreateTopic("t", partitions=0), InvalidPartitions, "0 partitions"),
        (CreateTopic("t", partitions=-2), InvalidPartitions, "expected 1 to 2000"),
        (CreateTopic("t", partitions=2001), InvalidPartitions, "expected 1 to 2000"),
        (CreateTopic("t", replication_factor=0), InvalidReplicationFactor, "factor 0"),
        (CreateTopic("t", replication_factor=-2), InvalidReplicationFactor, "factor -2"),
        (CreateTopic("t", replication_factor=40_000), InvalidReplicationFactor, "40000"),
        (CreateTopic("t", configs={"x": "1"}), InvalidConfig, "x: unknown"),
        (
            CreateTopic("t", replication_factor=2, configs={"min.insync.replicas": "3"}),
            InvalidConfig,
            "the replication factor is 2",
        ),
        (CreateTopic("t", 2, assignment=(nodes(0),)), InvalidPartitions, "1 assigned"),
        (
            CreateTopic("t", replication_factor=2, assignment=(nodes(0),)),
            InvalidReplicationFactor,
            "1 replicas assigned",
        ),
        (CreateTopic("t", assignment=(nodes(0, 0),)), InvalidReplicationFactor, "distinct"),
        (CreateTopic("t", assignment=(nodes(0, 9),)), InvalidReplicationFactor, "distinct"),
        (CreateTopic("t", assignment=((),)), InvalidReplicationFactor, "distinct"),
        (
            CreateTopic("t", assignment=(nodes(0), nodes(0, 1))),
            InvalidReplicationFactor,
            "t/1: 2 replicas, partition 0 has 1",
        ),
        (CreateTopic("t", assignment=(nodes(2),)), LeaderNotAvailable, "t/0"),
    ],
)
def test_refusals(request_: CreateTopic, error: type[PacelineError], text: str) -> None:
    bench = cluster(0, 1, 2)
    bench.fence(2)
    image = bench.image
    with pytest.raises(error, match=text):
        bench.ask(request_)
    assert bench.image is image


def test_no_active_broker_yet_is_worth_a_retry() -> None:
    bench = Bench()
    bench.register(0)
    with pytest.raises(LeaderNotAvailable) as caught:
        bench.ask(CreateTopic("orders", 1, 1))
    assert caught.value.retriable


def test_existing_topic() -> None:
    bench = cluster(0)
    first = created(bench, CreateTopic("orders", 2, 1))
    with pytest.raises(TopicAlreadyExists, match="topic already exists: orders"):
        bench.ask(CreateTopic("orders", 2, 1))
    image = bench.image
    for request in (
        CreateTopic("orders", 2, 1, if_not_exists=True),
        CreateTopic("orders", if_not_exists=True),
        CreateTopic("orders", 5, 1, auto_create=True),
    ):
        reply = created(bench, request)
        assert (reply.topic_id, reply.partitions, reply.existed) == (first.topic_id, 2, True)
    for request in (
        CreateTopic("orders", 3, 1, if_not_exists=True),
        CreateTopic("orders", 2, 2, if_not_exists=True),
        CreateTopic("orders", 2, 1, kind="segment", if_not_exists=True),
    ):
        with pytest.raises(TopicAlreadyExists):
            bench.ask(request)
    assert bench.image is image


# --- delete --------------------------------------------------------------------------------------


def test_delete_and_create_again_is_another_topic() -> None:
    bench = cluster(0)
    first = bench.create(factor=1)
    assert bench.ask(DeleteTopic("orders")) == Done(bench.image.offset, TERM)
    assert bench.image.find_topic("orders") is None
    assert bench.image.find_partition(first, 0) is None
    assert bench.create(factor=1) != first
    with pytest.raises(UnknownTopicOrPartition, match="topic not found: nope"):
        bench.ask(DeleteTopic("nope"))


@pytest.mark.parametrize(
    "request_",
    [DeleteTopic("__groups"), AddPartitions("__groups", 99), AlterTopic("__groups", {})],
)
def test_internal_topics_are_not_for_clients(
    request_: DeleteTopic | AddPartitions | AlterTopic,
) -> None:
    bench = cluster(0)
    bench.ask(CreateTopic("__groups", 1, 1, internal=True))
    with pytest.raises(PolicyViolation, match="the broker's own"):
        bench.ask(request_)


# --- grow ----------------------------------------------------------------------------------------


def test_add_partitions() -> None:
    bench = cluster(0, 1, 2)
    bench.create(partitions=1, factor=2)
    bench.ask(AddPartitions("orders", 4))
    partitions = bench.image.topic("orders").partitions
    assert list(partitions) == [0, 1, 2, 3]
    assert {len(p.replicas) for p in partitions.values()} == {2}
    assert {p.min_isr for p in partitions.values()} == {2}
    image = bench.image
    bench.ask(AddPartitions("orders", 4))
    assert bench.image is image


@pytest.mark.parametrize("total", [0, 1, 2003])
def test_add_partitions_refuses(total: int) -> None:
    bench = cluster(0)
    bench.create(partitions=2, factor=1)
    with pytest.raises(InvalidPartitions, match=f"has 2 partitions; {total} asked for"):
        bench.ask(AddPartitions("orders", total))


def test_add_partitions_without_an_active_broker() -> None:
    bench = cluster(0)
    bench.create(partitions=2, factor=1)
    bench.fence(0)
    with pytest.raises(LeaderNotAvailable):
        bench.ask(AddPartitions("orders", 3))


# --- alter ---------------------------------------------------------------------------------------


def test_configuration_is_set_and_removed() -> None:
    bench = cluster(0)
    bench.create(factor=1)
    bench.ask(AlterTopic("orders", {"retention.ms": "5", "segment.bytes": "4096"}))
    assert bench.image.topic("orders").configs["retention.ms"] == "5"
    bench.ask(AlterTopic("orders", {"retention.ms": None}))
    assert "retention.ms" not in bench.image.topic("orders").configs
    assert bench.image.topic("orders").configs["segment.bytes"] == "4096"


def test_min_isr_goes_into_every_partition_in_the_same_entry() -> None:
    bench = cluster(0, 1, 2)
    bench.create(partitions=2)
    for number in (0, 1):
        leader = int(bench.partition(number).leader)
        bench.propose((leader,), number)
        assert len(bench.partition(number).elr) == 2
    bench.ask(AlterTopic("orders", {"min.insync.replicas": "1"}))
    entry = bench.entries[-1]
    assert [type(record) for record in entry] == [
        Config,
        PartitionRegistration,
        PartitionRegistration,
    ]
    for number in (0, 1):
        partition = bench.partition(number)
        assert (partition.min_isr, partition.elr) == (1, ())
    check_image(bench.image)


def test_removing_min_isr_returns_to_the_default() -> None:
    bench = Bench(ControllerSettings(topics=TopicDefaults(min_isr=2)))
    bench.start(0, 1, 2)
    bench.ask(CreateTopic("orders", 1, 3, configs={"min.insync.replicas": "3"}))
    assert bench.partition().min_isr == 3
    bench.ask(AlterTopic("orders", {"min.insync.replicas": None}))
    assert bench.partition().min_isr == 2
    assert bench.image.topic("orders").configs["min.insync.replicas"] == "2"


@pytest.mark.parametrize(
    "configs",
    [
        {"nope": "1"},
        {"nope": None},
        {"retention.ms": "soon"},
        {"min.insync.replicas": "2"},
        {"retention.ms": "1", "segment.bytes": "0"},
    ],
)
def test_alter_is_all_or_nothing(configs: dict[str, str | None]) -> None:
    bench = cluster(0)
    bench.create(factor=1)
    image = bench.image
    with pytest.raises(InvalidConfig):
        bench.ask(AlterTopic("orders", configs))
    assert bench.image is image


def test_all_members_held_by_an_operator_leaves_no_leader() -> None:
    bench = cluster(0, 1)
    bench.ask(FenceBroker(NodeId(1), True))
    bench.ask(CreateTopic("orders", 1, 2))
    assert bench.partition().leader == 0
    bench.ask(FenceBroker(NodeId(0), True))
    assert bench.partition().leader == NO_NODE
