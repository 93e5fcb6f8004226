"""Every broker error in the Pravega dialect: what its clients know, or an end of the connection."""

from __future__ import annotations

import pytest

from paceline.errors import ErrorCode, error_for
from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.framing import encode
from paceline_node.listeners.segment.pravega_errors import reply_to

NAMED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: w.WrongHost,
    ErrorCode.LEADER_NOT_AVAILABLE: w.WrongHost,
    ErrorCode.FENCED_LEADER_EPOCH: w.WrongHost,
    ErrorCode.UNKNOWN_LEADER_EPOCH: w.WrongHost,
    ErrorCode.LEADER_CHANGED_AFTER_APPEND: w.WrongHost,
    ErrorCode.STORAGE_ERROR: w.WrongHost,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: w.NoSuchSegment,
    ErrorCode.UNKNOWN_TOPIC_ID: w.NoSuchSegment,
    ErrorCode.SEGMENT_SEALED: w.SegmentIsSealed,
    ErrorCode.TOPIC_ALREADY_EXISTS: w.SegmentAlreadyExists,
}
PASSING = {
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CONTROLLER_UNAVAILABLE,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.CONNECTION_LOST,
    ErrorCode.OUT_OF_ORDER_SEQUENCE,
    ErrorCode.THROTTLED,
}
"""Told by no error that the client would take for good: it connects again, and tries again."""


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_every_error_is_told_or_ends_the_connection(code: ErrorCode) -> None:
    reply = reply_to(error_for(code, "why"), 7, "a/b/0", "host:1")
    if code in PASSING:
        assert reply is None
        return
    assert reply is not None
    assert type(reply) is NAMED.get(code, w.ErrorMessage)
    assert encode(reply)
    assert reply.request_id == 7  # type: ignore[attr-defined]
    assert reply.segment == "a/b/0"  # type: ignore[attr-defined]
    if isinstance(reply, w.WrongHost):
        assert reply.correct_host == "host:1"
