"""What a copier was told about each of its transactions: one file, a JSON line an event.

A transaction has a line when it begins and one when its end is known; without the second its
outcome is unknown, as when the copier dies. A number is never used twice, so a copier that starts
again goes on behind the last.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Slices = dict[int, tuple[int, int]]
"""Of the input: partition -> from, to (exclusive)."""


class Told(enum.Enum):
    """How the client said that a transaction ended."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Attempt:
    """One transaction: what it copied, how it ended, and why if not as was wanted."""

    number: int
    slices: Slices
    told: Told = Told.UNKNOWN
    why: str = ""


@dataclass
class Book:
    """A journal as read. ``stops``: why the copier had to begin anew, outside transactions."""

    attempts: dict[int, Attempt] = field(default_factory=dict)
    stops: list[str] = field(default_factory=list)

    def count(self, told: Told) -> int:
        return sum(each.told is told for each in self.attempts.values())

    def take(self, line: dict[str, Any]) -> None:
        if "stopped" in line:
            self.stops.append(line["stopped"])
        elif "told" in line:
            begun = self.attempts[line["attempt"]]
            told = Told(line["told"])
            self.attempts[begun.number] = Attempt(begun.number, begun.slices, told, line["why"])
        else:
            slices = {int(at): (first, end) for at, (first, end) in line["slices"].items()}
            self.attempts[line["attempt"]] = Attempt(line["attempt"], slices)


def read(path: Path) -> Book:
    """The journal so far. Its last line may be torn: its writer died, or writes at this moment."""
    book = Book()
    if path.exists():
        for line in path.read_text(encoding="utf-8").rpartition("\n")[0].splitlines():
            book.take(json.loads(line))
    return book


def together(books: Iterable[Book]) -> Book:
    """Of several copiers, whose numbers differ."""
    whole = Book()
    for each in books:
        whole.attempts |= each.attempts
        whole.stops += each.stops
    return whole


class Journal:
    """The one that a copier writes."""

    def __init__(self, path: Path, first: int = 1) -> None:
        whole = path.read_bytes().rpartition(b"\n") if path.exists() else (b"", b"", b"")
        path.write_bytes(whole[0] + whole[1])  # a killed predecessor may have left a torn line
        self._next = max(read(path).attempts, default=first - 1) + 1
        self._path = path

    def begin(self, slices: Slices) -> int:
        """A transaction begins; its number."""
        number = self._next
        self._next += 1
        self._write({"attempt": number, "slices": slices})
        return number

    def end(self, number: int, told: Told, why: str = "") -> None:
        self._write({"attempt": number, "told": told.value, "why": why})

    def stopped(self, why: str) -> None:
        """The copier begins anew."""
        self._write({"stopped": why})

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
