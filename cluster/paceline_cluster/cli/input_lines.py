"""Input of ``produce``: files or standard input as lists of lines, read as they come.

A reader hands out what is there, so that a person or a slow program that writes line by line is
served at once, while files come in large pieces.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from pathlib import Path

import trio

from paceline.types import MAX_RECORD_BYTES
from paceline.values import dataclass
from paceline_cluster.cli.record_text import BadLine

READ_BYTES = 256 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024
STDIN = Path("-")


@dataclass(frozen=True, slots=True)
class Lines:
    """Consecutive lines without their ends; ``first`` is the number of the first one, from 1,
    counted over all inputs."""

    first: int
    lines: list[bytes]


class LineSplitter:
    """Cuts chunks into lines at LF; the last one may lack it. No I/O."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._rest_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completes. Raises BadLine when one grows beyond all limits."""
        head, found, tail = data.partition(b"\n")
        if not found:
            self._keep(data)
            return []
        lines = [b"".join([*self._rest, head])]
        self._rest, self._rest_bytes = [], 0
        *whole, last = tail.split(b"\n")
        lines += whole
        self._keep(last)
        return lines

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        self._rest.append(data)
        self._rest_bytes += len(data)
        if self._rest_bytes > MAX_LINE_BYTES:
            raise BadLine(f"longer than {MAX_LINE_BYTES} bytes")

    def end(self) -> list[bytes]:
        """The last line, if the input did not end with a line end."""
        rest, self._rest, self._rest_bytes = self._rest, [], 0
        return [b"".join(rest)] if rest else []


def _whole(path: Path) -> bytes:
    """What an input holds, and a byte more than a record may have where it is too long."""
    with os.fdopen(os.dup(0), "rb") if path == STDIN else path.open("rb") as file:
        return file.read(MAX_RECORD_BYTES + 1)


async def read_whole(paths: Sequence[Path]) -> AsyncGenerator[Lines, None]:
    """Each input as one "line", whatever bytes it has. Raises OSError, BadLine."""
    for number, path in enumerate(paths, start=1):
        # As in read_lines: standard input may be a terminal.
        data = await trio.to_thread.run_sync(_whole, path, abandon_on_cancel=True)
        if len(data) > MAX_RECORD_BYTES:
            raise BadLine(f"{path}: longer than {MAX_RECORD_BYTES} bytes, as no record may be")
        yield Lines(number, [data])


async def read_lines(paths: Sequence[Path]) -> AsyncGenerator[Lines, None]:
    """All lines of the inputs, in order; ``-`` is standard input. Raises OSError, BadLine."""
    number = 1
    for path in paths:
        splitter = LineSplitter()
        descriptor = os.dup(0) if path == STDIN else os.open(path, os.O_RDONLY)
        try:
            while True:
                # A thread that waits for a terminal must not keep Ctrl-C from ending us.
                read = partial(os.read, descriptor, READ_BYTES)
                data = await trio.to_thread.run_sync(read, abandon_on_cancel=True)
                try:
                    lines = splitter.feed(data) if data else splitter.end()
                except BadLine as error:
                    raise BadLine(f"line {number}: {error}") from None
                if lines:
                    yield Lines(number, lines)
                    number += len(lines)
                if not data:
                    break
        finally:
            os.close(descriptor)
