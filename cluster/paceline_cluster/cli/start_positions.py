"""Places in a topic and times, as people write them."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

from paceline import units
from paceline.client import Position

TIMES = "a time such as 2026-01-31T12:00:00Z, or -2h (also s, m, d, w) for two hours ago"
FORMS = f"start, end, an offset, -N (the last N of each partition), @MS, {TIMES}"

_AGO = re.compile(r"-([0-9.]+ ?[a-zA-Z]+)")


def parse_place(text: str) -> Position:
    """Read ``--from``. A time without a zone is UTC. Raises ValueError naming the forms."""
    if text == "start":
        return Position.EARLIEST
    if text == "end":
        return Position.LATEST
    if _is_number(text):
        return Position.at(int(text))
    if text.startswith("-") and _is_number(text[1:]):
        return Position.tail(int(text[1:]))
    moment = text.removeprefix("@")
    if _is_number(moment):
        return Position.since(int(moment))
    try:
        return Position.since(max(0, _milliseconds(moment)))
    except ValueError:
        raise ValueError(f"{text!r} is no place in a topic: give {FORMS}") from None


def parse_time(text: str) -> int:
    """Milliseconds, or a time as :func:`parse_place` takes it, none before 1970. Raises
    ValueError."""
    if _is_number(text):
        return int(text)
    try:
        when = _milliseconds(text)
    except ValueError:
        when = -1
    if when < 0:
        raise ValueError(f"{text!r} is no time: give ms, {TIMES}")
    return when


def _milliseconds(text: str) -> int:
    if ago := _AGO.fullmatch(text):
        return int(time.time() * 1000) - units.milliseconds(ago[1])
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return int(when.timestamp() * 1000)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
