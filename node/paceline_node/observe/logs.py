"""How log events are written: one line each on standard error.

structlog keeps this configuration for the process; components get loggers with
``structlog.get_logger(component=...)`` when they are made, never at import. An event is a fixed
lower-case phrase, its facts are keys. structlog's async methods do not work under trio.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TextIO, cast

import structlog

_SEVERITY = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}


class LogThreshold:
    """The least severity that is written; may be changed while the process runs, which loggers
    that structlog filters by itself cannot follow."""

    def __init__(self, level: str) -> None:
        self._least = _SEVERITY[level]

    def set(self, level: str) -> None:
        """Write events of at least ``level`` from now on."""
        self._least = _SEVERITY[level]

    def __call__(
        self, logger: object, method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        """Let an event pass, as a processor of structlog."""
        if _SEVERITY[method] < self._least:
            raise structlog.DropEvent
        return event


class Descriptor:
    """Takes lines for a file or pipe that may be full, or gone. A line that cannot be written is
    dropped, for no event is worth the process; the next one that can be says how many were
    (``lines_dropped``). Nothing is buffered, so that nothing is left to fail later."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._dropped = 0

    def write(self, text: str) -> None:
        """Write all of it, or drop it."""
        data = memoryview(text.encode(errors="backslashreplace"))
        try:
            while data:
                data = data[os.write(self.number, data) :]
        except OSError:
            self._dropped += 1
        else:
            self._dropped = 0

    def flush(self) -> None:
        """Nothing is held back."""

    def note(
        self, logger: object, method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        """Say in an event what was dropped before it, as a processor of structlog."""
        if self._dropped:
            event["lines_dropped"] = self._dropped
        return event


def configure_logs(*, level: str, format: str, stream: TextIO | None = None) -> LogThreshold:  # noqa: A002  the setting's name
    """Write events of at least ``level`` (debug, info, warning, error) in ``format``: console for
    people, json with one object a line. Call it once, at start."""
    threshold = LogThreshold(level)
    lines = Descriptor((stream or sys.stderr).fileno())
    renderer: structlog.typing.Processor
    errors: list[structlog.typing.Processor]
    if format == "json":
        errors = [structlog.processors.dict_tracebacks]
        renderer = structlog.processors.JSONRenderer(default=str)
    else:
        errors = []
        renderer = structlog.dev.ConsoleRenderer(
            colors=os.isatty(lines.number), exception_formatter=structlog.dev.plain_traceback
        )
    structlog.configure(
        processors=[
            threshold,
            lines.note,
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *errors,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        logger_factory=structlog.WriteLoggerFactory(cast(TextIO, lines)),
        cache_logger_on_first_use=True,
    )
    return threshold
