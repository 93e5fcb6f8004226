"""Which exit code an error means (DESIGN 1)."""

from __future__ import annotations

from paceline.errors import ErrorCode, PacelineError
from paceline_cluster.errors import ClusterError, Exit

_BAD_DATA = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_A_REPLICA,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.SEGMENT_SEALED,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.UNACCEPTABLE_CREDENTIAL,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSUPPORTED_COMPRESSION,
        ErrorCode.USER_ALREADY_EXISTS,
        ErrorCode.USER_NOT_FOUND,
    }
)
_TIMEOUT = frozenset({ErrorCode.REQUEST_TIMED_OUT})
_NO_PERMISSION = frozenset({ErrorCode.AUTHENTICATION_FAILED, ErrorCode.AUTHORIZATION_FAILED})
_BUG = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR})


def exit_code_for(error: BaseException) -> Exit:
    """The exit code for a failure that ends a command.

    What the broker refuses because of its state (no leader, too few replicas, no connection) is
    UNAVAILABLE: the same command may succeed later. What is refused because of who asks is
    NO_PERMISSION: it will not succeed until somebody gives the right.
    """
    if isinstance(error, ClusterError):
        return error.exit_code
    if isinstance(error, PacelineError):
        return _for_code(error.code)
    if isinstance(error, TimeoutError):
        return Exit.TIMEOUT
    if isinstance(error, ConnectionError):
        return Exit.UNAVAILABLE
    if isinstance(error, OSError):
        return Exit.DATA
    return Exit.BUG


def _for_code(code: ErrorCode) -> Exit:
    if code is ErrorCode.CONFIGURATION:
        return Exit.CONFIGURATION
    if code in _TIMEOUT:
        return Exit.TIMEOUT
    if code in _NO_PERMISSION:
        return Exit.NO_PERMISSION
    if code in _BAD_DATA:
        return Exit.DATA
    if code in _BUG:
        return Exit.BUG
    return Exit.UNAVAILABLE
