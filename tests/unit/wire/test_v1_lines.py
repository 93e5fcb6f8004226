"""Cutting lines: every split, CR, end of stream, length limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.wire.v1.errors import LineTooLong
from paceline.wire.v1.lines import LineReader

STREAM = b"V1|1|A|x\r\n\nV1|2|B|\xff\r\r\n\r\nlast without end\r"
LINES = [b"V1|1|A|x", b"", b"V1|2|B|\xff\r", b"", b"last without end"]


def read_all(pieces: list[bytes], *, max_line_bytes: int = 100) -> list[bytes]:
    reader = LineReader(max_line_bytes=max_line_bytes)
    lines = []
    for piece in pieces:
        reader.feed(piece)
        while (line := reader.next_line()) is not None:
            lines.append(line)
    if (line := reader.finish()) is not None:
        lines.append(line)
    return lines


def test_split_at_every_byte() -> None:
    for at in range(len(STREAM) + 1):
        assert read_all([STREAM[:at], STREAM[at:]]) == LINES
    assert read_all([STREAM[at : at + 1] for at in range(len(STREAM))]) == LINES


@given(st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"\n", b"")), max_size=8))
def test_lines_come_back(lines: list[bytes]) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    expected = [line.removesuffix(b"\r") for line in lines]
    assert read_all([stream]) == expected


def test_an_ended_stream_has_no_empty_last_line() -> None:
    assert read_all([b"one\n"]) == [b"one"]
    assert read_all([]) == []


def test_lines_are_all_there_before_the_next_feed() -> None:
    reader = LineReader()
    reader.feed(b"a\nb\nc")
    assert [reader.next_line(), reader.next_line(), reader.next_line()] == [b"a", b"b", None]
    reader.feed(b"d\n")
    assert [reader.next_line(), reader.next_line()] == [b"cd", None]


def test_limit_is_exact() -> None:
    assert read_all([b"x" * 10 + b"\n", b"y" * 10], max_line_bytes=10) == [b"x" * 10, b"y" * 10]
    with pytest.raises(LineTooLong, match="limit 10"):
        read_all([b"x" * 11 + b"\n"], max_line_bytes=10)
    with pytest.raises(LineTooLong, match="limit 10"):
        read_all([b"x" * 11], max_line_bytes=10)


def test_a_line_is_too_long_before_it_ends_and_stays_so() -> None:
    reader = LineReader(max_line_bytes=10)
    reader.feed(b"good\n" + b"x" * 11)
    assert reader.next_line() == b"good"
    for _ in range(2):
        with pytest.raises(LineTooLong):
            reader.next_line()
    reader.feed(b"\nnext\n")
    with pytest.raises(LineTooLong):
        reader.next_line()


def test_small_pieces_are_searched_once() -> None:
    """A byte at a time must not cost quadratic time: the search goes on where it stopped."""

    class Counting(bytearray):
        searched = 0

        def find(self, wanted: bytes, start: int = 0) -> int:  # type: ignore[override]
            Counting.searched += len(self) - start
            return super().find(wanted, start)

    reader = LineReader()
    reader._buffer = Counting()
    for _ in range(5000):
        reader.feed(b"x")
        assert reader.next_line() is None
    assert Counting.searched == 5000
