"""Places in a partition, as users name them."""

from __future__ import annotations

import enum
from typing import ClassVar

from paceline.errors import ConfigurationError
from paceline.values import dataclass


class _Kind(enum.Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    TAIL = "tail"


@dataclass(frozen=True, slots=True)
class Position:
    """Where to begin or to end reading, in each partition.

    ``Position.EARLIEST``: the log start. ``Position.LATEST``: the high watermark (with
    READ_COMMITTED the last stable offset) at the moment when the leader is asked.
    ``Position.at(n)``: offset n. ``Position.since(ms)``: the first record at or after a time, the
    end if there is none. ``Position.tail(n)``: n offsets before the end.
    """

    kind: _Kind
    value: int = 0

    EARLIEST: ClassVar[Position]
    LATEST: ClassVar[Position]

    @classmethod
    def at(cls, offset: int) -> Position:
        """A given offset; raises ConfigurationError when it is negative."""
        if offset < 0:
            raise ConfigurationError(f"offset {offset} is negative; Position.tail() counts back")
        return cls(_Kind.OFFSET, offset)

    @classmethod
    def since(cls, timestamp_ms: int) -> Position:
        """The first record with this timestamp or a later one."""
        if timestamp_ms < 0:
            raise ConfigurationError(f"timestamp {timestamp_ms} ms is negative")
        return cls(_Kind.TIMESTAMP, timestamp_ms)

    @classmethod
    def tail(cls, count: int) -> Position:
        """``count`` offsets before the end, or the log start if that is nearer."""
        if count < 0:
            raise ConfigurationError(f"tail of {count} records")
        return cls(_Kind.TAIL, count)

    @property
    def offset(self) -> int | None:
        """The offset if it is known without asking."""
        return self.value if self.kind is _Kind.OFFSET else None

    @property
    def timestamp_ms(self) -> int | None:
        return self.value if self.kind is _Kind.TIMESTAMP else None

    @property
    def tail_count(self) -> int | None:
        return self.value if self.kind is _Kind.TAIL else None


Position.EARLIEST = Position(_Kind.EARLIEST)
Position.LATEST = Position(_Kind.LATEST)
