"""Writes what nodes in this process log to a file, instead of printing it, and keeps the end."""

from __future__ import annotations

from collections import deque
from collections.abc import MutableMapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TextIO

import structlog

LOGGED_IN = "logged_in_node"
"""The variable of a task's context that says which node it is of."""


class LogTail:
    """A context. Where the test's program has configured structlog itself, it stays as it is, and
    nothing is kept."""

    def __init__(self, path: Path, *, lines: int) -> None:
        self._path = path
        self._lines: deque[str] = deque(maxlen=lines)
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        if not structlog.is_configured():
            # By lines: where the process is killed, all that was logged is there.
            self._file = self._path.open("w", encoding="utf-8", buffering=1)
            structlog.configure(
                processors=[
                    structlog.contextvars.merge_contextvars,
                    structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
                    structlog.processors.format_exc_info,
                    partial(self._keep, self._file),
                ]
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is not None:
            structlog.reset_defaults()
            self._file.close()

    def end(self) -> list[str]:
        """The last lines, oldest first, below a line that says where all are."""
        if self._file is None:
            return ["the nodes log as this process has configured structlog to"]
        return [f"the nodes' logs, {self._path}, end:", *self._lines]

    def _keep(
        self, file: TextIO, _logger: Any, method: str, event: MutableMapping[str, Any]
    ) -> NoReturn:
        where = event.pop(LOGGED_IN, None)
        node = "" if where is None else f"node-{where} "
        what = f"{event.pop('timestamp')} {node}{method:7} {event.pop('event')}"
        facts = " ".join(f"{key}={value}" for key, value in event.items())
        line = f"{what} {facts}".rstrip()
        self._lines.append(line)
        file.write(f"{line}\n")
        raise structlog.DropEvent
