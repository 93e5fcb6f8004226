"""Partitions of segment topics, made and removed one by one."""

from __future__ import annotations

from uuid import UUID

import pytest

from paceline.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidTopic,
    PacelineError,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from paceline.wire.message import Message
from paceline.wire.native.admin import AddPartitions, AlterTopic, CreateTopic, DeleteTopic
from paceline.wire.peer.control import CreateSegmentRequest, DeleteSegmentRequest
from paceline_node.controller.image import Image
from tests.unit.controller.bench import Bench


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    for node in range(3):
        bench.start(node)
    return bench


def test_segments_come_and_go_one_by_one(bench: Bench) -> None:
    bench.ask(CreateSegmentRequest("sc_st", 7))
    bench.ask(CreateSegmentRequest("sc_st", 2))
    topic = bench.image.topic("sc_st")
    assert topic.kind == "segment"
    assert sorted(topic.partitions) == [2, 7]
    assert all(len(each.replicas) == 3 and each.leader >= 0 for each in topic.partitions.values())
    bench.ask(DeleteSegmentRequest("sc_st", 7))
    topic = bench.image.topic("sc_st")
    assert sorted(topic.partitions) == [2]
    assert topic.retired == (7,)
    assert Image.from_snapshot(bench.image.to_snapshot()) == bench.image
    with pytest.raises(InvalidPartitions, match="deleted"):
        bench.ask(CreateSegmentRequest("sc_st", 7))
    bench.ask(DeleteSegmentRequest("sc_st", 2))
    assert bench.image.find_topic("sc_st") is None
    # Another topic, another id: nothing that is left of the old one can be mistaken for it.
    bench.ask(CreateSegmentRequest("sc_st", 7))
    assert bench.image.topic("sc_st").topic_id != topic.topic_id


def test_a_wish_may_be_sent_again(bench: Bench) -> None:
    """Its outcome was unknown: the same token is answered alike, and changes nothing."""
    token, other = UUID(int=1), UUID(int=2)
    bench.ask(CreateSegmentRequest("sc_st", 7, token=token))
    before = bench.image
    bench.ask(CreateSegmentRequest("sc_st", 7, token=token))
    assert bench.image.topics == before.topics
    assert Image.from_snapshot(bench.image.to_snapshot()) == bench.image
    for wish in (other, None):
        with pytest.raises(TopicAlreadyExists):
            bench.ask(CreateSegmentRequest("sc_st", 7, token=wish))


def test_names_that_tell_no_topic_are_kept(bench: Bench) -> None:
    bench.ask(CreateSegmentRequest("seg-abc", 0, "any name"))
    assert bench.image.topic("seg-abc").configs["segment.name"] == "any name"


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (CreateSegmentRequest("sc_st", 1), TopicAlreadyExists),
        (CreateSegmentRequest("log", 0), InvalidTopic),
        (CreateSegmentRequest("no/name", 0), InvalidTopic),
        (DeleteSegmentRequest("sc_st", 2), UnknownTopicOrPartition),
        (DeleteSegmentRequest("nowhere", 0), UnknownTopicOrPartition),
        (DeleteSegmentRequest("log", 0), PolicyViolation),
        (AddPartitions("sc_st", 4), PolicyViolation),
        (DeleteTopic("sc_st"), PolicyViolation),  # a stream may be made of it
        (AlterTopic("sc_st", {"cleanup.policy": "compact"}), InvalidConfig),
        (
            CreateTopic("other", kind="segment", configs={"cleanup.policy": "compact"}),
            InvalidConfig,
        ),
    ],
)
def test_refusals(bench: Bench, request_: Message, error: type[PacelineError]) -> None:
    bench.ask(CreateSegmentRequest("sc_st", 1))
    bench.ask(CreateTopic("log", partitions=1))
    before = bench.image
    with pytest.raises(error):
        bench.ask(request_)
    assert bench.image.topics == before.topics
