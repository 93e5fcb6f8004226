"""Rows into batches: the same rows give the same batches under the same sequences."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.client.partitioner import fnv1a
from paceline.client.sequenced import SequencedBatch
from paceline.errors import UnknownTopicOrPartition
from paceline.spark.options import SinkOptions, parse_sink
from paceline.spark.rows import (
    KEPT_BYTES,
    ORIGIN_HEADER,
    REASON_HEADER,
    BadRow,
    Row,
    RowReader,
    check_columns,
)
from paceline.spark.sink_ids import TaskId, WriteId, named_identity
from paceline.spark.task_writer import TaskWriter
from paceline.types import TopicPartition
from paceline.wire.batch import TRANSACTIONAL, read_header
from paceline.wire.native.data import ProducerIdentity
from paceline.wire.records import Record, decode_records


def options(**more: str) -> SinkOptions:
    return parse_sink({"paceline.bootstrap.servers": "x:1", **more})


class Log:
    """Topics of three partitions that keep what is written, in the order of writing."""

    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.batches: list[SequencedBatch] = []

    def partition_count(self, topic: str) -> int:
        if topic not in self.topics:
            raise UnknownTopicOrPartition(f"{topic}: no such topic")
        return 3

    def write(self, batches: Iterable[SequencedBatch]) -> dict[TopicPartition, int]:
        last = {}
        for batch in batches:
            self.batches.append(batch)
            last[batch.at] = sum(len(r) for r in self.records(batch.at)) - 1
        return last

    def records(self, at: TopicPartition) -> list[list[Record]]:
        return [decode_records(each.data) for each in self.batches if each.at == at]

    def values(self, at: TopicPartition) -> list[bytes | None]:
        return [record.value for records in self.records(at) for record in records]


def write(log: Log, rows: Iterable[Row], chosen: SinkOptions | None = None, **more):
    identity = ProducerIdentity(9, 0)
    writer = TaskWriter(log, identity, chosen or options(), first_partition=1, **more)
    for row in rows:
        writer.add(row)
    return writer.finish()


def row(value: bytes | None, key: bytes | None = None, partition: int | None = None, topic="t"):
    return Row(topic, partition, Record(-1, 5, key, value))


def test_keys_partitions_and_turns() -> None:
    log = Log("t")
    written = write(log, [row(b"a", b"k"), row(b"b", partition=2), row(b"c")])
    assert log.values(TopicPartition("t", fnv1a(b"k") % 3)).count(b"a") == 1
    assert b"b" in log.values(TopicPartition("t", 2))
    assert log.values(TopicPartition("t", 1))[-1] == b"c", "the task's number says where to begin"
    assert written.rows == 3


@given(st.lists(st.tuples(st.binary(max_size=900), st.none() | st.binary(max_size=3)), max_size=60))
def test_batches_do_not_depend_on_when_rows_come(pairs) -> None:
    chosen = options(batchBytes="4096")
    logs = [Log("t"), Log("t")]
    for log in logs:
        write(log, [row(value, key) for value, key in pairs], chosen)
    assert [(b.at, bytes(b.data)) for b in logs[0].batches] == [
        (b.at, bytes(b.data)) for b in logs[1].batches
    ]
    for at in {batch.at for batch in logs[0].batches}:
        sequence = 0
        for batch in (each for each in logs[0].batches if each.at == at):
            header = read_header(batch.data)
            assert header.base_sequence == sequence
            assert header.size_bytes <= 4096 or header.record_count == 1
            sequence += header.record_count
    assert sum(
        len(log.values(TopicPartition("t", p))) for log in logs[:1] for p in range(3)
    ) == len(pairs)


def test_transactional_batches_are_marked() -> None:
    log = Log("t")
    write(log, [row(b"a")], transactional=True)
    assert read_header(log.batches[0].data).attributes & TRANSACTIONAL


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (row(b"a", topic=None), "null topic in the data"),
        (row(b"a", partition=3), "partition 3 of t, which has 3"),
        (row(b"a", topic="nowhere"), "no such topic"),
        (row(b"a", topic="__groups"), "no topic to write to"),
        (row(bytes(5000)), "at most 2048"),
    ],
)
def test_bad_rows_fail_or_are_buried(bad: Row, said: str) -> None:
    strict = options(maxRequestBytes="2048")
    with pytest.raises(BadRow, match=said):
        write(Log("t"), [bad], strict)
    kind = options(maxRequestBytes="2048", onBadRow="dead_letter", deadLetterTopic="dead")
    log = Log("t", "dead")
    written = write(log, [row(b"good", partition=0), bad], kind)
    assert (written.rows, written.dead_letters) == (2, 1)
    assert log.values(TopicPartition("t", 0)) == [b"good"]
    [[letter]] = [records for p in range(3) for records in log.records(TopicPartition("dead", p))]
    assert said in dict(letter.headers)[REASON_HEADER].decode()


def test_a_letter_does_without_headers_that_are_too_large() -> None:
    kind = options(maxRequestBytes="2048", onBadRow="dead_letter", deadLetterTopic="dead")
    log = Log("t", "dead")
    bad = row(b"a", partition=0)
    headers = (("h", bytes(KEPT_BYTES)),)
    write(log, [bad._replace(record=bad.record._replace(headers=headers))], kind)
    [[letter]] = [records for p in range(3) for records in log.records(TopicPartition("dead", p))]
    assert [name for name, _ in letter.headers] == [REASON_HEADER, ORIGIN_HEADER]
    assert letter.value == b"a"


def test_arrow_rows() -> None:
    reader = RowReader(options(topic="t", includeHeaders="true"), now_ms=77)
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "key": "k",
                "value": b"\xff",
                "partition": 2,
                "timestamp": 1_700_000_000_123_456,
                "headers": [{"key": "h", "value": b"1"}],
            },
            {"key": None, "value": None, "partition": None, "timestamp": None, "headers": None},
        ],
        schema=pa.schema(
            [
                ("key", pa.string()),
                ("value", pa.binary()),
                ("partition", pa.int32()),
                ("timestamp", pa.timestamp("us", tz="UTC")),
                (
                    "headers",
                    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
                ),
            ]
        ),
    )
    assert list(reader.read(batch)) == [
        Row("t", 2, Record(-1, 1_700_000_000_123, b"k", b"\xff", (("h", b"1"),))),
        Row("t", None, Record(-1, 77, None, None)),
    ]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("topic", "string")], "Required attribute 'value' not found"),
        ([("value", "binary")], "topic option required"),
        ([("value", "int"), ("topic", "string")], "value attribute unsupported type int"),
        ([("value", "string"), ("topic", "string"), ("colour", "string")], "colour attribute"),
        (
            [
                ("value", "binary"),
                ("topic", "string"),
                ("headers", "array<struct<key:string,value:binary>>"),
            ],
            "includeHeaders=true",
        ),
    ],
)
def test_columns_are_judged_when_the_query_is_planned(columns, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_columns(columns, options())


def test_every_attempt_at_a_part_has_one_name() -> None:
    write_id = WriteId("sink", "q", "run1", 4)
    again = WriteId("sink", "q", "run2", 4)
    assert named_identity(TaskId(write_id, 2, 0)) == named_identity(TaskId(again, 2, 3))
    others = {
        named_identity(TaskId(write_id, 3, 0)).producer_id,
        named_identity(TaskId(WriteId("sink", "q", "run1", 5), 2, 0)).producer_id,
        named_identity(TaskId(write_id, 2, 0)).producer_id,
    }
    assert len(others) == 3
    assert all(1 << 62 <= each < 1 << 63 for each in others)
