"""What a replicated state machine is, and what it is given. Pure: no clock, no loop, no log.

One partition of an internal topic holds the whole history of one :class:`Machine`: its state is
the fold of the records, on every replica. The replica that leads the partition lets the machine
*lead*: only then does it decide anything, and every decision is a write to its :class:`Journal`,
which appends and folds in one step. Deferred answers are :class:`Deferred`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from paceline.errors import PacelineError

T = TypeVar("T")
Scope = Hashable
"""What one operation looks at and changes, such as a group."""
EVERYTHING = object()
"""The scope of an operation that looks at all of a machine's state and changes nothing."""


class Entry(NamedTuple):
    """A keyed record; a value of None is a tombstone: the key has no value any more."""

    key: bytes
    value: bytes | None


class Journal(Protocol):
    """Where a leading machine writes down what it decided."""

    def write(self, scope: Scope, entries: Sequence[Entry]) -> None:
        """Append ``entries`` as one batch, then fold them into the machine.

        Raises a PacelineError when they cannot be appended; then nothing has changed. Answers
        about ``scope`` are held back until the entries are committed.
        """

    @property
    def led_epoch(self) -> int:
        """The leader epoch in which its machine leads."""

    @property
    def losses(self) -> int:
        """How many elections may have taken back what was committed, as far as this leader's
        metadata say. What is read now may be older than what was told before the last of them."""

    @property
    def serves(self) -> bool:
        """Whether this node may still act as the leader; if not, another one may have begun to."""

    def now(self) -> float:
        """Monotonic seconds, for time-outs."""

    def wall_ms(self) -> int:
        """Wall-clock ms, for what is shown to people and kept for days; it may jump."""


class Machine(Protocol):
    """The state of one partition. All methods are synchronous."""

    def apply(self, entry: Entry) -> None:
        """Fold one record. Raises RemoteProtocolError for one it cannot read."""

    def reset(self) -> None:
        """Forget everything: the log is folded again from its start."""

    def lead(self, journal: Journal, *, log_is_empty: bool) -> None:
        """All records are folded and committed; decide from now on. Raises what ``write`` does:
        then it is asked again."""

    def resign(self, error: PacelineError) -> None:
        """Decide nothing any more; tell everyone who waits ``error``."""

    def next_alarm(self) -> float:
        """When :meth:`on_alarm` wants to be called, inf for never."""

    def on_alarm(self) -> None:
        """Do what is due. Never raises a PacelineError."""


class Deferred(Generic[T]):
    """An answer that comes later, exactly once; who asked may be gone by then."""

    __slots__ = ("_callback", "_value")

    def __init__(self) -> None:
        self._value: T | PacelineError | None = None
        self._callback: Callable[[], None] | None = None

    @property
    def value(self) -> T | PacelineError | None:
        """What was delivered; None before."""
        return self._value

    def deliver(self, value: T | PacelineError) -> None:
        """Answer."""
        assert self._value is None, "an answer is delivered once"
        self._value = value
        if self._callback is not None:
            self._callback()

    def then(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the value is there, which may be at once."""
        if self._value is not None:
            callback()
        else:
            self._callback = callback
