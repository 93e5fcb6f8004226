"""Every broker error is a reply of the segment protocol."""

from __future__ import annotations

import pytest

from paceline.errors import ErrorCode, error_for
from paceline.wire.segment import messages as m
from paceline.wire.segment.errors import ReplyCode
from paceline_node.listeners.segment.errors import reply_to

KINDS = {
    m.WrongHost: {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_CHANGED_AFTER_APPEND,
        ErrorCode.STORAGE_ERROR,
    },
    m.NoSuchSegment: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID},
    m.SegmentIsSealed: {ErrorCode.SEGMENT_SEALED},
}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.NONE])
def test_every_error_has_a_reply(code: ErrorCode) -> None:
    reply = reply_to(error_for(code, "why"), "a/b/0", "host:1")
    kind = next((kind for kind, codes in KINDS.items() if code in codes), m.ErrorMessage)
    assert type(reply) is kind
    assert m.encode(reply)
    if isinstance(reply, m.ErrorMessage):
        assert reply.segment == "a/b/0"
        assert reply.message.endswith("why")
        # Only a broken protocol may be told as one: its connection ends.
        assert reply.error_code in set(ReplyCode) - {ReplyCode.PROTOCOL_ERROR}
