"""The pure parts of the jobs: plots, aggregates, and the upkeep of an archive."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from paceline.spark.archive_files import read_unit, write_stage
from paceline.spark.archive_log import (
    ArchiveConflict,
    ArchiveDamaged,
    ArchiveFile,
    ArchiveLog,
    Entry,
    State,
    commit_batch,
    units,
)
from paceline.spark.errors import OptionError
from paceline.spark.jobs import archiving, verifying
from paceline.spark.jobs.options import interval
from paceline.spark.jobs.page import bars, page
from paceline.spark.jobs.report import JobExit, Report
from paceline.spark.jobs.running import fail
from paceline.spark.jobs.windowing import Aggregate, parse_aggregates
from tests.unit.spark.test_archive import AT, HOUR_MS, archive, read_back, rows


def test_aggregates() -> None:
    assert parse_aggregates("count, sum:$.a.b") == (
        Aggregate("count", ""),
        Aggregate("sum", "$.a.b"),
    )
    assert Aggregate("sum", "$.a.b").name == "sum_a_b"
    for bad in ("median:$.x", "sum", "count:$.x", ""):
        with pytest.raises(OptionError, match="expected count"):
            parse_aggregates(bad)


def test_what_a_task_failed_with_is_told_without_its_stack() -> None:
    stack = (
        "An error occurred in the user provided function.\n"
        '  File "sink.py", line 92, in write\n'
        "paceline.spark.rows.BadRow: out: no such topic\n SQLSTATE: 38000\n\tat org.apache.spark"
    )
    report = Report("windows", None)
    assert fail(report, RuntimeError(stack)) is JobExit.FAILED
    assert fail(report, RuntimeError("out of memory")) is JobExit.FAILED
    assert report.errors == ["BadRow: out: no such topic", "out of memory"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("30s", "30 seconds"),
        ("1 m", "1 minutes"),
        ("2 days", "2 days"),
        ("250ms", "250 milliseconds"),
        ("1 hour 30 minutes", "1 hour 30 minutes"),
        ("1h30m", "1 hours 30 minutes"),
    ],
)
def test_intervals_are_said_as_spark_says_them(given: str, told: str) -> None:
    command = click.Command("job", params=[click.Option(["--window"], callback=interval)])
    assert command.make_context("job", ["--window", given]).params == {"window": told}


@pytest.mark.parametrize("given", ["soon", "5", "1.5h", "-1s", "5 apples", "1 hour and more"])
def test_what_is_no_interval_is_refused(given: str) -> None:
    command = click.Command("job", params=[click.Option(["--window"], callback=interval)])
    with pytest.raises(click.BadParameter, match="such as 30s"):
        command.make_context("job", [f"--window={given}"])


def test_small_files_become_one_and_the_old_ones_go_after_their_grace(tmp_path: Path) -> None:
    for number in range(4):
        archive(tmp_path, number, rows(number * 2, number * 2 + 1))
    before = set(ArchiveLog(tmp_path).state().files)
    done = archiving.compact(tmp_path, target_bytes=1 << 20, older_s=0, grace_s=60, now=2e10)
    assert done == {"files_removed": 4, "files_added": 1}
    assert read_back(tmp_path) == list(range(8))
    assert all((tmp_path / path).exists() for path in before), "readers may have them open"
    archiving.compact(tmp_path, target_bytes=1 << 20, older_s=0, grace_s=60, now=2e10 + 61)
    assert not any((tmp_path / path).exists() for path in before)
    assert verifying.verify(tmp_path, allow_gaps=False)[0] == []


def test_what_a_compaction_replaces_has_its_grace_beside_a_vacuum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When that began stood in a file of its own, which each of two jobs wrote without the other's
    part, and the compaction after its version: the vacuum took the files for nobody's."""
    for number in range(4):
        archive(tmp_path, number, rows(number * 2, number * 2 + 1))
    before = set(ArchiveLog(tmp_path).state().files)
    for path in before:
        os.utime(tmp_path / path, (0, 0))
    real = ArchiveLog.append
    vacuumed: list[int] = []

    def with_a_vacuum(self: ArchiveLog, entry: Entry, *, after: int) -> int:
        made = real(self, entry, after=after)
        if entry.kind == "compaction":
            vacuumed.append(archiving.vacuum(tmp_path, grace_s=3600))
        return made

    monkeypatch.setattr(ArchiveLog, "append", with_a_vacuum)
    archiving.compact(tmp_path, target_bytes=1 << 20, older_s=0, grace_s=3600)
    assert vacuumed == [0]
    assert all((tmp_path / path).exists() for path in before)
    archiving.vacuum(tmp_path, grace_s=0)
    assert not any((tmp_path / path).exists() for path in before)


def test_a_reader_outlives_the_grace_of_what_it_reads(tmp_path: Path) -> None:
    """It failed for ever, and a new one would have written what had been restored again."""
    times = [1_700_000_000_000 + offset // 3 % 2 * HOUR_MS for offset in range(40)]
    for number in range(4):
        part = range(number * 10, number * 10 + 10)
        archive(tmp_path, number, rows(*part, times=times[part.start : part.stop]))
    log = ArchiveLog(tmp_path)
    old = [unit for files in log.state().by_partition().values() for unit in units(files)]
    large = log.state().by_partition()[AT][3].bytes
    for target in (large * 3, 1 << 20):
        archiving.compact(tmp_path, target_bytes=target, older_s=0, grace_s=0)
        archiving.vacuum(tmp_path, grace_s=0)
    archive(tmp_path, 4, rows(40))
    assert not any((tmp_path / each.path).exists() for unit in old for each in unit)
    found = [
        [n for batch in read_unit(tmp_path, unit) for n in batch.column("offset").to_pylist()]
        for unit in old
    ]
    assert found == [list(range(number * 10, number * 10 + 10)) for number in range(4)]
    (tmp_path / next(iter(log.state().files))).unlink()
    with pytest.raises(ArchiveDamaged, match="No such file"):
        list(read_unit(tmp_path, old[0]))


def test_young_and_large_files_are_left_alone(tmp_path: Path) -> None:
    for number in range(3):
        archive(tmp_path, number, rows(number))
    assert archiving.compact(tmp_path, target_bytes=1 << 20, older_s=1e12, grace_s=0) == {
        "files_removed": 0,
        "files_added": 0,
    }
    assert archiving.compact(tmp_path, target_bytes=10, older_s=0, grace_s=0)["files_added"] == 0


def test_verify_names_what_is_missing_and_repeated(tmp_path: Path) -> None:
    archive(tmp_path, 0, rows(0, 1, 4))
    findings, facts = verifying.verify(tmp_path, allow_gaps=False)
    assert [(each.kind, each.what) for each in findings] == [("OFFSET_MISSING", "offsets 2..3")]
    assert facts["rows"] == 3
    assert verifying.verify(tmp_path, allow_gaps=True)[0] == []
    [file] = ArchiveLog(tmp_path).state().files.values()
    (tmp_path / file.path).unlink()
    findings, _ = verifying.verify(tmp_path, allow_gaps=True)
    assert [each.kind for each in findings] == ["FILE_DAMAGED"]


def test_a_damaged_file_is_named_once_though_others_lie_among_its_offsets(tmp_path: Path) -> None:
    times = [1_700_000_000_000 + offset % 2 * HOUR_MS for offset in range(6)]
    archive(tmp_path, 0, rows(*range(6), times=times))
    files = sorted(ArchiveLog(tmp_path).state().files.values(), key=lambda file: file.first)
    assert [(file.first, file.last) for file in files] == [(0, 4), (1, 5)]
    (tmp_path / files[0].path).write_bytes(b"")
    findings, facts = verifying.verify(tmp_path, allow_gaps=False)
    assert [each.kind for each in findings] == ["FILE_DAMAGED"]
    assert facts["rows"] == 3


def test_a_verification_beside_a_compaction_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What that had replaced and deleted was called damaged."""
    for number in range(3):
        archive(tmp_path, number, rows(number))
    real = verifying.check_file
    compacted: list[int] = []

    def compacted_meanwhile(root: Path, file: ArchiveFile) -> None:
        real(root, file)
        if file.first == 0 and not compacted:
            compacted.append(1)
            for _ in range(2):
                archiving.compact(tmp_path, target_bytes=1 << 20, older_s=0, grace_s=0)
            assert not (root / file.path).exists(), "after it was checked, and before it is read"

    monkeypatch.setattr(verifying, "check_file", compacted_meanwhile)
    findings, facts = verifying.verify(tmp_path, allow_gaps=False)
    assert (findings, facts["rows"], facts["files"]) == ([], 3, 1)
    assert compacted


def test_a_verification_waits_for_no_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version is there before its files are in their places."""
    archive(tmp_path, 0, rows(0))
    real = ArchiveLog.state
    made: list[str] = []

    def made_meanwhile(self: ArchiveLog, version: int | None = None) -> State:
        if not made:
            made.append("")
            archive(tmp_path, 1, rows(1))
            file = max(real(self).files.values(), key=lambda each: each.first)
            (tmp_path / file.path).rename(tmp_path / file.stage)
        return real(self, version)

    monkeypatch.setattr(ArchiveLog, "state", made_meanwhile)
    findings, facts = verifying.verify(tmp_path, allow_gaps=False)
    assert (findings, facts["rows"]) == ([], 2)
    assert made


def test_vacuum_takes_only_what_nothing_names(tmp_path: Path) -> None:
    archive(tmp_path, 0, rows(0, 1))
    orphan = tmp_path / "_stage" / "run" / "left.parquet"
    orphan.write_bytes(b"x")
    assert archiving.vacuum(tmp_path, grace_s=3600) == 0
    os.utime(orphan, (0, 0))
    assert archiving.vacuum(tmp_path, grace_s=3600) == 1
    assert read_back(tmp_path) == [0, 1]


def test_a_vacuum_and_a_slow_batch_never_both_have_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that was staged long ago is committed after the vacuum has looked, or tries to."""
    archive(tmp_path, 0, rows(0, 1))
    log = ArchiveLog(tmp_path)
    staged = write_stage(tmp_path, "run", [rows(2, 3)])
    os.utime(tmp_path / staged[0].stage, (0, 0))
    real = ArchiveLog.append
    late: list[bool] = []

    def committed_meanwhile(self: ArchiveLog, entry: Entry, *, after: int) -> int:
        if entry.kind == "vacuum" and not late:
            late.append(True)
            assert commit_batch(log, "q", 1, staged)
        return real(self, entry, after=after)

    monkeypatch.setattr(ArchiveLog, "append", committed_meanwhile)
    assert archiving.vacuum(tmp_path, grace_s=3600) == 0
    assert late
    assert read_back(tmp_path) == [0, 1, 2, 3]

    staged = write_stage(tmp_path, "run", [rows(4)])
    os.utime(tmp_path / staged[0].stage, (0, 0))
    assert archiving.vacuum(tmp_path, grace_s=3600) == 1
    with pytest.raises(ArchiveConflict, match="a vacuum has deleted it"):
        commit_batch(log, "q", 2, staged)
    assert commit_batch(log, "q", 2, write_stage(tmp_path, "run", [rows(4)]))
    assert read_back(tmp_path) == [0, 1, 2, 3, 4]


def test_a_vacuum_and_a_slow_compaction_never_both_have_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compaction named a file that was gone, and let those go that it was made of."""
    for number in range(2):
        archive(tmp_path, number, rows(number))
    real = ArchiveLog.append
    deleted: list[int] = []

    def vacuumed_meanwhile(self: ArchiveLog, entry: Entry, *, after: int) -> int:
        if entry.kind == "compaction" and not deleted:
            deleted.append(archiving.vacuum(tmp_path, grace_s=0))
        return real(self, entry, after=after)

    monkeypatch.setattr(ArchiveLog, "append", vacuumed_meanwhile)
    with pytest.raises(ArchiveConflict, match="a vacuum has deleted it"):
        archiving.compact(tmp_path, target_bytes=1 << 20, older_s=0, grace_s=0)
    assert deleted == [1]
    assert read_back(tmp_path) == [0, 1]
    archiving.compact(tmp_path, target_bytes=1 << 20, older_s=0, grace_s=0)
    archiving.vacuum(tmp_path, grace_s=0)
    assert read_back(tmp_path) == [0, 1]


def test_a_long_compaction_mends_what_a_writer_left_that_died_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the newest versions are looked after when the log is opened."""
    for number in range(24):
        archive(tmp_path, number, rows(number, times=[number // 2 * HOUR_MS]))
    real = ArchiveLog.append
    died: list[str] = []

    def died_meanwhile(self: ArchiveLog, entry: Entry, *, after: int) -> int:
        if entry.kind == "compaction" and not died:
            assert archive(tmp_path, 24, rows(24))
            file = max(ArchiveLog(tmp_path).state().files.values(), key=lambda each: each.first)
            (tmp_path / file.path).rename(tmp_path / file.stage)
            died.append(file.path)
        return real(self, entry, after=after)

    monkeypatch.setattr(ArchiveLog, "append", died_meanwhile)
    done = archiving.compact(tmp_path, target_bytes=1 << 20, older_s=0, grace_s=0)
    assert done == {"files_removed": 24, "files_added": 12}
    ArchiveLog(tmp_path).repair()
    assert read_back(tmp_path) == list(range(25))


def test_an_archive_says_where_to_go_on(tmp_path: Path) -> None:
    assert archiving.starting_offsets(ArchiveLog(tmp_path).state(), []) == "earliest"
    archive(tmp_path, 0, rows(0, 1))
    assert ArchiveLog(tmp_path).state().ends == {AT: 2}


def test_the_page_escapes_and_draws() -> None:
    row = {"topic": "<t>", "partition": 0, "rows": 5, "bytes": 9, "value_p99": 3}
    tables = {
        "partitions": [row],
        "hours": [{"topic": "<t>", "hour": "2026-01-01 00:00", "rows": 5}],
        "keys": [{"topic": "<t>", "key": "<script>", "rows": 1, "rank": 1}],
        "headers": [],
        "codecs": [],
    }
    text = page(tables, "Topics <t>", "now")
    assert "<script>" not in text
    assert text.count("<svg") == 3
    assert bars("nothing", []) == ""
