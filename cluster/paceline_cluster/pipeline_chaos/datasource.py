"""``format("paceline-chaos")``: the real source and sink, struck at the armed point."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from paceline.errors import PacelineError
from paceline.spark.options import parse_source
from paceline.spark.sink import StreamWriter, TaskMessage
from paceline.spark.sink_ids import BATCH_ID, stream_task
from paceline.spark.source import PacelineDataSource, StreamReader
from paceline_cluster.pipeline_chaos import points

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType


class ChaosDataSource(PacelineDataSource):
    """As the real one, with a reader and a writer that strike."""

    @classmethod
    def name(cls) -> str:
        return "paceline-chaos"

    def streamReader(self, schema: StructType) -> ChaosReader:  # noqa: N802
        return ChaosReader(parse_source(dict(self.options), streaming=True))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        return ChaosWriter(self._sink_options(schema, overwrite=overwrite))


class Broken(RuntimeError):
    """Raised where the run wants a failure."""


class ChaosReader(StreamReader):
    """Waits in a task, with most of its range still to be fetched, for a leader to be killed."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "called outside a task"
        batch = int(context.getLocalProperty(BATCH_ID) or 0)
        for rows in super().read(partition):
            yield rows
            if points.reached(points.LEADER_READ, batch):
                points.tell(points.PARTITION, str(partition.value.partition))
                points.await_harness()


class ChaosWriter(StreamWriter):
    """Dies, or lets others die, where it is told to."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskMessage:
        task = stream_task(self._options.app_id)
        batch = task.write.batch
        if points.reached(points.BEFORE_BEGIN, batch):
            points.kill_driver()
        lost = points.reached(points.TASK, batch)
        zombie = points.reached(points.ZOMBIE, batch)
        message = super().write(_struck(iterator, batch, task.partition))
        if zombie:
            leave_zombie(self._options.link.bootstrap, message)
        if lost or zombie:
            raise Broken("this attempt is declared lost; its transaction stays open")
        if points.reached(points.AFTER_FLUSH, batch):
            points.kill_driver()
        return message

    def commit(self, messages: Sequence[TaskMessage | None], batchId: int) -> None:  # noqa: N803
        if not any(message is not None and message.transaction for message in messages):
            super().commit(messages, batchId)
            return
        if points.reached(points.BEFORE_COMMIT, batchId):
            points.kill_driver()
        if armed := points.reached(points.IN_COMMIT, batchId):
            threading.Thread(target=_kill_soon, args=(armed.delay_ms,), daemon=True).start()
        if points.reached(points.TWO_DRIVERS, batchId):
            self._commit_late(messages, batchId)
            return
        super().commit(messages, batchId)
        (points.folder() / points.COMMITTED).touch()
        if points.reached(points.AFTER_COMMIT, batchId):
            points.kill_driver()
        if points.reached(points.COMMIT_RAISES, batchId):
            raise Broken("the commit is done, but Spark is told otherwise")

    def _commit_late(self, messages: Sequence[TaskMessage | None], batch: int) -> None:
        """Commit when another driver has done the rest of the query."""
        points.await_harness()
        answer = "taken as committed before"
        try:
            super().commit(messages, batch)
        except PacelineError as error:
            answer = f"{type(error).__name__}: {error}"
            raise
        finally:
            points.tell(points.ANSWER, answer)


def _kill_soon(delay_ms: int) -> None:
    time.sleep(delay_ms / 1000)
    points.kill_driver()


def _struck(
    iterator: Iterator[pa.RecordBatch], batch: int, partition: int
) -> Iterator[pa.RecordBatch]:
    """The rows; what is to strike a running task does so behind the first of them."""
    for rows in iterator:
        yield rows
        if points.reached(points.WHILE_WRITING, batch):
            points.kill_driver()
        if points.reached(points.WORKER, batch):
            os.kill(os.getpid(), signal.SIGKILL)
        if points.reached(points.SPARK_WORKER, batch):
            points.tell(points.EXECUTOR, str(os.getpid()))
            points.await_harness()
        if points.reached(points.LEADER_WRITE, batch):
            points.tell(points.PARTITION, str(partition))
            points.await_harness()


def leave_zombie(bootstrap: Sequence[str], message: TaskMessage) -> None:
    """A process that writes under the attempt's transaction once the batch is committed."""
    (points.folder() / points.COMMITTED).unlink(missing_ok=True)
    (at,) = message.written.last  # a task of this query reads one partition, and writes the same
    told = {
        "bootstrap": list(bootstrap),
        "transaction": message.transaction,
        "topic": at.topic,
        "partition": at.partition,
        "written": message.written.rows,
        "write": asdict(message.write),
    }
    subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
        [sys.executable, "-m", "paceline_cluster.pipeline_chaos.zombie", json.dumps(told)],
        start_new_session=True,
    )
