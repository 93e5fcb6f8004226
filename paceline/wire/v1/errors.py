"""What a V1 listener answers instead of OK."""

from __future__ import annotations

import enum

from paceline.errors import ErrorCode, PacelineError, RemoteProtocolError


class V1Code(enum.StrEnum):
    """The code field of an ERR reply; the last four are additions (DESIGN 3.3)."""

    BAD_REQUEST = "BAD_REQUEST"
    UNKNOWN_COMMAND = "UNKNOWN_COMMAND"
    REPLICATION_TIMEOUT = "REPLICATION_TIMEOUT"
    NOT_LEADER = "NOT_LEADER"
    GENERATION_MISMATCH = "GENERATION_MISMATCH"
    UNREPRESENTABLE = "UNREPRESENTABLE"
    UNAVAILABLE = "UNAVAILABLE"
    INTERNAL = "INTERNAL"
    NOT_AUTHORIZED = "NOT_AUTHORIZED"


class V1Error(PacelineError):
    """An ERR reply, as an exception: ``reason`` is its code, ``message`` its text.

    SDK runtimes change their endpoint when a message holds a phrase such as "timed out" or
    "connection closed", so no message of ours may (DESIGN 3.2).
    """

    code = ErrorCode.INVALID_REQUEST

    def __init__(self, reason: V1Code, message: str) -> None:
        super().__init__(f"{reason}|{message}")
        self.reason = reason
        self.message = message


class LineTooLong(RemoteProtocolError):
    """A request line exceeds the limit; it is answered once and the connection is closed."""


def bad_request(message: str) -> V1Error:
    return V1Error(V1Code.BAD_REQUEST, message)


LINE_TOO_LONG = "request line too long"
LINE_TOO_SLOW = "request line begun and not ended in time"
EXPECTED_FORMAT = "expected format V1|<correlation_id>|<command>|<args>"
