"""The jobs' command line: ``paceline pipeline <job>``, or ``spark-submit paceline_job.py <job>``.

Exit codes: 0 done, 2 usage, 3 findings, 4 data loss, 5 the query failed too often.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from paceline.errors import ConfigurationError, PacelineError, UnknownTopicOrPartition
from paceline.spark.jobs.options import (
    cluster_options,
    directory,
    interval,
    report_option,
    seconds,
    size,
    stream_options,
)
from paceline.spark.jobs.report import JobExit, Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SHOWN_FINDINGS = 20
SHOWN_STATISTICS = (
    *("topic", "partition", "rows", "bytes"),
    *("value_p50", "value_p99", "distinct_keys", "skew"),
)


@click.group()
def pipeline() -> None:
    """Archive, restore, aggregate, audit and measure topics with Spark."""


def _session(name: str, master: str | None, conf: Mapping[str, str]) -> SparkSession:
    from paceline.spark.session import local_session

    return local_session(f"paceline-{name}", master=master, conf=conf)


def _require(bootstrap: str, topics: str, options: Mapping[str, str]) -> None:
    # Here, not above: help and completion do without a client.
    from paceline.spark.jobs.presence import require_topics

    require_topics(bootstrap, topics, options)


# --- archive --------------------------------------------------------------------------------------


@pipeline.command()
@click.option("--topics", required=True, help="Which topics: a,b")
@click.option("--to", "root", required=True, callback=directory, metavar="DIRECTORY")
@stream_options("now")
@cluster_options
def archive(
    topics: str,
    root: Path,
    checkpoint: str,
    trigger: Mapping[str, Any],
    max_restarts: int,
    bootstrap: str,
    master: str | None,
    conf: Mapping[str, str],
    source_options: Mapping[str, str],
    report_path: Path | None,
) -> int:
    """Topics into partitioned Parquet files, each record once."""
    _require(bootstrap, topics, source_options)
    from paceline.spark.archive_log import ArchiveLog
    from paceline.spark.jobs.archiving import start_archive
    from paceline.spark.jobs.purpose import keep_purpose
    from paceline.spark.jobs.running import Runner

    report = Report("archive", report_path, topics=topics, to=str(root))
    root.mkdir(parents=True, exist_ok=True)
    keep_purpose(checkpoint, "archive", {"to": str(root.resolve())})
    runner = Runner(report, max_restarts=max_restarts)
    code = runner.run(
        lambda: [
            start_archive(
                _session("archive", master, conf),
                bootstrap=bootstrap,
                topics=topics,
                root=root.resolve(),
                checkpoint=checkpoint,
                trigger=trigger,
                options=source_options,
            )
        ]
    )
    state = ArchiveLog(root).state()
    report.facts["archive"] = {
        "version": state.version,
        "files": len(state.files),
        "rows": sum(each.rows for each in state.files.values()),
        "bytes": sum(each.bytes for each in state.files.values()),
        "ends": {str(at): end for at, end in sorted(state.ends.items())},
    }
    return _end(report, code)


@pipeline.command("archive-compact")
@click.argument("root", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--target", default="256MiB", show_default=True, callback=size)
@click.option("--older", default="2h", show_default=True, callback=seconds)
@click.option("--grace", default="1h", show_default=True, callback=seconds)
@report_option
def archive_compact(
    root: Path, target: int, older: float, grace: float, report_path: Path | None
) -> int:
    """Join small files of one partition and hour."""
    from paceline.spark.jobs.archiving import compact

    report = Report("archive-compact", report_path, root=str(root))
    report.facts.update(compact(root, target_bytes=target, older_s=older, grace_s=grace))
    return _end(report, JobExit.DONE)


@pipeline.command("archive-vacuum")
@click.argument("root", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--grace", default="1h", show_default=True, callback=seconds)
@report_option
def archive_vacuum(root: Path, grace: float, report_path: Path | None) -> int:
    """Delete files that the archive's log does not name."""
    from paceline.spark.jobs.archiving import vacuum

    report = Report("archive-vacuum", report_path, root=str(root))
    report.facts["files_deleted"] = vacuum(root, grace_s=grace)
    return _end(report, JobExit.DONE)


@pipeline.command("archive-verify")
@click.argument("root", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--allow-gaps", is_flag=True, help="Of compacted and transactional topics.")
@report_option
def archive_verify(root: Path, allow_gaps: bool, report_path: Path | None) -> int:
    """Check every file's hash, and that every offset is there once."""
    from paceline.spark.jobs.verifying import verify

    report = Report("archive-verify", report_path, root=str(root))
    findings, facts = verify(root, allow_gaps=allow_gaps)
    report.facts.update(facts)
    report.facts["findings"] = [each.to_json() for each in findings]
    for each in findings[:SHOWN_FINDINGS]:
        click.echo(f"{each.kind}  {each.where}: {each.what}")
    return _end(report, JobExit.FINDINGS if findings else JobExit.DONE)


# --- restore --------------------------------------------------------------------------------------


@pipeline.command()
@click.option("--from-archive", "root", required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--topic-map", "topic_map", multiple=True, metavar="OLD=NEW", help="Default: all.")
@click.option("--from", "from_ms", type=int, help="Records from this time on, ms.")
@click.option("--to", "to_ms", type=int, help="Records before this time, ms.")
@click.option("--partitions", type=click.Choice(["same", "by-key"]), default="same")
@click.option("--keep-timestamps/--new-timestamps", default=True, show_default=True)
@click.option("--append", is_flag=True, help="Also into a topic that holds records.")
@click.option("--max-files", type=click.IntRange(min=1), default=200, show_default=True)
@stream_options("now")
@cluster_options
def restore(
    root: Path,
    topic_map: tuple[str, ...],
    from_ms: int | None,
    to_ms: int | None,
    partitions: str,
    keep_timestamps: bool,
    append: bool,
    max_files: int,
    checkpoint: str,
    trigger: Mapping[str, Any],
    max_restarts: int,
    bootstrap: str,
    master: str | None,
    conf: Mapping[str, str],
    source_options: Mapping[str, str],
    report_path: Path | None,
) -> int:
    """An archive back into topics, exactly once, in the order of each partition."""
    from paceline.client import blocking
    from paceline.spark.jobs.purpose import is_begun, keep_purpose
    from paceline.spark.jobs.restoring import (
        Restore,
        prepare,
        records_behind,
        start_restore,
        targets_of,
    )
    from paceline.spark.jobs.running import Runner

    if "availableNow" not in trigger:
        raise click.UsageError("a restore writes what the archive holds now: --trigger now")
    names = dict(each.partition("=")[::2] for each in topic_map)
    wanted = Restore(
        root=root.resolve(),
        topics=names,
        from_ms=from_ms,
        to_ms=to_ms,
        by_key=partitions == "by-key",
        keep_timestamps=keep_timestamps,
        append=append,
        max_files=max_files,
    )
    report = Report("restore", report_path, archive=str(root), topics=names)
    chosen = targets_of(wanted)
    keep_purpose(checkpoint, "restore", wanted.purpose())
    with blocking.connect(bootstrap.split(",")) as client:
        prepare(client, wanted, chosen.values(), is_new=not is_begun(checkpoint))
    targets = {source: each.topic for source, each in chosen.items()}
    report.facts["targets"] = targets
    behind = records_behind(wanted.root)
    runner = Runner(report, max_restarts=max_restarts, behind=behind)
    code = runner.run(
        lambda: [
            start_restore(
                _session("restore", master, conf),
                wanted,
                targets,
                bootstrap=bootstrap,
                checkpoint=checkpoint,
                options=source_options,
            )
        ]
    )
    return _end(report, code)


# --- windows --------------------------------------------------------------------------------------


@pipeline.command()
@click.option("--topics", required=True)
@click.option("--to", "target", required=True, help="Topic that gets the windows.")
@click.option("--time", "time_", default="record", show_default=True, help="record, or $.path")
@click.option("--key", default="record", show_default=True, help="record, or $.path")
@click.option("--window", default="1m", show_default=True, callback=interval)
@click.option("--slide", default="", callback=interval, help="Windows that overlap: 10s.")
@click.option("--watermark", default="30s", show_default=True, callback=interval)
@click.option(
    "--max-ahead",
    default="1d",
    show_default=True,
    callback=interval,
    help="A record whose time is further in the future is a bad one.",
)
@click.option("--agg", default="count", show_default=True, help="count,sum:$.x,approx_distinct:$.y")
@click.option("--early", is_flag=True, help="Write a window whenever it changes: the last counts.")
@click.option("--dead-letter", default="", help="Topic for records that no window can take.")
@click.option(
    "--state",
    type=click.Choice(["memory", "rocksdb"]),
    default="memory",
    show_default=True,
    help="Where open windows are kept, set by the first start: rocksdb has room for more.",
)
@stream_options("now")
@cluster_options
def windows(
    topics: str,
    target: str,
    time_: str,
    key: str,
    window: str,
    slide: str,
    watermark: str,
    max_ahead: str,
    agg: str,
    early: bool,
    dead_letter: str,
    state: str,
    checkpoint: str,
    trigger: Mapping[str, Any],
    max_restarts: int,
    bootstrap: str,
    master: str | None,
    conf: Mapping[str, str],
    source_options: Mapping[str, str],
    report_path: Path | None,
) -> int:
    """Count, sum and compare records of a topic by key and window of time, into another topic.

    Records without a time, key or number where one is wanted are left out, into --dead-letter if it
    is given. Times are milliseconds, or text that is UTC unless it says otherwise.
    """
    from paceline.spark.jobs import windowing
    from paceline.spark.jobs.dead_letters import DeadLetters
    from paceline.spark.jobs.purpose import keep_choices, keep_purpose
    from paceline.spark.jobs.running import Runner
    from paceline.spark.places import below

    wanted = windowing.Windows(
        time_, key, window, slide, watermark, max_ahead, windowing.parse_aggregates(agg)
    )
    _require(bootstrap, topics, source_options)
    keep_purpose(checkpoint, "windows", {**wanted.purpose(), "to": target, "early": early})
    settings = {**windowing.SETTINGS, **(windowing.ROCKSDB if state == "rocksdb" else {}), **conf}
    choices = {**wanted.choices(settings), "dead-letter": dead_letter}
    keep_choices(checkpoint, "windows", choices)
    report = Report("windows", report_path, topics=topics, to=target, early=early)
    output = windowing.Output(
        "paceline-windows", bootstrap, target, below(checkpoint, "windows"), trigger
    )
    source = {
        "paceline.bootstrap.servers": bootstrap,
        "subscribe": topics,
        "startingOffsets": "earliest",
        **source_options,
    }
    dead = None
    if dead_letter:
        dead = DeadLetters(source, wanted, {**output.options, "topic": dead_letter})

    def start() -> list[StreamingQuery]:
        spark = _session("windows", master, settings)
        records = spark.readStream.format("paceline").options(**source).load()
        rows = windowing.windowed(records, wanted)
        if early or dead is not None:
            mode: windowing.OutputMode = "update" if early else "append"
            return [windowing.start_batches(rows, output, mode, dead)]
        return [windowing.start(rows, output)]

    runner = Runner(report, max_restarts=max_restarts)
    return _end(report, runner.run(start))


# --- audit and statistics -------------------------------------------------------------------------


@pipeline.command()
@click.option("--topics", required=True)
@click.option("--deep", is_flag=True, help="Decode every record too.")
@click.option("--allow-missing", is_flag=True, help="A node that does not answer is no finding.")
@click.option(
    "--compare", "restored", help="Topics that must each hold the records of --topics once: a,b"
)
@click.option(
    "--partitions",
    type=click.Choice(["same", "by-key"]),
    default="same",
    show_default=True,
    help="How 'restore' chose the partitions of what --compare names.",
)
@click.option("--acked-file", type=click.Path(exists=True, dir_okay=False), help="Of 'produce'.")
@click.option("--transaction-timeout", default="15m", show_default=True, callback=seconds)
@click.option("--out", type=click.Path(file_okay=False), help="Findings as Parquet.")
@cluster_options
def audit(
    topics: str,
    deep: bool,
    allow_missing: bool,
    restored: str | None,
    partitions: str,
    acked_file: str | None,
    transaction_timeout: float,
    out: str | None,
    bootstrap: str,
    master: str | None,
    conf: Mapping[str, str],
    source_options: Mapping[str, str],
    report_path: Path | None,
) -> int:
    """Check every replica of the topics: checksums, offsets, epochs, sequences, and that all hold
    the same."""
    if restored is not None and "," in topics:
        raise click.UsageError("--compare needs one topic in --topics")
    read = topics if restored is None else f"{topics},{restored}"
    _require(bootstrap, read, source_options)
    from paceline.spark.jobs import auditing, comparing
    from paceline.spark.jobs.progress import measured

    report = Report("audit", report_path, topics=topics, restored=restored)
    spark = _session("audit", master, conf)
    options = {"paceline.bootstrap.servers": bootstrap, **source_options}
    with _failing(report):
        with measured(spark, "audit") as figures:
            auditor = auditing.audited(
                spark,
                {**options, "subscribe": read},
                deep=deep,
                transaction_ms=int(transaction_timeout * 1000),
            )
            findings = auditor.findings(allow_missing=allow_missing)
            for copy in restored.split(",") if restored is not None else ():
                source = comparing.look_up(bootstrap, topics)
                by_key = partitions == "by-key"
                found = comparing.compare(spark, options, source, copy, by_key=by_key)
                findings = findings.unionByName(found)
            if acked_file is not None:
                findings = findings.unionByName(
                    comparing.manifest(spark, options, topics, acked_file)
                )
            findings = findings.cache()
            counts = {
                row["finding"]: row["count"]
                for row in findings.groupBy("finding").count().collect()
            }
            batches = auditor.batches.selectExpr("count(*)", "sum(recordCount)", "sum(sizeBytes)")
            seen = batches.first()
            report.facts["progress"] = figures().to_json()
        assert seen is not None
        report.facts |= {
            "batches": seen[0],
            "records": seen[1] or 0,
            "bytes": seen[2] or 0,
            "findings": counts,
            "examples": [row.asDict() for row in findings.limit(100).collect()],
        }
        if out is not None:
            findings.write.mode("overwrite").parquet(out)
        if counts:
            findings.show(SHOWN_FINDINGS, truncate=False)
    return _end(report, JobExit.FINDINGS if counts else JobExit.DONE)


@pipeline.command()
@click.option("--topics", required=True)
@click.option("--out", required=True, type=click.Path(path_type=Path, file_okay=False))
@click.option("--top", type=click.IntRange(min=1), default=20, show_default=True)
@cluster_options
def stats(
    topics: str,
    out: Path,
    top: int,
    bootstrap: str,
    master: str | None,
    conf: Mapping[str, str],
    source_options: Mapping[str, str],
    report_path: Path | None,
) -> int:
    """What is in the topics: tables as Parquet and JSON, and a page with plots."""
    _require(bootstrap, topics, source_options)
    import time

    import pyarrow.parquet as pq

    from paceline.spark.jobs import statistics
    from paceline.spark.jobs.page import page
    from paceline.spark.jobs.progress import measured

    report = Report("stats", report_path, topics=topics)
    spark = _session("stats", master, conf)
    options = {"paceline.bootstrap.servers": bootstrap, "subscribe": topics, **source_options}
    out.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[dict[str, Any]]] = {}
    with _failing(report), measured(spark, "stats") as figures:
        for name, frame in statistics.collect(spark, options, top=top).tables().items():
            # A few rows a topic: no work for Spark any more.
            found = frame.toArrow()
            pq.write_table(found, out / f"{name}.parquet")
            tables[name] = found.to_pylist()
        report.facts["progress"] = figures().to_json()
    made = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    (out / "stats.html").write_text(page(tables, f"Topics {topics}", made), encoding="utf-8")
    (out / "stats.json").write_text(json.dumps(tables, indent=2, default=str), encoding="utf-8")
    report.facts["rows"] = sum(row["rows"] for row in tables["partitions"])
    report.facts["page"] = str(out / "stats.html")
    _show(tables["partitions"], SHOWN_STATISTICS)
    return _end(report, JobExit.DONE)


def _show(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """A table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*columns, box=None)
    for row in rows:
        table.add_row(*(str(row[name]) for name in columns))
    Console().print(table)


@contextmanager
def _failing(report: Report) -> Iterator[None]:
    """Where Spark fails in the block, end the job with a report that says so."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from paceline.spark.jobs.running import fail

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise click.exceptions.Exit(_end(report, fail(report, error))) from error


def _end(report: Report, code: JobExit) -> int:
    """Leave the report, say in a line how it went."""
    report.write(code)
    told = report.to_json(code)
    words = [f"{key} {told[key]}" for key in ("rows", "records", "findings") if told.get(key)]
    click.echo(f"{told['job']}: {told['exit']} in {told['seconds']} s  {'  '.join(words)}".rstrip())
    for error in report.errors:
        click.echo(error, err=True)
    return int(code)


def main() -> int:
    """Entry for ``spark-submit``."""
    try:
        result = pipeline.main(standalone_mode=False, prog_name="paceline_job.py")
    except click.UsageError as error:
        error.show()
        return int(JobExit.USAGE)
    except click.exceptions.Exit as request:
        return request.exit_code
    except PacelineError as error:
        click.echo(f"paceline: {error}", err=True)
        is_ours = isinstance(error, ConfigurationError | UnknownTopicOrPartition)
        return int(JobExit.USAGE if is_ours else JobExit.FAILED)
    return result if isinstance(result, int) else int(JobExit.DONE)
