"""What can be wrong with a segment connection: protocol errors, and codes of error replies.

Rules: DESIGN 4. A protocol error ends its connection; its text is exact, because clients
and tests compare it. Errors of one appender or request are messages (``messages.py``) and end
nothing else.
"""

from __future__ import annotations

import enum

from paceline.errors import RemoteProtocolError


class Fault(enum.Enum):
    """A protocol error: its text, ``{type}`` standing for the offending message's type."""

    E1 = "unknown message type {type}"
    E2 = "message type {type} not valid in this direction"
    E3 = "message too large"
    E4 = "message too short"
    E5 = "invalid modified UTF-8"
    E10 = "invalid partial message"
    E11 = "partial message already open"
    E12 = "no partial message open"
    E13 = "partial message does not form one message"
    E14 = "nested partial message"
    E15 = "partial message must be an event in an append block"
    E20 = "append block before SetupAppend"
    E21 = "append block overrun"
    E22 = "block length mismatch"
    E23 = "message type {type} inside an append block"
    E24 = "message type {type} before the partial message is complete"
    E25 = "event outside an append block"
    E26 = "end of append block without begin"
    E27 = "end of append block for another connection id"
    E28 = "negative offset or length"


class SegmentProtocolError(RemoteProtocolError):
    """The other side broke a rule of the protocol; nothing after the bad message is handled."""

    def __init__(self, fault: Fault, message_type: int = 0) -> None:
        super().__init__(fault.value.format(type=message_type))
        self.fault = fault


class ReplyCode(enum.IntEnum):
    """Codes of ErrorMessage replies; the first two are Pravega's, the others ours."""

    UNSPECIFIED = -1
    ILLEGAL_ARGUMENT = 0
    PROTOCOL_ERROR = 1
    OFFSET_OUT_OF_RANGE = 2
    NOT_ENOUGH_REPLICAS = 3
    FENCED = 4
    TIMEOUT = 5
    LIMIT_EXCEEDED = 6
    INVALID_NAME = 7
    INTERNAL = 8
