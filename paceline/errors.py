"""The one error tree, with its codes.

Every failure a caller can meet is a :class:`PacelineError`. Each class carries a
:class:`ErrorCode` (Kafka's numbers where Kafka has one, our own from 10000), whether a retry can
help (``retriable``), and what it says about a write (``outcome``): DEFINITE means nothing was
appended, UNKNOWN means the write may be committed now, later or never
(spec replication 4.3). Protocol adapters map codes to their own bytes; they own those tables.
"""

from __future__ import annotations

import enum
from typing import ClassVar


class ErrorCode(enum.IntEnum):
    """Numbers on the native and peer wire; Kafka's own where it has the error."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    AUTHORIZATION_FAILED = 31
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE = 45
    DUPLICATE_SEQUENCE = 46
    INVALID_PRODUCER_EPOCH = 47
    STORAGE_ERROR = 56
    AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLED = 89
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_NOT_REGISTERED = 102
    INCONSISTENT_CLUSTER_ID = 104
    INELIGIBLE_REPLICA = 107
    INVALID_REGISTRATION = 119
    STORAGE_FULL = 10001
    LEADER_CHANGED_AFTER_APPEND = 10002
    CONNECTION_LOST = 10003
    CONTROLLER_UNAVAILABLE = 10004
    NOT_A_REPLICA = 10005
    CONFIGURATION = 10006
    CLOSED = 10007
    PARTITION_NOT_OWNED = 10008
    OFFSET_REGRESSION = 10009
    SEGMENT_SEALED = 10020


class Outcome(enum.Enum):
    """What an error says about the write it answers."""

    DEFINITE = "definite"
    UNKNOWN = "unknown"


class PacelineError(Exception):
    """Root of the tree. ``str(error)`` names what, where, expected and found."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    retriable: ClassVar[bool] = False
    outcome: ClassVar[Outcome] = Outcome.DEFINITE


class InternalError(PacelineError):
    """A bug or an unforeseen failure on the other side."""

    outcome = Outcome.UNKNOWN


# --- asking the wrong node, or at the wrong time ------------------------------------------------


class RetriableError(PacelineError):
    """The same request may succeed later or elsewhere; nothing was appended."""

    retriable = True


class NotLeader(RetriableError):
    """This node does not lead the partition; nothing was appended."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class LeaderNotAvailable(RetriableError):
    """The partition has no leader at present; nothing was appended."""

    code = ErrorCode.LEADER_NOT_AVAILABLE


class NotController(RetriableError):
    """This node is not the active controller."""

    code = ErrorCode.NOT_CONTROLLER
    outcome = Outcome.UNKNOWN


class ControllerUnavailable(RetriableError):
    """No active controller could be reached within the wait."""

    code = ErrorCode.CONTROLLER_UNAVAILABLE
    outcome = Outcome.UNKNOWN


class FencedLeaderEpoch(RetriableError):
    """The request's leader epoch is older than the partition's."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(RetriableError):
    """The request's leader epoch is newer than this node knows."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class OffsetNotAvailable(RetriableError):
    """The leader is fresh and does not yet know the true high watermark."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class UnknownTopicOrPartition(RetriableError):
    """No such topic, or no such partition in it."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicId(RetriableError):
    code = ErrorCode.UNKNOWN_TOPIC_ID


class NotEnoughReplicas(RetriableError):
    """acks=all with fewer in-sync replicas than min.insync.replicas; nothing was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class Throttled(RetriableError):
    """A bounded queue is full; nothing was appended."""

    code = ErrorCode.THROTTLED


class BufferFull(Throttled):
    """A producer's own buffer is full of unacknowledged records; nothing was queued."""


class StorageFull(RetriableError):
    """The leader's disk is below its free-space floor; nothing was appended."""

    code = ErrorCode.STORAGE_FULL


class StorageError(RetriableError):
    """The disk under the log failed; the partition will be served elsewhere."""

    code = ErrorCode.STORAGE_ERROR
    outcome = Outcome.UNKNOWN


# --- unknown outcome -----------------------------------------------------------------------------


class UnknownOutcome(PacelineError):
    """The write may be committed now, later or never; retry only with idempotence."""

    retriable = True
    outcome = Outcome.UNKNOWN


class RequestTimedOut(UnknownOutcome):
    code = ErrorCode.REQUEST_TIMED_OUT


class NotEnoughReplicasAfterAppend(UnknownOutcome):
    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class LeaderChangedAfterAppend(UnknownOutcome):
    code = ErrorCode.LEADER_CHANGED_AFTER_APPEND


class ConnectionLost(UnknownOutcome):
    """The connection ended before the answer came.

    ``was_sent`` is False when surely no byte of the request reached the other side.
    """

    code = ErrorCode.CONNECTION_LOST

    def __init__(self, message: str, *, was_sent: bool = True) -> None:
        super().__init__(message)
        self.was_sent = was_sent


# --- the request itself is wrong ------------------------------------------------------------------


class InvalidRequest(PacelineError):
    code = ErrorCode.INVALID_REQUEST


class InvalidRequiredAcks(PacelineError):
    """Acknowledgements are 0 (none), 1 (the leader's) or -1 (of all in-sync replicas)."""

    code = ErrorCode.INVALID_REQUIRED_ACKS


class FetchSessionNotFound(PacelineError):
    """A fetch goes on with a session, of which this broker keeps none."""

    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidRecord(PacelineError):
    """A batch that a client may not send (unknown attribute bits, control batch, bad count)."""

    code = ErrorCode.INVALID_RECORD


class CorruptMessage(PacelineError):
    """A checksum or length in a batch does not hold."""

    code = ErrorCode.CORRUPT_MESSAGE


class MessageTooLarge(PacelineError):
    code = ErrorCode.MESSAGE_TOO_LARGE


class OffsetOutOfRange(PacelineError):
    code = ErrorCode.OFFSET_OUT_OF_RANGE


class InvalidTopic(PacelineError):
    code = ErrorCode.INVALID_TOPIC


class TopicAlreadyExists(PacelineError):
    code = ErrorCode.TOPIC_ALREADY_EXISTS


class InvalidPartitions(PacelineError):
    code = ErrorCode.INVALID_PARTITIONS


class InvalidReplicationFactor(PacelineError):
    code = ErrorCode.INVALID_REPLICATION_FACTOR


class InvalidConfig(PacelineError):
    code = ErrorCode.INVALID_CONFIG


class PolicyViolation(PacelineError):
    code = ErrorCode.POLICY_VIOLATION


class UnsupportedVersion(PacelineError):
    code = ErrorCode.UNSUPPORTED_VERSION


class UnsupportedCompression(PacelineError):
    code = ErrorCode.UNSUPPORTED_COMPRESSION


class AuthorizationFailed(PacelineError):
    code = ErrorCode.AUTHORIZATION_FAILED


class AuthenticationFailed(PacelineError):
    code = ErrorCode.AUTHENTICATION_FAILED


class NotAReplica(PacelineError):
    code = ErrorCode.NOT_A_REPLICA


class PreferredLeaderNotAvailable(PacelineError):
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailable(PacelineError):
    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class ElectionNotNeeded(PacelineError):
    code = ErrorCode.ELECTION_NOT_NEEDED


# --- idempotent producers -------------------------------------------------------------------------


class OutOfOrderSequence(PacelineError):
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE


class DuplicateSequence(PacelineError):
    code = ErrorCode.DUPLICATE_SEQUENCE


class InvalidProducerEpoch(PacelineError):
    code = ErrorCode.INVALID_PRODUCER_EPOCH


class UnknownProducerId(PacelineError):
    code = ErrorCode.UNKNOWN_PRODUCER_ID


# --- groups ---------------------------------------------------------------------------------------


class NotCoordinator(RetriableError):
    """This node does not coordinate the group; nothing was done."""

    code = ErrorCode.NOT_COORDINATOR


class CoordinatorNotAvailable(RetriableError):
    """The group has no coordinator that can act at present; nothing was done."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class CoordinatorLoadInProgress(RetriableError):
    """The coordinator is still reading what its predecessor wrote; nothing was done."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class RebalanceInProgress(RetriableError):
    """The members are joining again; so should whoever asked."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class UnstableOffsetCommit(RetriableError):
    """An open transaction may yet commit an offset of this partition."""

    code = ErrorCode.UNSTABLE_OFFSET_COMMIT


class IllegalGeneration(PacelineError):
    """The group is in another generation than the member."""

    code = ErrorCode.ILLEGAL_GENERATION


class UnknownMember(PacelineError):
    """The group has no such member (any more)."""

    code = ErrorCode.UNKNOWN_MEMBER_ID


class FencedInstance(PacelineError):
    """Another member took over this instance id."""

    code = ErrorCode.FENCED_INSTANCE_ID


class InconsistentGroupProtocol(PacelineError):
    """The member and the group have no way of assigning in common."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class InvalidGroup(PacelineError):
    code = ErrorCode.INVALID_GROUP_ID


class InvalidSessionTimeout(PacelineError):
    code = ErrorCode.INVALID_SESSION_TIMEOUT


class OffsetMetadataTooLarge(PacelineError):
    code = ErrorCode.OFFSET_METADATA_TOO_LARGE


class PartitionNotOwned(PacelineError):
    """The member commits for a partition that is not assigned to it."""

    code = ErrorCode.PARTITION_NOT_OWNED


class OffsetRegression(PacelineError):
    """A commit below the committed offset, in a family where offsets never fall."""

    code = ErrorCode.OFFSET_REGRESSION


class NonEmptyGroup(PacelineError):
    """The group has members, so this cannot be done to it."""

    code = ErrorCode.NON_EMPTY_GROUP


class GroupNotFound(PacelineError):
    code = ErrorCode.GROUP_ID_NOT_FOUND


class GroupFull(PacelineError):
    """A limit on groups or on members of one is reached."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


# --- segments -------------------------------------------------------------------------------------


class SegmentSealed(PacelineError):
    """The segment takes no more bytes; nothing was appended."""

    code = ErrorCode.SEGMENT_SEALED


# --- between nodes --------------------------------------------------------------------------------


class InvalidUpdateVersion(PacelineError):
    """The partition epoch of a proposal is not the current one (compare-and-set failed)."""

    code = ErrorCode.INVALID_UPDATE_VERSION


class IneligibleReplica(PacelineError):
    code = ErrorCode.INELIGIBLE_REPLICA


class StaleBrokerEpoch(PacelineError):
    code = ErrorCode.STALE_BROKER_EPOCH


class BrokerNotRegistered(PacelineError):
    code = ErrorCode.BROKER_NOT_REGISTERED


class DuplicateBrokerRegistration(RetriableError):
    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class InvalidRegistration(PacelineError):
    code = ErrorCode.INVALID_REGISTRATION


class InconsistentClusterId(PacelineError):
    code = ErrorCode.INCONSISTENT_CLUSTER_ID


# --- this side -----------------------------------------------------------------------------------


class ConfigurationError(PacelineError):
    """A setting is wrong; the sentence names it and its source. Process exit code 78."""

    code = ErrorCode.CONFIGURATION


class ProtocolError(PacelineError):
    """Bytes that break a protocol's rules; the connection cannot go on."""

    code = ErrorCode.INVALID_REQUEST


class LocalProtocolError(ProtocolError):
    """We were about to send, or were asked to do, what the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The other side sent what the protocol does not allow."""


class Closed(PacelineError):
    """The object was closed while, or before, it was asked."""

    code = ErrorCode.CLOSED


def _leaf_classes(root: type[PacelineError]) -> dict[ErrorCode, type[PacelineError]]:
    found: dict[ErrorCode, type[PacelineError]] = {}
    queue = [root]
    while queue:
        cls = queue.pop(0)
        if "code" in cls.__dict__ and cls.code not in found:
            found[cls.code] = cls
        queue.extend(cls.__subclasses__())
    return found


_BY_CODE = _leaf_classes(PacelineError)
_BY_CODE[ErrorCode.UNKNOWN_SERVER_ERROR] = InternalError


def error_for(code: int, message: str) -> PacelineError:
    """The typed error for a code received from another process; unknown codes are InternalError."""
    try:
        cls = _BY_CODE[ErrorCode(code)]
    except (ValueError, KeyError):
        return InternalError(f"error code {code}: {message}")
    return cls(message)
