"""An archive back into topics: same partitions, same order, each record once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from paceline.client import Position, blocking
from paceline.errors import UnknownTopicOrPartition
from paceline.spark.archive_log import ArchiveLog, units
from paceline.spark.arrow import NO_TIMESTAMP
from paceline.spark.errors import OptionError
from paceline.spark.jobs.lifetimes import (
    ANY_SIZE,
    Times,
    refusal,
    refusal_by_size,
    set_for,
    settings_for,
    times_of,
)
from paceline.values import dataclass

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ORIGIN_HEADER = "paceline.restored"
"""Header that says where a record was: ``topic/partition/offset``."""


@dataclass(frozen=True, slots=True)
class Restore:
    """What to bring back, and how. ``topics``: archived name -> name to write to, which may be the
    same; those not named are left out, unless it is empty. Times in ms, None without a limit."""

    root: Path
    topics: Mapping[str, str]
    from_ms: int | None = None
    to_ms: int | None = None
    by_key: bool = False
    keep_timestamps: bool = True
    append: bool = False
    max_files: int = 200

    def purpose(self) -> dict[str, object]:
        """What must not change while one checkpoint counts the files. An archive may be moved: its
        first version says which one it is."""
        return {
            "archive": ArchiveLog(self.root).identity(),
            "topics": dict(sorted(self.topics.items())) or "all",
            "from": self.from_ms,
            "to": self.to_ms,
            "partitions": "by-key" if self.by_key else "same",
            "timestamps": "kept" if self.keep_timestamps else "new",
        }


@dataclass(frozen=True, slots=True)
class Target:
    """Where a topic goes, how many partitions it had, and of what times its records are."""

    topic: str
    partitions: int
    times: Times


def targets_of(wanted: Restore) -> dict[str, Target]:
    """By archived name. Raises OptionError where the archive lacks a topic."""
    state = ArchiveLog(wanted.root).state()
    counts: dict[str, int] = {}
    for at in state.ends:
        counts[at.topic] = max(counts.get(at.topic, 0), at.partition + 1)
    if not counts:
        raise OptionError(f"{wanted.root}: no archive, or an empty one")
    chosen = dict(wanted.topics) or {topic: topic for topic in counts}
    for source in sorted(chosen):
        if source not in counts:
            raise OptionError(f"{wanted.root}: holds no topic {source}, only {sorted(counts)}")
    found = {}
    for source, topic in sorted(chosen.items()):
        files = (each for each in state.files.values() if each.topic == source)
        times = times_of(files, wanted.from_ms, wanted.to_ms)
        found[source] = Target(topic, counts[source], times)
    return found


def prepare(
    client: blocking.Client, wanted: Restore, targets: Iterable[Target], *, is_new: bool
) -> None:
    """Make missing topics, judge the others.

    Raises OptionError where a target has too few partitions, would not keep or not take what was
    archived, or holds records already (unless ``append``, or the restore is going on: not
    ``is_new``).
    """
    for each in targets:
        _prepare_topic(client, wanted, each, is_new=is_new)


def _prepare_topic(
    client: blocking.Client, wanted: Restore, target: Target, *, is_new: bool
) -> None:
    name, now_ms = target.topic, time.time_ns() // 1_000_000
    try:
        present = client.admin.topic(name)
    except UnknownTopicOrPartition:
        settings = settings_for(target.times, now_ms) if wanted.keep_timestamps else ANY_SIZE
        client.admin.create_topic(name, partitions=target.partitions, configs=settings)
        return
    if len(present.partitions) < target.partitions and not wanted.by_key:
        raise OptionError(
            f"{name} has {len(present.partitions)} partitions, the archive {target.partitions}: "
            "add some, or --partitions by-key"
        )
    configs = set_for(present)
    why = refusal(name, configs, target.times, now_ms) if wanted.keep_timestamps else ""
    if why := why or refusal_by_size(name, configs):
        raise OptionError(why)
    if is_new and not wanted.append:
        starts = client.admin.list_offsets(name, Position.EARLIEST)
        ends = client.admin.list_offsets(name, Position.LATEST)
        if starts != ends:
            raise OptionError(f"{name} holds records already; --append writes behind them")


def start_restore(
    spark: SparkSession,
    wanted: Restore,
    targets: Mapping[str, str],
    *,
    bootstrap: str,
    checkpoint: str,
    options: Mapping[str, str],
) -> StreamingQuery:
    """A query that writes everything once and ends."""
    archived = (
        spark.readStream.format("paceline-archive")
        .option("maxFilesPerTrigger", str(wanted.max_files))
        .load(str(wanted.root))
    )
    trigger: dict[str, Any] = {"availableNow": True}
    return (
        rows(archived, wanted, targets)
        .writeStream.format("paceline")
        .queryName("paceline-restore")
        .option("paceline.bootstrap.servers", bootstrap)
        .option("includeHeaders", "true")
        .options(**options)
        .option("checkpointLocation", checkpoint)
        .trigger(**trigger)
        .start()
    )


def records_behind(root: Path) -> Callable[[Mapping[str, Any]], int | None]:
    """What tells from a restore's progress how many archived records it has yet to read."""
    known: dict[int, list[int]] = {}

    def behind(progress: Mapping[str, Any]) -> int | None:
        [source] = progress["sources"]
        end = source.get("endOffset")
        if not isinstance(end, dict):
            return None
        version = end["version"]
        if version not in known:
            files = ArchiveLog(root).state(version).by_partition().values()
            known[version] = [
                sum(each.rows for each in unit) for group in files for unit in units(group)
            ]
        return sum(known[version][end["index"] :])

    return behind


def rows(archived: DataFrame, wanted: Restore, targets: Mapping[str, str]) -> DataFrame:
    """Archived records as they are to be written."""
    chosen = archived.where(F.col("topic").isin(sorted(targets)))
    is_timed = F.col("timestampMs") != NO_TIMESTAMP
    if wanted.from_ms is not None:
        chosen = chosen.where((F.col("timestampMs") >= wanted.from_ms) & is_timed)
    if wanted.to_ms is not None:
        chosen = chosen.where((F.col("timestampMs") < wanted.to_ms) & is_timed)
    place = F.concat_ws(
        "/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string")
    )
    origin = F.struct(F.lit(ORIGIN_HEADER).alias("key"), place.cast("binary").alias("value"))
    raw_name = F.lit(ORIGIN_HEADER.encode()).alias("key")
    raw_origin = F.struct(raw_name, place.cast("binary").alias("value"))
    columns: list[Column] = [
        F.col("key"),
        F.col("value"),
        _renamed(targets).alias("topic"),
        F.concat(F.coalesce("headers", F.expr(_NO_HEADERS)), F.array(origin)).alias("headers"),
        F.concat("rawHeaders", F.array(raw_origin)).alias("rawHeaders"),
    ]
    if not wanted.by_key:
        columns.append(F.col("partition"))
    if wanted.keep_timestamps:
        columns.append(F.col("timestampMs"))
    return chosen.select(*columns)


_NO_HEADERS = "cast(array() as array<struct<key: string, value: binary>>)"


def _renamed(targets: Mapping[str, str]) -> Column:
    renamed = F.col("topic")
    for source, target in sorted(targets.items()):
        renamed = F.when(F.col("topic") == source, F.lit(target)).otherwise(renamed)
    return renamed
