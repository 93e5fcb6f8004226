"""Every broker error as a reply of the segment protocol (DESIGN 1.1)."""

from __future__ import annotations

from uuid import UUID

from paceline.errors import ErrorCode, PacelineError
from paceline.wire.segment.errors import ReplyCode
from paceline.wire.segment.messages import (
    NO_ID,
    ErrorMessage,
    NoSuchSegment,
    SegmentIsSealed,
    SegmentMessage,
    WrongHost,
)

MOVED = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_CHANGED_AFTER_APPEND,
        ErrorCode.STORAGE_ERROR,
    )
)
"""Another node leads, or will: nobody's fault, ask there."""
GONE = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
OUT_OF_SYNC = frozenset(
    (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
NOT_NOW = frozenset((ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.STORAGE_FULL, ErrorCode.THROTTLED))
"""Nothing was appended, and trying again soon may help."""

_CODES: dict[ErrorCode, ReplyCode] = {
    **dict.fromkeys(OUT_OF_SYNC, ReplyCode.NOT_ENOUGH_REPLICAS),
    ErrorCode.OUT_OF_ORDER_SEQUENCE: ReplyCode.FENCED,
    ErrorCode.OFFSET_OUT_OF_RANGE: ReplyCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.CONTROLLER_UNAVAILABLE: ReplyCode.TIMEOUT,
    ErrorCode.NOT_CONTROLLER: ReplyCode.TIMEOUT,
    ErrorCode.CONNECTION_LOST: ReplyCode.TIMEOUT,
    ErrorCode.STORAGE_FULL: ReplyCode.LIMIT_EXCEEDED,
    ErrorCode.THROTTLED: ReplyCode.LIMIT_EXCEEDED,
    ErrorCode.MESSAGE_TOO_LARGE: ReplyCode.LIMIT_EXCEEDED,
    ErrorCode.INVALID_TOPIC: ReplyCode.INVALID_NAME,
    ErrorCode.AUTHORIZATION_FAILED: ReplyCode.UNSPECIFIED,
    ErrorCode.INVALID_PARTITIONS: ReplyCode.ILLEGAL_ARGUMENT,
    ErrorCode.INVALID_REQUEST: ReplyCode.ILLEGAL_ARGUMENT,
    ErrorCode.POLICY_VIOLATION: ReplyCode.ILLEGAL_ARGUMENT,
}


def reply_to(
    error: PacelineError, segment: str, correct_host: str, connection_id: UUID = NO_ID
) -> SegmentMessage:
    """What the client is told. ``correct_host``: where the leader is, if the error is that."""
    code = error.code
    if code in MOVED:
        return WrongHost(segment, correct_host)
    if code in GONE:
        return NoSuchSegment(segment)
    if code is ErrorCode.SEGMENT_SEALED:
        return SegmentIsSealed(segment)
    return ErrorMessage(connection_id, segment, str(error), reply_code(code))


def reply_code(code: ErrorCode) -> ReplyCode:
    """The code of an ErrorMessage, in both dialects."""
    return _CODES.get(code, ReplyCode.INTERNAL)
