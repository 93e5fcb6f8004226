"""The table of counts: of what clients make a node keep, how many there may be.

One row for each such thing; nothing that lasts beyond a request is without one. A row says what is
counted and where, the bound, what is done with one more, and what makes room. The settings that
change a bound take their default and their text from here, code with a fixed bound its number,
``paceline limits`` and the README of this room show it, and ``tests/integration/hostile`` fills
each row and looks whether others go on.

What one message may hold is no row: codecs bound that. How much memory, and for how long, is
another account (``client_memory.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.values import dataclass
from paceline_node.settings.fields import setting

_MOST = 100_000_000


@dataclass(frozen=True, slots=True)
class Count:
    """``what`` there are at most ``bound`` of, ``where``; set by the setting ``key``, fixed where
    that is empty. ``beyond`` is what becomes of one more, with the error's name where there is one,
    ``room`` what makes room for it."""

    what: str
    where: str
    bound: int
    beyond: str
    room: str
    key: str = ""
    low: int = 1
    high: int = _MOST

    @property
    def text(self) -> str:
        """The row as the documentation of its setting."""
        room = f" Room is made: {self.room}." if self.room else ""
        return f"{self.what}, {self.where}. One more: {self.beyond}.{room}"


CONNECTIONS = Count(
    "Client connections",
    "of each listener",
    4096,
    "waits",
    "one that was silent for limits.idle_ms, of the address that has most; else one of an address "
    "that has more than half of all",
    "limits.connections",
    high=1_000_000,
)
PEER_CONNECTIONS = Count(
    "Connections from other nodes",
    "of this node",
    1024,
    "waits",
    "",
    "limits.peer_connections",
    low=8,
    high=100_000,
)
UNPROVED = Count(
    "Connections that have not proved to be a node's",
    "of the peer listener",
    64,
    "is accepted",
    "the oldest of the address that has most is closed, of one that no node came from",
)
JOINING = Count(
    "Nodes that ask to join",
    "of the cluster",
    1024,
    "Throttled",
    "one joins, or the leader changes",
)
REQUESTS = Count(
    "Requests that are worked on at a time",
    "of one native connection",
    256,
    "is read later",
    "",
    "limits.requests_per_connection",
    high=100_000,
)
PARTITIONS = Count(
    "Replicas of partitions, so topics and segments too",
    "of this node",
    10_000,
    "PolicyViolation",
    "topics are deleted",
    "limits.partitions",
    low=20,
    high=1_000_000,
)
GROUPS = Count(
    "Consumer groups",
    "of each family (V1, Kafka and native, Cursus, coordinator) in each partition of __groups",
    10_000,
    "GroupFull",
    "but in V1 those go that had no members and no offsets for a minute",
    "groups.groups_max",
    high=10_000_000,
)
MEMBERS = Count(
    "Members",
    "of one group",
    1000,
    "GroupFull",
    "who is silent for a session goes",
    "groups.members_max",
    high=100_000,
)
OFFSETS = Count(
    "Offsets of a group and partition, committed or to be by an open transaction, half of them of "
    "one client at most",
    "of each family in each partition of __groups",
    250_000,
    "GroupFull",
    "of the client that has most, for one that has less; those of groups without members are "
    "forgotten after groups.offsets_retention_ms",
    "groups.offsets_max",
)
OFFSET_METADATA = Count(
    "Bytes of metadata of an offset (61 MiB in the places of 250,000)",
    "in the place of one offset",
    256,
    "takes the place of another",
    "",
)
ACLS = Count(
    "ACLs",
    "of the cluster",
    5_000,
    "PolicyViolation",
    "ACLs are deleted",
    "security.acls_max",
    high=100_000,
)
LISTED_GROUPS = Count(
    "Groups with a list of topics",
    "of the cluster",
    10_000,
    "PolicyViolation",
    "their lists are removed",
    "groups.lists_max",
    high=100_000,
)
LISTED_BYTES = Count(
    "Bytes of such lists",
    "of all groups together",
    4 * 1024 * 1024,
    "PolicyViolation",
    "lists are removed or made shorter",
    "groups.lists_bytes",
    low=1024,
    high=64 * 1024 * 1024,
)
LISTED_TOPICS = Count("Topics", "in such a list", 1000, "PolicyViolation", "")
PATTERN_STREAMS = Count(
    "Streams", "of one topic or pattern of a coordinator's consumer", 1000, "InvalidRequest", ""
)
IDS = Count(
    "Transactional ids, and likewise sinks",
    "of each family (Kafka and native, Cursus, sinks); half of the ids of one client at most",
    100_000,
    "TransactionTooLarge",
    "ids of the client that has most go, but for open transactions, for one that has less; what "
    "never had a transaction goes after transactions.unused_ids_kept_ms, ids that are idle "
    "after an hour",
    "transactions.ids_max",
    high=10_000_000,
)
TRANSACTION_PARTITIONS = Count(
    "Partitions, and offsets of a group (8 MiB of them)",
    "in one transaction",
    10_000,
    "TransactionTooLarge",
    "",
    "transactions.partitions_max",
    high=1_000_000,
)
OPEN_PARTITIONS = Count(
    "Partitions, groups and offsets, half of them in transactions of one client at most",
    "in all open transactions together",
    250_000,
    "Throttled",
    "transactions end, at their time-outs at the latest",
    "transactions.open_partitions_max",
)
TRANSACTION_GROUPS = Count("Groups", "in one transaction", 100, "TransactionTooLarge", "")
PARTITION_PRODUCERS = Count(
    "Producers, half of them of one client at most",
    "of one partition",
    50_000,
    "Throttled",
    "idle ones of the clients that have most are forgotten",
    "limits.partition_producers",
    low=2,
    high=10_000_000,
)
CLIENT_PRODUCERS = Count(
    "Producers of one client (principal, or address)",
    "in all partitions that this node leads",
    250_000,
    "Throttled",
    "its idle ones are forgotten",
    "limits.client_producers",
)
EVENT_STREAMS = Count(
    "Event streams (keys of Cursus events)",
    "of one partition",
    250_000,
    "Throttled",
    "never, since a version is given once; topics are deleted",
    "cursus.event_streams_max",
)
EXTERNAL_BROKERS = Count(
    "External brokers (V1's ADMIN_REGISTER_BROKER)",
    "of the cluster",
    1000,
    "Throttled",
    "one that was silent for an hour goes, or is removed",
    "limits.external_brokers",
    high=100_000,
)
USERS = Count("Users", "of the cluster", 10_000, "PolicyViolation", "users are deleted")
QUOTAS = Count("Quotas", "of the cluster", 10_000, "PolicyViolation", "quotas are unset")
USER_TOKENS = Count("Tokens", "of one user", 100, "PolicyViolation", "tokens are revoked")
TABLES = Count(
    "Tables",
    "of the cluster",
    10_000,
    "StorageFull",
    "tables are deleted",
    "limits.tables",
    high=1_000_000,
)
TABLE_KEYS = Count(
    "Keys",
    "of one table, so also scopes and streams of the cluster together",
    10_000,
    "StorageFull",
    "keys, streams and scopes are removed",
    "limits.table_keys",
    high=10_000,
)
TABLE_BYTES = Count(
    "Bytes of keys and values, with 160 for each key and 512 for each table",
    "of all tables together, an eighth of them for the broker's own",
    256 * 1024 * 1024,
    "StorageFull",
    "keys and tables are removed",
    "limits.table_bytes",
    low=1024 * 1024,
    high=16 * 1024 * 1024 * 1024,
)
STREAM_SEGMENTS = Count("Segments", "of one stream", 1000, "refused", "")
APPENDERS = Count(
    "Appenders",
    "of one segment connection",
    1000,
    "PROTOCOL_ERROR, or the connection is closed",
    "",
    "segment.appenders_per_connection",
    high=1_000_000,
)
READS = Count(
    "Reads that are worked on at a time",
    "of one segment connection",
    64,
    "is read later",
    "",
    "segment.reads_per_connection",
    high=100_000,
)

COUNTS: Sequence[Count] = (
    CONNECTIONS,
    PEER_CONNECTIONS,
    UNPROVED,
    JOINING,
    REQUESTS,
    PARTITIONS,
    GROUPS,
    MEMBERS,
    OFFSETS,
    OFFSET_METADATA,
    ACLS,
    LISTED_GROUPS,
    LISTED_BYTES,
    LISTED_TOPICS,
    PATTERN_STREAMS,
    IDS,
    TRANSACTION_PARTITIONS,
    OPEN_PARTITIONS,
    TRANSACTION_GROUPS,
    PARTITION_PRODUCERS,
    CLIENT_PRODUCERS,
    EVENT_STREAMS,
    EXTERNAL_BROKERS,
    USERS,
    USER_TOKENS,
    QUOTAS,
    TABLES,
    TABLE_KEYS,
    TABLE_BYTES,
    STREAM_SEGMENTS,
    APPENDERS,
    READS,
)

HEADS = ("what", "where", "bound", "setting", "one more", "room is made")


def counted(count: Count) -> int:
    """The setting of a row."""
    assert count.key, f"{count.what}: the bound is fixed"
    return setting(count.bound, count.text, low=count.low, high=count.high)


def rows() -> Iterator[tuple[str, ...]]:
    """The table as text, below :data:`HEADS`."""
    for count in COUNTS:
        key = count.key or "fixed"
        yield count.what, count.where, f"{count.bound:,}", key, count.beyond, count.room or "-"


def markdown() -> str:
    """The table as the README shows it."""
    lines = [HEADS, ("---",) * len(HEADS), *rows()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
