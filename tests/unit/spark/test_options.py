from __future__ import annotations

import pytest

from paceline.spark.bounds import explicit
from paceline.spark.errors import OptionError
from paceline.spark.options import (
    EARLIEST,
    LATEST,
    Bound,
    BoundKind,
    Guarantee,
    of_batch,
    parse_sink,
    parse_source,
)
from paceline.types import Compression, Isolation, TopicPartition

BASE = {"paceline.bootstrap.servers": "a:1,b:2", "subscribe": "orders"}


def source(streaming: bool = False, **more: str):
    names = {key.replace("__", "."): value for key, value in more.items()}
    return parse_source({**BASE, **names}, streaming=streaming)


def test_defaults_are_sparks_own_where_it_has_one() -> None:
    batch, stream = source(), source(streaming=True)
    assert batch.start == EARLIEST
    assert stream.start == LATEST
    assert batch.end == LATEST
    assert stream.fail_on_data_loss
    assert stream.isolation is Isolation.READ_COMMITTED
    assert stream.link.bootstrap == ("a:1", "b:2")
    assert batch.columns == (
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    )
    assert source(includeHeaders="true").columns[-1] == "headers"


def test_names_are_taken_in_any_case_and_with_kafkas_prefix() -> None:
    options = parse_source(
        {"KAFKA.Bootstrap.Servers": "c:3", "SUBSCRIBE": "a, b", "MinPartitions": "4"},
        streaming=False,
    )
    assert options.link.bootstrap == ("c:3",)
    assert options.topics.names == ("a", "b")
    assert options.min_partitions == 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"minPartition": "3"}, "did you mean minPartitions?"),
        ({"paceline.bootstrap.server": "x"}, "did you mean paceline.bootstrap.servers?"),
        ({"kafka.group.id": "g"}, "use groupId"),
        ({"kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({"subscribePattern": "a.*"}, "exactly one of subscribe"),
        ({"minPartitions": "0"}, "at least 1"),
        ({"minPartitions": "many"}, "whole number"),
        ({"startingOffsets": "latest"}, "no sense for a batch"),
        ({"endingOffsets": "earliest"}, "no sense"),
        ({"endingOffsets": '{"orders":{"0":-2}}'}, "no sense"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "-2 up"),
        ({"startingOffsets": "[1]"}, "JSON object"),
        ({"startingOffsets": "soon"}, "not JSON"),
        ({"maxOffsetsPerTrigger": "5"}, "for streaming queries"),
        ({"deliveryGuarantee": "idempotent"}, "for writing"),
        ({"columns": "key,colour"}, "'colour' is none of"),
        ({"isolationLevel": "dirty"}, "read_committed, read_uncommitted"),
        ({"failOnDataLoss": "yes"}, "true or false"),
        ({"between": '{"orders": {"0": 1}}'}, "JSON list of two offsets"),
        ({"between": "[{}, 1]"}, "JSON list of two offsets"),
        ({"between": "[{}"}, "not JSON"),
        ({"between": "[{}, {}]", "endingOffsets": "latest"}, "endingOffsets has no place beside"),
        ({"assign": '{"orders": []}', "subscribe": ""}, "expected topic names"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said.replace("?", r"\?")):
        parse_source({**BASE, **given}, streaming=False)


def test_an_ending_is_refused_in_a_stream() -> None:
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(OptionError, match="for batch queries"):
            parse_source({**BASE, name: "1"}, streaming=True)


def test_other_settings_of_kafka_are_ignored_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"kafka\.fetch\.min\.bytes means nothing here"):
        options = parse_source({**BASE, "kafka.fetch.min.bytes": "7"}, streaming=False)
    assert options.topics.names == ("orders",)


def test_sparks_own_options_pass() -> None:
    options = parse_source(
        {**BASE, "path": "x", "checkpointLocation": "y", "queryName": "z"}, streaming=True
    )
    assert options.topics.names == ("orders",)


def test_precedence_of_starts() -> None:
    at = TopicPartition("orders", 0)
    options = source(
        startingOffsets="earliest",
        startingOffsetsByTimestamp='{"orders":{"0":7}}',
        startingTimestamp="9",
    )
    assert options.start == Bound(BoundKind.TIME, timestamp_ms=9)
    options = source(startingOffsets="earliest", startingOffsetsByTimestamp='{"orders":{"0":7}}')
    assert options.start == Bound(BoundKind.TIMES, {at: 7})


def test_only_plain_numbers_make_a_start_explicit() -> None:
    assert source(startingOffsets='{"orders":{"0":3}}').start.is_explicit
    assert not source(startingOffsets='{"orders":{"0":-2}}').start.is_explicit
    assert not EARLIEST.is_explicit


@pytest.mark.parametrize(
    ("name", "text", "missing", "unknown"),
    [
        ("startingOffsets", '{"orders":{}}', "orders/0, orders/1", "none"),
        ("startingOffsets", '{"orders":{"1":3,"2":0}}', "orders/0", "orders/2"),
        ("startingOffsetsByTimestamp", '{"orders":{},"bills":{}}', "orders/0, orders/1", "none"),
    ],
)
def test_a_start_that_leaves_partitions_out_names_them(
    name: str, text: str, missing: str, unknown: str
) -> None:
    """Not as if there was nothing to read."""
    partitions = [TopicPartition("orders", number) for number in range(2)]
    with pytest.raises(OptionError, match=f"missing {missing}, unknown {unknown}"):
        explicit(source(**{name: text}).start, partitions)


def test_of_a_streams_options_a_batch_takes_those_that_bound_nothing() -> None:
    stream = {
        **BASE,
        "STARTINGOFFSETS": "latest",
        "maxOffsetsPerTrigger": "5",
        "kafka.group": "g",
        "failOnDataLoss": "false",
    }
    assert of_batch(stream) == {**BASE, "kafka.group": "g", "failOnDataLoss": "false"}


def test_minimum_above_maximum_is_refused() -> None:
    with pytest.raises(OptionError, match="above maxOffsetsPerTrigger=2"):
        source(streaming=True, minOffsetsPerTrigger="3", maxOffsetsPerTrigger="2")


def test_sizes_and_durations_have_units() -> None:
    options = source(streaming=True, maxBytesPerTrigger="10m", maxTriggerDelay="2m")
    assert options.max_bytes == 10 << 20
    assert options.max_trigger_delay_ms == 120_000


def test_sink_options() -> None:
    base = {"paceline.bootstrap.servers": "a:1"}
    options = parse_sink(base)
    assert options.guarantee is Guarantee.EXACTLY_ONCE
    assert options.version == -1
    options = parse_sink({**base, "compression": "ZSTD", "txnAppId": "x", "txnVersion": "0"})
    assert (options.compression, options.app_id, options.version) == (Compression.ZSTD, "x", 0)
    with pytest.raises(OptionError, match="go together"):
        parse_sink({**base, "txnAppId": "x"})
    named = parse_sink(
        {**base, "txnAppId": "x", "txnVersion": "0", "txnPlannedMs": "1700000000000"}
    )
    assert (named.planned_ms, options.planned_ms) == (1_700_000_000_000, -1)
    with pytest.raises(OptionError, match="the write that txnAppId names"):
        parse_sink({**base, "txnPlannedMs": "1"})
    with pytest.raises(OptionError, match="needs deadLetterTopic"):
        parse_sink({**base, "onBadRow": "dead_letter"})
    with pytest.raises(OptionError, match="for reading"):
        parse_sink({**base, "subscribe": "x"})
    with pytest.raises(OptionError, match=r"bootstrap\.servers is required"):
        parse_sink({})
