"""Writes the history of a run while it goes on."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trio

from paceline_cluster.checker import events
from paceline_cluster.checker.events import Event
from paceline_cluster.checker.history import VERSION, HistoryWriter


class Recorder:
    """One history file; a context. Numbers streams and faults, and stamps every event."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self._file = path.open("w", encoding="utf-8")
        self._writer = HistoryWriter(self._file)
        self._began = trio.current_time()
        self._streams = 0
        self._faults = 0
        self._ops = 0
        self.acknowledged = 0
        self.say(events.Begin(0.0, VERSION, facts))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    @property
    def t(self) -> float:
        """Seconds since the history began."""
        return trio.current_time() - self._began

    def say(self, event: Event) -> None:
        """Append an event; a write to the file's buffer."""
        if isinstance(event, events.Ok):
            self.acknowledged += event.count
        self._writer.write(event)

    def open_stream(
        self, producer: str, at: str, *, acks: str, idempotent: bool
    ) -> tuple[int, str]:
        """A new stream; its number and key."""
        number = self._streams
        self._streams += 1
        key = f"{producer}.{number}"
        self.say(events.Stream(self.t, number, producer, key, at, acks, idempotent, ordered=True))
        return number, key

    def next_op(self) -> int:
        """A number for a question to a group."""
        self._ops += 1
        return self._ops

    def fault(self, kind: str, target: str, nodes: list[int], moves: list[str]) -> int:
        """A fault begins; its number."""
        number = self._faults
        self._faults += 1
        self.say(events.Fault(self.t, number, kind, target, tuple(nodes), tuple(moves)))
        return number
