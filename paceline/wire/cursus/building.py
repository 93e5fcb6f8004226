"""From a command's arguments to its request, a function for each kind."""

from __future__ import annotations

import re
from collections.abc import Callable

from paceline.types import Isolation
from paceline.wire.cursus import requests
from paceline.wire.cursus.arguments import Arguments
from paceline.wire.cursus.batch import MAX_PARTITIONS, Dialect, acks_of
from paceline.wire.cursus.errors import CursusError, invalid, missing, quoted
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
    fence_of,
    generation_of,
    name_of,
    offsets_of,
    optional_generation,
    partition_of,
    topic_name,
)

DEFAULT_PARTITIONS = 4
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
FORBIDDEN_IN_PUBLISH = ("transactional_id", "transaction_state", "transaction_marker")


# --- session ------------------------------------------------------------------------------------


def negotiate(args: Arguments) -> Request:
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


def auth(args: Arguments) -> Request:
    principal, token = args.text("principal"), args.text("token", "auth_token")
    if not principal or not token:
        raise CursusError("invalid_auth", "command=AUTH")
    return requests.Auth(Credentials(principal, token))


# --- topics -------------------------------------------------------------------------------------


def create(args: Arguments) -> Request:
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
        frozenset(field for word, field in _POLICY.items() if args.has(word)),
    )


_POLICY = {
    "cleanup_policy": "cleanup",
    "partitioner": "partitioner",
    "auth_policy": "auth",
    "read_acl": "read_acl",
    "write_acl": "write_acl",
    "retention_hours": "retention_hours",
    "retention_bytes": "retention_bytes",
}


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


def list_topics(args: Arguments) -> Request:
    return requests.ListTopics(topic_name(args) if args.has("topic") else None)


def list_offsets(args: Arguments) -> Request:
    partition = partition_of(args) if args.has("partition") else None
    return requests.ListOffsets(topic_name(args), partition)


# --- records ------------------------------------------------------------------------------------


def publish(args: Arguments) -> Request:
    topic = topic_name(args)
    if any(map(args.has, FORBIDDEN_IN_PUBLISH)):
        raise CursusError("transaction_metadata_forbidden", "command=PUBLISH")
    partition = partition_of(args, default=-1, low=-1)
    request = requests.Publish(
        topic=topic,
        partition=None if partition < 0 else partition,
        acks=acks_of(args.text("acks").encode()),
        producer_id=args.text(*PRODUCER_ID),
        key=args.text("key"),
        sequence=args.integer("seqNum", default=0, field="seq_num"),
        epoch=args.integer("epoch", default=0),
        idempotent=args.flag("isIdempotent", field="is_idempotent"),
        message=args.text("message"),
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
        topic=topic_name(args, pattern=not positional),
        partition=partition_of(args),
        offset=args.optional_integer("offset"),
        group=args.text("group") or None,
        member=args.text("member") or None,
        generation=optional_generation(args),
        isolation=isolation,
        reset=reset,
        max_records=max(1, args.integer("batch", default=DEFAULT_BATCH)),
        dialect=Dialect.SEED if positional else Dialect.REAL,
    )


def reading(build: Callable[[Arguments], Request], syntax: str) -> Callable[[Arguments], Request]:
    """CONSUME and STREAM have one code for whatever is missing."""

    def read(args: Arguments) -> Request:
        try:
            return build(args)
        except CursusError as error:
            if error.word.startswith("missing_"):
                raise CursusError(syntax, error.detail) from None
            raise

    return read


def consume(args: Arguments) -> Request:
    place = _place(args)
    return requests.Consume(place, args.integer("wait_ms", default=0))


def stream(args: Arguments) -> Request:
    return requests.Stream(_place(args))


# --- cluster and groups -------------------------------------------------------------------------


def find_coordinator(args: Arguments) -> Request:
    if args.text("group"):
        return requests.FindCoordinator(name_of(args, "group"), None)
    if args.text(*TRANSACTIONAL_ID):
        return requests.FindCoordinator(None, name_of(args, *TRANSACTIONAL_ID))
    raise CursusError("missing_coordinator_key", f"command={args.command}")


def elect_leader(args: Arguments) -> Request:
    return requests.ElectLeader(topic_name(args), partition_of(args), args.required("broker"))


def join(args: Arguments) -> Request:
    generation = optional_generation(args)
    return requests.JoinGroup(
        topic_name(args), name_of(args, "group"), name_of(args, "member"), generation
    )


def leave(args: Arguments) -> Request:
    return requests.LeaveGroup(
        topic_name(args),
        name_of(args, "group"),
        name_of(args, "member"),
        optional_generation(args),
        by_base=args.positional,
    )


def of_member(
    make: Callable[[str, str, str, int], Request],
) -> Callable[[Arguments], Request]:
    def build(args: Arguments) -> Request:
        return make(
            topic_name(args), name_of(args, "group"), name_of(args, "member"), generation_of(args)
        )

    return build


def fetch_offset(args: Arguments) -> Request:
    return requests.FetchOffset(
        topic_name(args, pattern=True),
        partition_of(args),
        name_of(args, "group"),
        args.text("member"),
        optional_generation(args),
    )


def commit_offset(args: Arguments) -> Request:
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


def batch_commit(args: Arguments) -> Request:
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


def append_stream(args: Arguments) -> Request:
    return requests.AppendStream(
        topic=topic_name(args),
        key=args.required("key"),
        version=args.integer("version", low=1),
        event_type=args.text("event_type"),
        schema_version=args.integer("schema_version", default=1),
        producer_id=args.text(*PRODUCER_ID),
        metadata=args.text("metadata"),
        message=_message(args),
    )


def save_snapshot(args: Arguments) -> Request:
    version = args.integer("version", low=1)
    return requests.SaveSnapshot(topic_name(args), args.required("key"), version, _message(args))


def read_stream(args: Arguments) -> Request:
    topic, key = topic_name(args), args.required("key")
    return requests.ReadStream(topic, key, args.integer("from_version", default=1, low=1))


# --- transactions -------------------------------------------------------------------------------


def transaction_publish(args: Arguments) -> Request:
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


def send_offsets(args: Arguments) -> Request:
    return requests.SendOffsets(
        fence_of(args),
        topic_name(args),
        name_of(args, "group"),
        name_of(args, "member"),
        generation_of(args),
        offsets_of(args),
    )


def end_transaction(args: Arguments) -> Request:
    results = {"commit": True, "committed": True, "abort": False, "aborted": False}
    text = args.required("result", "action", "state")
    commit = args.choice(results, "result", "action", "state", default=False, field="result")
    assert text
    return requests.EndTransaction(fence_of(args), commit)
