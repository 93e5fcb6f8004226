"""Archives without Spark: the log, its crashes, the files, and reading them back in order."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.datasource import ReadMaxFiles

from paceline.spark import archive_files, arrow
from paceline.spark.archive import ArchiveReader
from paceline.spark.archive_files import NO_HOUR, Place, read_unit, write_stage
from paceline.spark.archive_log import (
    ArchiveConflict,
    ArchiveDamaged,
    ArchiveFile,
    ArchiveLog,
    Entry,
    check_complete,
    commit_batch,
    units,
)
from paceline.spark.options import ARROW_COLUMNS
from paceline.types import TopicPartition

AT = TopicPartition("t", 0)
HOUR_MS = 3_600_000


def rows(*offsets: int, partition: int = 0, times: list[int | None] | None = None):
    stamps = times or [1_700_000_000_000] * len(offsets)
    listed = [
        {
            "key": b"k%d" % offset,
            "value": b"v%d" % offset,
            "topic": "t",
            "partition": partition,
            "offset": offset,
            "timestamp": None if stamp is None else stamp * 1000,
            "timestampType": 0,
            "headers": [{"key": "h", "value": b"x"}] if offset % 2 else None,
            "leaderEpoch": 3,
            "timestampMs": -1 if stamp is None else stamp,
        }
        for offset, stamp in zip(offsets, stamps, strict=True)
    ]
    return pa.RecordBatch.from_pylist(listed, schema=arrow.schema(ARROW_COLUMNS))


def archive(root: Path, batch: int, *batches: pa.RecordBatch, app: str = "q") -> bool:
    return commit_batch(ArchiveLog(root), app, batch, write_stage(root, "run", batches))


def read_back(root: Path) -> list[int]:
    state = ArchiveLog(root).state()
    return [
        offset
        for files in state.by_partition().values()
        for unit in units(files)
        for batch in read_unit(root, unit)
        for offset in batch.column("offset").to_pylist()
    ]


def test_rows_come_back_as_they_went(tmp_path: Path) -> None:
    batch = rows(0, 1, 2, 5)
    assert archive(tmp_path, 0, batch)
    [file] = ArchiveLog(tmp_path).state().files.values()
    assert file.path.startswith("topic=t/date=2023-11-14/hour=22/p0-0-5-")
    assert (file.first, file.last, file.rows) == (0, 5, 4)
    [back] = read_unit(tmp_path, [file])
    assert back.equals(batch)
    assert pq.read_table(tmp_path / file.path).num_rows == 4


def test_hours_and_unknown_times_lie_apart_and_are_read_in_order(tmp_path: Path) -> None:
    times: list[int | None] = [HOUR_MS * 5, HOUR_MS * 6, None, HOUR_MS * 5 + 1, HOUR_MS * 6 + 1]
    archive(tmp_path, 0, rows(0, 1, 2, 3, 4, times=times))
    folders = sorted(str(Path(each).parent) for each in ArchiveLog(tmp_path).state().files)
    assert folders == [
        "topic=t/date=1970-01-01/hour=05",
        "topic=t/date=1970-01-01/hour=06",
        "topic=t/date=unknown/hour=00",
    ]
    assert read_back(tmp_path) == [0, 1, 2, 3, 4]
    assert Place("t", 0, NO_HOUR).folder.endswith("date=unknown/hour=00")


def test_a_repeated_batch_is_archived_once(tmp_path: Path) -> None:
    assert archive(tmp_path, 0, rows(0, 1))
    assert archive(tmp_path, 1, rows(2, 3), rows(0, 1, partition=1))
    assert not archive(tmp_path, 1, rows(2, 3), rows(0, 1, partition=1))
    assert read_back(tmp_path) == [0, 1, 2, 3, 0, 1]
    assert not list((tmp_path / "_stage").rglob("*.parquet"))
    assert ArchiveLog(tmp_path).state().ends == {AT: 4, TopicPartition("t", 1): 2}


def test_a_lost_checkpoint_cannot_archive_twice(tmp_path: Path) -> None:
    archive(tmp_path, 0, rows(0, 1, 2))
    with pytest.raises(
        ArchiveConflict, match=r"t/0: offsets 2\.\.3 are archived already \(up to 3"
    ):
        archive(tmp_path, 0, rows(2, 3), app="another")
    assert read_back(tmp_path) == [0, 1, 2]


def test_an_older_checkpoint_cannot_leave_records_out(tmp_path: Path) -> None:
    """Put back from a backup it plans a batch anew, with what has come since: under a number that
    the archive has already it was taken for done."""
    archive(tmp_path, 0, rows(0, 1))
    archive(tmp_path, 1, rows(2))
    assert not archive(tmp_path, 1, rows(2))
    with pytest.raises(ArchiveConflict, match=r"t/0 up to 3 only, not up to 6: the checkpoint is"):
        archive(tmp_path, 1, rows(2, 3, 4, 5))
    with pytest.raises(ArchiveConflict, match=r"t/1 up to 0 only, not up to 1"):
        archive(tmp_path, 0, rows(0, 1), rows(0, partition=1))
    assert read_back(tmp_path) == [0, 1, 2]


def test_an_older_archive_cannot_leave_records_out(tmp_path: Path) -> None:
    """Put back from a backup under a checkpoint that went on, it lacked all that was between."""
    archive(tmp_path, 0, rows(0, 1))
    assert archive(tmp_path, 1), "a batch without records counts too"
    shutil.copytree(tmp_path / "_log", tmp_path / "backup")
    archive(tmp_path, 2, rows(2))
    shutil.rmtree(tmp_path / "_log")
    (tmp_path / "backup").rename(tmp_path / "_log")
    with pytest.raises(ArchiveConflict, match=r"up to 1, its checkpoint up to 2: .* older than"):
        archive(tmp_path, 3, rows(3))
    with pytest.raises(ArchiveConflict, match=r"up to none, its checkpoint up to 6"):
        archive(tmp_path, 7, rows(7), app="another")
    check_complete(tmp_path, ArchiveLog(tmp_path).state(), "q", 1)
    with pytest.raises(ArchiveConflict, match=r"up to 1, its checkpoint up to 2"):
        check_complete(tmp_path, ArchiveLog(tmp_path).state(), "q", 2)
    assert archive(tmp_path, 0, rows(2, 3), app="new")
    assert read_back(tmp_path) == [0, 1, 2, 3]


def test_a_reader_notices_that_its_archive_is_another_now(tmp_path: Path) -> None:
    """It read what an older log had, or what a newer one has in the place of it, and ended well."""
    archive(tmp_path, 0, rows(0, 1))
    archive(tmp_path, 1, rows(2))
    reader = ArchiveReader(str(tmp_path), 1)
    start = reader.initialOffset()
    middle = reader.latestOffset(start, ReadMaxFiles(1))
    assert middle["index"] == 1
    second = tmp_path / "_log" / f"{2:020d}.json"
    kept = second.read_bytes()
    second.unlink()
    with pytest.raises(ArchiveDamaged, match=r"0002\.json: missing"):
        reader.latestOffset(middle, ReadMaxFiles(1))
    archive(tmp_path, 0, rows(2, 3), app="another")
    with pytest.raises(ArchiveDamaged, match=r"not the version 2 that .* began with"):
        reader.partitions(start, middle)
    second.write_bytes(kept)
    assert reader.latestOffset(middle, ReadMaxFiles(1))["index"] == 2


def test_a_crash_between_version_and_renames_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged = write_stage(tmp_path, "run", [rows(0, 1)])
    log = ArchiveLog(tmp_path)
    entry = Entry("batch", "q", 0, {AT: 2}, staged)
    draft = tmp_path / "entry"
    draft.write_text(json.dumps(entry.to_json()))
    (tmp_path / "_log").mkdir()
    os.link(draft, tmp_path / "_log" / f"{1:020d}.json")
    with pytest.raises(ArchiveDamaged):
        read_back(tmp_path)
    real = Path.rename

    def renamed_by_two(self: Path, target: Path) -> Path:
        real(self, target)
        return real(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", renamed_by_two)
        log.repair()
    assert read_back(tmp_path) == [0, 1]


def test_a_restore_mends_what_a_dead_writer_left(tmp_path: Path) -> None:
    """Nobody may have started the archive's job again."""
    from paceline.spark.archive import ArchiveReader

    archive(tmp_path, 0, rows(0, 1))
    [file] = ArchiveLog(tmp_path).state().files.values()
    (tmp_path / file.path).rename(tmp_path / file.stage)
    reader = ArchiveReader(str(tmp_path), max_files=2)
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    [part] = reader.partitions(start, end)
    [batch] = reader.read(part)
    assert batch.column("offset").to_pylist() == [0, 1]


def test_two_writers_never_both_make_a_version(tmp_path: Path) -> None:
    log = ArchiveLog(tmp_path)
    first = Entry("batch", "a", 0, {AT: 1})
    assert log.append(first, after=0) == 1
    with pytest.raises(ArchiveConflict, match="another writer"):
        log.append(Entry("batch", "b", 0, {AT: 1}), after=0)
    assert log.entry(1) == first
    assert [path.name for path in (tmp_path / "_log").iterdir()] == [f"{1:020d}.json"]


def test_a_changed_file_is_refused_before_a_row_of_it_is_given(tmp_path: Path) -> None:
    archive(tmp_path, 0, rows(0, 1))
    [file] = ArchiveLog(tmp_path).state().files.values()
    path = tmp_path / file.path
    data = bytearray(path.read_bytes())
    data[50] ^= 1
    path.write_bytes(data)
    with pytest.raises(ArchiveDamaged, match="SHA-256"):
        next(read_unit(tmp_path, [file]))


def test_a_missing_version_is_noticed(tmp_path: Path) -> None:
    log = ArchiveLog(tmp_path)
    for number in range(3):
        log.append(Entry("batch", "a", number, {AT: number}), after=number)
    (tmp_path / "_log" / f"{2:020d}.json").unlink()
    with pytest.raises(ArchiveDamaged, match="missing"):
        log.state()


def file(first: int, last: int) -> ArchiveFile:
    return ArchiveFile("p", "s", "t", 0, first, last, 1, 1, 0, 0, "")


def test_units_keep_ranges_that_mix_together() -> None:
    a, b, c, d = file(0, 9), file(3, 12), file(13, 20), file(21, 21)
    assert units([a, b, c, d]) == [[a, b], [c], [d]]
    assert units([]) == []


def test_a_reader_gives_every_unit_once_in_order(tmp_path: Path) -> None:
    """The source of a restore, as Spark calls it; no JVM is needed for that."""
    from pyspark.sql.streaming.datasource import ReadMaxFiles

    from paceline.spark.archive import ArchiveReader

    for number in range(3):
        archive(tmp_path, number, rows(number * 2, number * 2 + 1), rows(number, partition=1))
    reader = ArchiveReader(str(tmp_path), max_files=2)
    start = reader.initialOffset()
    assert start == {"version": 3, "index": 0, "of": ArchiveLog(tmp_path).identity(3)}
    archive(tmp_path, 3, rows(6, 7))  # comes too late
    seen: dict[int, list[int]] = {0: [], 1: []}
    batches = 0
    while (end := reader.latestOffset(start, ReadMaxFiles(2))) != start:
        batches += 1
        for part in reader.partitions(start, end):
            for batch in reader.read(part):
                for place in zip(
                    *(batch.column(n).to_pylist() for n in ("partition", "offset")), strict=True
                ):
                    seen[place[0]].append(place[1])
        start = end
    assert batches == 3
    assert seen == {0: [0, 1, 2, 3, 4, 5], 1: [0, 1, 2]}


def test_a_version_names_only_what_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark forgets a batch once it is committed: a power cut then must not take its files."""
    synced: list[str] = []
    real_sync, real_link, real_rename = os.fsync, os.link, Path.rename

    def fsync(descriptor: int) -> None:
        real_sync(descriptor)
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    def link(source: Path, target: Path) -> None:
        missing = [each.stage for each in staged if str(tmp_path / each.stage) not in synced]
        assert not missing, "files"
        for each in staged:
            for folder in (tmp_path / each.stage).parents:
                if folder.is_relative_to(tmp_path):
                    assert str(folder) in synced, "their names, and those of their folders"
        real_link(source, target)
        synced.clear()

    def rename(self: Path, target: Path) -> Path:
        renamed.append(target)
        return real_rename(self, target)

    renamed: list[Path] = []
    monkeypatch.setattr(os, "fsync", fsync)
    staged = write_stage(tmp_path, "run", [rows(0, 1), rows(0, partition=1)])
    monkeypatch.setattr(os, "link", link)
    monkeypatch.setattr(Path, "rename", rename)
    commit_batch(ArchiveLog(tmp_path), "q", 0, staged)
    assert len(renamed) == 2
    for path in renamed:
        for folder in path.parents:
            if folder.is_relative_to(tmp_path):
                assert str(folder) in synced


def test_another_topic_of_the_same_name_is_refused(tmp_path: Path) -> None:
    log = ArchiveLog(tmp_path)
    ids = {"t": "aa", "unread": "xx"}
    commit_batch(log, "q", 0, write_stage(tmp_path, "run", [rows(0, 1)]), ids)
    commit_batch(log, "q", 1, write_stage(tmp_path, "run", [rows(2)]))
    commit_batch(log, "q", 2, write_stage(tmp_path, "run", [rows(3)]), {"t": "aa"})
    with pytest.raises(ArchiveConflict, match=r"another topic t \(id aa, now bb\)"):
        commit_batch(log, "r", 0, write_stage(tmp_path, "run", [rows(4)]), {"t": "bb"})
    assert log.state().ids == {"t": "aa"}
    assert read_back(tmp_path) == [0, 1, 2, 3]


def test_records_of_many_hours_need_few_open_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_files, "OPEN_FILES", 3)
    opened: set[object] = set()
    most = 0

    class Counted(archive_files._StageFile):
        def __init__(self, root: Path, folder: str, place: Place) -> None:
            nonlocal most
            super().__init__(root, folder, place)
            opened.add(self)
            most = max(most, len(opened))

        def close(self) -> ArchiveFile:
            opened.discard(self)
            return super().close()

    monkeypatch.setattr(archive_files, "_StageFile", Counted)
    times = [1_700_000_000_000 + offset % 9 * HOUR_MS for offset in range(90)]
    archive(tmp_path, 0, *(rows(n, times=[time]) for n, time in enumerate(times)))
    assert most == 4
    assert read_back(tmp_path) == list(range(90))


def test_what_waits_in_open_files_is_bounded_over_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each open file had a row group of 64 MiB in memory, 32 files 2 GiB, for each task."""
    batches = [rows(n, times=[1_700_000_000_000 + n // 20 % 5 * HOUR_MS]) for n in range(200)]
    one = pa.Table.from_batches([batches[0]]).select(list(archive_files.COLUMNS)).nbytes
    monkeypatch.setattr(archive_files, "WAITING_BYTES", 12 * one)
    most = 0
    real = archive_files._StageFile.add
    opened: set[archive_files._StageFile] = set()

    def add(self: archive_files._StageFile, given: pa.Table) -> None:
        nonlocal most
        opened.add(self)
        real(self, given)
        most = max(most, sum(each.waiting_bytes for each in opened))

    monkeypatch.setattr(archive_files._StageFile, "add", add)
    archive(tmp_path, 0, *batches)
    assert len(opened) == 5
    assert most <= 13 * one
    assert read_back(tmp_path) == list(range(200))
    groups = [
        pq.ParquetFile(tmp_path / each).num_row_groups
        for each in ArchiveLog(tmp_path).state().files
    ]
    assert max(groups) <= 5, "the fullest one is written"


def test_files_whose_offsets_mix_are_merged_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [1_700_000_000_000 + offset * 7 % 3 * HOUR_MS for offset in range(500)]
    archive(tmp_path, 0, rows(*range(500), times=times))
    files = list(ArchiveLog(tmp_path).state().files.values())
    assert len(files) == 3
    monkeypatch.setattr(archive_files, "MERGED_ROWS", 10)
    (unit,) = units(sorted(files, key=lambda file: file.first))
    sizes = [batch.num_rows for batch in read_unit(tmp_path, unit)]
    assert sum(sizes) == 500
    assert max(sizes) <= 10 * len(files)
    assert read_back(tmp_path) == list(range(500))


def test_rows_out_of_order_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_files, "ROW_GROUP_BYTES", 1)
    with pytest.raises(ValueError, match="rows of t/0 come out of order"):
        write_stage(tmp_path, "run", [rows(5, 6), rows(3)])
    assert not list(tmp_path.rglob("*.parquet"))


def test_files_of_before_timestampms_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive(tmp_path, 0, rows(0, 1, 2, times=[1_700_000_000_123, None, None]))
    files = ArchiveLog(tmp_path).state().by_partition()[AT]
    for each in files:
        table = pq.ParquetFile(tmp_path / each.path).read()
        pq.write_table(table.drop_columns(["timestampMs"]), tmp_path / each.path)
    monkeypatch.setattr(archive_files, "check_file", lambda root, file: None)
    batches = [batch for unit in units(files) for batch in read_unit(tmp_path, unit)]
    stamps = [stamp for batch in batches for stamp in batch["timestampMs"].to_pylist()]
    assert stamps == [1_700_000_000_123, -1, -1]


def test_times_without_a_date_have_a_folder_too(tmp_path: Path) -> None:
    times: list[int | None] = [-5_000, 253_402_300_799_999, None]
    archive(tmp_path, 0, rows(0, 1, 2, times=times))
    folders = {Path(path).parent.as_posix() for path in ArchiveLog(tmp_path).state().files}
    assert folders == {
        "topic=t/date=1969-12-31/hour=23",
        "topic=t/date=9999-12-31/hour=23",
        "topic=t/date=unknown/hour=00",
    }
