"""What a task does: read one range of a partition, whoever leads it meanwhile.

The client's consumer carries the reading: it follows the leader, fetches again at its position
after any failure, checks every batch's checksum and that offsets continue, so nothing is handed on
twice and nothing is left out. What is added here are the plan's conditions (topic id, leader
epoch), the deadline, and the words for what is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from paceline.client import ConsumedBatch, ConsumerSettings, Position, blocking
from paceline.client.offsets import Wanted
from paceline.errors import CorruptMessage, OffsetOutOfRange, UnknownTopicOrPartition
from paceline.spark import collecting
from paceline.spark.arrow import RecordColumns
from paceline.spark.cluster import connect, topic_id
from paceline.spark.errors import PacelineCorruptBatch, PacelineDataLoss, PacelineReadTimeout
from paceline.spark.options import SourceOptions
from paceline.spark.planning import ReadRange
from paceline.types import OffsetSpec, TopicPartition
from paceline.wire.records import Record

LOG = logging.getLogger("paceline.spark")


def read_range(options: SourceOptions, wanted: ReadRange) -> Iterator[pa.RecordBatch]:
    """The records of a range as Arrow batches, in order.

    Raises PacelineDataLoss (D3, D4, D6, D7), PacelineCorruptBatch, PacelineReadTimeout. Closing the
    iterator closes the connections.
    """
    columns = RecordColumns(
        wanted.at, options.columns, rows=options.batch_rows, size_bytes=options.batch_bytes
    )
    with collecting.rarely(), connect(options.link, "task") as client:
        for batch in batches(client, options, wanted):
            yield from columns.add(batch.header, _records(batch))
    yield from columns.rest()


def batches(
    client: blocking.Client, options: SourceOptions, wanted: ReadRange
) -> Iterator[ConsumedBatch]:
    """The stored batches of a range; raises as :func:`read_range`. Nothing, under
    ``failOnDataLoss=false``, of a topic that was deleted before: a planned batch would be begun
    again for ever."""
    try:
        _check_topic(client, wanted)
    except PacelineDataLoss as error:
        if options.fail_on_data_loss:
            raise
        LOG.warning("going on without lost records: %s %s", error.rule, error.what)
        return
    position = wanted.start
    while position < wanted.end:
        try:
            for batch in _consume(client, options, wanted, position):
                position = batch.end_offset
                yield batch
            return
        except OffsetOutOfRange as error:
            position = _behind_loss(client, options, wanted, position, error)
        except UnknownTopicOrPartition:
            _check_topic(client, wanted)
            raise


def _consume(
    client: blocking.Client, options: SourceOptions, wanted: ReadRange, position: int
) -> Iterator[ConsumedBatch]:
    settings = ConsumerSettings(
        partition_bytes=options.partition_fetch_bytes,
        fetch_bytes=options.partition_fetch_bytes,
        prefetch_bytes=2 * options.partition_fetch_bytes,
    )
    consumer = client.consumer(
        wanted.at,
        start=Position.at(position),
        stop=Position.at(wanted.end),
        isolation=options.isolation,
        settings=settings,
    )
    with consumer:
        while (batch := _next(consumer, options, wanted)) is not None:
            if options.fail_on_data_loss and 0 <= wanted.epoch < batch.header.leader_epoch:
                raise PacelineDataLoss(
                    "D7",
                    f"{wanted.at}: offset {batch.first_offset} is of leader epoch "
                    f"{batch.header.leader_epoch}, planned in {wanted.epoch}: an unclean election",
                )
            yield batch


def _next(
    consumer: blocking.Consumer, options: SourceOptions, wanted: ReadRange
) -> ConsumedBatch | None:
    try:
        return consumer.next_batch(timeout_s=options.poll_timeout_ms / 1000)
    except TimeoutError:
        raise PacelineReadTimeout(
            f"{wanted.at}: no progress at offset {consumer.position(wanted.at)} of "
            f"[{wanted.start}, {wanted.end}) for {options.poll_timeout_ms} ms "
            "(consumer.pollTimeoutMs)"
        ) from None
    except CorruptMessage as error:
        raise PacelineCorruptBatch(f"{wanted.at}: {error}") from error


def _records(batch: ConsumedBatch) -> list[Record]:
    try:
        return batch.records()
    except CorruptMessage as error:
        raise PacelineCorruptBatch(f"{batch.at}: {error}") from error


def _check_topic(client: blocking.Client, wanted: ReadRange) -> None:
    """The topic must still be the one that was planned. The client's consumers are bound to the one
    that it learns of here. Raises PacelineDataLoss."""
    try:
        found = topic_id(client.admin.topic(wanted.topic))
    except UnknownTopicOrPartition as error:
        raise PacelineDataLoss("D4", f"{wanted.at}: {error}") from error
    if wanted.topic_id and found != wanted.topic_id:
        raise PacelineDataLoss(
            "D3", f"{wanted.at}: the topic was deleted and made anew (id {found})"
        )


def _behind_loss(
    client: blocking.Client,
    options: SourceOptions,
    wanted: ReadRange,
    position: int,
    error: OffsetOutOfRange,
) -> int:
    """Where to go on after OFFSET_OUT_OF_RANGE, if the query may."""
    asked: dict[TopicPartition, Wanted] = {wanted.at: int(OffsetSpec.EARLIEST)}
    start = client.admin.find_offsets(asked)[wanted.at].offset
    if start > position:
        rule, what = "D6", f"offsets [{position}, {min(start, wanted.end)}) were removed meanwhile"
        resume = min(start, wanted.end)
    else:
        rule, what = "D7", f"the log ends before offset {position}: {error}"
        resume = wanted.end
    if options.fail_on_data_loss:
        raise PacelineDataLoss(rule, f"{wanted.at}: {what}") from error
    LOG.warning("going on without lost records: %s %s: %s", rule, wanted.at, what)
    return resume
