"""From a command's text to a request: one row of :data:`COMMANDS` for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from paceline.values import dataclass
from paceline.wire.cursus import building as build
from paceline.wire.cursus import requests
from paceline.wire.cursus.arguments import Arguments, read_arguments
from paceline.wire.cursus.errors import CursusError
from paceline.wire.cursus.inbound import CommandText
from paceline.wire.cursus.replies import refusal_of
from paceline.wire.cursus.requests import (
    Credentials,
    Request,
)
from paceline.wire.cursus.values import (
    PRODUCER_ID,
    TRANSACTIONAL_ID,
    credentials_of,
    fence_of,
    name_of,
    topic_name,
)

_CREDENTIALS = ("principal", "auth_token", "token")
INTERNAL = frozenset(
    {
        "REPLICATE_MESSAGE",
        "REPLICATE_SNAPSHOT",
        "RAFT_APPLY",
        "INTERNAL_BATCH",
        "LIST_SNAPSHOTS",
        "FETCH_SNAPSHOT",
        "CATCHUP_SNAPSHOTS",
    }
)
"""What the original's brokers say to each other; never served here."""


# --- the table ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    """One command: its builder, its keys, and its positional form."""

    build: Callable[[Arguments], Request]
    keys: tuple[str, ...] = ()
    positions: tuple[str, ...] = ()
    message: bool = False
    last_word: str | None = None


_GROUP = ("topic", "group")
_MEMBER = (*_GROUP, "member")
_GENERATION = (*_MEMBER, "generation")
_READ = ("topic", "partition", "offset")
_READ_KEYS = (
    *_READ,
    "group",
    "member",
    "generation",
    "isolation",
    "isolation_level",
    "autoOffsetReset",
    "batch",
)
_FENCE = (*TRANSACTIONAL_ID, *PRODUCER_ID, "epoch")
_POLICY = (
    "cleanup_policy",
    "retention_hours",
    "retention_bytes",
    "partitioner",
    "auth_policy",
    "read_acl",
    "write_acl",
)

COMMANDS: Mapping[str, _Row] = {
    "PROTOCOL_INFO": _Row(lambda _: requests.ProtocolInfo()),
    "NEGOTIATE": _Row(build.negotiate, ("version", "features", "require_features")),
    "AUTH": _Row(build.auth),
    "HELP": _Row(lambda _: requests.Help()),
    "EXIT": _Row(lambda _: requests.Exit()),
    "CREATE": _Row(
        build.create,
        ("topic", "partitions", "idempotent", "event_sourcing", "replication_factor", *_POLICY),
        ("topic", "partitions"),
    ),
    "DELETE": _Row(lambda args: requests.DeleteTopic(topic_name(args)), ("topic",), ("topic",)),
    "LIST": _Row(build.list_topics, ("topic",)),
    "DESCRIBE": _Row(lambda args: requests.DescribeTopic(topic_name(args)), ("topic",)),
    "METADATA": _Row(lambda args: requests.TopicMetadata(topic_name(args)), ("topic",)),
    "LIST_OFFSETS": _Row(build.list_offsets, ("topic", "partition")),
    "PUBLISH": _Row(
        build.publish,
        (
            *("topic", "acks", "partition", "key", "seqNum", "epoch", "isIdempotent"),
            *PRODUCER_ID,
            *build.FORBIDDEN_IN_PUBLISH,
        ),
        message=True,
    ),
    "CONSUME": _Row(
        build.reading(build.consume, "invalid_consume_syntax"), (*_READ_KEYS, "wait_ms"), _READ
    ),
    "STREAM": _Row(build.reading(build.stream, "invalid_stream_syntax"), _READ_KEYS, _READ),
    "FIND_COORDINATOR": _Row(build.find_coordinator, ("group", *TRANSACTIONAL_ID)),
    "LIST_CLUSTER": _Row(lambda _: requests.ListCluster()),
    "CLUSTER_STATUS": _Row(lambda _: requests.ClusterStatus()),
    "ELECT_LEADER": _Row(build.elect_leader, ("topic", "partition", "broker")),
    "REGISTER_GROUP": _Row(
        lambda args: requests.RegisterGroup(topic_name(args, pattern=True), name_of(args, "group")),
        _GROUP,
    ),
    "SUBSCRIBE": _Row(
        lambda args: requests.RegisterGroup(topic_name(args, pattern=True), name_of(args, "group")),
        _GROUP,
        _GROUP,
    ),
    "JOIN_GROUP": _Row(build.join, _GENERATION, _MEMBER),
    "SYNC_GROUP": _Row(build.of_member(requests.SyncGroup), _GENERATION, _GENERATION),
    "HEARTBEAT": _Row(
        build.of_member(requests.Heartbeat),
        _GENERATION,
        (*_GROUP, "consumer", "member", "generation"),
    ),
    "LEAVE_GROUP": _Row(build.leave, _GENERATION, _MEMBER),
    "FETCH_OFFSET": _Row(
        build.fetch_offset, ("topic", "partition", "group", "member", "generation")
    ),
    "COMMIT_OFFSET": _Row(
        build.commit_offset, ("topic", "partition", "group", "offset", "member", "generation")
    ),
    "COMMIT": _Row(
        build.commit_offset,
        ("topic", "partition", "group", "offset", "member", "generation"),
        ("topic", "group", "partition", "offset"),
    ),
    "BATCH_COMMIT": _Row(
        build.batch_commit, _GENERATION, (*_GENERATION, "offsets"), last_word="offsets"
    ),
    "GROUP_STATUS": _Row(lambda args: requests.GroupStatus(name_of(args, "group")), ("group",)),
    "LIST_GROUPS": _Row(lambda _: requests.ListGroups()),
    "APPEND_STREAM": _Row(
        build.append_stream,
        ("topic", "key", "version", "event_type", "schema_version", "metadata", *PRODUCER_ID),
        message=True,
    ),
    "STREAM_VERSION": _Row(
        lambda args: requests.StreamVersion(topic_name(args), args.required("key")),
        ("topic", "key"),
    ),
    "SAVE_SNAPSHOT": _Row(build.save_snapshot, ("topic", "key", "version"), message=True),
    "READ_SNAPSHOT": _Row(
        lambda args: requests.ReadSnapshot(topic_name(args), args.required("key")), ("topic", "key")
    ),
    "READ_STREAM": _Row(build.read_stream, ("topic", "key", "from_version")),
    "INIT_PRODUCER_ID": _Row(
        lambda args: requests.InitProducerId(name_of(args, *TRANSACTIONAL_ID)), TRANSACTIONAL_ID
    ),
    "BEGIN_TXN": _Row(lambda args: requests.BeginTransaction(fence_of(args)), _FENCE),
    "TXN_PUBLISH": _Row(
        build.transaction_publish, (*_FENCE, "topic", "partition", "seqNum", "key"), message=True
    ),
    "SEND_OFFSETS_TO_TXN": _Row(build.send_offsets, (*_FENCE, *_GENERATION), last_word="offsets"),
    "END_TXN": _Row(build.end_transaction, (*_FENCE, "result", "action", "state")),
    "TXN_STATUS": _Row(
        lambda args: requests.TransactionStatus(name_of(args, *TRANSACTIONAL_ID)), TRANSACTIONAL_ID
    ),
}
WORDS = frozenset(COMMANDS) | INTERNAL


@dataclass(frozen=True, slots=True)
class Command:
    """A request, who it says it is from, and whether it came in positional form: clients that
    write so do not follow redirections."""

    word: str
    request: Request
    credentials: Credentials | None = None
    positional: bool = False


def parse_command(text: CommandText) -> Command:
    """The request that a command's text makes. Raises CursusError."""
    if text.word in INTERNAL:
        raise CursusError("internal_command_unauthorized", f"command={text.word}")
    row = COMMANDS[text.word]
    args = read_arguments(
        text.word,
        text.rest,
        keys=frozenset((*row.keys, *_CREDENTIALS)),
        positions=row.positions,
        message=row.message,
        last_word=row.last_word,
    )
    try:
        request = row.build(args)
    except CursusError as error:
        raise refusal_of(text.word, error) from None
    return Command(text.word, request, credentials_of(args), args.positional)
