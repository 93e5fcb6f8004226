"""Moving partitions, as Kafka's admin client of kafka-python asks for it (listeners/kafka)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from kafka import TopicPartition as At
from kafka.admin import KafkaAdminClient
from kafka.errors import (
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
    UnknownTopicOrPartitionError,
)

from paceline.errors import NoReassignmentInProgress
from paceline.types import TopicPartition
from paceline_cluster.testing import BlockingPaceline

pytestmark = pytest.mark.paceline(nodes=4)
RECORDS = 200
HANG_S = 120.0
"""Bounds a hang; it measures nothing."""


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def admin_of(paceline: BlockingPaceline, closing: ExitStack) -> KafkaAdminClient:
    """A client of the nodes that node 0 knows to be there: it raises what the connection to one
    that has died says, in the middle of any call."""
    client = KafkaAdminClient(bootstrap_servers=paceline.addresses("kafka")[:1])
    closing.callback(client.close)
    return client


def wait_until_known(paceline: BlockingPaceline, *, away: int) -> None:
    """Until no partition counts the node as in sync, so that clients are not sent to it."""
    deadline = time.monotonic() + HANG_S
    with paceline.connect() as client:
        partitions = len(client.admin.topic("__groups").partitions)
    while any(away in paceline.partition("__groups", number).isr for number in range(partitions)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def replicas(paceline: BlockingPaceline, topic: str) -> tuple[int, ...]:
    return tuple(paceline.partition(topic, 0).replicas)


def fill(paceline: BlockingPaceline, topic: str) -> None:
    with paceline.connect() as client:
        client.admin.create_topic(topic, assignment=[(0, 1, 2)])
        with client.producer() as producer:
            for number in range(RECORDS):
                producer.send(topic, b"%d" % number)


def read(paceline: BlockingPaceline, topic: str) -> list[bytes]:
    with paceline.connect() as client, client.consumer([topic]) as consumer:
        found = [next(consumer) for _ in range(RECORDS)]
    return [bytes(each.value) for each in found]


def wait_for_the_end(paceline: BlockingPaceline, topic: str) -> None:
    deadline = time.monotonic() + HANG_S
    with paceline.connect() as client:
        while moves := client.admin.list_reassignments([topic]):
            assert time.monotonic() < deadline, moves
            time.sleep(0.05)


def test_a_partition_moves_with_its_records(paceline: BlockingPaceline, closing: ExitStack) -> None:
    fill(paceline, "moved")
    admin = admin_of(paceline, closing)
    at = At("moved", 0)
    assert admin.alter_partition_reassignments({at: [3, 1, 2]}) == {at: None}
    wait_for_the_end(paceline, "moved")
    info = paceline.partition("moved", 0)
    assert (info.replicas, set(info.isr)) == ((3, 1, 2), {1, 2, 3})
    assert info.leader == 3, "the former leader left; its successor is the one preferred"
    assert admin.list_partition_reassignments() == {}
    assert read(paceline, "moved") == [b"%d" % number for number in range(RECORDS)]


@pytest.mark.slow
def test_a_move_to_a_node_that_is_away_is_listed_and_given_up(
    paceline: BlockingPaceline, closing: ExitStack
) -> None:
    fill(paceline, "stuck")
    fill(paceline, "still")
    paceline.kill(3)
    wait_until_known(paceline, away=3)
    admin = admin_of(paceline, closing)
    at, other = At("stuck", 0), At("still", 0)
    assert admin.alter_partition_reassignments({at: [0, 3], other: [2, 1, 0]}) == {
        at: None,
        other: None,
    }
    assert replicas(paceline, "still") == (2, 1, 0), "another order is no move"
    moving = {at: {"replicas": [0, 3, 1, 2], "adding_replicas": [3], "removing_replicas": [1, 2]}}
    assert admin.list_partition_reassignments() == moving
    assert admin.list_partition_reassignments([at, other, At("nothing", 0)]) == moving
    assert admin.list_partition_reassignments([other, At("stuck", 1)]) == {}
    with paceline.connect() as client:
        [seen] = client.admin.list_reassignments()
        assert (seen.adding, seen.removing, seen.leader) == ((3,), (1, 2), 0)
        assert client.admin.list_reassignments(["still", "nothing"]) == ()
    assert admin.alter_partition_reassignments({at: None, other: None}) == {
        at: None,
        other: NoReassignmentInProgressError,
    }
    assert replicas(paceline, "stuck") == (0, 1, 2)
    assert admin.list_partition_reassignments() == {}
    assert admin.alter_partition_reassignments(
        {at: [0, 9], other: [0, 0], At("nothing", 0): [0]}
    ) == {
        at: InvalidReplicationFactorError,
        other: InvalidReplicationFactorError,
        At("nothing", 0): UnknownTopicOrPartitionError,
    }
    paceline.restart(3)
    with paceline.connect() as client:
        native = TopicPartition("stuck", 0)
        client.admin.reassign_partition(native, [3, 0])
        wait_for_the_end(paceline, "stuck")
        assert client.admin.topic("stuck").partitions[0].replicas == (3, 0)
        with pytest.raises(NoReassignmentInProgress, match="stuck/0"):
            client.admin.cancel_reassignment(native)
