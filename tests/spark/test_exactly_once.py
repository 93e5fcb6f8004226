"""What exactly_once rests on, step by step as tasks and drivers take them; no Spark session needed.

Each way to fail (transactions/DESIGN 5) is one test: what died is simply not called any more.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from paceline.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    PacelineError,
    ProducerFenced,
    SinkConflict,
    SinkFenced,
)
from paceline.spark.options import SinkOptions, parse_sink
from paceline.spark.sink import TaskMessage, abort, commit, write_task
from paceline.spark.sink_ids import TaskId, WriteId
from tests.e2e.cluster import Cluster, wait_until
from tests.spark.queries import Topics

REFUSED = (InvalidTransactionState, ProducerFenced, InvalidProducerEpoch)


class Sink:
    """The sink of one query over one topic; ``run`` is the driver's life."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.topic = topics.make("out", partitions=2)
        self.name = f"sink-{self.topic}"

    @property
    def options(self) -> SinkOptions:
        return parse_sink(
            {"paceline.bootstrap.servers": self.topics.bootstrap, "topic": self.topic}
        )

    def task(
        self, values: Sequence[str], *, batch: int = 0, part: int = 0, run: str = "r1", attempt=0
    ) -> TaskMessage:
        """A task attempt from its first row to its message."""
        write = WriteId(self.name, "query", run, batch)
        rows = pa.RecordBatch.from_pydict({"value": [value.encode() for value in values]})
        return write_task(self.options, TaskId(write, part, attempt), iter([rows]))

    def commit(self, *messages: TaskMessage | None) -> None:
        commit(self.options, messages)

    def visible(self) -> list[str]:
        return sorted(self.topics.read(self.topic))


@pytest.fixture
def sink(topics: Topics) -> Sink:
    return Sink(topics)


def test_nothing_is_visible_before_the_commit_and_all_of_it_after(sink: Sink) -> None:
    first, second = sink.task(["a", "b"], part=0), sink.task(["c"], part=1)
    assert first.written.rows == 2
    assert sink.visible() == []
    sink.commit(first, second)
    assert sink.visible() == ["a", "b", "c"]


def test_a_missing_message_commits_nothing(sink: Sink) -> None:
    done = sink.task(["a"])
    with pytest.raises(RuntimeError, match="left no message"):
        sink.commit(done, None)
    assert sink.visible() == []


def test_a_retried_task_and_its_twin_count_once(sink: Sink) -> None:
    lost = sink.task(["a"], attempt=0)
    winner = sink.task(["a"], attempt=1)
    assert lost.transaction != winner.transaction
    sink.commit(winner)
    assert sink.visible() == ["a"]


def test_a_driver_that_dies_before_the_commit(sink: Sink) -> None:
    sink.task(["a", "b"], run="r1")
    again = sink.task(["a"], run="r2", part=0), sink.task(["b"], run="r2", part=1)
    sink.commit(*again)
    assert sink.visible() == ["a", "b"]


def test_a_driver_that_dies_after_the_commit(sink: Sink) -> None:
    sink.commit(sink.task(["a", "b"], run="r1"))
    again = [sink.task([value], run="r2", part=part) for part, value in enumerate("ab")]
    assert [message.transaction for message in again] == ["", ""], "the batch is there already"
    sink.commit(*again)
    sink.commit(sink.task(["c"], run="r2", batch=1))
    assert sink.visible() == ["a", "b", "c"]


def test_of_two_drivers_the_later_one_goes_on(sink: Sink) -> None:
    first = sink.task(["a"], run="r1")
    second = sink.task(["a"], run="r2")
    with pytest.raises((SinkFenced, InvalidTransactionState)):
        sink.commit(first)
    sink.commit(second)
    with pytest.raises(SinkFenced):
        sink.task(["b"], run="r1", batch=1)
    assert sink.visible() == ["a"]


def test_a_zombie_can_do_nothing(sink: Sink) -> None:
    zombie = sink.task(["a"], attempt=0)
    sink.commit(sink.task(["a"], attempt=1))
    with pytest.raises(REFUSED):
        _write_under(sink, zombie)
    assert sink.task(["a"], attempt=2).transaction == ""
    sink.commit(sink.task(["b"], batch=1))
    assert sink.visible() == ["a", "b"]


def _write_under(sink: Sink, message: TaskMessage) -> None:
    """Go on writing in a transaction that others think is over."""
    from paceline.client.sequenced import SequencedBatch
    from paceline.types import TopicPartition
    from paceline.wire.batch import TRANSACTIONAL, build_batch
    from paceline.wire.native.transactions import SINK
    from paceline.wire.records import Record

    producer = int(message.transaction.rsplit("/", 1)[1])
    [at] = message.written.last
    batch = build_batch(
        [Record(-1, 0, None, b"zombie")],
        producer_id=producer,
        producer_epoch=0,
        base_sequence=message.written.rows,
        flags=TRANSACTIONAL,
    )
    writer = sink.topics.client.sequenced_writer(
        transactional_id=message.transaction, transaction_family=SINK
    )
    writer.write([SequencedBatch(TopicPartition(at.topic, at.partition), batch)])


def test_an_abort_undoes_what_is_open_and_nothing_else(sink: Sink) -> None:
    done = sink.task(["a"])
    sink.commit(done)
    abort(sink.options, [done, None])
    assert sink.visible() == ["a"]
    open_one = sink.task(["b"], batch=1, run="r2")
    abort(sink.options, [open_one])
    with pytest.raises(PacelineError):
        sink.commit(open_one)
    with pytest.raises(SinkFenced):  # too late for a batch that its driver has given up
        sink.task(["b"], batch=1, run="r2", attempt=1)
    sink.commit(sink.task(["b"], batch=1, run="r3"))
    assert sink.visible() == ["a", "b"]


def test_another_query_under_the_same_name_is_refused(sink: Sink) -> None:
    sink.commit(sink.task(["a"]))
    write = WriteId(sink.name, "another query", "r9", 0)
    rows = pa.RecordBatch.from_pydict({"value": [b"z"]})
    with pytest.raises(SinkConflict, match="sink state conflict"):
        write_task(sink.options, TaskId(write, 0, 0), iter([rows]))


def test_a_topic_that_is_made_anew_under_a_batch_gets_all_of_it(sink: Sink) -> None:
    """Half of it was committed."""
    before = sink.task(["a"], part=0)
    admin = sink.topics.client.admin
    admin.delete_topic(sink.topic)
    admin.create_topic(sink.topic, partitions=2)
    after = sink.task(["b"], part=1)
    with pytest.raises(InvalidTransactionState, match="deleted and made anew"):
        sink.commit(before, after)
    assert sink.visible() == []
    sink.commit(*(sink.task([value], run="r2", part=part) for part, value in enumerate("ab")))
    assert sink.visible() == ["a", "b"]


def test_a_node_that_dies_between_write_and_commit(sink: Sink, cluster: Cluster) -> None:
    messages = [sink.task([f"{part}{n}" for n in range(50)], part=part) for part in range(2)]
    client = sink.topics.client
    coordinator = client.admin.topic("__transactions").partitions[0].leader
    cluster.run("node", "kill", str(coordinator), "--dir", str(cluster.dir))
    try:
        sink.commit(*messages)
        wanted = sorted(f"{part}{n}" for part in range(2) for n in range(50))
        wait_until("all of it is visible", lambda: sink.visible() == wanted)
        assert client.admin.topic("__transactions").partitions[0].leader != coordinator
        again = sink.task(["00"], run="r2")
        assert again.transaction == ""
    finally:
        cluster.run("node", "restart", str(coordinator), "--dir", str(cluster.dir))
        cluster.run("health", "--exit-when-healthy", "--dir", str(cluster.dir))
