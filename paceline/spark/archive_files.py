"""Parquet files of an archive: writing a task's rows to stage files, reading them back in order."""

from __future__ import annotations

import datetime
import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paceline.spark import arrow
from paceline.spark.archive_log import (
    STAGE,
    ArchiveDamaged,
    ArchiveFile,
    ArchiveLog,
    make_directory,
    sync,
)
from paceline.spark.options import ARROW_COLUMNS
from paceline.types import TopicPartition

ROW_GROUP_BYTES = 64 << 20
WAITING_BYTES = 4 * ROW_GROUP_BYTES
"""Of all files that a task writes, what is in memory; beyond it the fullest is written."""
OPEN_FILES = 32
"""Files that a task writes side by side: records of many hours, mixed, are more files, not more
memory."""
MERGED_ROWS = 10_000
"""Rows of each file in memory while files whose offsets mix are read as one."""
COLUMNS = tuple(name for name in ARROW_COLUMNS if name != "topic")
SCHEMA = arrow.schema(COLUMNS)
"""The topic is in the path."""
HOUR_MS = 3_600_000
NO_HOUR = arrow.FIRST_MS // HOUR_MS - 1


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Place(NamedTuple):
    """What one file holds: an hour (since the epoch, by record time) of a partition; NO_HOUR for
    records whose time has no date."""

    topic: str
    partition: int
    hour: int

    @property
    def folder(self) -> str:
        """Hive-style, so that any reader prunes by it."""
        if self.hour == NO_HOUR:
            return f"topic={self.topic}/date=unknown/hour=00"
        time = _EPOCH + datetime.timedelta(hours=self.hour)
        return f"topic={self.topic}/date={time.date().isoformat()}/hour={time:%H}"


class _StageFile:
    """A file being written."""

    def __init__(self, root: Path, folder: str, place: Place) -> None:
        self.place = place
        self.stage = f"{folder}/{uuid.uuid4().hex}.parquet"
        self._path = root / self.stage
        self._writer = pq.ParquetWriter(self._path, SCHEMA, compression="zstd")
        self._waiting: list[pa.Table] = []
        self.waiting_bytes = 0
        self.rows = 0
        self.first = self.last = self._flushed = -1
        self.times: tuple[int, int] | None = None

    def add(self, rows: pa.Table) -> None:
        offsets = pc.min_max(rows["offset"]).as_py()
        self.first = offsets["min"] if self.first < 0 else min(self.first, offsets["min"])
        self.last = max(self.last, offsets["max"])
        self.rows += rows.num_rows
        stamps = rows["timestampMs"]
        times = pc.min_max(stamps.filter(pc.not_equal(stamps, arrow.NO_TIMESTAMP))).as_py()
        if times["min"] is not None:
            low, high = times["min"], times["max"]
            known = self.times or (low, high)
            self.times = (min(low, known[0]), max(high, known[1]))
        self._waiting.append(rows)
        self.waiting_bytes += rows.nbytes
        if self.waiting_bytes >= ROW_GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits as a row group."""
        if self._waiting:
            table = pa.concat_tables(self._waiting).sort_by("offset")
            if table["offset"][0].as_py() <= self._flushed:
                raise ValueError(
                    f"paceline: rows of {self.place.topic}/{self.place.partition} come out of "
                    "order; nothing may shuffle them between the source and the archive"
                )
            self._flushed = table["offset"][-1].as_py()
            self._writer.write_table(table.cast(SCHEMA), row_group_size=table.num_rows)
            self._waiting, self.waiting_bytes = [], 0

    def close(self) -> ArchiveFile:
        self.flush()
        self._writer.close()
        sync(self._path)
        digest, size = file_digest(self._path)
        low, high = self.times or (-1, -1)
        name = f"p{self.place.partition}-{self.first}-{self.last}-{uuid.uuid4().hex[:8]}.parquet"
        return ArchiveFile(
            path=f"{self.place.folder}/{name}",
            stage=self.stage,
            topic=self.place.topic,
            partition=self.place.partition,
            first=self.first,
            last=self.last,
            rows=self.rows,
            bytes=size,
            minTs=low,
            maxTs=high,
            sha256=digest,
        )

    def abandon(self) -> None:
        self._writer.close()
        self._path.unlink(missing_ok=True)


def write_stage(root: Path, run: str, batches: Iterable[pa.RecordBatch]) -> list[ArchiveFile]:
    """Write rows to stage files, at least one for each partition and hour; nothing of it counts
    until a version of the log names it. Durable when this returns."""
    folder = f"{STAGE}/{run}"
    make_directory(root / folder)
    files: dict[Place, _StageFile] = {}  # the one that was written to last comes last
    done: list[ArchiveFile] = []
    try:
        for batch in batches:
            for place, rows in _by_place(batch):
                file = files.pop(place, None) or _StageFile(root, folder, place)
                files[place] = file
                file.add(rows)
                if sum(each.waiting_bytes for each in files.values()) > WAITING_BYTES:
                    max(files.values(), key=lambda each: each.waiting_bytes).flush()
                if len(files) > OPEN_FILES:
                    done.append(files.pop(next(iter(files))).close())
        done += [files.pop(place).close() for place in sorted(files)]
    except BaseException:
        for each in files.values():
            each.abandon()
        for written in done:
            (root / written.stage).unlink(missing_ok=True)
        raise
    if done:
        sync(root / folder)
    return done


def _by_place(batch: pa.RecordBatch) -> Iterator[tuple[Place, pa.Table]]:
    if not batch.num_rows:
        return
    table = pa.Table.from_batches([batch])
    stamps = pc.if_else(pc.is_null(table["timestamp"]), None, table["timestampMs"])
    hours = pc.floor(pc.divide(stamps.cast(pa.float64()), float(HOUR_MS))).cast(pa.int64())
    hours = pc.fill_null(hours, NO_HOUR)
    table = table.append_column("_hour", hours)
    keys = (
        table.select(["topic", "partition", "_hour"])
        .group_by(["topic", "partition", "_hour"])
        .aggregate([])
    )
    for key in keys.to_pylist():
        place = Place(key["topic"], key["partition"], key["_hour"])
        rows = table
        if keys.num_rows > 1:
            rows = table.filter(
                pc.and_(
                    pc.and_(
                        pc.equal(table["topic"], place.topic),
                        pc.equal(table["partition"], place.partition),
                    ),
                    pc.equal(hours, place.hour),
                )
            )
        yield place, rows.select(list(COLUMNS))


def file_digest(path: Path) -> tuple[str, int]:
    """SHA-256 as hex text, and the size in bytes."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return digest, file.tell()


def check_file(root: Path, file: ArchiveFile) -> None:
    """Raise ArchiveDamaged unless the file is there as it was written."""
    path = root / file.path
    try:
        digest, size = file_digest(path)
    except OSError as error:
        raise ArchiveDamaged(f"{path}: {error}") from error
    if digest != file.sha256:
        raise ArchiveDamaged(
            f"{path}: SHA-256 {digest} of {size} bytes, the log says {file.sha256} of {file.bytes}"
        )


def read_unit(root: Path, files: Sequence[ArchiveFile]) -> Iterator[pa.RecordBatch]:
    """The rows of a unit in order of offset, with the topic; ``files`` are sorted by their first
    offset. They are read from the files that compactions have replaced these by, if they are gone.
    Raises ArchiveDamaged before anything of a damaged file is given, and at the end where there
    were not as many rows."""
    present = _present(root, files)
    for each in present:
        check_file(root, each)
    at: TopicPartition = files[0].at
    full = arrow.schema(ARROW_COLUMNS)
    count = 0
    for table in _of_unit(_merged(root, present), files):
        count += table.num_rows
        for batch in table.to_batches(max_chunksize=MERGED_ROWS):
            topic = pa.repeat(pa.scalar(at.topic, pa.string()), batch.num_rows)
            columns = [topic if name == "topic" else batch.column(name) for name in ARROW_COLUMNS]
            yield pa.record_batch(
                [column.cast(field.type) for column, field in zip(columns, full, strict=True)],
                schema=full,
            )

    if count != (wanted := sum(each.rows for each in files)):
        raise ArchiveDamaged(f"{root / files[0].path}: {count} rows, the log says {wanted}")


def _present(root: Path, unit: Sequence[ArchiveFile]) -> Sequence[ArchiveFile]:
    """The files that hold a unit's rows by now, and maybe others of its partition: a compaction may
    have replaced some of its own, and their grace be over."""
    if all((root / each.path).exists() for each in unit):
        return unit
    state = ArchiveLog(root).state()
    if all(each.path in state.files for each in unit):
        return unit  # one is lost, which will be said
    last = max(each.last for each in unit)
    known = state.by_partition().get(unit[0].at, [])
    return [each for each in known if each.first <= last and each.last >= unit[0].first]


def _of_unit(tables: Iterable[pa.Table], unit: Sequence[ArchiveFile]) -> Iterator[pa.Table]:
    """The rows of a unit alone. All that its partition has between its offsets are its rows, in any
    later version, too: what is archived later lies behind, and compactions change no rows."""
    first, last = unit[0].first, max(each.last for each in unit)
    for table in tables:
        offsets = table["offset"]
        is_inside = pc.and_(pc.greater_equal(offsets, first), pc.less_equal(offsets, last))
        yield table.filter(is_inside)


def _merged(root: Path, files: Sequence[ArchiveFile]) -> Iterator[pa.Table]:
    """Rows of files whose offsets mix, as tables that follow each other; each file is open only
    while its offsets are due."""
    waiting = list(reversed(files))
    runs: list[_Run] = []
    while waiting or runs:
        if not runs:
            runs.append(_Run(root, waiting.pop()))
        # All that may come later than this lies in files that are not open yet, or behind what is
        # in memory of an open one.
        limit = min(run.last for run in runs)
        while waiting and waiting[-1].first <= limit:
            runs.append(_Run(root, waiting.pop()))
            limit = min(limit, runs[-1].last)
        parts = [run.take(limit) for run in runs]
        yield pa.concat_tables(parts).sort_by("offset")
        runs = [run for run in runs if run.fill()]


class _Run:
    """One file's rows, read forward. Its row groups are sorted, and follow each other."""

    def __init__(self, root: Path, file: ArchiveFile) -> None:
        self._parquet = pq.ParquetFile(root / file.path)
        self._batches = self._parquet.iter_batches(batch_size=MERGED_ROWS)
        self._rows = SCHEMA.empty_table()
        self.fill()

    @property
    def last(self) -> int:
        """The last offset in memory."""
        found: int = self._rows["offset"][-1].as_py()
        return found

    def take(self, limit: int) -> pa.Table:
        """The rows in memory up to ``limit``, which are forgotten here."""
        count = pc.sum(pc.less_equal(self._rows["offset"], limit)).as_py() or 0
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return taken

    def fill(self) -> bool:
        """Read on if nothing is in memory; False, and closed, at the end."""
        while not self._rows.num_rows:
            batch = next(self._batches, None)
            if batch is None:
                self._parquet.close()
                return False
            self._rows = whole(pa.Table.from_batches([batch]))
        return True


def whole(rows: pa.Table) -> pa.Table:
    """Rows of a file in the columns of today; older files have no ``timestampMs``, and no
    ``rawHeaders``."""
    if "timestampMs" not in rows.column_names:
        millis = pc.floor(pc.divide(rows["timestamp"].cast(pa.int64()).cast(pa.float64()), 1000.0))
        millis = pc.fill_null(millis.cast(pa.int64()), arrow.NO_TIMESTAMP)
        rows = rows.append_column("timestampMs", millis)
    if "rawHeaders" not in rows.column_names:
        rows = rows.append_column("rawHeaders", pa.nulls(rows.num_rows, arrow.RAW_HEADERS))
    return rows.select(list(COLUMNS)).cast(SCHEMA)
