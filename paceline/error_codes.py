"""Numbers of errors, as protocols carry them: Kafka's where Kafka has one, our own from 10000."""

from __future__ import annotations

import enum


class ErrorCode(enum.IntEnum):
    """Numbers on the native and peer wire; Kafka's own where it has the error. Behind a number
    stands what it means, unless its class in ``errors.py`` says so."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    """Done."""
    OFFSET_OUT_OF_RANGE = 1
    """No record lies at this offset: before the log start offset, or beyond the log end offset."""
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    """No answer within the time allowed."""
    MESSAGE_TOO_LARGE = 10
    """A record, batch or request is larger than the topic or the protocol takes."""
    OFFSET_METADATA_TOO_LARGE = 12
    """The text beside a committed offset is too long."""
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    """A topic cannot have this name."""
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    """Appended, but too few replicas stayed in sync to commit it."""
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    """A group cannot have this name."""
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    """The member's session time-out is out of bounds."""
    REBALANCE_IN_PROGRESS = 27
    AUTHORIZATION_FAILED = 31
    """Whoever asks may not do this."""
    UNSUPPORTED_SASL_MECHANISM = 33
    """A client cannot log in by this mechanism here."""
    ILLEGAL_SASL_STATE = 34
    """A message of a log-in comes where it does not belong."""
    UNSUPPORTED_VERSION = 35
    """The other side does not speak this version of the request or protocol."""
    TOPIC_ALREADY_EXISTS = 36
    """There is a topic (or segment) of this name."""
    INVALID_PARTITIONS = 37
    """A topic cannot have so many partitions, or fewer than it has."""
    INVALID_REPLICATION_FACTOR = 38
    """So many replicas cannot be placed on the nodes there are."""
    INVALID_TIMESTAMP = 32
    """A record's time is further in the future than the topic takes."""
    INVALID_CONFIG = 40
    """A topic setting is unknown, or its value is not allowed."""
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    """The request contradicts itself or the protocol."""
    POLICY_VIOLATION = 44
    """Not allowed here: a name or topic of the broker's own, another kind of topic, a limit."""
    OUT_OF_ORDER_SEQUENCE = 45
    """A batch of an idempotent producer does not follow the last one that the log knows."""
    DUPLICATE_SEQUENCE = 46
    """The batch is stored already, too long ago to say where."""
    INVALID_PRODUCER_EPOCH = 47
    """A newer producer of this id writes now; this one is fenced."""
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    """The transaction's time-out is out of bounds."""
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    OPERATION_NOT_ATTEMPTED = 55
    STORAGE_ERROR = 56
    AUTHENTICATION_FAILED = 58
    """The other side could not prove who it is."""
    UNKNOWN_PRODUCER_ID = 59
    """Nothing is known of this producer (any more)."""
    NON_EMPTY_GROUP = 68
    """The group has members, so this cannot be done to it."""
    GROUP_ID_NOT_FOUND = 69
    """There is no group of this name."""
    FETCH_SESSION_ID_NOT_FOUND = 70
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION = 76
    """The batch is compressed in a way that is not supported."""
    STALE_BROKER_EPOCH = 77
    """A node speaks for an earlier registration of itself."""
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    """Not a failure: a new member shall join again with the id in the answer."""
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    """The replica that should lead cannot: it is not in sync, or its node does not run."""
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    """Another member took over this instance id."""
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    """No replica that lives can be elected."""
    ELECTION_NOT_NEEDED = 84
    """The partition has that leader already."""
    NO_REASSIGNMENT_IN_PROGRESS = 85
    """The partition is not being moved: there is nothing to give up."""
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    """Members of the group read the topic, so its offsets cannot be removed."""
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLED = 89
    PRODUCER_FENCED = 90
    USER_NOT_FOUND = 91
    """There is no user of this name."""
    USER_ALREADY_EXISTS = 92
    """There is a user of this name."""
    UNACCEPTABLE_CREDENTIAL = 93
    """No user can have this name, or what shall prove it is too weak or of no known kind."""
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    """No topic with this id is here: deleted, or made anew under its name."""
    DUPLICATE_BROKER_REGISTRATION = 101
    """Another process runs under this node's number or directory."""
    BROKER_NOT_REGISTERED = 102
    """The cluster has no node of this number."""
    INCONSISTENT_CLUSTER_ID = 104
    """The other side belongs to another cluster."""
    TRANSACTIONAL_ID_NOT_FOUND = 105
    INELIGIBLE_REPLICA = 107
    """A replica that a leader proposed cannot be in sync: its node is fenced or another process."""
    INVALID_REGISTRATION = 119
    """The node cannot be registered so."""
    STORAGE_FULL = 10001
    LEADER_CHANGED_AFTER_APPEND = 10002
    """Appended, but the leadership moved before it was committed."""
    CONNECTION_LOST = 10003
    CONTROLLER_UNAVAILABLE = 10004
    NOT_A_REPLICA = 10005
    """The node has no replica of the partition."""
    CONFIGURATION = 10006
    CLOSED = 10007
    PARTITION_NOT_OWNED = 10008
    OFFSET_REGRESSION = 10009
    SEGMENT_SEALED = 10020
    ALREADY_COMMITTED = 10030
    SINK_FENCED = 10031
    SINK_CONFLICT = 10032
    TRANSACTION_TOO_LARGE = 10033
    SINK_FORGOTTEN = 10034


class Outcome(enum.Enum):
    """What an error says about the write it answers."""

    DEFINITE = "definite"
    UNKNOWN = "unknown"
