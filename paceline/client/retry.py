"""When to try again, and how long to wait before it."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from paceline.errors import ConnectionLost, Outcome, PacelineError

T = TypeVar("T")


class Backoff:
    """Growing pauses with jitter: half to all of ``base * 2**attempt``, at most ``cap``."""

    def __init__(self, base_s: float, cap_s: float, rng: random.Random) -> None:
        self._base_s = base_s
        self._cap_s = cap_s
        self._rng = rng

    def pause_s(self, attempt: int) -> float:
        """Seconds to wait after the ``attempt``-th failure in a row, counted from 0."""
        full = min(self._cap_s, self._base_s * float(1 << min(attempt, 30)))
        return full * (0.5 + self._rng.random() / 2)


def outcome_of(error: PacelineError) -> Outcome:
    """What ``error`` says about the request: surely not carried out, or unknown (DESIGN 1.1)."""
    if isinstance(error, ConnectionLost) and not error.was_sent:
        return Outcome.DEFINITE
    return error.outcome


def nothing_sent(error: PacelineError, write: str = "") -> PacelineError:
    """The same failure (others may wait for that one) of a write of which no byte has gone to any
    node: its outcome is definite. ``write`` names it."""
    told = type(error)(f"{write}: nothing was sent: {error}" if write else str(error))
    told.outcome = Outcome.DEFINITE
    if isinstance(told, ConnectionLost):
        told.was_sent = False
    return told


def may_repeat(error: PacelineError) -> bool:
    """Whether a request without effect, or whose repetition does no harm, is worth repeating."""
    return error.retriable


def may_repeat_once_only(error: PacelineError) -> bool:
    """Whether a request that must not happen twice may be repeated after ``error``."""
    return error.retriable and outcome_of(error) is Outcome.DEFINITE


async def retrying(
    attempt: Callable[[], Awaitable[T]],
    *,
    timeout_s: float,
    backoff: Backoff,
    may_retry: Callable[[PacelineError], bool] = may_repeat,
) -> T:
    """Call ``attempt`` until it returns, fails for good, or ``timeout_s`` is over.

    At the end of the time the last error is raised. ``attempt`` bounds itself: it is never
    cancelled here, so its own deadline decides how far the end may be passed.
    """
    deadline = trio.current_time() + timeout_s
    failures = 0
    while True:
        try:
            return await attempt()
        except PacelineError as error:
            pause_s = backoff.pause_s(failures)
            if not may_retry(error) or trio.current_time() + pause_s >= deadline:
                raise
        failures += 1
        await trio.sleep(pause_s)
