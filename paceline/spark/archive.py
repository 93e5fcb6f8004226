"""``format("paceline-archive")``: partitioned Parquet files with a log of their own.

Written by a stream of the records view with headers and leaderEpoch, each micro-batch exactly once
by the log; read as a stream of the files that the log names at the start (DESIGN 7.2).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    SupportsTriggerAvailableNow,
)

from paceline.spark import row_types, sink_ids
from paceline.spark.archive_log import (
    RECENT,
    ArchiveDamaged,
    ArchiveFile,
    ArchiveLog,
    commit_batch,
    units,
)
from paceline.spark.errors import OptionError
from paceline.spark.options import ARROW_COLUMNS
from paceline.spark.places import NO_HARD_LINKS, local_path
from paceline.spark.values import number

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

MAX_FILES = 200
"""Files of one micro-batch when reading, by default."""


@dataclass
class StagedFiles(WriterCommitMessage):
    """What a task has staged."""

    app: str
    batch: int
    files: list[ArchiveFile] = field(default_factory=list)


class ArchiveDataSource(DataSource):
    """An archive below a directory: option ``path`` (``load(path)``, ``start(path)``). ``topicIds``
    (JSON) says which topics the written rows are of: others of these names are refused."""

    @classmethod
    def name(cls) -> str:
        return "paceline-archive"

    def schema(self) -> StructType:
        return row_types.records(ARROW_COLUMNS)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        files = number("maxFilesPerTrigger", self.options.get("maxFilesPerTrigger", str(MAX_FILES)))
        return ArchiveReader(self._root(), files)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        wanted = [(each.name, each.dataType) for each in self.schema()]
        if overwrite or [(each.name, each.dataType) for each in schema] != wanted:
            raise ValueError(
                "paceline: an archive is appended to with the columns "
                f"{', '.join(ARROW_COLUMNS)} of format('paceline'), unchanged"
            )
        return ArchiveWriter(self._root(), json.loads(self.options.get("topicIds", "{}")))

    def _root(self) -> str:
        path: str | None = self.options.get("path")
        if not path:
            raise OptionError("paceline: an archive needs a directory: load(path) or start(path)")
        root = local_path(path)
        if root is None:
            raise OptionError(f"paceline: {path}: {NO_HARD_LINKS}")
        return str(root)


class ArchiveWriter(DataSourceStreamArrowWriter):
    """One micro-batch into the archive."""

    def __init__(self, root: str, ids: Mapping[str, str]) -> None:
        self._root = root
        self._ids = dict(ids)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedFiles:
        from paceline.spark.archive_files import write_stage

        task = sink_ids.stream_task("")
        staged = write_stage(Path(self._root), task.write.run, iterator)
        return StagedFiles(task.write.query, task.write.batch, staged)

    def commit(self, messages: Sequence[StagedFiles | None], batchId: int) -> None:
        present = [message for message in messages if message is not None]
        if len(present) < len(messages):
            raise RuntimeError(
                "paceline: a task left no message; nothing of this batch is archived"
            )
        files = [each for message in present for each in message.files]
        if present:  # as always: Spark runs one task where there is nothing to do
            commit_batch(ArchiveLog(self._root), present[0].app, batchId, files, self._ids)

    def abort(self, messages: Sequence[StagedFiles | None], batchId: int) -> None:
        log = ArchiveLog(self._root)
        # A compaction may have come behind the version that this batch made.
        named = [each for version in log.versions()[-RECENT:] for each in log.entry(version).add]
        stages = [each.stage for message in messages if message for each in message.files]
        log.drop_stages(stages, keep=named)


class UnitPartition(InputPartition):
    """Files of one log partition, for one task."""

    def __init__(self, groups: list[list[ArchiveFile]]) -> None:
        super().__init__(groups)


class ArchiveReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """All files of the version that was the newest when the query began.

    Offsets are ``{"version": n, "index": i, "of": identity}``: the first ``i`` units (files, or
    files whose offsets mix) of version ``n`` are done. ``of`` tells that version from another of
    its number in an archive that was put back from a backup. A log partition is read by one task at
    a time, in order.
    """

    def __init__(self, root: str, max_files: int) -> None:
        self._root = root
        self._max_files = max_files

    def initialOffset(self) -> dict[str, Any]:
        log = ArchiveLog(self._root)
        log.repair()  # of a writer that died, and has not been started again
        newest = max(log.versions(), default=0)
        return {"version": newest, "index": 0, "of": log.identity(newest) if newest else ""}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxFiles(self._max_files)

    def prepareForTriggerAvailableNow(self) -> None:
        """What there is to read was fixed by the first offset."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        all_units = self._units(start)
        index = start["index"]
        if isinstance(limit, ReadAllAvailable):
            return {**start, "index": len(all_units)}
        count = 0
        while index < len(all_units) and (count == 0 or count < self._max_files):
            count += len(all_units[index])
            index += 1
        return {**start, "index": index}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[UnitPartition]:
        groups: dict[object, list[list[ArchiveFile]]] = {}
        for unit in self._units(end)[start["index"] : end["index"]]:
            groups.setdefault(unit[0].at, []).append(unit)
        return [UnitPartition(group) for group in groups.values()]

    def _units(self, offset: dict[str, Any]) -> list[list[ArchiveFile]]:
        log, version = ArchiveLog(self._root), offset["version"]
        state = log.state(version)
        if (known := offset.get("of")) and log.identity(version) != known:
            raise ArchiveDamaged(
                f"{self._root}: not the version {version} that this query began with ({known}, now "
                f"{log.identity(version)}): the archive was put back from a backup, and went on. "
                "It needs a new checkpoint"
            )
        return [unit for files in state.by_partition().values() for unit in units(files)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from paceline.spark.archive_files import read_unit

        for unit in partition.value or ():
            yield from read_unit(Path(self._root), unit)
