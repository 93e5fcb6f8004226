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
from paceline.spark.archive_log import STAGE, ArchiveDamaged, ArchiveFile
from paceline.spark.options import ARROW_COLUMNS
from paceline.types import TopicPartition

ROW_GROUP_BYTES = 64 << 20
COLUMNS = tuple(name for name in ARROW_COLUMNS if name != "topic")
SCHEMA = arrow.schema(COLUMNS)
"""The topic is in the path."""
HOUR_US = 3_600_000_000
NO_HOUR = -1


class Place(NamedTuple):
    """What one file holds: an hour (since the epoch, by record time; -1 unknown) of a partition."""

    topic: str
    partition: int
    hour: int

    @property
    def folder(self) -> str:
        """Hive-style, so that any reader prunes by it."""
        if self.hour == NO_HOUR:
            return f"topic={self.topic}/date=unknown/hour=00"
        time = datetime.datetime.fromtimestamp(self.hour * 3600, datetime.UTC)
        return f"topic={self.topic}/date={time:%Y-%m-%d}/hour={time:%H}"


class _StageFile:
    """A file being written."""

    def __init__(self, root: Path, folder: str, place: Place) -> None:
        self.place = place
        self.stage = f"{folder}/{uuid.uuid4().hex}.parquet"
        self._path = root / self.stage
        self._writer = pq.ParquetWriter(self._path, SCHEMA, compression="zstd")
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self.rows = 0
        self.first = self.last = -1
        self.times: tuple[int, int] | None = None

    def add(self, rows: pa.Table) -> None:
        offsets = pc.min_max(rows["offset"]).as_py()
        self.first = offsets["min"] if self.first < 0 else min(self.first, offsets["min"])
        self.last = max(self.last, offsets["max"])
        self.rows += rows.num_rows
        times = pc.min_max(rows["timestamp"].cast(pa.int64())).as_py()
        if times["min"] is not None:
            low, high = times["min"] // 1000, times["max"] // 1000
            known = self.times or (low, high)
            self.times = (min(low, known[0]), max(high, known[1]))
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            table = pa.concat_tables(self._waiting).sort_by("offset")
            self._writer.write_table(table.cast(SCHEMA), row_group_size=table.num_rows)
            self._waiting, self._waiting_bytes = [], 0

    def close(self) -> ArchiveFile:
        self._flush()
        self._writer.close()
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
    """Write rows to stage files, one for each partition and hour; nothing of it counts until a
    version of the log names it."""
    folder = f"{STAGE}/{run}"
    (root / folder).mkdir(parents=True, exist_ok=True)
    files: dict[Place, _StageFile] = {}
    try:
        for batch in batches:
            for place, rows in _by_place(batch):
                if place not in files:
                    files[place] = _StageFile(root, folder, place)
                files[place].add(rows)
        return [files[place].close() for place in sorted(files)]
    except BaseException:
        for each in files.values():
            each.abandon()
        raise


def _by_place(batch: pa.RecordBatch) -> Iterator[tuple[Place, pa.Table]]:
    if not batch.num_rows:
        return
    table = pa.Table.from_batches([batch])
    hours = pc.fill_null(
        pc.floor(pc.divide(table["timestamp"].cast(pa.int64()).cast(pa.float64()), float(HOUR_US))),
        float(NO_HOUR),
    ).cast(pa.int64())
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
    """The rows of some files of one partition in order of offset, with the topic. Raises
    ArchiveDamaged before anything of a damaged file is given."""
    for each in files:
        check_file(root, each)
    at: TopicPartition = files[0].at
    if len(files) == 1:
        parquet = pq.ParquetFile(root / files[0].path)
        batches: Iterable[pa.RecordBatch] = parquet.iter_batches(batch_size=10_000)
    else:
        table = pa.concat_tables([pq.read_table(root / each.path, schema=SCHEMA) for each in files])
        batches = table.sort_by("offset").to_batches(max_chunksize=10_000)
    full = arrow.schema(ARROW_COLUMNS)
    for batch in batches:
        topic = pa.repeat(pa.scalar(at.topic, pa.string()), batch.num_rows)
        columns = [topic if name == "topic" else batch.column(name) for name in ARROW_COLUMNS]
        yield pa.record_batch(
            [column.cast(field.type) for column, field in zip(columns, full, strict=True)],
            schema=full,
        )
