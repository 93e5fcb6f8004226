"""Broker errors as the numbers that Kafka clients know (DESIGN 6.3).

Most of ours are Kafka's own. Numbers from 10000 on are ours alone and become the nearest that a
client acts on rightly: one that it may retry where we mean so, and "timed out" where the outcome of
a write is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from paceline.errors import ErrorCode, PacelineError
from paceline_node.security.principals import Forbidden, ResourceKind

OURS_ALONE = 10_000
_MESSAGE_CHARACTERS_MAX = 1000

OURS: Mapping[ErrorCode, ErrorCode] = MappingProxyType(
    {
        ErrorCode.STORAGE_FULL: ErrorCode.STORAGE_ERROR,
        ErrorCode.LEADER_CHANGED_AFTER_APPEND: ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CONNECTION_LOST: ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CONTROLLER_UNAVAILABLE: ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_A_REPLICA: ErrorCode.INVALID_REQUEST,
        ErrorCode.CONFIGURATION: ErrorCode.INVALID_CONFIG,
        ErrorCode.CLOSED: ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.SEGMENT_SEALED: ErrorCode.POLICY_VIOLATION,
        ErrorCode.PARTITION_NOT_OWNED: ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.OFFSET_REGRESSION: ErrorCode.INVALID_REQUEST,
        ErrorCode.TRANSACTION_TOO_LARGE: ErrorCode.POLICY_VIOLATION,
        ErrorCode.ALREADY_COMMITTED: ErrorCode.INVALID_REQUEST,
        ErrorCode.SINK_CONFLICT: ErrorCode.INVALID_REQUEST,
        ErrorCode.SINK_FORGOTTEN: ErrorCode.INVALID_REQUEST,
        ErrorCode.SINK_FENCED: ErrorCode.PRODUCER_FENCED,
    }
)
"""Every number of ours that is none of Kafka's."""


FORBIDDEN: Mapping[ResourceKind, int] = MappingProxyType(
    {
        ResourceKind.TOPIC: 29,
        ResourceKind.GROUP: 30,
        ResourceKind.CLUSTER: 31,
        ResourceKind.TRANSACTION: 53,
    }
)
"""Kafka has a number for each kind of resource."""


def kafka_code(error: int) -> int:
    """The number to tell a client."""
    if error < OURS_ALONE:
        return int(error)
    return int(OURS[ErrorCode(error)])


def code_of(error: PacelineError) -> int:
    """The number to tell a client of ``error``."""
    if isinstance(error, Forbidden):
        return FORBIDDEN[error.resource.kind]
    return kafka_code(error.code)


def topic_code(code: int) -> int:
    """The number to tell of a topic, where nothing but ours was kept of the error."""
    return FORBIDDEN[ResourceKind.TOPIC] if code == ErrorCode.AUTHORIZATION_FAILED else code


def message_of(error: PacelineError) -> str:
    """The text to tell a client of ``error``. What clients name may be as long as a frame allows,
    and is told for each of its parts: only its begin is."""
    text = str(error)
    if len(text) <= _MESSAGE_CHARACTERS_MAX:
        return text
    return text[:_MESSAGE_CHARACTERS_MAX] + "…"
