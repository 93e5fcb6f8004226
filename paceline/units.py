"""Times and sizes as people write them, ``7d`` or ``10GiB``: one table for options of commands,
topic settings, settings of nodes and options of Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

SECOND_MS = 1000
TIMES: Mapping[str, int] = {
    "ms": 1,
    "s": SECOND_MS,
    "m": 60 * SECOND_MS,
    "min": 60 * SECOND_MS,
    "h": 3600 * SECOND_MS,
    "d": 86_400 * SECOND_MS,
    "w": 7 * 86_400 * SECOND_MS,
}
"""Unit -> milliseconds. Units are told apart whatever their case."""
SIZES: Mapping[str, int] = {
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{
        unit: 1024**power
        for power, letter in enumerate("kmgt", start=1)
        for unit in (letter, f"{letter}ib")
    },
}
"""Unit -> bytes."""
TIME_UNITS = "ms, s, m, h, d or w"
SIZE_UNITS = "B, KB, MB, GB, TB, KiB, MiB, GiB or TiB"
MILLISECONDS = f"ms, or a number with {TIME_UNITS}: 7d"
SECONDS = f"seconds, or a number with {TIME_UNITS}: 30s"
BYTES = f"bytes, or a number with {SIZE_UNITS}: 10GiB"

_NUMBER = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}) ?([a-zA-Z]*)")


def milliseconds(text: str) -> int:
    """``7d``; a bare number is milliseconds. Raises ValueError saying what is expected."""
    return _whole(text, TIMES, "ms", MILLISECONDS)


def size(text: str) -> int:
    """``10GiB``; a bare number is bytes. Raises ValueError saying what is expected."""
    return _whole(text, SIZES, "bytes", BYTES)


def seconds(text: str) -> float:
    """``1.5h``; a bare number is seconds. Raises ValueError saying what is expected."""
    return float(_number(text, TIMES, SECOND_MS, SECONDS) / SECOND_MS)


def _whole(text: str, units: Mapping[str, int], called: str, expected: str) -> int:
    found = _number(text, units, 1, expected)
    if found != found.to_integral_value():
        raise ValueError(f"is no whole number of {called}")
    return int(found)


def _number(text: str, units: Mapping[str, int], bare: int, expected: str) -> Decimal:
    found = _NUMBER.fullmatch(text.strip())
    factor = None
    if found is not None:
        factor = units.get(found[2].lower()) if found[2] else bare
    if found is None or factor is None:
        raise ValueError(f"expected {expected}")
    return Decimal(found[1]) * factor


_TOLD_TIMES = (
    (86_400_000, "day", "days"),
    (3_600_000, "h", "h"),
    (60_000, "min", "min"),
    (SECOND_MS, "s", "s"),
)
_TOLD_SIZES = tuple((1024**power, f"{letter}iB") for power, letter in enumerate("KMGT", start=1))


def time_text(ms: int) -> str:
    """A time as people read it: ``7 days``, ``1.5 h``, ``250 ms``."""
    for factor, one, several in _TOLD_TIMES:
        if ms >= factor:
            return f"{_told(ms / factor)} {one if ms == factor else several}"
    return f"{ms} ms"


def size_text(count: int) -> str:
    """A size as people read it: ``1 GiB``, ``512 bytes``."""
    for factor, unit in reversed(_TOLD_SIZES):
        if count >= factor:
            return f"{_told(count / factor)} {unit}"
    return f"{count} bytes"


def _told(number: float) -> str:
    return f"{round(number, 1):g}" if number < 1000 else f"{number:.0f}"
