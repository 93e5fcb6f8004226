"""Keeps the last lines that nodes in this process log, instead of printing them."""

from __future__ import annotations

from collections import deque
from collections.abc import MutableMapping
from types import TracebackType
from typing import Any, NoReturn, Self

import structlog

_KEPT_LINES = 200


class LogTail:
    """A context. Where the test's program has configured structlog itself, it stays as it is, and
    nothing is kept."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._is_ours = False

    def __enter__(self) -> Self:
        if not structlog.is_configured():
            self._is_ours = True
            structlog.configure(
                processors=[
                    structlog.processors.TimeStamper(fmt="%H:%M:%S.%f", utc=False),
                    structlog.processors.format_exc_info,
                    self._keep,
                ]
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_ours:
            structlog.reset_defaults()

    def lines(self) -> list[str]:
        """The last lines, oldest first."""
        return list(self._lines)

    def _keep(self, _logger: Any, method: str, event: MutableMapping[str, Any]) -> NoReturn:
        what = f"{event.pop('timestamp')} {method:7} {event.pop('event')}"
        facts = " ".join(f"{key}={value}" for key, value in event.items())
        self._lines.append(f"{what} {facts}".rstrip())
        raise structlog.DropEvent
