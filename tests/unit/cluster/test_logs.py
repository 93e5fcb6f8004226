"""Following a growing log file."""

from pathlib import Path

import pytest

from paceline_cluster.cli.logs import LogTail


def test_lines_arrive_whole_and_once(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    tail = LogTail(path, last_lines=None)
    assert tail.new_lines() == []
    path.write_text("one\ntwo\nthr")
    assert tail.new_lines() == ["one", "two"]
    assert tail.new_lines() == []
    with path.open("a") as file:
        file.write("ee\n")
    assert tail.new_lines() == ["three"]


def test_file_that_was_cut_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    path.write_text("a long first line\n")
    tail = LogTail(path, last_lines=None)
    assert tail.new_lines() == ["a long first line"]
    path.write_text("new\n")
    assert tail.new_lines() == ["new"]


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (1, ["c"]), (2, ["b", "c"]), (9, ["a", "b", "c"])]
)
def test_last_lines(tmp_path: Path, count: int, expected: list[str]) -> None:
    path = tmp_path / "node.log"
    path.write_text("a\nb\nc\n")
    assert LogTail(path, last_lines=count).new_lines() == expected
