"""A history as JSON lines.

    {"event":"begin","t":0.0,"version":1,"facts":{"seed":7}}
    {"event":"stream","t":0.1,"stream":0,"producer":"w0","key":"w0.a","at":"orders/2", ...}
    {"event":"invoke","t":0.2,"stream":0,"first":0,"count":50}
    {"event":"ok","t":0.3,"stream":0,"first":0,"count":50,"base":100,"epoch":3}
    {"event":"read","t":0.4,"reader":"r0","at":"orders/2","base":100,"epoch":3,"runs":[[0,0,50]]}

``event`` is the class of ``events.py`` in snake case; the other keys are its fields. A last line
that was cut off by a kill is passed over; anything else that does not fit is an error that names
its line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO, get_args

from paceline_cluster.checker import events
from paceline_cluster.checker.events import Begin, Event
from paceline_cluster.errors import BadInput

VERSION = 1
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_TUPLES = frozenset({"runs", "nodes", "moves"})


def _name(kind: type[Any]) -> str:
    return _CAPITAL.sub("_", kind.__name__).lower()


_KINDS: dict[str, type[Any]] = {_name(kind): kind for kind in get_args(Event)}
_FIELDS = {name: events.field_names(kind) for name, kind in _KINDS.items()}
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def to_line(event: Event) -> str:
    """One line, without its end."""
    name = _name(type(event))
    data: dict[str, Any] = {"event": name}
    for field in _FIELDS[name]:
        value = getattr(event, field)
        data[field] = round(value, 6) if field == "t" else value
    return _encode(data)


def from_line(line: str) -> Event:
    """The event of a line. Raises ValueError saying what does not fit."""
    data = json.loads(line)
    if not isinstance(data, dict):
        raise ValueError(f"expected a JSON object, found {type(data).__name__}")
    name = data.pop("event", None)
    kind = _KINDS.get(name)
    if kind is None:
        raise ValueError(f"unknown event {name!r}; known are {', '.join(_KINDS)}")
    for field in _TUPLES & data.keys():
        data[field] = tuple(tuple(item) if isinstance(item, list) else item for item in data[field])
    try:
        event: Event = kind(**data)
    except TypeError as error:
        raise ValueError(f"event {name}: {error}") from None
    if isinstance(event, Begin) and event.version != VERSION:
        raise ValueError(f"history version {event.version}, expected {VERSION}")
    return event


class HistoryWriter:
    """Appends events to an open text file, a line each, flushed by :meth:`flush` or when the
    file's own buffer is full. Who promises something on the strength of the file flushes first."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, event: Event) -> None:
        self._file.write(to_line(event) + "\n")

    def flush(self) -> None:
        self._file.flush()


def read_lines(lines: Iterable[str], name: str) -> Iterator[Event]:
    """The events of a history's lines. Raises BadInput naming the line."""
    for number, line in enumerate(lines, start=1):
        if not line.endswith("\n"):
            return
        try:
            yield from_line(line)
        except ValueError as error:
            raise BadInput(f"{name}, line {number}: {error}") from None


def read_history(path: Path) -> Iterator[Event]:
    """The events of a history's file, one at a time. Raises BadInput naming file and line."""
    with path.open(encoding="utf-8") as file:
        yield from read_lines(file, str(path))
