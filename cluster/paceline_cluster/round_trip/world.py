"""One history: topics are written and changed, archived with crashes, restored, compared."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any

from paceline.client import Position, blocking
from paceline.spark.jobs.report import JobExit
from paceline.types import TopicPartition
from paceline.values import dataclass
from paceline_cluster.round_trip import crash, drawing
from paceline_cluster.round_trip.jobs import Jobs
from paceline_cluster.round_trip.model import Copy, Log, judge, summary

CONFIGS = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
"""Any time may be written, and is kept."""
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "4096",
    "min.cleanable.dirty.ratio": "0.01",
}
CLEANED_S = 10.0
"""How long one waits for a cleaner; whether it has come to anything is told, not required."""
LONGEST_DELAY_S = {"workers": 1.0, "process": 3.0}
STRIKES = ("workers", "process")
"""See ``Jobs.run_struck``."""
RETRIES = 12
"""Of a job whose workers were killed a moment before: Spark hands each dead one out once more."""


class Broken(Exception):
    """A job did not end as it must; what it left is no ground for more."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How much a history holds. ``strikes``: how jobs are struck."""

    topics: int = 2
    rounds: int = 2
    changes: int = 5
    strikes: Sequence[str] = STRIKES


@dataclass
class Outcome:
    """What was done, and what was wrong: nothing, if ``problems`` is empty."""

    seed: int
    story: list[str] = field(default_factory=list)
    blows: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass
class _Archive:
    """A directory, and the topics as they were archived into it."""

    root: Path
    checkpoint: Path
    logs: list[Log]


class World:
    """Runs the history of a seed. Its topics begin with ``prefix``, its files lie in ``base``."""

    def __init__(
        self,
        client: blocking.Client,
        bootstrap: str,
        base: Path,
        prefix: str,
        seed: int,
        shape: Shape,
    ) -> None:
        self._client = client
        self._base = base
        self._prefix = prefix
        self._shape = shape
        self._rng = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._jobs = Jobs(bootstrap, base)
        self._logs: list[Log] = []
        self._archives: list[_Archive] = []
        self._outcome = Outcome(seed)

    def run(self) -> Outcome:
        """The whole history."""
        began = time.monotonic()
        self._make_topics()
        self._new_archive()
        try:
            self._live()
        except Broken as error:
            self._outcome.problems.append(str(error))
        self._outcome.counts = dict(
            summary(log for archive in self._archives for log in archive.logs)
        )
        self._outcome.seconds = round(time.monotonic() - began, 1)
        return self._outcome

    def _live(self) -> None:
        for number in range(self._shape.rounds):
            for _ in range(self._shape.changes):
                self._change()
            self._archive(number)
            self._keep()
        for number, archive in enumerate(self._archives):
            self._restore(number, archive)

    def _say(self, text: str) -> None:
        self._outcome.story.append(text)

    # --- topics -----------------------------------------------------------------------------------

    def _make_topics(self) -> None:
        for number in range(self._shape.topics):
            is_compacted = self._rng.random() < 0.4
            log = Log(f"{self._prefix}-{number}", is_compacted, self._rng.randrange(1, 3))
            self._make(log)
            self._write(log)

    def _make(self, log: Log) -> None:
        configs = {**CONFIGS, **(COMPACTED if log.is_compacted else {})}
        self._client.admin.create_topic(log.name, partitions=log.partitions, configs=configs)
        self._logs.append(log)
        kind = "compacted" if log.is_compacted else "plain"
        self._say(f"{log.name}: {kind}, {log.partitions} partitions")

    def _change(self) -> None:
        log = self._rng.choice(self._logs)
        changes: list[tuple[float, Callable[[Log], None]]] = [
            (4, self._write),
            (2, self._commit),
            (2, self._abort),
            (1, self._grow),
            (0.5, self._make_anew),
            (3, self._clean if log.is_compacted else self._trim),
        ]
        [(_, change)] = self._rng.choices(changes, [weight for weight, _ in changes])
        change(log)

    def _write(self, log: Log) -> None:
        with self._client.producer() as producer:
            count = self._send(log, producer)
        self._say(f"{log.name}: {count} records")

    def _commit(self, log: Log) -> None:
        with self._client.transactional_producer(f"{self._prefix}-writer") as producer:
            producer.begin()
            count = self._send(log, producer)
            producer.commit()
        self._say(f"{log.name}: {count} records in a transaction")

    def _abort(self, log: Log) -> None:
        nothing = Log(log.name, log.is_compacted, log.partitions)
        with self._client.transactional_producer(f"{self._prefix}-writer") as producer:
            producer.begin()
            count = self._send(nothing, producer)
            producer.abort()
        self._say(f"{log.name}: {count} records aborted")

    def _send(self, log: Log, producer: blocking.Producer | blocking.TransactionalProducer) -> int:
        drawn = []
        for _ in range(self._rng.randrange(1, 40 if log.is_compacted else 25)):
            record = drawing.record(self._rng, is_compacted=log.is_compacted)
            delivery = producer.submit(
                log.name,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=self._rng.randrange(log.partitions),
                timestamp_ms=record.timestamp_ms,
            )
            drawn.append((record, delivery))
        producer.flush()
        for record, delivery in drawn:
            at = delivery.result()
            log.records[at.partition, at.offset] = record
        return len(drawn)

    def _trim(self, log: Log) -> None:
        """Between the beginning and the end, the end included."""
        partition, part = self._rng.randrange(log.partitions), self._rng.choice([0.3, 0.7, 1.0])
        end = self._client.admin.list_offsets(log.name, Position.LATEST)[partition]
        before = max(log.starts.get(partition, 0), int(end * part))
        log.starts[partition] = self._client.admin.trim(TopicPartition(log.name, partition), before)
        self._say(f"{log.name}: {partition} trimmed below {before}")

    def _grow(self, log: Log) -> None:
        log.partitions += 1
        self._client.admin.add_partitions(log.name, log.partitions)
        self._say(f"{log.name}: {log.partitions} partitions")

    def _make_anew(self, log: Log) -> None:
        self._client.admin.delete_topic(log.name)
        self._logs.remove(log)
        self._say(f"{log.name}: deleted")
        self._make(Log(log.name, log.is_compacted, self._rng.randrange(1, 4)))
        self._write(self._logs[-1])

    def _clean(self, log: Log) -> None:
        """Wait for the cleaner, where it may have something to do."""
        deadline = time.monotonic() + CLEANED_S
        is_cleaned = not log.superseded()
        while not is_cleaned and time.monotonic() < deadline:
            with self._client.consumer(log.name, stop=Position.LATEST) as consumer:
                is_cleaned = sum(1 for _ in consumer) < len(log.records)
            time.sleep(0.1)
        self._say(f"{log.name}: {'cleaned' if is_cleaned else 'not cleaned in time'}")

    # --- archive ----------------------------------------------------------------------------------

    def _new_archive(self) -> None:
        number = len(self._archives)
        root, checkpoint = (self._base / f"{what}{number}" for what in ("archive", "ca"))
        self._archives.append(_Archive(root, checkpoint, []))

    def _archive(self, number: int) -> None:
        archive = self._archives[-1]
        if archive.logs and {id(log) for log in archive.logs} != {id(log) for log in self._logs}:
            self._require_refused(archive)
            self._new_archive()
            archive = self._archives[-1]
        archive.logs = list(self._logs)
        if self._rng.random() < 0.25:
            archive.checkpoint = self._base / f"ca{len(self._archives)}-{number}"
            self._say("the checkpoint is lost")
        words = self._archive_words(archive)
        steps = ("planned", "staged", "logged", "placed", "committed", "soon")
        self._strike(archive.checkpoint, archive.root, steps, "archive", *words)
        code, report = self._again("archive", *words)
        if code == JobExit.DATA_LOSS:
            self._say(f"loss: {report['errors']}")
            if not any(log.starts for log in archive.logs):
                self._outcome.problems.append(f"loss was told where none was: {report['errors']}")
            words += ("--option", "failOnDataLoss=false")
            code, report = self._again("archive", *words)
        elif any(log.trimmed_unseen() for log in archive.logs if log.must or log.may):
            self._outcome.problems.append("records were trimmed before they were archived: untold")
        self._require(code, "archive", report)
        for log in archive.logs:
            log.archive()

    def _archive_words(self, archive: _Archive) -> tuple[object, ...]:
        topics = ",".join(sorted({log.name for log in self._logs}))
        limit = f"maxOffsetsPerTrigger={self._rng.choice([15, 60, 1000])}"
        return (
            *("--topics", topics, "--to", archive.root, "--checkpoint", archive.checkpoint),
            *("--option", limit, "--max-restarts", "0"),
        )

    def _require_refused(self, archive: _Archive) -> None:
        code, report = self._jobs.run("archive", *self._archive_words(archive))
        self._say("refused: a topic was made anew")
        if code != JobExit.USAGE or "holds another topic" not in report["errors"][0]:
            self._outcome.problems.append(f"a topic made anew was not refused: {code} {report}")

    def _keep(self) -> None:
        """What keeps an archive small."""
        root = self._archives[-1].root
        if self._rng.random() < 0.4:
            words = (root, "--older", "0s", "--grace", "0s", "--target", "1MiB")
            if "process" in self._shape.strikes:
                self._strike(self._base, root, ("staged", "logged"), "archive-compact", *words)
            self._do("archive-compact", *words)
        if self._rng.random() < 0.3:
            self._do("archive-vacuum", root, "--grace", "0s")

    # --- restore and audit ------------------------------------------------------------------------

    def _restore(self, number: int, archive: _Archive) -> None:
        self._do("archive-verify", archive.root, "--allow-gaps")
        by_key = self._rng.random() < 0.3
        kind = "by-key" if by_key else "same"
        targets = {log.name: f"{log.name}-copy{number}" for log in archive.logs}
        for log in archive.logs:
            count = log.partitions + self._rng.randrange(2)
            name = targets[log.name]
            self._client.admin.create_topic(name, partitions=count, configs=CONFIGS)
        checkpoint = self._base / f"cr{number}"
        held = {log.name for log in archive.logs if log.must or log.may}
        words = (
            *("--from-archive", archive.root, "--checkpoint", checkpoint, "--partitions", kind),
            *("--max-files", self._rng.choice([1, 3, 200]), "--max-restarts", "0"),
            *(word for name in sorted(held) for word in ("--topic-map", f"{name}={targets[name]}")),
        )
        if not held:
            return
        self._strike(checkpoint, archive.root, ("planned", "committed", "soon"), "restore", *words)
        code, report = self._again("restore", *words)
        self._require(code, "restore", report)
        for log in archive.logs:
            if log.name in held:
                self._compare(log, targets[log.name], by_key=by_key)
        present = [log for log in archive.logs if log in self._logs and log.name in held]
        if present:
            name = self._rng.choice(present).name
            named = (name, "--compare", targets[name], "--partitions", kind)
            self._do("audit", "--topics", *named)

    def _compare(self, log: Log, target: str, *, by_key: bool) -> None:
        with self._client.consumer(target, stop=Position.LATEST) as consumer:
            copies = [
                Copy(
                    each.partition,
                    each.offset,
                    drawing.Drawn(
                        each.key, each.value, tuple(each.headers[:-1]), each.timestamp_ms
                    ),
                    each.headers[-1] if each.headers else None,
                )
                for each in consumer
            ]
        self._outcome.problems += judge(log, copies, by_key=by_key)

    # --- jobs -------------------------------------------------------------------------------------

    def _strike(
        self, checkpoint: Path, root: Path, steps: Sequence[str], name: str, *words: object
    ) -> None:
        """Perhaps run a job that is struck somewhere."""
        how = self._rng.choice(self._shape.strikes)
        if name == "archive-compact":
            how = "process"
        step = self._rng.choice(steps)
        longest = LONGEST_DELAY_S[how] if step == "soon" else 0.05
        delay_s = self._rng.random() * longest
        if self._rng.random() < 0.3:
            return
        count = None if step == "soon" else crash.counter(step, checkpoint, root)
        hit = self._jobs.run_struck(how, count, delay_s, name, *words)
        told = f"{name}: {how} killed {delay_s:.3f} s behind {step}{'' if hit else ', too late'}"
        self._say(told)
        if hit:
            self._outcome.blows.append(f"{name} {how} {step}")

    def _again(self, name: str, *words: object) -> tuple[int, dict[str, Any]]:
        """Run a job until it does not fail of what was struck before."""
        for _ in range(RETRIES):
            code, report = self._jobs.run(name, *words)
            if code != JobExit.FAILED:
                break
        self._say(f"{name}: exit {code}")
        return code, report

    def _do(self, name: str, *words: object) -> None:
        code, report = self._again(name, *words)
        self._require(code, name, report)

    def _require(self, code: int, name: str, report: dict[str, Any]) -> None:
        if code != JobExit.DONE:
            told = {key: report.get(key) for key in ("errors", "findings", "examples")}
            raise Broken(f"{name} ended with {code}: {told}")


@contextmanager
def world(
    client: blocking.Client, bootstrap: str, base: Path, prefix: str, seed: int, shape: Shape
) -> Iterator[World]:
    """A world whose topics are gone afterwards."""
    base.mkdir(parents=True)
    try:
        yield World(client, bootstrap, base, prefix, seed, shape)
    finally:
        for info in client.admin.list_topics():
            if info.name.startswith(f"{prefix}-"):
                client.admin.delete_topic(info.name)
