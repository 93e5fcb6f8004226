"""What tests do again and again: topics with records, and queries that run until they are done."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from paceline.client import blocking
from paceline.spark.jobs.commands import pipeline

DONE_S = 600.0
"""No query of these tests takes this long; it bounds a hang."""


class Topics:
    """Topics under one prefix."""

    def __init__(self, client: blocking.Client, bootstrap: str, prefix: str) -> None:
        self.client = client
        self.bootstrap = bootstrap
        self._prefix = prefix

    def make(self, name: str = "in", partitions: int = 2, **configs: str) -> str:
        """A new topic; its name."""
        topic = f"{self._prefix}-{name}"
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.client.admin.create_topic(topic, partitions=partitions, configs=settings)
        return topic

    def write(self, topic: str, values: Sequence[str], partition: int | None = None) -> None:
        """Append values, acknowledged by all."""
        encoded = [value.encode() for value in values]
        with self.client.producer() as producer:
            if partition is not None:
                producer.send_many(topic, encoded, partition=partition)
                return
            for number in range(producer.partition_count(topic)):
                producer.send_many(
                    topic,
                    encoded[number :: producer.partition_count(topic)],
                    partition=number,
                )

    def read(self, topic: str) -> list[str]:
        """Every committed value, partition by partition."""
        from paceline.client import Position

        with self.client.consumer(topic, stop=Position.LATEST) as consumer:
            found = [(each.partition, each.offset, each.value) for each in consumer]
        return [(value or b"").decode() for _, _, value in sorted(found)]

    def options(self, topic: str, **more: object) -> dict[str, str]:
        """Of a source that reads ``topic``."""
        given = {"paceline.bootstrap.servers": self.bootstrap, "subscribe": topic}
        return {**given, **{key: str(value) for key, value in more.items()}}


def values_of(rows: DataFrame) -> list[str]:
    """The values of a frame of records, sorted."""
    return sorted(row[0] for row in rows.selectExpr("cast(value as string)").collect())


class Query:
    """A streaming query that can be run, broken and run again on one checkpoint."""

    def __init__(self, spark: SparkSession, base: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._base = base
        self.options = options
        self.seen: list[tuple[int, list[str]]] = []
        self.fail_at: Callable[[int, list[str]], bool] = lambda batch, values: False
        self.last: StreamingQuery | None = None

    @property
    def checkpoint(self) -> Path:
        return self._base / "checkpoint"

    def source(self, **more: object) -> DataFrame:
        options = {**self.options, **{key: str(value) for key, value in more.items()}}
        return self._spark.readStream.format("paceline").options(**options).load()

    def run(self, **more: object) -> list[str]:
        """Everything that is there; the values of this run. Raises what the query failed with."""
        before = len(self.seen)
        self.last = (
            self.source(**more)
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert self.last.awaitTermination(DONE_S), "the query did not end"
        return sorted(value for _, values in self.seen[before:] for value in values)

    def _take(self, frame: DataFrame, batch: int) -> None:
        values = values_of(frame)
        if self.fail_at(batch, values):
            raise RuntimeError(f"broken by the test at batch {batch}")
        self.seen.append((batch, values))

    def offsets(self) -> list[dict[str, Any]]:
        """The logged end offsets, oldest first."""
        folder = self.checkpoint / "offsets"
        numbers = sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
        return [json.loads((folder / str(n)).read_text().splitlines()[-1]) for n in numbers]

    def forget_last_commit(self) -> int:
        """Of its checkpoint."""
        return forget_last_commit(self.checkpoint)


def forget_last_commit(checkpoint: Path) -> int:
    """As after a crash between the sink and Spark's commit log; the batch's number."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


class Job:
    """Runs one job of ``paceline pipeline``."""

    def __init__(self, base: Path, bootstrap: str) -> None:
        self._base = base
        self._bootstrap = bootstrap

    def __call__(self, name: str, *words: object) -> tuple[int, dict[str, Any]]:
        report = self._base / f"{name}.json"
        needs_cluster = not name.startswith("archive-")
        cluster = ("--bootstrap", self._bootstrap) if needs_cluster else ()
        arguments = [name, *map(str, words), *cluster, "--report", str(report)]
        code = pipeline.main(arguments, standalone_mode=False)
        return code, json.loads(report.read_text())
