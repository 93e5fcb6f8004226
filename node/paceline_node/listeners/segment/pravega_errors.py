"""Broker errors as replies of the Pravega dialect.

Real clients know few of them. An error that they do not know, where they would take it for a
failure for good, is none of them: the connection is closed then, and they try again elsewhere.
"""

from __future__ import annotations

from paceline.errors import ErrorCode, PacelineError
from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.framing import SegmentMessage
from paceline_node.listeners.segment.errors import GONE, MOVED, reply_code

_PASSING = frozenset(
    (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CONTROLLER_UNAVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONNECTION_LOST,
        ErrorCode.OUT_OF_ORDER_SEQUENCE,
        ErrorCode.THROTTLED,
    )
)


def reply_to(
    error: PacelineError, request_id: int, segment: str, correct_host: str
) -> SegmentMessage | None:
    """What the client is told; None: nothing, close the connection."""
    code = error.code
    if code in MOVED:
        return w.WrongHost(request_id, segment, correct_host)
    if code in GONE:
        return w.NoSuchSegment(request_id, segment)
    if code is ErrorCode.SEGMENT_SEALED:
        return w.SegmentIsSealed(request_id, segment)
    if code is ErrorCode.TOPIC_ALREADY_EXISTS:
        return w.SegmentAlreadyExists(request_id, segment)
    if code in _PASSING:
        return None
    return w.ErrorMessage(request_id, segment, str(error), reply_code(code))
