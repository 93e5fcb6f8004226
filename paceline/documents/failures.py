"""The one document of an error, from commands and pages alike."""

from __future__ import annotations

from typing import Any

from paceline.error_codes import ErrorCode

_LOOK = "'paceline health' says what is wrong, and what to do"
_TOO_FEW = (
    "'paceline health' names the nodes that are missing, 'paceline topic describe NAME' shows the "
    "replicas in sync (isr) of each partition"
)
_HINTS = {
    **dict.fromkeys(
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), _TOO_FEW
    ),
    **dict.fromkeys(
        (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.LEADER_CHANGED_AFTER_APPEND,
            ErrorCode.NOT_CONTROLLER,
            ErrorCode.CONTROLLER_UNAVAILABLE,
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.REQUEST_TIMED_OUT,
        ),
        _LOOK,
    ),
    ErrorCode.STORAGE_FULL: (
        "'paceline topic sizes' shows what uses the disks; shorter retention or 'paceline topic "
        "trim NAME' frees some"
    ),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "'paceline topic list' shows which there are, 'paceline topic describe NAME' the partitions"
    ),
    ErrorCode.INVALID_CONFIG: "'paceline topic settings' shows which there are, and their bounds",
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        "each replica lies on another node: 'paceline status' shows how many there are, "
        "--replication-factor asks for fewer replicas"
    ),
    ErrorCode.INVALID_TOPIC: "choose another name",
    ErrorCode.GROUP_ID_NOT_FOUND: "'paceline group list' shows which groups there are",
    **dict.fromkeys(
        (ErrorCode.NON_EMPTY_GROUP, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        "end its members first; 'paceline group describe NAME' shows them, and "
        "'paceline group evict NAME MEMBER' takes out one that hangs",
    ),
    ErrorCode.USER_NOT_FOUND: "'paceline user list' shows which users there are",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "'paceline transaction list' shows which there are",
}


def failure_document(code: str, message: str, hint: str = "") -> dict[str, Any]:
    """``code``: the name of the broker's error, or of the trouble where it is none of its own;
    ``hint``: what to do next, null where there is nothing to say."""
    return {"error": {"code": code, "message": message, "hint": hint or None}}


def hint_for(code: ErrorCode) -> str:
    """What to do about an error of the broker; empty where its message says all there is."""
    return _HINTS.get(code, "")
