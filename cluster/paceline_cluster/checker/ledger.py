"""What is known of the content of one partition, offset by offset, at nine bytes a record.

A slot holds a *code* (the record's stream and counter as one number, 0 when nothing is known) and
flags that say who was told of it. Whole runs are compared and stored at once.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from paceline.values import dataclass

PAGE = 4096
"""Slots a page; pages exist only where something is known, so offsets may begin anywhere."""
_COUNTER_BITS = 40
_EMPTY = array("q", bytes(8 * PAGE))

NOTHING = 0
HIDDEN_CODE = -1
FOREIGN_CODE = -2

ACKED = 1
"""The record was acknowledged with acks=all at this offset."""
READ = 2
"""A reader was given the record at this offset."""


def code_of(stream: int, counter: int) -> int:
    """The code of a counter of a stream (both 0 and up)."""
    return ((stream + 1) << _COUNTER_BITS) + counter


def record_of(code: int) -> tuple[int, int]:
    """(stream, counter) of a positive code."""
    return (code >> _COUNTER_BITS) - 1, code & ((1 << _COUNTER_BITS) - 1)


_WITH_FLAG = {flag: bytes(each | flag for each in range(256)) for flag in (ACKED, READ)}


class Mismatch(NamedTuple):
    """A slot that holds something else than what comes now."""

    offset: int
    known: int
    found: int
    flags: int


@dataclass(slots=True)
class _Page:
    codes: array[int]
    flags: bytearray


class Ledger:
    """The known content of one partition. The first that is told of an offset stays."""

    def __init__(self) -> None:
        self._pages: dict[int, _Page] = {}

    def tell(self, base: int, codes: array[int], flag: int) -> list[Mismatch]:
        """Somebody was told these codes at ``base`` and after it; what contradicts that."""
        found: list[Mismatch] = []
        for page, low, high, start in self._parts(base, len(codes)):
            new = codes[start : start + high - low]
            known = page.codes[low:high]
            if known != new:
                if known == _EMPTY[: high - low]:
                    page.codes[low:high] = new
                else:
                    found += self._merge(page, low, new, base + start)
            _set_flag(page.flags, low, high, flag)
        return found

    def _merge(self, page: _Page, low: int, new: array[int], offset: int) -> list[Mismatch]:
        found = []
        for step, code in enumerate(new):
            known = page.codes[low + step]
            if known == NOTHING:
                page.codes[low + step] = code
            elif known != code:
                found.append(Mismatch(offset + step, known, code, page.flags[low + step]))
        return found

    def compare(self, base: int, codes: array[int]) -> list[Mismatch]:
        """What is known of these offsets and differs from ``codes``."""
        found = []
        for page, low, high, start in self._known_parts(base, len(codes)):
            known, now = page.codes[low:high], codes[start : start + high - low]
            if known != now:
                found += [
                    Mismatch(base + start + step, was, is_now, page.flags[low + step])
                    for step, (was, is_now) in enumerate(zip(known, now, strict=True))
                    if was not in (NOTHING, is_now)
                ]
        return found

    def known(self, start: int, end: int | None) -> Iterator[Mismatch]:
        """All that is known of ``start .. end`` (None: without end), as if nothing were there."""
        for number in sorted(self._pages):
            page = self._pages[number]
            first = number * PAGE
            if first + PAGE <= start or (end is not None and first >= end):
                continue
            if page.codes == _EMPTY:
                continue
            low = max(0, start - first)
            high = PAGE if end is None else min(PAGE, end - first)
            for slot in range(low, high):
                if page.codes[slot] != NOTHING:
                    yield Mismatch(first + slot, page.codes[slot], NOTHING, page.flags[slot])

    def _parts(self, base: int, count: int) -> Iterator[tuple[_Page, int, int, int]]:
        """(page, low slot, high slot, steps after base) of every page touched, made if missing."""
        start = 0
        while start < count:
            number, low = divmod(base + start, PAGE)
            high = min(PAGE, low + count - start)
            page = self._pages.get(number)
            if page is None:
                page = self._pages[number] = _Page(array("q", _EMPTY), bytearray(PAGE))
            yield page, low, high, start
            start += high - low

    def _known_parts(self, base: int, count: int) -> Iterator[tuple[_Page, int, int, int]]:
        start = 0
        while start < count:
            number, low = divmod(base + start, PAGE)
            high = min(PAGE, low + count - start)
            page = self._pages.get(number)
            if page is not None:
                yield page, low, high, start
            start += high - low


def _set_flag(flags: bytearray, low: int, high: int, flag: int) -> None:
    flags[low:high] = flags[low:high].translate(_WITH_FLAG[flag])
