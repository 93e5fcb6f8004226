"""The guarantee ``exactly_once``: a transaction for each task attempt, one commit for all of a
micro-batch (DESIGN 6). What the coordinator does is in ``node/paceline_node/transactions``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from paceline.client import blocking
from paceline.errors import AlreadyCommitted, PacelineError, SinkForgotten
from paceline.spark.cluster import connect
from paceline.spark.options import Forgotten, SinkOptions
from paceline.spark.sink_ids import TaskId, WriteId
from paceline.values import dataclass
from paceline.wire.native.data import ProducerIdentity

LOG = logging.getLogger("paceline.spark")


@dataclass(frozen=True, slots=True)
class OpenAttempt:
    """An open transaction; ``name`` is its transactional id."""

    name: str
    identity: ProducerIdentity


FORGOTTEN = (
    "{}. If its rows are there, go on with option onForgottenSink=skip; if they are not, or may be "
    "there twice, with onForgottenSink=write; it is for this one batch"
)


def begin(
    client: blocking.Client, options: SinkOptions, task: TaskId, planned_ms: int = -1
) -> OpenAttempt | None:
    """Open a task attempt's transaction; None when its batch is committed already. ``planned_ms``:
    when the batch was planned, maybe by an earlier run; -1 if that is not known.

    Raises SinkFenced when a later run of the query has taken over, SinkConflict when the sink's
    batches are another query's, SinkForgotten when nobody knows whether the batch was committed.
    """
    write = task.write
    if options.forgotten is Forgotten.WRITE:
        planned_ms = -1
    try:
        begun = client.sinks.begin(
            write.sink,
            query=write.query,
            run=write.run,
            batch=write.batch,
            partition=task.partition,
            attempt=task.attempt,
            timeout_s=options.transaction_timeout_ms / 1000,
            planned_ms=planned_ms,
        )
    except AlreadyCommitted:
        return None
    except SinkForgotten as error:
        if options.forgotten is Forgotten.FAIL:
            raise SinkForgotten(FORGOTTEN.format(error)) from error
        LOG.warning("left out, as onForgottenSink=skip says: %s", error)
        return None
    identity = ProducerIdentity(begun.producer_id, begun.producer_epoch)
    return OpenAttempt(begun.transaction, identity)


@contextmanager
def kept_alive(write: WriteId, options: SinkOptions) -> Iterator[None]:
    """Renew all open transactions of the batch while a task of it runs, so that those of tasks
    that are done wait for the last one: also while that has no row yet, and no connection."""
    done = threading.Event()
    pause_s = options.transaction_timeout_ms / 3000

    def touch() -> None:
        while not done.wait(pause_s):
            try:
                with connect(options.link, "touch", pause_s) as client:
                    client.sinks.touch(write.sink, run=write.run, batch=write.batch)
            except PacelineError as error:
                # Writing goes on: what it writes is refused if the transaction is gone.
                LOG.warning("transactions of batch %d were not renewed: %s", write.batch, error)

    thread = threading.Thread(target=touch, name="paceline-touch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def commit(client: blocking.Client, write: WriteId, transactions: Sequence[str]) -> None:
    """Commit them all, or none; committed before counts as done. Raises InvalidTransactionState
    when one has timed out: Spark then repeats the batch."""
    try:
        client.sinks.commit(write.sink, run=write.run, batch=write.batch, transactions=transactions)
    except AlreadyCommitted:
        LOG.info("batch %d of %s was committed before", write.batch, write.sink)


def abort(client: blocking.Client, write: WriteId) -> None:
    """Abort all that the batch has open, that of tasks which failed without a word included. A
    write without a run, which nobody knows any more, is of the one that writes now."""
    run = write.run or client.sinks.state(write.sink).run
    if run:
        client.sinks.abort(write.sink, batch=write.batch, run=run)


def abort_attempt(client: blocking.Client, write: WriteId, attempt: OpenAttempt) -> None:
    """Abort a failed task's own transaction, so that readers need not wait for its time-out.
    Raises nothing: what the task failed with matters more."""
    try:
        client.sinks.abort(write.sink, batch=write.batch, transactions=[attempt.name])
    except PacelineError as error:
        LOG.warning("transaction %s ends by its time-out: %s", attempt.name, error)
