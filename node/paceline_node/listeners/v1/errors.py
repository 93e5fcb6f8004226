"""How broker errors look in V1, whose five codes are few (DESIGN 1.2).

The rule: NOT_LEADER and UNAVAILABLE say that nothing was done; every unknown outcome is a
REPLICATION_TIMEOUT whose text says so; a storage failure is INTERNAL, never OK.
"""

from __future__ import annotations

from paceline.errors import ErrorCode, Outcome, PacelineError
from paceline.wire.v1.errors import V1Code, V1Error

NO_CONTROLLER = "no controller answered within the wait"

_WRONG_REQUEST = frozenset(
    {
        ErrorCode.INVALID_TOPIC,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_RECORD,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.BROKER_NOT_REGISTERED,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
)
_MISMATCHES = {
    ErrorCode.GROUP_ID_NOT_FOUND: "group not found",
    ErrorCode.ILLEGAL_GENERATION: "stale generation",
    ErrorCode.UNKNOWN_MEMBER_ID: "unknown member",
    ErrorCode.PARTITION_NOT_OWNED: "partition not assigned to member",
}
_STORAGE = frozenset({ErrorCode.STORAGE_ERROR, ErrorCode.STORAGE_FULL, ErrorCode.CORRUPT_MESSAGE})
_NOBODY_THERE = frozenset({ErrorCode.CONTROLLER_UNAVAILABLE, ErrorCode.NOT_CONTROLLER})


def acks_timeout() -> V1Error:
    """Not all replicas have acknowledged a write in time."""
    return V1Error(V1Code.REPLICATION_TIMEOUT, "acks=all timeout")


def outcome_unknown() -> V1Error:
    """It may or may not have been done."""
    return V1Error(V1Code.REPLICATION_TIMEOUT, "outcome unknown")


def no_leader_here() -> V1Error:
    """Another node leads, or none does."""
    return V1Error(V1Code.NOT_LEADER, "partition leader unavailable on this broker")


def unreachable(topic: str, partition: int) -> V1Error:
    """The refusal of a read that no node can serve now."""
    text = f"no replica of {topic}/{partition} can be reached"
    return V1Error(V1Code.UNAVAILABLE, text)


def as_v1(error: PacelineError) -> V1Error:
    """The ERR reply for any broker error; total, so that nothing leaves a request unanswered."""
    if isinstance(error, V1Error):
        return error
    if error.code is ErrorCode.NOT_A_REPLICA:
        return V1Error(V1Code.BAD_REQUEST, "not a replica")
    if error.code in _MISMATCHES:
        return V1Error(V1Code.GENERATION_MISMATCH, _MISMATCHES[error.code])
    text = str(error)
    if error.code in _WRONG_REQUEST:
        return V1Error(V1Code.BAD_REQUEST, text)
    if error.code in _STORAGE:
        return V1Error(V1Code.INTERNAL, text)
    if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        return no_leader_here()
    if error.code is ErrorCode.AUTHORIZATION_FAILED:
        return V1Error(V1Code.NOT_AUTHORIZED, text)
    if error.code in _NOBODY_THERE:
        return V1Error(V1Code.UNAVAILABLE, NO_CONTROLLER)
    if error.outcome is Outcome.UNKNOWN:
        return outcome_unknown()
    if error.retriable:
        return V1Error(V1Code.UNAVAILABLE, text)
    return V1Error(V1Code.INTERNAL, text)
