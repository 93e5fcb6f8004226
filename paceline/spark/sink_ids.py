"""Who writes: the names under which the broker knows a query, its runs, and its batches."""

from __future__ import annotations

import hashlib
import json
import uuid

from paceline.spark.errors import OptionError
from paceline.spark.options import SinkOptions
from paceline.spark.places import local_path
from paceline.values import dataclass
from paceline.wire.native.data import ProducerIdentity

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
RUN_ID = "spark.jobGroup.id"
_NAMED = 1 << 62
"""Ids that the cluster hands out are small; those made of names have this bit."""


@dataclass(frozen=True, slots=True)
class WriteId:
    """One micro-batch, or one batch write. ``query`` is empty for the latter."""

    sink: str
    query: str
    run: str
    batch: int


@dataclass(frozen=True, slots=True)
class TaskId:
    """One attempt at one part of it."""

    write: WriteId
    partition: int
    attempt: int


def batch_write(options: SinkOptions) -> WriteId:
    """Of a plain ``df.write``: the names that the user gave, or new ones."""
    run = uuid.uuid4().hex
    if options.app_id:
        return WriteId(named_sink(options), "", run, options.version)
    return WriteId(f"write-{run}", "", run, 0)


def named_sink(options: SinkOptions) -> str:
    """The sink of an application's writes. Each topic has versions of its own: one ``foreachBatch``
    may write the same version to several. No topic's name has a slash, so no two applications
    share a sink; rows that name their topics themselves leave that part empty."""
    return f"{options.app_id}/{options.topic}"


def stream_task(sink: str) -> TaskId:
    """Of the running task of a streaming query; ``sink`` instead of the query's id names the
    sink, if it is not empty."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "called outside a task"
    query = context.getLocalProperty(QUERY_ID)
    batch = context.getLocalProperty(BATCH_ID)
    run = context.getLocalProperty(RUN_ID)
    if not query or batch is None or not run:
        raise OptionError(
            "paceline: this Spark does not tell its tasks which query and batch they are of; "
            "deliveryGuarantee=at_least_once works without"
        )
    write = WriteId(sink or query, query, run, int(batch))
    return TaskId(write, context.partitionId(), context.attemptNumber())


def query_of(checkpoint: str) -> str:
    """The id of the query that has this checkpoint; empty where that is not to be read here."""
    folder = local_path(checkpoint)
    if folder is None or not checkpoint:
        return ""
    try:
        path = folder / "metadata"
        return str(json.loads(path.read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def last_planned(checkpoint: str) -> dict[int, int]:
    """The batch that the query with this checkpoint has planned last, and when that was, in ms. It
    is the one that is done again after a stop; empty where that is not to be read here."""
    place = local_path(checkpoint)
    if place is None or not checkpoint:
        return {}
    folder = place / "offsets"
    try:
        batch = max(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
        lines = (folder / str(batch)).read_text(encoding="utf-8").splitlines()
        return {batch: int(json.loads(lines[1])["batchTimestampMs"])}
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return {}


def last_committed(checkpoint: str) -> int:
    """The last batch that the query with this checkpoint takes for done; -1 where there is none, or
    where that is not to be read here."""
    place = local_path(checkpoint)
    if place is None or not (folder := place / "commits").is_dir():
        return -1
    return max((int(path.name) for path in folder.iterdir() if path.name.isdecimal()), default=-1)


def task_of_batch(write: WriteId) -> TaskId:
    """Of the running task of a batch write."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "called outside a task"
    return TaskId(write, context.partitionId(), context.attemptNumber())


def named_identity(task: TaskId) -> ProducerIdentity:
    """The same producer id for every attempt at the same part of the same batch."""
    name = f"{task.write.sink}\0{task.write.batch}\0{task.partition}".encode()
    digest = hashlib.blake2b(name, digest_size=8).digest()
    return ProducerIdentity(_NAMED | int.from_bytes(digest, "big") >> 2, 0)
