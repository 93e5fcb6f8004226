"""Where files lie, and what a checkpoint is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.spark.archive import ArchiveDataSource
from paceline.spark.errors import OptionError
from paceline.spark.jobs.purpose import is_begun, keep_choices, keep_purpose
from paceline.spark.places import below, local_path
from paceline.spark.sink_ids import query_of


@pytest.mark.parametrize(
    ("place", "path"),
    [
        *(("/a/b", "/a/b"), ("a", "a"), ("a:b", "a:b"), ("a/b:/c", "a/b:/c")),
        *(("file:/a", "/a"), ("file:///a", "/a"), ("FILE://localhost/a", "/a")),
        *(("file://host/a", None), ("s3a://bucket/a", None), ("hdfs:/a", None)),
    ],
)
def test_what_lies_here(place: str, path: str | None) -> None:
    assert local_path(place) == (None if path is None else Path(path))


def test_folders_below_a_uri() -> None:
    assert below("hdfs://node/ck", "windows") == "hdfs://node/ck/windows"
    assert below("ck/", "windows") == "ck/windows"


def test_an_archive_is_on_a_file_system() -> None:
    assert ArchiveDataSource({"path": "file:/a"})._root() == "/a"
    for place in ("s3a://bucket/a", "hdfs:/a"):
        with pytest.raises(OptionError, match="object stores and HDFS have none"):
            ArchiveDataSource({"path": place})._root()


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_the_query_of_a_checkpoint(tmp_path: Path, form: str) -> None:
    (tmp_path / "metadata").write_text('{"id": "q"}')
    assert query_of(form.format(tmp_path)) == "q"


def test_no_checkpoint_is_of_no_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metadata").write_text('{"id": "q"}')
    monkeypatch.chdir(tmp_path)
    assert query_of("") == ""


def test_a_checkpoint_is_for_one_purpose(tmp_path: Path) -> None:
    place = f"file://{tmp_path}/ck"
    keep_purpose(place, "restore", {"topics": {"a": "b"}, "from": None})
    keep_purpose(place, "restore", {"topics": {"a": "b"}, "from": None})
    assert not is_begun(place)
    (tmp_path / "ck" / "offsets").mkdir()
    assert is_begun(place)
    with pytest.raises(OptionError, match=r"of another job: topics was {'a': 'b'}, is now {}"):
        keep_purpose(place, "restore", {"topics": {}, "from": None})
    with pytest.raises(OptionError, match="job was restore, is now archive"):
        keep_purpose(place, "archive", {})
    keep_purpose("s3a://bucket/ck", "restore", {})


def test_a_batch_that_is_under_way_keeps_its_choices(tmp_path: Path) -> None:
    place, query = f"file://{tmp_path}/ck", tmp_path / "ck" / "windows"
    for folder in ("offsets", "commits"):
        (query / folder).mkdir(parents=True)
    keep_choices(place, "windows", {"max-ahead": "1 days"})
    (query / "offsets" / "0").write_text('v1\n{"batchTimestampMs": 1}\n{}\n')
    keep_choices(place, "windows", {"max-ahead": "1 days"})
    with pytest.raises(OptionError, match=r"batch 0 .*: max-ahead was 1 days, is now 2 days"):
        keep_choices(place, "windows", {"max-ahead": "2 days"})
    (query / "commits" / "0").touch()
    keep_choices(place, "windows", {"max-ahead": "2 days"})
    keep_choices("s3a://bucket/ck", "windows", {})
