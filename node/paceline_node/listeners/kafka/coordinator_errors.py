"""Errors of a coordinator's requests as the numbers at which Kafka clients ask again.

What ``errors.py`` says of a write to a topic is wrong here: clients take "timed out" (7) and
the like for the end of a transaction, or of a consumer, in requests to a coordinator. librdkafka
answers 7 in END_TXN with "abort the transaction", aiokafka with a fatal error, though it may be
committed. What they all understand is NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE (look it up,
then ask again) and COORDINATOR_LOAD_IN_PROGRESS (ask again). Every command may be repeated: who
asks again is told what has become of the first attempt.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from paceline.errors import ErrorCode, PacelineError
from paceline_node.listeners.kafka.errors import code_of, kafka_code
from paceline_node.security.principals import Forbidden


class CoordinatorApi(enum.Enum):
    """Requests that a coordinator answers, and looking one up."""

    FIND_COORDINATOR = enum.auto()
    JOIN_GROUP = enum.auto()
    SYNC_GROUP = enum.auto()
    HEARTBEAT = enum.auto()
    LEAVE_GROUP = enum.auto()
    OFFSET_COMMIT = enum.auto()
    OFFSET_FETCH = enum.auto()
    OFFSET_DELETE = enum.auto()
    LIST_GROUPS = enum.auto()
    DESCRIBE_GROUPS = enum.auto()
    DELETE_GROUPS = enum.auto()
    INIT_PRODUCER_ID = enum.auto()
    PRODUCER_ID_ALONE = enum.auto()
    """INIT_PRODUCER_ID of an idempotent producer: any node, so no coordinator to look up."""
    ADD_PARTITIONS_TO_TXN = enum.auto()
    ADD_OFFSETS_TO_TXN = enum.auto()
    TXN_OFFSET_COMMIT = enum.auto()
    END_TXN = enum.auto()


_LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
_ELSEWHERE = ErrorCode.NOT_COORDINATOR
_NOT_NOW = ErrorCode.COORDINATOR_NOT_AVAILABLE

MEANT: Mapping[int, ErrorCode] = MappingProxyType(
    {
        # It may have happened, or not: ask again, here or where the coordinator is by then.
        ErrorCode.REQUEST_TIMED_OUT: _NOT_NOW,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _NOT_NOW,
        ErrorCode.CONNECTION_LOST: _NOT_NOW,
        ErrorCode.CLOSED: _NOT_NOW,
        ErrorCode.LEADER_CHANGED_AFTER_APPEND: _ELSEWHERE,
        # It has not.
        ErrorCode.LEADER_NOT_AVAILABLE: _NOT_NOW,
        ErrorCode.NOT_ENOUGH_REPLICAS: _NOT_NOW,
        ErrorCode.STORAGE_FULL: _NOT_NOW,
        ErrorCode.STORAGE_ERROR: _ELSEWHERE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: _ELSEWHERE,
        ErrorCode.NOT_A_REPLICA: _ELSEWHERE,
        ErrorCode.FENCED_LEADER_EPOCH: _ELSEWHERE,
        ErrorCode.UNKNOWN_LEADER_EPOCH: _ELSEWHERE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: _ELSEWHERE,
        ErrorCode.STALE_BROKER_EPOCH: _ELSEWHERE,
        ErrorCode.BROKER_NOT_REGISTERED: _ELSEWHERE,
        ErrorCode.OFFSET_NOT_AVAILABLE: _LOADING,
        ErrorCode.THROTTLED: _LOADING,
        ErrorCode.CONTROLLER_UNAVAILABLE: _LOADING,
        ErrorCode.NOT_CONTROLLER: _LOADING,
    }
)
"""Whatever a coordinator may meet with on its way, as clients understand it."""

_LOOKS_NOTHING_UP = MappingProxyType({_NOT_NOW: _LOADING, _ELSEWHERE: _LOADING})
IN: Mapping[CoordinatorApi, Mapping[ErrorCode, ErrorCode]] = MappingProxyType(
    {
        # A coordinator that is loading has forgotten the round: the member is to join again. Java
        # takes 14 for fatal here, as Kafka's own brokers never say so.
        CoordinatorApi.SYNC_GROUP: MappingProxyType({_LOADING: ErrorCode.REBALANCE_IN_PROGRESS}),
        # Sessions begin anew when it has loaded, so the member has lost nothing.
        CoordinatorApi.HEARTBEAT: MappingProxyType({_LOADING: ErrorCode.NONE}),
        # Consumers before 2.4 know no other of the two.
        CoordinatorApi.OFFSET_FETCH: MappingProxyType({_NOT_NOW: _ELSEWHERE}),
        # aiokafka knows it elsewhere only.
        CoordinatorApi.TXN_OFFSET_COMMIT: MappingProxyType(
            {ErrorCode.CONCURRENT_TRANSACTIONS: _LOADING}
        ),
        CoordinatorApi.PRODUCER_ID_ALONE: _LOOKS_NOTHING_UP,
    }
)
"""Where an API has its own way to say so."""


def coordinator_code(error: PacelineError | int, api: CoordinatorApi) -> int:
    """The number to tell a client of ``error`` in the answer to ``api``."""
    if isinstance(error, Forbidden):
        return code_of(error)
    code = error.code if isinstance(error, PacelineError) else error
    meant = MEANT.get(code, code)
    return kafka_code(IN.get(api, {}).get(ErrorCode(meant), meant))
