"""From a command's text to a request: one row of :data:`COMMANDS` for each (spec cursus 8)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from paceline.types import Isolation
from paceline.wire.cursus import requests
from paceline.wire.cursus.arguments import Arguments, read_arguments
from paceline.wire.cursus.batch import MAX_PARTITIONS, Dialect, acks_of
from paceline.wire.cursus.errors import CursusError, invalid, missing, quoted
from paceline.wire.cursus.inbound import CommandText
from paceline.wire.cursus.replies import refusal_of
from paceline.wire.cursus.requests import (
    AuthPolicy,
    Credentials,
    OffsetReset,
    Partitioner,
    Request,
    TopicPolicy,
)
from paceline.wire.cursus.values import (
    PRODUCER_ID,
    TRANSACTIONAL_ID,
    credentials_of,
    fence_of,
    generation_of,
    name_of,
    offsets_of,
    optional_generation,
    partition_of,
    topic_name,
)

DEFAULT_PARTITIONS = 4
DEFAULT_GROUP = "default-group"
DEFAULT_BATCH = 8192
_MAX_FEATURES = 64
_FEATURE = re.compile(r"[a-z0-9_]{1,64}\Z")

_ISOLATION = {
    "read_committed": Isolation.READ_COMMITTED,
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
}
_RESET = {reset.value: reset for reset in OffsetReset}
_CLEANUP = {
    "delete": "delete",
    "compact": "compact",
    "delete,compact": "delete,compact",
    "compact,delete": "delete,compact",
}
_PARTITIONERS = {each.value: each for each in Partitioner}
_AUTH_POLICIES = {each.value: each for each in AuthPolicy}
_CREDENTIALS = ("principal", "auth_token", "token")
_FORBIDDEN_IN_PUBLISH = ("transactional_id", "transaction_state", "transaction_marker")

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


# --- session ------------------------------------------------------------------------------------


def _negotiate(args: Arguments) -> Request:
    try:
        return _read_negotiate(args)
    except CursusError as error:
        raise CursusError(error.word, error.detail, always_classed=True) from None


def _read_negotiate(args: Arguments) -> Request:
    version = args.integer("version", field="protocol_version")
    text = args.text("features")
    features: tuple[str, ...] | None = tuple(dict.fromkeys(args.names("features")))
    if text == "*":
        features = None
    elif features is not None and (
        len(features) > _MAX_FEATURES or not all(map(_FEATURE.match, features))
    ):
        reason = f"expected at most {_MAX_FEATURES} names of a-z 0-9 _"
        raise invalid("protocol_features", args.command, reason)
    required = args.flag("require_features", field="require_features")
    return requests.Negotiate(version, features, required)


def _auth(args: Arguments) -> Request:
    principal, token = args.text("principal"), args.text("token", "auth_token")
    if not principal or not token:
        raise CursusError("invalid_auth", "command=AUTH")
    return requests.Auth(Credentials(principal, token))


# --- topics -------------------------------------------------------------------------------------


def _create(args: Arguments) -> Request:
    if not args.text("topic"):
        expected = quoted("CREATE topic=<name> [partitions=<N>]")
        raise CursusError("missing_topic", f"expected={expected}")
    topic = topic_name(args)
    try:
        partitions = args.integer("partitions", default=DEFAULT_PARTITIONS, low=1)
    except CursusError:
        partitions = 0
    if not 1 <= partitions <= MAX_PARTITIONS:
        reason = "must be a positive integer" if partitions < 1 else f"at most {MAX_PARTITIONS}"
        raise CursusError("invalid_partitions", f"reason={quoted(reason)}")
    policy = _policy(args)
    event_sourcing = args.flag("event_sourcing", field="event_sourcing")
    if event_sourcing and "compact" in policy.cleanup:
        reason = "an event-sourcing topic keeps every event"
        raise CursusError("unsupported_topic_policy", f"topic={topic} reason={quoted(reason)}")
    return requests.CreateTopic(
        topic,
        partitions,
        args.flag("idempotent", field="idempotent"),
        event_sourcing,
        args.optional_integer("replication_factor", low=1),
        policy,
    )


def _policy(args: Arguments) -> TopicPolicy:
    wrong = "topic_policy"
    return TopicPolicy(
        args.choice(_CLEANUP, "cleanup_policy", default="delete", field=wrong),
        args.choice(_PARTITIONERS, "partitioner", default=Partitioner.HASH_KEY, field=wrong),
        args.choice(_AUTH_POLICIES, "auth_policy", default=AuthPolicy.OPEN, field=wrong),
        args.names("read_acl"),
        args.names("write_acl"),
        args.integer("retention_hours", default=0, field=wrong),
        args.integer("retention_bytes", default=0, field=wrong),
    )


def _list(args: Arguments) -> Request:
    return requests.ListTopics(topic_name(args) if args.has("topic") else None)


def _list_offsets(args: Arguments) -> Request:
    partition = partition_of(args) if args.has("partition") else None
    return requests.ListOffsets(topic_name(args), partition)


# --- records ------------------------------------------------------------------------------------


def _publish(args: Arguments) -> Request:
    topic = topic_name(args)
    if any(map(args.has, _FORBIDDEN_IN_PUBLISH)):
        raise CursusError("transaction_metadata_forbidden", "command=PUBLISH")
    partition = partition_of(args, default=-1, low=-1)
    request = requests.Publish(
        topic,
        None if partition < 0 else partition,
        acks_of(args.text("acks").encode()),
        args.text(*PRODUCER_ID),
        args.text("key"),
        args.integer("seqNum", default=0, field="seq_num"),
        args.integer("epoch", default=0),
        args.flag("isIdempotent", field="is_idempotent"),
        args.text("message"),
    )
    if not args.has("message"):
        raise missing("message", args.command)
    return request


def _place(args: Arguments) -> requests.ReadPlace:
    positional = args.positional
    isolation = args.choice(
        _ISOLATION,
        "isolation",
        "isolation_level",
        default=Isolation.READ_COMMITTED,
        field="isolation",
    )
    reset = args.choice(
        _RESET, "autoOffsetReset", default=OffsetReset.EARLIEST, field="auto_offset_reset"
    )
    return requests.ReadPlace(
        topic_name(args, pattern=not positional),
        partition_of(args),
        args.optional_integer("offset"),
        args.text("group") or None,
        args.text("member") or None,
        optional_generation(args),
        isolation,
        reset,
        max(1, args.integer("batch", default=DEFAULT_BATCH)),
        Dialect.SEED if positional else Dialect.REAL,
    )


def _read(build: Callable[[Arguments], Request], syntax: str) -> Callable[[Arguments], Request]:
    """CONSUME and STREAM have one code for whatever is missing."""

    def read(args: Arguments) -> Request:
        try:
            return build(args)
        except CursusError as error:
            if error.word.startswith("missing_"):
                raise CursusError(syntax, error.detail) from None
            raise

    return read


def _consume(args: Arguments) -> Request:
    place = _place(args)
    return requests.Consume(place, args.integer("wait_ms", default=0))


def _stream(args: Arguments) -> Request:
    return requests.Stream(_place(args))


# --- cluster and groups -------------------------------------------------------------------------


def _find_coordinator(args: Arguments) -> Request:
    if args.text("group"):
        return requests.FindCoordinator(name_of(args, "group"), None)
    if args.text(*TRANSACTIONAL_ID):
        return requests.FindCoordinator(None, name_of(args, *TRANSACTIONAL_ID))
    raise CursusError("missing_coordinator_key", f"command={args.command}")


def _elect_leader(args: Arguments) -> Request:
    return requests.ElectLeader(topic_name(args), partition_of(args), args.required("broker"))


def _join(args: Arguments) -> Request:
    generation = optional_generation(args)
    return requests.JoinGroup(
        topic_name(args), name_of(args, "group"), name_of(args, "member"), generation
    )


def _leave(args: Arguments) -> Request:
    return requests.LeaveGroup(
        topic_name(args),
        name_of(args, "group"),
        name_of(args, "member"),
        optional_generation(args),
        by_base=args.positional,
    )


def _member(
    make: Callable[[str, str, str, int], Request],
) -> Callable[[Arguments], Request]:
    def build(args: Arguments) -> Request:
        return make(
            topic_name(args), name_of(args, "group"), name_of(args, "member"), generation_of(args)
        )

    return build


def _fetch_offset(args: Arguments) -> Request:
    return requests.FetchOffset(
        topic_name(args, pattern=True), partition_of(args), name_of(args, "group")
    )


def _commit_offset(args: Arguments) -> Request:
    topic, partition, group = (
        topic_name(args, pattern=True),
        partition_of(args),
        name_of(args, "group"),
    )
    offset = args.integer("offset")
    if args.positional:
        return requests.CommitOffset(topic, partition, group, offset, None, None)
    member = name_of(args, "member")
    return requests.CommitOffset(topic, partition, group, offset, member, generation_of(args))


def _batch_commit(args: Arguments) -> Request:
    return requests.BatchCommit(
        topic_name(args, pattern=True),
        name_of(args, "group"),
        name_of(args, "member"),
        generation_of(args),
        offsets_of(args),
    )


# --- event sourcing -----------------------------------------------------------------------------


def _message(args: Arguments) -> str:
    if not args.has("message"):
        raise missing("message", args.command)
    return args.text("message")


def _append_stream(args: Arguments) -> Request:
    return requests.AppendStream(
        topic_name(args),
        args.required("key"),
        args.integer("version", low=1),
        args.text("event_type"),
        args.integer("schema_version", default=1),
        args.text(*PRODUCER_ID),
        args.text("metadata"),
        _message(args),
    )


def _save_snapshot(args: Arguments) -> Request:
    version = args.integer("version", low=1)
    return requests.SaveSnapshot(topic_name(args), args.required("key"), version, _message(args))


def _read_stream(args: Arguments) -> Request:
    topic, key = topic_name(args), args.required("key")
    return requests.ReadStream(topic, key, args.integer("from_version", default=1, low=1))


# --- transactions -------------------------------------------------------------------------------


def _transaction_publish(args: Arguments) -> Request:
    fence, topic = fence_of(args), topic_name(args)
    partition = partition_of(args, default=-1, low=-1)
    sequence = args.integer("seqNum", default=0, field="seq_num")
    if sequence < 1:
        reason = quoted("seqNum must be greater than zero")
        raise CursusError("invalid_seq_num", f"command={args.command} reason={reason}")
    return requests.TransactionPublish(
        fence,
        topic,
        None if partition < 0 else partition,
        sequence,
        args.text("key"),
        _message(args),
    )


def _send_offsets(args: Arguments) -> Request:
    return requests.SendOffsets(
        fence_of(args),
        topic_name(args),
        name_of(args, "group"),
        name_of(args, "member"),
        generation_of(args),
        offsets_of(args),
    )


def _end_transaction(args: Arguments) -> Request:
    results = {"commit": True, "committed": True, "abort": False, "aborted": False}
    text = args.required("result", "action", "state")
    commit = args.choice(results, "result", "action", "state", default=False, field="result")
    assert text
    return requests.EndTransaction(fence_of(args), commit)


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
    "NEGOTIATE": _Row(_negotiate, ("version", "features", "require_features")),
    "AUTH": _Row(_auth),
    "HELP": _Row(lambda _: requests.Help()),
    "EXIT": _Row(lambda _: requests.Exit()),
    "CREATE": _Row(
        _create,
        ("topic", "partitions", "idempotent", "event_sourcing", "replication_factor", *_POLICY),
        ("topic", "partitions"),
    ),
    "DELETE": _Row(lambda args: requests.DeleteTopic(topic_name(args)), ("topic",), ("topic",)),
    "LIST": _Row(_list, ("topic",)),
    "DESCRIBE": _Row(lambda args: requests.DescribeTopic(topic_name(args)), ("topic",)),
    "METADATA": _Row(lambda args: requests.TopicMetadata(topic_name(args)), ("topic",)),
    "LIST_OFFSETS": _Row(_list_offsets, ("topic", "partition")),
    "PUBLISH": _Row(
        _publish,
        (
            *("topic", "acks", "partition", "key", "seqNum", "epoch", "isIdempotent"),
            *PRODUCER_ID,
            *_FORBIDDEN_IN_PUBLISH,
        ),
        message=True,
    ),
    "CONSUME": _Row(_read(_consume, "invalid_consume_syntax"), (*_READ_KEYS, "wait_ms"), _READ),
    "STREAM": _Row(_read(_stream, "invalid_stream_syntax"), _READ_KEYS, _READ),
    "FIND_COORDINATOR": _Row(_find_coordinator, ("group", *TRANSACTIONAL_ID)),
    "LIST_CLUSTER": _Row(lambda _: requests.ListCluster()),
    "CLUSTER_STATUS": _Row(lambda _: requests.ClusterStatus()),
    "ELECT_LEADER": _Row(_elect_leader, ("topic", "partition", "broker")),
    "REGISTER_GROUP": _Row(
        lambda args: requests.RegisterGroup(topic_name(args, pattern=True), name_of(args, "group")),
        _GROUP,
    ),
    "SUBSCRIBE": _Row(
        lambda args: requests.RegisterGroup(topic_name(args, pattern=True), name_of(args, "group")),
        _GROUP,
        _GROUP,
    ),
    "JOIN_GROUP": _Row(_join, _GENERATION, _MEMBER),
    "SYNC_GROUP": _Row(_member(requests.SyncGroup), _GENERATION, _GENERATION),
    "HEARTBEAT": _Row(
        _member(requests.Heartbeat), _GENERATION, (*_GROUP, "consumer", "member", "generation")
    ),
    "LEAVE_GROUP": _Row(_leave, _GENERATION, _MEMBER),
    "FETCH_OFFSET": _Row(_fetch_offset, ("topic", "partition", "group")),
    "COMMIT_OFFSET": _Row(
        _commit_offset, ("topic", "partition", "group", "offset", "member", "generation")
    ),
    "COMMIT": _Row(
        _commit_offset,
        ("topic", "partition", "group", "offset", "member", "generation"),
        ("topic", "group", "partition", "offset"),
    ),
    "BATCH_COMMIT": _Row(
        _batch_commit, _GENERATION, (*_GENERATION, "offsets"), last_word="offsets"
    ),
    "GROUP_STATUS": _Row(lambda args: requests.GroupStatus(name_of(args, "group")), ("group",)),
    "LIST_GROUPS": _Row(lambda _: requests.ListGroups()),
    "APPEND_STREAM": _Row(
        _append_stream,
        ("topic", "key", "version", "event_type", "schema_version", "metadata", *PRODUCER_ID),
        message=True,
    ),
    "STREAM_VERSION": _Row(
        lambda args: requests.StreamVersion(topic_name(args), args.required("key")),
        ("topic", "key"),
    ),
    "SAVE_SNAPSHOT": _Row(_save_snapshot, ("topic", "key", "version"), message=True),
    "READ_SNAPSHOT": _Row(
        lambda args: requests.ReadSnapshot(topic_name(args), args.required("key")), ("topic", "key")
    ),
    "READ_STREAM": _Row(_read_stream, ("topic", "key", "from_version")),
    "INIT_PRODUCER_ID": _Row(
        lambda args: requests.InitProducerId(name_of(args, *TRANSACTIONAL_ID)), TRANSACTIONAL_ID
    ),
    "BEGIN_TXN": _Row(lambda args: requests.BeginTransaction(fence_of(args)), _FENCE),
    "TXN_PUBLISH": _Row(
        _transaction_publish, (*_FENCE, "topic", "partition", "seqNum", "key"), message=True
    ),
    "SEND_OFFSETS_TO_TXN": _Row(_send_offsets, (*_FENCE, *_GENERATION), last_word="offsets"),
    "END_TXN": _Row(_end_transaction, (*_FENCE, "result", "action", "state")),
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
