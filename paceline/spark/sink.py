"""``df.write`` and ``writeStream`` with ``format("paceline")``, as Spark calls them.

A writer is made in one process, written with in others, and committed in a third; nothing passes
between them but what is pickled here and the tasks' messages (DESIGN 1.1).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from paceline.client import blocking
from paceline.errors import PacelineError
from paceline.spark import collecting, exactly_once, sink_ids
from paceline.spark.cluster import FIRST_CONTACT_S, connect
from paceline.spark.options import Guarantee, SinkOptions
from paceline.spark.plain import told_plainly
from paceline.spark.rows import RowReader
from paceline.spark.sink_ids import TaskId, WriteId
from paceline.spark.task_writer import TaskWriter, Written
from paceline.wire.native.transactions import SINK

if TYPE_CHECKING:
    import pyarrow as pa

LOG = logging.getLogger("paceline.spark")
INCOMPLETE = "paceline: a task left no message; nothing of this batch is committed"


@dataclass
class TaskMessage(WriterCommitMessage):
    """What a task has written; ``transaction`` is empty where it opened none. ``skipped`` counts
    the rows that were left out because their batch had been committed before."""

    write: WriteId
    transaction: str = ""
    skipped: int = 0
    written: Written = field(default_factory=Written)


class StreamWriter(DataSourceStreamArrowWriter):
    """One micro-batch of a streaming query, which ``checkpoint`` names."""

    def __init__(self, options: SinkOptions, checkpoint: str = "") -> None:
        self._options = options
        self._checkpoint = checkpoint
        self._planned = sink_ids.last_planned(checkpoint)

    @told_plainly()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        task = sink_ids.stream_task(self._sink)
        return write_task(self._options, task, iterator, self._planned.get(task.write.batch, -1))

    @property
    def is_new(self) -> bool:
        """Whether the query has written nothing yet, as far as its checkpoint is to be read."""
        return max(self._planned, default=0) < 1

    @property
    def _sink(self) -> str:
        return sink_ids.named_sink(self._options) if self._options.app_id else ""

    @told_plainly()
    def commit(self, messages: Sequence[TaskMessage | None], batchId: int) -> None:
        commit(self._options, messages)

    def abort(self, messages: Sequence[TaskMessage | None], batchId: int) -> None:
        # Where no task has left a message, only the query's checkpoint tells whose batch it was.
        sink = self._sink or sink_ids.query_of(self._checkpoint)
        abort(self._options, messages, WriteId(sink, "", "", batchId) if sink else None)


class BatchWriter(DataSourceArrowWriter):
    """One ``df.write``. Named when it is planned, so that its tasks and its commit agree."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._write = sink_ids.batch_write(options)

    @told_plainly()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        task = sink_ids.task_of_batch(self._write)
        return write_task(self._options, task, iterator, self._options.planned_ms)

    @told_plainly()
    def commit(self, messages: Sequence[TaskMessage | None]) -> None:
        commit(self._options, messages)

    def abort(self, messages: Sequence[TaskMessage | None]) -> None:
        abort(self._options, messages, self._write)


# --- in a task ------------------------------------------------------------------------------------


def write_task(
    options: SinkOptions,
    task: TaskId,
    batches: Iterator[pa.RecordBatch],
    planned_ms: int = -1,
) -> TaskMessage:
    """Write a task's rows. With exactly_once nothing of it is visible before :func:`commit`: the
    input may have been cut short without a word (DESIGN 2.2). ``planned_ms``: as
    :func:`exactly_once.begin` takes it."""
    message = TaskMessage(task.write)
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        # The first row may be long in coming, and tasks that are done wait for it.
        with exactly_once.kept_alive(task.write, options):
            _write_once(options, task, batches, planned_ms, message)
        return message
    first = _first_filled(batches)
    if first is None:
        return message
    with collecting.rarely(), connect(options.link, "sink") as client:
        output = client.sequenced_writer()
        if options.guarantee is Guarantee.IDEMPOTENT:
            identity = sink_ids.named_identity(task)
        else:
            identity = output.new_identity()
        writer = TaskWriter(output, identity, options, first_partition=task.partition)
        message.written = _write_rows(writer, options, first, batches)
    return message


def _write_once(
    options: SinkOptions,
    task: TaskId,
    batches: Iterator[pa.RecordBatch],
    planned_ms: int,
    message: TaskMessage,
) -> None:
    first = _first_filled(batches)
    if first is None:
        return
    with collecting.rarely(), connect(options.link, "sink") as client:
        attempt = exactly_once.begin(client, options, task, planned_ms)
        if attempt is None:
            # Committed before: Spark wants its rows taken all the same.
            message.skipped = first.num_rows + sum(batch.num_rows for batch in batches)
            return
        _write_in_transaction(client, options, attempt, message, task.partition, first, batches)


def _write_in_transaction(
    client: blocking.Client,
    options: SinkOptions,
    attempt: exactly_once.OpenAttempt,
    message: TaskMessage,
    first_partition: int,
    first: pa.RecordBatch,
    batches: Iterator[pa.RecordBatch],
) -> None:
    message.transaction = attempt.name
    try:
        writer = TaskWriter(
            client.sequenced_writer(transactional_id=attempt.name, transaction_family=SINK),
            attempt.identity,
            options,
            first_partition=first_partition,
            transactional=True,
        )
        message.written = _write_rows(writer, options, first, batches)
    except BaseException:
        exactly_once.abort_attempt(client, message.write, attempt)
        raise


def _first_filled(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next((batch for batch in batches if batch.num_rows), None)


def _write_rows(
    writer: TaskWriter,
    options: SinkOptions,
    first: pa.RecordBatch,
    batches: Iterator[pa.RecordBatch],
) -> Written:
    reader = RowReader(options, time.time_ns() // 1_000_000)
    for row in reader.read(first):
        writer.add(row)
    for batch in batches:
        for row in reader.read(batch):
            writer.add(row)
    return writer.finish()


# --- in the driver --------------------------------------------------------------------------------


def commit(options: SinkOptions, messages: Sequence[TaskMessage | None]) -> None:
    """Make a batch visible, all of it at once. Raises when a task's message is missing."""
    present = [message for message in messages if message is not None]
    if len(present) < len(messages):
        raise RuntimeError(INCOMPLETE)
    dead = sum(message.written.dead_letters for message in present)
    if dead:
        LOG.warning("%d rows went to %s", dead, options.dead_letter_topic)
    _warn_of_skipped(options, present)
    transactions = [message.transaction for message in present if message.transaction]
    if not transactions:
        return
    writes = {message.write for message in present if message.transaction}
    if len(writes) != 1:
        named = ", ".join(sorted(map(str, writes)))
        raise RuntimeError(f"paceline: tasks of different batches in one commit: {named}")
    with connect(options.link, "commit") as client:
        exactly_once.commit(client, writes.pop(), transactions)


def _warn_of_skipped(options: SinkOptions, messages: Sequence[TaskMessage]) -> None:
    """Say that a named batch write left rows out. A stream's batch is repeated with the same rows
    after each crash, but what a program writes under an old version may be anything."""
    skipped = sum(message.skipped for message in messages)
    if skipped and options.app_id and not messages[0].write.query:
        LOG.warning(
            "%d rows were not written to %s: txnAppId %s has committed txnVersion %d or a later "
            "one there before. Other rows need a higher txnVersion, or a txnAppId of their own",
            skipped,
            options.topic or "the topics they name",
            options.app_id,
            options.version,
        )


def abort(
    options: SinkOptions, messages: Sequence[TaskMessage | None], unnamed: WriteId | None = None
) -> None:
    """Give a batch up, as far as it is not committed: ``unnamed`` if no task has left a message.
    Never raises: Spark would then hide why the batch failed (DESIGN 2.3)."""
    if options.guarantee is not Guarantee.EXACTLY_ONCE:
        return
    write = next((message.write for message in messages if message is not None), unnamed)
    if write is None:
        return
    try:
        with connect(options.link, "abort", FIRST_CONTACT_S) as client:
            exactly_once.abort(client, write)
    except PacelineError as error:
        LOG.warning("the batch's transactions end by their time-out: %s", error)
