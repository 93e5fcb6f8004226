"""Input lines of produce: cut at every split point, numbered, bounded; and their shapes."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_cluster.cli import input_lines
from paceline_cluster.cli.input_lines import Lines, LineSplitter, read_lines
from paceline_cluster.cli.input_records import Shape, parse_delimiter
from paceline_cluster.cli.record_text import BadLine, InputRecord


@given(st.lists(st.binary(max_size=8)))
def test_any_chunking_gives_the_same_lines(chunks: list[bytes]) -> None:
    data = b"".join(chunks)
    splitter = LineSplitter()
    found = [line for chunk in chunks for line in splitter.feed(chunk)] + splitter.end()
    expected = data.split(b"\n")
    assert found == (expected[:-1] if expected[-1] == b"" else expected)


def test_line_without_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_lines, "MAX_LINE_BYTES", 10)
    splitter = LineSplitter()
    assert splitter.feed(b"12345\n1234567890") == [b"12345"]
    with pytest.raises(BadLine, match="longer than 10 bytes"):
        splitter.feed(b"1")


async def test_files_are_read_in_order_and_numbered_through(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n3")
    (tmp_path / "b").write_bytes(b"")
    (tmp_path / "c").write_bytes(b"4\n")
    found = [part async for part in read_lines([tmp_path / name for name in "abc"])]
    assert [line for part in found for line in part.lines] == [b"1", b"2", b"3", b"4"]
    assert found == [Lines(1, [b"1", b"2"]), Lines(3, [b"3"]), Lines(4, [b"4"])]


async def test_a_pipe_is_served_as_it_comes() -> None:
    reader, writer = os.pipe()
    try:
        source = read_lines([Path(f"/dev/fd/{reader}")])
        os.write(writer, b"one\ntw")
        assert await anext(source) == Lines(1, [b"one"])
        os.write(writer, b"o\n")
        assert await anext(source) == Lines(2, [b"two"])
        await source.aclose()
    finally:
        os.close(reader)
        os.close(writer)


def test_columns_of_plain_lines() -> None:
    assert Shape().columns([b"a", b""]) == (None, [b"a", b""])
    assert Shape(key=b"k").columns([b"a", b"b"]) == ([b"k", b"k"], [b"a", b"b"])
    keyed = Shape(key_delimiter=b":", keyless=True)
    assert keyed.well_formed([b"k:v:w", b"v"]) == 2
    assert keyed.columns([b"k:v:w", b"v"]) == ([b"k", None], [b"v:w", b"v"])
    assert Shape(empty_is_null=True).columns([b"", b"x"]) == (None, [None, b"x"])


def test_a_line_without_the_delimiter_ends_what_is_well_formed() -> None:
    """It became a value without a key, in another partition than it was meant for."""
    keyed = Shape(key_delimiter=b"::")
    assert Shape().well_formed([b"a", b"b"]) == 2
    assert keyed.well_formed([b"a::b", b"c:d", b"::"]) == 1
    assert keyed.well_formed([b"a::b", b"::"]) == 2
    with pytest.raises(BadLine, match="no '::' behind a key"):
        Shape(key_delimiter=b"::", headers=(("h", b"1"),)).record(b"c:d")


def test_records_of_lines_with_headers_and_json() -> None:
    with_header = Shape(headers=(("h", b"1"),), partition=3, key_delimiter=b":")
    assert not with_header.in_columns
    assert with_header.record(b"k:v") == InputRecord(b"k", b"v", (("h", b"1"),), 3)
    line = b'{"key": "k", "value": "v", "partition": 5, "timestamp": 7}'
    assert Shape(is_json=True).record(line) == InputRecord(b"k", b"v", (), None, 7)
    kept = Shape(is_json=True, keeps_partitions=True)
    assert kept.record(line) == InputRecord(b"k", b"v", (), 5, 7)
    with pytest.raises(BadLine):
        kept.record(b"no json")


@pytest.mark.parametrize(
    ("text", "expected"),
    [(":", b":"), ("\\t", b"\t"), ("\\0", b"\0"), ("--", b"--"), ("é", "é".encode())],
)
def test_delimiters(text: str, expected: bytes) -> None:
    assert parse_delimiter(text) == expected
