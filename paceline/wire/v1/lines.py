"""Cutting a byte stream into request lines.

A line ends at LF; one CR before it is dropped. At the end of the stream a remainder without LF is
a line too (DESIGN 1.1).
"""

from __future__ import annotations

from paceline.wire.v1.errors import LineTooLong

DEFAULT_MAX_LINE_BYTES = 1024 * 1024


class LineReader:
    """Feed bytes in, take lines out. Linear in its input, however small the pieces are.

    Holds at most one unfinished line of ``max_line_bytes`` (CR counted, LF not) plus what was fed
    since; a caller that takes all lines before it feeds again bounds memory by its read size.
    """

    def __init__(self, *, max_line_bytes: int = DEFAULT_MAX_LINE_BYTES) -> None:
        self._max = max_line_bytes
        self._buffer = bytearray()
        self._start = 0
        self._searched = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Add received bytes."""
        if self._start:
            del self._buffer[: self._start]
            self._searched -= self._start
            self._start = 0
        self._buffer += data

    @property
    def held_bytes(self) -> int:
        """What was fed and is not cut into lines."""
        return len(self._buffer) - self._start

    def next_line(self) -> bytes | None:
        """The next whole line without its end, or None until more bytes are fed.

        Raises LineTooLong once the line under way exceeds the limit, and again at every further
        call: there is no way on from there.
        """
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            self._check(len(self._buffer) - self._start)
            return None
        self._check(end - self._start)
        line = self._cut(end)
        self._start = self._searched = end + 1
        return line

    def finish(self) -> bytes | None:
        """The unterminated remainder at the end of the stream, or None when there is none.

        All whole lines must have been taken before. Raises LineTooLong.
        """
        end = len(self._buffer)
        if end == self._start:
            return None
        self._check(end - self._start)
        line = self._cut(end)
        self._start = self._searched = end
        return line

    def _cut(self, end: int) -> bytes:
        if end > self._start and self._buffer[end - 1] == 0x0D:
            end -= 1
        return bytes(self._buffer[self._start : end])

    def _check(self, size: int) -> None:
        if size > self._max:
            raise LineTooLong(f"line of at least {size} bytes, limit {self._max}")
