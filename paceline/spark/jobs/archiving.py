"""Topics into an archive, exactly once; keeping its files few."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from paceline.client import blocking
from paceline.spark.archive_files import check_file, file_digest, whole
from paceline.spark.archive_log import (
    COMPACTION,
    STAGE,
    VACUUM,
    ArchiveConflict,
    ArchiveFile,
    ArchiveLog,
    Entry,
    State,
    check_complete,
    check_ids,
    make_directory,
    sync,
)
from paceline.spark.cluster import topic_id
from paceline.spark.options import ARROW_COLUMNS
from paceline.spark.sink_ids import last_committed, query_of
from paceline.types import TopicPartition
from paceline.wire.native.data import TopicInfo


def start_archive(
    spark: SparkSession,
    *,
    bootstrap: str,
    topics: str,
    root: Path,
    checkpoint: str,
    trigger: Mapping[str, Any],
    options: Mapping[str, str],
) -> StreamingQuery:
    """A query that archives ``topics``. With a new checkpoint and no startingOffsets it begins
    where the archive ends, or at the earliest record of what it does not hold. Raises
    ArchiveConflict where that is of other topics of these names, or lacks what the checkpoint takes
    for archived."""
    state = ArchiveLog(root).state()
    with blocking.connect(bootstrap.split(",")) as client:
        found = {name.strip(): client.admin.topic(name.strip()) for name in topics.split(",")}
    ids = {name: topic_id(each) for name, each in found.items()}
    check_ids(root, state, ids)
    check_complete(root, state, query_of(checkpoint), last_committed(checkpoint))
    given = {
        "paceline.bootstrap.servers": bootstrap,
        "subscribe": topics,
        "columns": ",".join(ARROW_COLUMNS),
        "startingOffsets": starting_offsets(state, found.values()),
        **options,
        "topicIds": json.dumps(ids),  # the writer sees no ids
    }
    return (
        spark.readStream.format("paceline")
        .options(**given)
        .load()
        .writeStream.format("paceline-archive")
        .queryName("paceline-archive")
        .option("checkpointLocation", checkpoint)
        .option("topicIds", json.dumps(ids))
        .trigger(**trigger)
        .start(str(root))
    )


def starting_offsets(state: State, topics: Iterable[TopicInfo]) -> str:
    """Where an archive ends in these topics, as ``startingOffsets``."""
    if not state.ends:
        return "earliest"
    wanted: dict[str, dict[str, int]] = {}
    for topic in topics:
        places = wanted.setdefault(topic.name, {})
        for each in topic.partitions:
            at = TopicPartition(topic.name, each.partition)
            places[str(each.partition)] = state.ends.get(at, -2)
    return json.dumps(wanted)


# --- compaction -----------------------------------------------------------------------------------


def compact(
    root: Path, *, target_bytes: int, older_s: float, grace_s: float, now: float | None = None
) -> dict[str, int]:
    """Join small files of one partition and hour, oldest first; how many became how many.

    Files that the log named less than ``older_s`` ago are left alone. What was replaced is deleted
    by a later call, ``grace_s`` after. Safe beside a running archive job: if that is quicker the
    work is put on the newer version, since its files are others.
    """
    moment = time.time() if now is None else now
    log = ArchiveLog(root)
    log.repair()
    state = log.state()
    _drop_replaced(log, state, moment, grace_s)
    small: dict[tuple[TopicPartition, str], list[ArchiveFile]] = {}
    for files in state.by_partition().values():
        for each in files:
            age_s = moment - (root / each.path).stat().st_mtime
            if each.bytes < target_bytes / 2 and age_s >= older_s:
                small.setdefault((each.at, str(Path(each.path).parent)), []).append(each)
    removed = added = 0
    for (_, folder), files in sorted(small.items()):
        for group in _groups(files, target_bytes):
            _replace(log, group, _join(root, folder, group))
            removed += len(group)
            added += 1
    return {"files_removed": removed, "files_added": added}


def _groups(files: Sequence[ArchiveFile], target_bytes: int) -> list[list[ArchiveFile]]:
    groups: list[list[ArchiveFile]] = [[]]
    size = 0
    for each in files:
        if groups[-1] and size + each.bytes > target_bytes:
            groups.append([])
            size = 0
        groups[-1].append(each)
        size += each.bytes
    return [group for group in groups if len(group) > 1]


def _join(root: Path, folder: str, group: Sequence[ArchiveFile]) -> ArchiveFile:
    for each in group:
        check_file(root, each)
    import pyarrow as pa

    table = pa.concat_tables([whole(pq.ParquetFile(root / each.path).read()) for each in group])
    stage = f"{STAGE}/compaction/{uuid.uuid4().hex}.parquet"
    make_directory((root / stage).parent)
    pq.write_table(table.sort_by("offset"), root / stage, compression="zstd")
    sync(root / stage)
    sync((root / stage).parent)
    digest, size = file_digest(root / stage)
    first, last = min(each.first for each in group), max(each.last for each in group)
    times = [stamp for each in group for stamp in (each.minTs, each.maxTs) if stamp != -1]
    one = group[0]
    name = f"p{one.partition}-{first}-{last}-{uuid.uuid4().hex[:8]}.parquet"
    return ArchiveFile(
        path=f"{folder}/{name}",
        stage=stage,
        topic=one.topic,
        partition=one.partition,
        first=first,
        last=last,
        rows=table.num_rows,
        bytes=size,
        minTs=min(times, default=-1),
        maxTs=max(times, default=-1),
        sha256=digest,
    )


def _replace(log: ArchiveLog, group: Sequence[ArchiveFile], joined: ArchiveFile) -> None:
    gone = [each.path for each in group]
    entry = Entry(COMPACTION, "", -1, {}, [joined], gone)
    while True:
        log.repair()  # of a writer that died meanwhile: versions of ours may be many
        state = log.state()
        missing = [path for path in gone if path not in state.files]
        if missing:
            log.drop_stages([joined.stage])
            raise ArchiveConflict(f"{missing[0]}: another compaction has replaced it")
        if joined.stage in state.vacuumed:
            raise ArchiveConflict(
                f"{log.root / joined.stage}: a vacuum has deleted it before it was committed; "
                "run the compaction again, and vacuum with a longer --grace"
            )
        try:
            log.append(entry, after=state.version)
        except ArchiveConflict:
            continue
        return


def _drop_replaced(log: ArchiveLog, state: State, moment: float, grace_s: float) -> None:
    """Delete what compactions replaced longer ago than the grace. When that was the log knows: a
    file beside it could not be changed together with it, nor by two jobs at once."""
    made = {version: log.made_at(version) for version in set(state.replaced.values())}
    for path, version in state.replaced.items():
        if moment - made[version] >= grace_s:
            (log.root / path).unlink(missing_ok=True)


def vacuum(root: Path, *, grace_s: float, now: float | None = None) -> int:
    """Delete files that no version names and that are older than the grace; how many.

    Safe beside running jobs: which files go is a version of the log, made behind the very state
    that did not name them. What was staged longer ago than the grace and is committed later fails
    then: a batch is staged anew when its query is run again, a compaction has changed nothing.
    """
    moment = time.time() if now is None else now
    log = ArchiveLog(root)
    log.repair()
    _drop_replaced(log, log.state(), moment, grace_s)
    old = _data_files(root, before=moment - grace_s)
    while True:
        state = log.state()
        log.repair()  # what was committed since the last look is in its place, and not in old
        named = set(state.files) | {each.stage for each in state.files.values()}
        gone = sorted(old - named - state.replaced.keys())  # those have a grace of their own
        if not gone:
            return 0
        try:
            log.append(Entry(VACUUM, "", -1, {}, remove=gone), after=state.version)
        except ArchiveConflict:
            continue
        for path in gone:
            (root / path).unlink(missing_ok=True)
        return len(gone)


def _data_files(root: Path, *, before: float) -> set[str]:
    """Parquet files that were written before a moment, relative to the root."""
    found = set()
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            with contextlib.suppress(FileNotFoundError):
                if name.endswith(".parquet") and path.stat().st_mtime <= before:
                    found.add(path.relative_to(root).as_posix())
    return found
