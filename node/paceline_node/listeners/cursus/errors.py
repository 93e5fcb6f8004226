"""How broker errors look in Cursus (DESIGN 1.2, 5.2)."""

from __future__ import annotations

from paceline.errors import ErrorCode, Outcome, PacelineError
from paceline.wire.cursus.errors import CursusError, quoted
from paceline_node.sequence_numbers import SequenceGap, StaleProducerEpoch

_WORDS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "topic_not_found",
    ErrorCode.INVALID_TOPIC: "invalid_topic_name",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "leader_not_available",
    ErrorCode.LEADER_NOT_AVAILABLE: "leader_not_available",
    ErrorCode.OFFSET_NOT_AVAILABLE: "leader_not_available",
    ErrorCode.NOT_ENOUGH_REPLICAS: "not_enough_replicas",
    ErrorCode.CONTROLLER_UNAVAILABLE: "no_raft_leader",
    ErrorCode.NOT_CONTROLLER: "no_raft_leader",
    ErrorCode.THROTTLED: "throttled",
    ErrorCode.STORAGE_FULL: "storage_full",
    ErrorCode.MESSAGE_TOO_LARGE: "invalid_message_size",
    ErrorCode.INVALID_RECORD: "unreadable_record",
    ErrorCode.CORRUPT_MESSAGE: "unreadable_record",
    ErrorCode.POLICY_VIOLATION: "unsupported_topic_policy",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "leader_election_rejected",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "leader_election_rejected",
    ErrorCode.ELECTION_NOT_NEEDED: "leader_election_rejected",
}
_READING = frozenset({"CONSUME", "STREAM", "READ_STREAM", "READ_SNAPSHOT", "STREAM_VERSION"})
_WRITING = frozenset({"PUBLISH", "BATCH", "APPEND_STREAM", "SAVE_SNAPSHOT", "TXN_PUBLISH"})
_PERMISSIONS = {
    "CREATE": "admin",
    "DELETE": "admin",
    "LIST_CLUSTER": "admin",
    "CLUSTER_STATUS": "admin",
    "ELECT_LEADER": "admin",
    "LIST": "topic.read",
    "DESCRIBE": "topic.read",
    "METADATA": "topic.read",
    "LIST_OFFSETS": "topic.read",
    "INIT_PRODUCER_ID": "transaction",
    "BEGIN_TXN": "transaction",
    "SEND_OFFSETS_TO_TXN": "transaction",
    "END_TXN": "transaction",
    "TXN_STATUS": "transaction",
}


def as_cursus(error: PacelineError, word: str, topic: str = "") -> CursusError:
    """The refusal for any broker error that command ``word`` met; total, so that nothing leaves a
    request unanswered."""
    if isinstance(error, CursusError):
        return error
    if isinstance(error, StaleProducerEpoch):
        number = error.number
        return CursusError(
            "stale_producer_epoch",
            f"producer={number.producer} current={error.current} got={number.epoch}",
        )
    if isinstance(error, SequenceGap):
        number = error.number
        return CursusError(
            "idempotency_gap",
            f"producer={number.producer} expected={error.expected} got={number.sequence}",
        )
    if error.code is ErrorCode.AUTHORIZATION_FAILED:
        return _unauthorized(word, topic)
    known = _WORDS.get(error.code)
    if known is None:
        known = "request_timed_out" if error.outcome is Outcome.UNKNOWN else "broker_error"
    return CursusError(known, f"reason={quoted(str(error))}")


def _unauthorized(word: str, topic: str) -> CursusError:
    if word in _READING or word in _WRITING:
        operation = "write" if word in _WRITING else "read"
        return CursusError("NOT_AUTHORIZED_FOR_TOPIC", f"operation={operation} topic={topic}")
    permission = _PERMISSIONS.get(word, "group")
    return CursusError("NOT_AUTHORIZED_FOR_OPERATION", f"command={word} permission={permission}")
