"""What ``produce`` makes of its input, and how ``consume`` prints bytes and times."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline

pytestmark = pytest.mark.paceline(nodes=1)


class Shell:
    def __init__(self, paceline: BlockingPaceline, capture: pytest.CaptureFixture[bytes]) -> None:
        [self._address] = paceline.addresses("native")
        self._capture = capture

    def __call__(self, *words: str, code: Exit = Exit.OK) -> bytes:
        assert cli.main([*words, "--bootstrap", self._address]) == code
        said = self._capture.readouterr()
        return said.out if code is Exit.OK else said.err


@pytest.fixture
def shell(paceline: BlockingPaceline, capfdbinary: pytest.CaptureFixture[bytes]) -> Shell:
    paceline.create_topic("orders", partitions=2)
    return Shell(paceline, capfdbinary)


def read(shell: Shell, *words: str) -> bytes:
    return shell("consume", "orders", "--exit-at-end", *words)


def test_time_and_partition_are_those_that_were_said(shell: Shell, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"a\nb\n")
    when = "2023-11-14T22:13:20.123Z"
    shell("produce", "orders", str(lines), "--timestamp", when, "--partition", "1")
    assert read(shell, "--format", r"%p %D %T %s\n") == (
        b"1 2023-11-14T22:13:20.123Z 1700000000123 a\n1 2023-11-14T22:13:20.123Z 1700000000123 b\n"
    )
    refused = shell("produce", "orders", str(lines), "--timestamp", "soon", code=Exit.USAGE)
    assert b"'soon' is no time" in refused


def test_a_file_is_a_value_whatever_bytes_it_has(shell: Shell, tmp_path: Path) -> None:
    picture, empty = tmp_path / "picture", tmp_path / "empty"
    picture.write_bytes(b"\x89PNG\r\n\x00\n")
    empty.write_bytes(b"")
    files = (str(picture), str(empty))
    shell("produce", "orders", *files, "--whole-files", "--key", "k\xe9", "--partition", "0")
    assert read(shell, "--format", r"%s|%S\n") == b"\x89PNG\r\n\x00\n|8\n|0\n"
    assert read(shell, "--encoding", "hex", "--key-delimiter", ":") == (
        b"6bc3a9:89504e470d0a000a\n6bc3a9:\n"
    )
    assert read(shell, "--encoding", "base64", "--count", "1") == b"iVBORw0KAAo=\n"
    both = ("--encoding", "hex", "--json")
    assert b"--encoding is for lines" in shell("consume", "orders", *both, code=Exit.USAGE)
    with picture.open("wb") as file:
        file.truncate(64 * 1024 * 1024)
    said = shell("produce", "orders", *files, "--whole-files", code=Exit.DATA)
    assert b"picture: longer than" in said


def test_lines_of_a_format_come_back_as_they_were(shell: Shell, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_bytes(b"1 99 a=b k:first\n0 98 a=c k:second: more\n")
    form = "%p %T %h %k:%s"
    shell("produce", "orders", str(lines), "--format", form)
    back = read(shell, "--format", form + r"\n")
    assert sorted(back.splitlines()) == sorted(lines.read_bytes().splitlines())
    lines.write_bytes(b"1 99 a=b k:third\nnonsense here\n")
    said = shell("produce", "orders", str(lines), "--format", form, code=Exit.DATA)
    assert b"line 2: " in said
    assert b"(1 record before it is stored)" in said
    both = ("--format", form, "--key-delimiter", ":")
    said = shell("produce", "orders", str(lines), *both, code=Exit.USAGE)
    assert b"exclude each other" in said
