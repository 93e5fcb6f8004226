"""One appender of a connection: which of its bytes are new (DESIGN 3.3, 3.4).

::

    PENDING --ready(level)--> READY --any error of its own--> FAILED
       ^                        |                               |
       +------------------------+---------- SetupAppend --------+

A FAILED appender's blocks are drained: they must still be well formed, but nothing of them is
stored and nothing is replied, because other appenders share the connection and blocks were under
way when the error was sent.
"""

from __future__ import annotations

import enum
from uuid import UUID

from paceline.wire.segment.errors import ReplyCode
from paceline.wire.segment.events import walk_events
from paceline.wire.segment.messages import (
    ErrorMessage,
    InvalidConnectionOffset,
    SegmentMessage,
)

MISALIGNED = "resent data does not align with the stored level"


class AppenderState(enum.Enum):
    """Where an appender is between its SetupAppend and its end."""

    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"


class Refused(Exception):
    """An appender's error: ``reply`` is to be sent, and the appender is FAILED."""

    def __init__(self, reply: SegmentMessage) -> None:
        super().__init__(str(reply))
        self.reply = reply


class Appender:
    """A connection id bound to a segment. Offsets count stored bytes, Event headers included,
    over the whole life of the id."""

    __slots__ = ("connection_id", "next", "segment", "skip", "state")

    def __init__(self, connection_id: UUID, segment: str) -> None:
        self.connection_id = connection_id
        self.segment = segment
        self.state = AppenderState.PENDING
        self.skip = 0
        """Bytes that were stored when the appender was set up: what lies below is a duplicate."""
        self.next: int | None = None
        """Where the next byte goes; None before the first block."""

    def ready(self, level: int) -> None:
        """AppendSetup is being sent with ``level``."""
        assert self.state is AppenderState.PENDING, self.state
        self.state = AppenderState.READY
        self.skip = level
        self.next = None

    def fail(self) -> None:
        """An error reply was, or is being, sent."""
        self.state = AppenderState.FAILED

    def begin(self, offset: int) -> None:
        """A block begins at ``offset``. Raises Refused for a gap."""
        if self.state is AppenderState.FAILED:
            return
        if self.next is None:
            if offset > self.skip:
                raise self._refused(InvalidConnectionOffset(self.connection_id, self.skip))
            self.next = offset
        elif offset != self.next:
            raise self._refused(InvalidConnectionOffset(self.connection_id, self.next))

    def take(self, run: bytes) -> bytes:
        """The part of a run of whole Events that is not stored yet. Raises Refused when what was
        sent again is cut into other Events than what is stored."""
        if self.state is AppenderState.FAILED:
            return b""
        assert self.next is not None, "a run outside a block"
        start = self.next
        self.next = start + len(run)
        if start >= self.skip:
            return run
        if self.next <= self.skip:
            return b""
        for begin, _ in walk_events(run):
            if start + begin == self.skip:
                return run[begin:]
            if start + begin > self.skip:
                break
        raise self._refused(
            ErrorMessage(self.connection_id, self.segment, MISALIGNED, ReplyCode.ILLEGAL_ARGUMENT)
        )

    def _refused(self, reply: SegmentMessage) -> Refused:
        self.fail()
        return Refused(reply)
