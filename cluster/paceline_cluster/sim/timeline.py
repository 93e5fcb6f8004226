"""What happened, in order, for people: faults, what nodes logged, violations."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import trio

from paceline_cluster.sim.loop import PROCESS

_KEPT = 20_000
_BORING = frozenset({"component", "event", "node", "exc_info"})


class Timeline:
    """The last lines of a run, each with its virtual time."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT)

    def note(self, text: str) -> None:
        """A line of the simulator's own."""
        self._lines.append(f"{trio.current_time():9.4f}  {text}")

    def lines(self, last: int | None = None) -> list[str]:
        """All lines that were kept, or the ``last`` ones."""
        kept = list(self._lines)
        return kept if last is None else kept[-last:]

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Take what nodes log, instead of writing it to standard error. A broken invariant that a
        node contained and went on from ends the run."""
        before = structlog.get_config()
        structlog.configure(
            processors=[self._take],
            wrapper_class=structlog.BoundLogger,
            cache_logger_on_first_use=False,
        )
        try:
            yield
        finally:
            structlog.configure(**before)

    def _take(
        self, logger: object, method: str, event: structlog.typing.EventDict
    ) -> structlog.typing.EventDict:
        if method != "debug":
            process = PROCESS.get(None)
            who = "   " if process is None else process.name
            facts = " ".join(f"{k}={v}" for k, v in event.items() if k not in _BORING)
            error = event.get("exc_info")
            cause = f" {error!r}" if isinstance(error, BaseException) else ""
            self.note(f"    {who} {event.get('event')} {facts}{cause}")
            if isinstance(error, BaseException) and _is_broken_invariant(error):
                raise error
        raise structlog.DropEvent


def _is_broken_invariant(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.subgroup(AssertionError) is not None
    return isinstance(error, AssertionError)
