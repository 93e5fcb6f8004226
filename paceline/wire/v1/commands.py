"""From a command and its argument text to a request, with exact refusals (DESIGN 1.4).

Checks of one command run in a fixed order: argument count, then the arguments from left to right;
PRODUCE looks at its message and options before its topic. Names of options and their values are
compared without case, as the original does (DESIGN 1.4).
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from itertools import pairwise

from paceline.assignors.registry import BrokerAssignor
from paceline.types import Acks
from paceline.wire.v1.errors import V1Code, V1Error, bad_request
from paceline.wire.v1.requests import (
    AdminBrokerHeartbeat,
    AdminCreateTopic,
    AdminElectTopicLeaders,
    AdminFenceBroker,
    AdminGetMetadata,
    AdminReconcileBrokerHealth,
    AdminRegisterBroker,
    AdminSetPartitionLeader,
    AdminUnfenceBroker,
    BrokerFetch,
    BrokerReplicaAck,
    Commit,
    CommittedOffset,
    Consume,
    Heartbeat,
    Join,
    Leave,
    PartitionRole,
    Produce,
    ReplicaFetch,
    Request,
    SetPartitionRole,
    Sync,
    ValueEncoding,
)
from paceline.wire.v1.text import (
    TOKEN,
    encode,
    is_plain_safe,
    parse_host,
    parse_integer,
    parse_name,
    parse_topic,
    percent_decode,
)

DEFAULT_MAX_MESSAGES = 100
"""Of BROKER_FETCH, when its caller names none."""

_MEMBER = "<group> <topic> <consumer_id> <generation>"
USAGE = {
    "PRODUCE": "<topic> <key>:<value> [acks=0|1|all]",
    "CONSUME": "<topic> <partition> <offset>",
    "JOIN": "<group> <topic> <consumer_id> [assignor=round_robin|range]",
    "SYNC": _MEMBER,
    "HEARTBEAT": _MEMBER,
    "LEAVE": _MEMBER,
    "COMMIT": f"{_MEMBER} <partition> <offset>",
    "OFFSET": "<group> <topic> <partition>",
    "REPLICA_FETCH": "<topic> <partition> <replica_id> <offset>",
    "SET_PARTITION_ROLE": "<topic> <partition> <leader|follower>",
    "BROKER_FETCH": "<topic> <partition> <follower_id> <offset> [max_messages]",
    "BROKER_REPLICA_ACK": "<topic> <partition> <follower_id> <acked_offset>",
    "ADMIN_CREATE_TOPIC": "<topic> <partitions> <replication_factor>",
    "ADMIN_REGISTER_BROKER": "<broker_id> <host> <port> [epoch]",
    "ADMIN_BROKER_HEARTBEAT": "<broker_id>",
    "ADMIN_SET_PARTITION_LEADER": "<topic> <partition> <leader_id> <isr_csv>",
    "ADMIN_FENCE_BROKER": "<broker_id>",
    "ADMIN_UNFENCE_BROKER": "<broker_id>",
    "ADMIN_RECONCILE_BROKER_HEALTH": "<timeout_ms>",
    "ADMIN_ELECT_TOPIC_LEADERS": "<topic>",
}
"""What each command requires, as its arity error says it."""

_BAD_ACKS = "invalid ack mode; expected acks=0|1|all"
_BAD_ASSIGNOR = "invalid assignor; expected assignor=round_robin|range"
_ACKS = {"0": Acks.NONE, "1": Acks.LEADER, "all": Acks.ALL}


class PlainValues(enum.Enum):
    """What PRODUCE does with a value that a plain reply cannot carry (DESIGN 2.1)."""

    STRICT = "strict"
    LENIENT = "lenient"


def unknown_command() -> V1Error:
    """The answer to a command outside the table, or one that the listener does not serve."""
    return V1Error(V1Code.UNKNOWN_COMMAND, "unsupported command")


def parse_request(
    command: str, args: str, *, plain_values: PlainValues = PlainValues.STRICT
) -> Request:
    """The request that ``command`` (upper case) makes of ``args`` (trimmed). Raises V1Error."""
    if command == "PRODUCE":
        return _produce(args, plain_values)
    parser = _PARSERS.get(command)
    if parser is None:
        raise unknown_command()
    return parser(TOKEN.findall(args))


def _arity(command: str) -> V1Error:
    return bad_request(f"{command} requires: {USAGE[command]}")


def _counted(command: str, args: list[str], least: int, most: int | None = None) -> None:
    if not least <= len(args) <= (least if most is None else most):
        raise _arity(command)


def _option(token: str) -> tuple[str, str]:
    name, _, value = token.partition("=")
    return name.lower(), value.lower()


# --- records -------------------------------------------------------------------------------


def _produce(args: str, plain_values: PlainValues) -> Produce:
    tokens = list(TOKEN.finditer(args))
    options = [match[0] for match in tokens[2:]]
    # Several blank-separated words without "=" are a value with blanks in it, not options.
    if len(tokens) < 2 or (len(options) > 1 and not all("=" in option for option in options)):
        raise _arity("PRODUCE")
    message = tokens[1]
    if ":" not in message[0]:
        raise bad_request("message must be key:value")
    acks, encoding = _produce_options(options)
    topic = parse_topic(tokens[0][0])
    key, _, value = encode(message[0]).partition(b":")
    if encoding is ValueEncoding.PERCENT:
        return Produce(topic, percent_decode(key), percent_decode(value), acks)
    if plain_values is PlainValues.STRICT:
        _check_blanks(args, tokens)
        if not is_plain_safe(value):
            raise bad_request("value cannot be carried in plain form; use enc=pct")
    return Produce(topic, key, value, acks)


def _produce_options(options: list[str]) -> tuple[Acks, ValueEncoding]:
    acks: Acks | None = None
    encoding: ValueEncoding | None = None
    for token in options:
        name, value = _option(token)
        if name == "acks" and value in _ACKS and acks is None:
            acks = _ACKS[value]
        elif (name, value) == ("enc", "pct") and encoding is None:
            encoding = ValueEncoding.PERCENT
        else:
            raise bad_request(_BAD_ACKS)
    return Acks.LEADER if acks is None else acks, encoding or ValueEncoding.PLAIN


def _check_blanks(args: str, tokens: list[re.Match[str]]) -> None:
    """Refuse blanks that may have been meant as the value's first or last characters."""
    gaps = [args[left.end() : right.start()] for left, right in pairwise(tokens)]
    if any(gap != " " for gap in gaps):
        raise bad_request("ambiguous whitespace around message; use enc=pct")


def _consume(args: list[str]) -> Consume:
    if len(args) < 3:
        raise _arity("CONSUME")
    options: dict[str, str] = {}
    for token in args[3:]:
        name, value = _option(token)
        if name in options or name not in ("enc", "keys", "max"):
            raise _arity("CONSUME")
        options[name] = value
    if options.get("enc", "pct") != "pct" or options.get("keys", "1") != "1":
        raise _arity("CONSUME")
    if "keys" in options and "enc" not in options:
        raise _arity("CONSUME")
    topic = parse_topic(args[0])
    partition = parse_integer(args[1], "partition")
    offset = _natural(args[2], "offset")
    limit = _natural(options["max"], "max") if "max" in options else None
    if limit == 0:
        raise bad_request("invalid max")
    encoding = ValueEncoding.PERCENT if "enc" in options else ValueEncoding.PLAIN
    return Consume(topic, partition, offset, encoding, "keys" in options, limit)


def _natural(text: str, field: str) -> int:
    """An integer of 0 or more; the original crashed on negative offsets."""
    number = parse_integer(text, field)
    if number < 0:
        raise bad_request(f"invalid {field}")
    return number


# --- groups --------------------------------------------------------------------------------


def _join(args: list[str]) -> Join:
    _counted("JOIN", args, 3, 4)
    group = parse_name(args[0], "group")
    topic = parse_topic(args[1])
    consumer_id = parse_name(args[2], "consumer_id")
    return Join(group, topic, consumer_id, _assignor(args[3]) if len(args) == 4 else None)


def _assignor(token: str) -> BrokerAssignor:
    name, value = _option(token)
    if name == "assignor":
        for assignor in BrokerAssignor:
            if assignor.value == value:
                return assignor
    raise bad_request(_BAD_ASSIGNOR)


def _member(command: str, args: list[str]) -> tuple[str, str, str, int]:
    _counted(command, args, 4)
    return _membership(args)


def _membership(args: list[str]) -> tuple[str, str, str, int]:
    return (
        parse_name(args[0], "group"),
        parse_topic(args[1]),
        parse_name(args[2], "consumer_id"),
        parse_integer(args[3], "generation"),
    )


def _sync(args: list[str]) -> Sync:
    return Sync(*_member("SYNC", args))


def _heartbeat(args: list[str]) -> Heartbeat:
    return Heartbeat(*_member("HEARTBEAT", args))


def _leave(args: list[str]) -> Leave:
    return Leave(*_member("LEAVE", args))


def _commit(args: list[str]) -> Commit:
    _counted("COMMIT", args, 6)
    return Commit(
        *_membership(args), parse_integer(args[4], "partition"), _natural(args[5], "offset")
    )


def _committed_offset(args: list[str]) -> CommittedOffset:
    _counted("OFFSET", args, 3)
    return CommittedOffset(
        parse_name(args[0], "group"), parse_topic(args[1]), parse_integer(args[2], "partition")
    )


# --- replicas ------------------------------------------------------------------------------


def _replica_fetch(args: list[str]) -> ReplicaFetch:
    _counted("REPLICA_FETCH", args, 4)
    return ReplicaFetch(
        parse_topic(args[0]),
        parse_integer(args[1], "partition"),
        parse_integer(args[2], "replica_id"),
        parse_integer(args[3], "offset"),
    )


def _set_partition_role(args: list[str]) -> SetPartitionRole:
    _counted("SET_PARTITION_ROLE", args, 3)
    topic = parse_topic(args[0])
    partition = parse_integer(args[1], "partition")
    word = args[2].lower()
    for role in PartitionRole:
        if role.value == word:
            return SetPartitionRole(topic, _at_least_zero(partition), role)
    raise bad_request("invalid role")


def _at_least_zero(partition: int) -> int:
    if partition < 0:
        raise bad_request("partition must be >= 0")
    return partition


def _broker_fetch(args: list[str]) -> BrokerFetch:
    _counted("BROKER_FETCH", args, 4, 5)
    request = BrokerFetch(
        parse_topic(args[0]),
        parse_integer(args[1], "partition"),
        parse_integer(args[2], "follower_id"),
        _natural(args[3], "offset"),
        parse_integer(args[4], "max_messages") if len(args) == 5 else DEFAULT_MAX_MESSAGES,
    )
    if request.max_messages <= 0:
        raise bad_request("max_messages must be > 0")
    return request


def _broker_replica_ack(args: list[str]) -> BrokerReplicaAck:
    _counted("BROKER_REPLICA_ACK", args, 4)
    return BrokerReplicaAck(
        parse_topic(args[0]),
        parse_integer(args[1], "partition"),
        parse_integer(args[2], "follower_id"),
        parse_integer(args[3], "acked_offset"),
    )


# --- administration ------------------------------------------------------------------------


def _create_topic(args: list[str]) -> AdminCreateTopic:
    _counted("ADMIN_CREATE_TOPIC", args, 3)
    request = AdminCreateTopic(
        parse_topic(args[0]),
        parse_integer(args[1], "partitions"),
        parse_integer(args[2], "replication_factor"),
    )
    if request.partitions <= 0:
        raise bad_request("partitions must be > 0")
    if request.replication_factor <= 0:
        raise bad_request("replication factor must be > 0")
    return request


def _register_broker(args: list[str]) -> AdminRegisterBroker:
    _counted("ADMIN_REGISTER_BROKER", args, 3, 4)
    broker_id = parse_integer(args[0], "broker_id")
    host = parse_host(args[1])
    port = parse_integer(args[2], "port")
    epoch = parse_integer(args[3], "epoch") if len(args) == 4 else 0
    if broker_id < 0:
        raise bad_request("broker id must be >= 0")
    if port <= 0:
        raise bad_request("broker port must be > 0")
    return AdminRegisterBroker(broker_id, host, port, epoch if epoch > 0 else None)


def _broker_id(command: str, args: list[str]) -> int:
    _counted(command, args, 1)
    return parse_integer(args[0], "broker_id")


def _broker_heartbeat(args: list[str]) -> AdminBrokerHeartbeat:
    return AdminBrokerHeartbeat(_broker_id("ADMIN_BROKER_HEARTBEAT", args))


def _fence_broker(args: list[str]) -> AdminFenceBroker:
    return AdminFenceBroker(_broker_id("ADMIN_FENCE_BROKER", args))


def _unfence_broker(args: list[str]) -> AdminUnfenceBroker:
    return AdminUnfenceBroker(_broker_id("ADMIN_UNFENCE_BROKER", args))


def _set_partition_leader(args: list[str]) -> AdminSetPartitionLeader:
    _counted("ADMIN_SET_PARTITION_LEADER", args, 4)
    topic = parse_topic(args[0])
    partition = parse_integer(args[1], "partition")
    leader_id = parse_integer(args[2], "leader_id")
    isr = _integer_list(args[3])
    if leader_id < -1:
        raise bad_request("leader id must be >= -1")
    return AdminSetPartitionLeader(topic, _at_least_zero(partition), leader_id, isr)


def _integer_list(csv: str) -> tuple[int, ...]:
    """Comma-separated integers; blank items are skipped, as the original does."""
    return tuple([parse_integer(item, "integer list") for item in csv.split(",") if item])


def _reconcile(args: list[str]) -> AdminReconcileBrokerHealth:
    _counted("ADMIN_RECONCILE_BROKER_HEALTH", args, 1)
    timeout_ms = parse_integer(args[0], "timeout_ms")
    if timeout_ms <= 0:
        raise bad_request("timeout must be > 0")
    return AdminReconcileBrokerHealth(timeout_ms)


def _elect_topic_leaders(args: list[str]) -> AdminElectTopicLeaders:
    _counted("ADMIN_ELECT_TOPIC_LEADERS", args, 1)
    return AdminElectTopicLeaders(parse_topic(args[0]))


def _get_metadata(args: list[str]) -> AdminGetMetadata:
    if args:
        raise bad_request("ADMIN_GET_METADATA requires no args")
    return AdminGetMetadata()


_PARSERS: dict[str, Callable[[list[str]], Request]] = {
    "CONSUME": _consume,
    "JOIN": _join,
    "SYNC": _sync,
    "HEARTBEAT": _heartbeat,
    "LEAVE": _leave,
    "COMMIT": _commit,
    "OFFSET": _committed_offset,
    "REPLICA_FETCH": _replica_fetch,
    "SET_PARTITION_ROLE": _set_partition_role,
    "BROKER_FETCH": _broker_fetch,
    "BROKER_REPLICA_ACK": _broker_replica_ack,
    "ADMIN_CREATE_TOPIC": _create_topic,
    "ADMIN_REGISTER_BROKER": _register_broker,
    "ADMIN_BROKER_HEARTBEAT": _broker_heartbeat,
    "ADMIN_SET_PARTITION_LEADER": _set_partition_leader,
    "ADMIN_FENCE_BROKER": _fence_broker,
    "ADMIN_UNFENCE_BROKER": _unfence_broker,
    "ADMIN_RECONCILE_BROKER_HEALTH": _reconcile,
    "ADMIN_ELECT_TOPIC_LEADERS": _elect_topic_leaders,
    "ADMIN_GET_METADATA": _get_metadata,
}
COMMANDS = ("PRODUCE", *_PARSERS)
"""Every command that :func:`parse_request` knows."""
