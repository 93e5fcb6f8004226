"""The one error tree, with its codes.

Every failure a caller can meet is a :class:`PacelineError`: with an :class:`ErrorCode` (Kafka's
where it has one, ours from 10000), whether a retry can help (``retriable``), and whether a write
may be committed all the same (``outcome``). Protocol adapters map codes to their own bytes.
"""

from __future__ import annotations

from typing import ClassVar

from paceline.error_codes import ErrorCode as ErrorCode
from paceline.error_codes import Outcome as Outcome


class PacelineError(Exception):
    """Root of the tree. ``str(error)`` names what, where, expected and found."""

    code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR
    retriable: ClassVar[bool] = False
    outcome: Outcome = Outcome.DEFINITE  # an instance may be surer than its class


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
    """The connection ended before the answer came. ``was_sent`` is False when surely no byte of the
    request reached the other side."""

    code = ErrorCode.CONNECTION_LOST

    def __init__(self, message: str, *, was_sent: bool = True) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class Unreachable(ConnectionLost):
    """Refused, no route, no such host: of ``connect()`` for all of ``first_contact_timeout_s``."""


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


class InvalidTimestamp(PacelineError):
    code = ErrorCode.INVALID_TIMESTAMP


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


class UserNotFound(PacelineError):
    code = ErrorCode.USER_NOT_FOUND


class UserAlreadyExists(PacelineError):
    code = ErrorCode.USER_ALREADY_EXISTS


class UnacceptableCredential(PacelineError):
    code = ErrorCode.UNACCEPTABLE_CREDENTIAL


class NotAReplica(PacelineError):
    code = ErrorCode.NOT_A_REPLICA


class PreferredLeaderNotAvailable(PacelineError):
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


class EligibleLeadersNotAvailable(PacelineError):
    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


class ElectionNotNeeded(PacelineError):
    code = ErrorCode.ELECTION_NOT_NEEDED


class NoReassignmentInProgress(PacelineError):
    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


# --- idempotent producers, transactions -----------------------------------------------------------


class OutOfOrderSequence(PacelineError):
    code = ErrorCode.OUT_OF_ORDER_SEQUENCE


class DuplicateSequence(PacelineError):
    code = ErrorCode.DUPLICATE_SEQUENCE


class InvalidProducerEpoch(PacelineError):
    code = ErrorCode.INVALID_PRODUCER_EPOCH


class UnknownProducerId(PacelineError):
    code = ErrorCode.UNKNOWN_PRODUCER_ID


class InvalidTransactionState(PacelineError):
    """The transaction has ended, ended otherwise, or lacks what it should hold. Nothing done."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidProducerMapping(PacelineError):
    """The transactional id belongs to another producer id, or to none."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class InvalidTransactionTimeout(PacelineError):
    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class OperationNotAttempted(PacelineError):
    """Not done, because something else that the same request asks for cannot be."""

    code = ErrorCode.OPERATION_NOT_ATTEMPTED


class ConcurrentTransactions(RetriableError):
    """The transaction before is still being ended; ask again. Nothing was done."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionCoordinatorFenced(PacelineError):
    """A newer coordinator has taken over; this one's markers count no more."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class ProducerFenced(PacelineError):
    """Another producer has the id, or what this one began was ended; only a new one may go on."""

    code = ErrorCode.PRODUCER_FENCED


class TransactionNotFound(PacelineError):
    """Nobody uses this transactional id, or it was forgotten."""

    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


class TransactionTooLarge(PacelineError):
    """A limit on what one transaction, or a coordinator, holds is reached. Nothing was done."""

    code = ErrorCode.TRANSACTION_TOO_LARGE


class AlreadyCommitted(PacelineError):
    """The sink has committed this batch, or a later one, before: there is nothing left to do."""

    code = ErrorCode.ALREADY_COMMITTED


class SinkFenced(PacelineError):
    """A later run has taken over the sink."""

    code = ErrorCode.SINK_FENCED


class SinkConflict(PacelineError):
    """The sink's batches were committed by another query, whose numbers mean other data."""

    code = ErrorCode.SINK_CONFLICT


class SinkForgotten(PacelineError):
    """Nobody knows any more whether the sink has committed this batch, planned long ago."""

    code = ErrorCode.SINK_FORGOTTEN


# --- groups and segments --------------------------------------------------------------------------


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
    code = ErrorCode.NON_EMPTY_GROUP


class GroupSubscribedToTopic(PacelineError):
    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


class GroupNotFound(PacelineError):
    code = ErrorCode.GROUP_ID_NOT_FOUND


class GroupFull(PacelineError):
    """A limit on groups or on members of one is reached."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


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


def _by_code(*classes: type[PacelineError]) -> dict[ErrorCode, type[PacelineError]]:
    found = {cls.code: cls for cls in reversed(classes) if "code" in cls.__dict__}
    below = [each for cls in classes for each in cls.__subclasses__()]
    return {**_by_code(*below), **found} if below else found


_BY_CODE = _by_code(PacelineError)
_BY_CODE[ErrorCode.UNKNOWN_SERVER_ERROR] = InternalError


def error_for(code: int, message: str) -> PacelineError:
    """The typed error for a code received from another process; unknown codes are InternalError."""
    try:
        cls = _BY_CODE[ErrorCode(code)]
    except (ValueError, KeyError):
        return InternalError(f"error code {code}: {message}")
    return cls(message)
