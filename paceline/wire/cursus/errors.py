"""Refusals in Cursus's words, and the class that clients may ask to be told with them.

::

    ERROR: <code> [class=<class> retryable=<true|false>] [k=v ...]

The class stands there once a connection has negotiated ``structured_errors_v1`` (DESIGN
4.3). Which broker error becomes which code is the listener's table, not this one.
"""

from __future__ import annotations

from paceline.errors import PacelineError

CODES = {
    "routing": ("NOT_COORDINATOR", "NOT_LEADER", "NOT_PARTITION_LEADER"),
    "availability": (
        "coordinator_not_available",
        "cluster_not_available",
        "no_raft_leader",
        "leader_not_found",
        "leader_not_available",
        "offset_manager_not_available",
        "transaction_commit_failed",
        "transaction_sync_failed",
        "request_cancelled",
        "request_timed_out",
        "not_enough_replicas",
        "storage_full",
        "throttled",
    ),
    "fencing": (
        "GEN_MISMATCH",
        "NOT_OWNER",
        "STALE_LEADER_EPOCH",
        "member_not_found",
        "producer_fenced",
        "stale_producer_epoch",
        "idempotency_gap",
    ),
    "conflict": (
        "OFFSET_OUT_OF_RANGE",
        "offset_regression",
        "version_conflict",
        "snapshot_version_exceeds_stream",
        "leader_election_rejected",
        "producer_reinitialization_required",
        "topic_not_assigned_to_group",
        "transaction_aborted",
        "transaction_already_committed",
        "transaction_not_abortable",
        "transaction_not_committing",
    ),
    "authorization": (
        "authentication_required",
        "authentication_failed",
        "NOT_AUTHORIZED_FOR_OPERATION",
        "NOT_AUTHORIZED_FOR_TOPIC",
        "internal_command_unauthorized",
        "internal_topic_write_forbidden",
        "transaction_metadata_forbidden",
    ),
    "not_found": (
        "topic_not_found",
        "partition_not_found",
        "group_not_found",
        "transaction_not_found",
    ),
    "validation": (
        "unknown_command",
        "decode_failed",
        "batch_decode_failed",
        "malformed_input",
        "duplicate_partition",
        "no_valid_offsets",
        "event_sourcing_not_enabled",
        "unsupported_topic_policy",
        "UNSUPPORTED_FEATURE",
        "UNSUPPORTED_PROTOCOL_VERSION",
        "distribution_required",
        "distribution_not_enabled",
    ),
}
"""Class -> its code words; ``class_of`` has a rule for those that no class lists."""
_CLASS_OF = {code: name for name, codes in CODES.items() for code in codes}
_VALIDATION_PREFIXES = ("missing_", "invalid_", "empty_")
RETRYABLE = frozenset({"routing", "availability"})
"""Classes of errors after which the same command may succeed."""

ERROR_CLASSES = (
    "authorization",
    "availability",
    "conflict",
    "fencing",
    "internal",
    "not_found",
    "routing",
    "validation",
)
"""All classes, as PROTOCOL_INFO lists them."""


def class_of(code: str) -> str:
    """The class of an error code; ``internal`` for those that no table names."""
    known = _CLASS_OF.get(code)
    if known is not None:
        return known
    return "validation" if code.startswith(_VALIDATION_PREFIXES) else "internal"


def quoted(text: str) -> str:
    """``text`` as the value of a ``k="v"`` field: quotes and line ends would end it early."""
    cleaned = text.replace('"', "'").replace("\r", " ").replace("\n", " ")
    return f'"{cleaned}"'


class CursusError(PacelineError):
    """A refusal: its code word and the ``k=v`` fields behind it.

    ``always_classed`` marks the errors that carry their class whatever was negotiated (those of
    NEGOTIATE itself).
    """

    def __init__(self, word: str, detail: str = "", *, always_classed: bool = False) -> None:
        super().__init__(f"{word} {detail}".rstrip())
        self.word = word
        self.detail = detail
        self._always_classed = always_classed

    def line(self, *, classed: bool = False) -> str:
        """The whole reply; ``classed`` as the connection has negotiated."""
        parts = ["ERROR:", self.word]
        if classed or self._always_classed:
            name = class_of(self.word)
            parts.append(f"class={name} retryable={'true' if name in RETRYABLE else 'false'}")
        if self.detail:
            parts.append(self.detail)
        return " ".join(parts)


def missing(field: str, command: str) -> CursusError:
    """A parameter that the command needs is not there."""
    return CursusError(f"missing_{field}", f"command={command}")


def invalid(field: str, command: str, reason: str) -> CursusError:
    """A parameter's value cannot be."""
    return CursusError(f"invalid_{field}", f"command={command} reason={quoted(reason)}")


def topic_not_found(topic: str) -> CursusError:
    """No such topic."""
    return CursusError("topic_not_found", f"topic={topic}")


def partition_not_found(partition: int) -> CursusError:
    """The topic has no such partition."""
    return CursusError("partition_not_found", f"partition={partition}")


def malformed_batch(reason: str) -> CursusError:
    """A batch that parses in neither dialect."""
    return CursusError("batch_decode_failed", f"reason={quoted(reason)}")


def undecodable(reason: str) -> CursusError:
    """A frame that is neither a batch nor a command."""
    return CursusError("decode_failed", f"reason={quoted(reason)}")


def parse_refusal(line: str) -> CursusError:
    """The refusal that another node answered, as it was raised there."""
    word, _, detail = line.removeprefix("ERROR: ").partition(" ")
    return CursusError(word or "broker_error", detail)
