"""Envelopes and arguments: the vectors that concern words, and every refusal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.assignors.registry import BrokerAssignor
from paceline.types import Acks
from paceline.wire.v1 import requests as r
from paceline.wire.v1.commands import USAGE, PlainValues, parse_request
from paceline.wire.v1.envelope import UNREADABLE_ID, Envelope, parse_envelope
from paceline.wire.v1.errors import V1Code, V1Error
from paceline.wire.v1.replies import error_line

PCT = r.ValueEncoding.PERCENT
FORBIDDEN = (
    "connection closed",
    "timed out",
    "socket hang up",
    "Connection refused",
    "ECONNREFUSED",
)


def answer(line: bytes, plain_values: PlainValues = PlainValues.STRICT) -> bytes | r.Request:
    """What a listener does first with a line: the request in it, or the reply that refuses it."""
    correlation = UNREADABLE_ID
    try:
        envelope = parse_envelope(line)
        correlation = envelope.correlation
        return parse_request(envelope.command, envelope.args, plain_values=plain_values)
    except V1Error as error:
        return error_line(correlation, error).removesuffix(b"\n")


# --- envelope ------------------------------------------------------------------------------

FORMAT = "V1|0|ERR|BAD_REQUEST|expected format V1|<correlation_id>|<command>|<args>"


@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("", FORMAT),
        ("  \t ", FORMAT),
        ("V1|42|PRODUCE", FORMAT),
        ("PRODUCE orders user1:created", FORMAT),
        ("V2|42|PRODUCE|orders key:value", "V1|0|ERR|BAD_REQUEST|unsupported version"),
        ("v1|42|PRODUCE|orders key:value", "V1|0|ERR|BAD_REQUEST|unsupported version"),
        ("||", FORMAT),
        ("|||", "V1|0|ERR|BAD_REQUEST|unsupported version"),
        ("V1|||", "V1|0|ERR|BAD_REQUEST|correlation id required"),
        ("V1||PRODUCE|orders key:value", "V1|0|ERR|BAD_REQUEST|correlation id required"),
        ("V1| \u3000|PRODUCE|orders k:v", "V1|0|ERR|BAD_REQUEST|correlation id required"),
        ("V1|42||orders key:value", "V1|0|ERR|BAD_REQUEST|command required"),
        ("V1|99|PING|", "V1|99|ERR|UNKNOWN_COMMAND|unsupported command"),
        ("V1|a b|ping|x", "V1|a b|ERR|UNKNOWN_COMMAND|unsupported command"),
        ("V1|2|CONSUME|orders 2 1_0", "V1|2|ERR|BAD_REQUEST|invalid offset"),
        (
            "V1|3|PRODUCE|orders k:a b acks=1",
            "V1|3|ERR|BAD_REQUEST|PRODUCE requires: <topic> <key>:<value> [acks=0|1|all]",
        ),
        (
            "V1|4|PRODUCE|orders k:a b",
            "V1|4|ERR|BAD_REQUEST|invalid ack mode; expected acks=0|1|all",
        ),
        (
            "V1|5|PRODUCE|orders k:a,b",
            "V1|5|ERR|BAD_REQUEST|value cannot be carried in plain form; use enc=pct",
        ),
        ("V1|50|PRODUCE|orders user1", "V1|50|ERR|BAD_REQUEST|message must be key:value"),
        (
            "V1|51|PRODUCE|orders user1:x acks=2",
            "V1|51|ERR|BAD_REQUEST|invalid ack mode; expected acks=0|1|all",
        ),
        (
            "V1|52|PRODUCE|orders",
            "V1|52|ERR|BAD_REQUEST|PRODUCE requires: <topic> <key>:<value> [acks=0|1|all]",
        ),
        ("V1|55|REPLICA_FETCH|orders 2 x 2", "V1|55|ERR|BAD_REQUEST|invalid replica_id"),
        (
            "V1|60|JOIN|analytics orders consumer-c assignor=sticky",
            "V1|60|ERR|BAD_REQUEST|invalid assignor; expected assignor=round_robin|range",
        ),
    ],
)
def test_refusal_vectors(line: str, reply: str) -> None:
    assert answer(line.encode()) == reply.encode()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("V1|1|OFFSET|g t 0", r.CommittedOffset("g", "t", 0)),
        (" V1 | 7 | offset | g  t   0 ", r.CommittedOffset("g", "t", 0)),
        ("\u00a0V1\u3000|\u20287|offset|\tg\u2003t\x850", r.CommittedOffset("g", "t", 0)),
        (
            "V1|42|PRODUCE|orders user1:created",
            r.Produce("orders", b"user1", b"created", Acks.LEADER),
        ),
        (
            "V1|43|PRODUCE|orders user1:paid acks=all",
            r.Produce("orders", b"user1", b"paid", Acks.ALL),
        ),
        (
            "V1|44|PRODUCE|orders user2:a:b|c=d acks=0",
            r.Produce("orders", b"user2", b"a:b|c=d", Acks.NONE),
        ),
        ("V1|45|CONSUME|orders 2 0", r.Consume("orders", 2, 0)),
        ("V1|53|REPLICA_FETCH|orders 2 1 2", r.ReplicaFetch("orders", 2, 1, 2)),
        ("V1|56|JOIN|analytics orders c-a", r.Join("analytics", "orders", "c-a", None)),
        (
            "V1|57|JOIN|analytics orders c-b assignor=range",
            r.Join("analytics", "orders", "c-b", BrokerAssignor.RANGE),
        ),
        ("V1|58|SYNC|analytics orders c-a 2", r.Sync("analytics", "orders", "c-a", 2)),
        ("V1|61|HEARTBEAT|analytics orders c-b 4", r.Heartbeat("analytics", "orders", "c-b", 4)),
        (
            "V1|62|COMMIT|analytics orders c-b 4 2 3",
            r.Commit("analytics", "orders", "c-b", 4, 2, 3),
        ),
        ("V1|66|LEAVE|analytics orders c-b 4", r.Leave("analytics", "orders", "c-b", 4)),
        (
            "V1|68|SET_PARTITION_ROLE|orders 2 follower",
            r.SetPartitionRole("orders", 2, r.PartitionRole.FOLLOWER),
        ),
        ("V1|72|ADMIN_CREATE_TOPIC|payments 2 2", r.AdminCreateTopic("payments", 2, 2)),
        ("V1|73|ADMIN_GET_METADATA|", r.AdminGetMetadata()),
        ("V1|74|BROKER_FETCH|orders 2 1 0 2", r.BrokerFetch("orders", 2, 1, 0, 2)),
        ("V1|74|BROKER_FETCH|orders 2 1 0", r.BrokerFetch("orders", 2, 1, 0, 100)),
        ("V1|75|BROKER_REPLICA_ACK|orders 2 1 2", r.BrokerReplicaAck("orders", 2, 1, 2)),
        (
            "V1|76|ADMIN_REGISTER_BROKER|1 127.0.0.1 9093",
            r.AdminRegisterBroker(1, "127.0.0.1", 9093, None),
        ),
        (
            "V1|76|ADMIN_REGISTER_BROKER|1 127.0.0.1 9093 -5",
            r.AdminRegisterBroker(1, "127.0.0.1", 9093, None),
        ),
        ("V1|76|ADMIN_REGISTER_BROKER|0 h 1 17", r.AdminRegisterBroker(0, "h", 1, 17)),
        ("V1|77|ADMIN_BROKER_HEARTBEAT|1", r.AdminBrokerHeartbeat(1)),
        (
            "V1|79|ADMIN_SET_PARTITION_LEADER|payments 0 0 0,1",
            r.AdminSetPartitionLeader("payments", 0, 0, (0, 1)),
        ),
        (
            "V1|79|ADMIN_SET_PARTITION_LEADER|payments 0 -1 ,1,,0,",
            r.AdminSetPartitionLeader("payments", 0, -1, (1, 0)),
        ),
        ("V1|80|ADMIN_FENCE_BROKER|1", r.AdminFenceBroker(1)),
        ("V1|80|ADMIN_UNFENCE_BROKER|1", r.AdminUnfenceBroker(1)),
        ("V1|82|ADMIN_ELECT_TOPIC_LEADERS|payments", r.AdminElectTopicLeaders("payments")),
        ("V1|83|ADMIN_RECONCILE_BROKER_HEALTH|60000", r.AdminReconcileBrokerHealth(60000)),
        (
            "V1|6|PRODUCE|orders k:a%2Cb%20c enc=pct",
            r.Produce("orders", b"k", b"a,b c", Acks.LEADER),
        ),
        ("V1|7|CONSUME|orders 0 0 enc=pct", r.Consume("orders", 0, 0, PCT)),
    ],
)
def test_request_vectors(line: str, expected: r.Request) -> None:
    assert answer(line.encode()) == expected


def test_envelope_keeps_the_id_and_further_separators() -> None:
    assert parse_envelope(b" V1 | a b |produce| x | y|z ") == Envelope("a b", "PRODUCE", "x | y|z")


def test_bytes_that_are_not_utf8_pass_and_are_never_whitespace() -> None:
    envelope = parse_envelope(b"V1|\x85\xa0|PRODUCE|t k\xa0:v\x85")
    reply = error_line(envelope.correlation, V1Error(V1Code.INTERNAL, "x"))
    assert reply == b"V1|\x85\xa0|ERR|INTERNAL|x\n"
    lenient = parse_request(envelope.command, envelope.args, plain_values=PlainValues.LENIENT)
    assert lenient == r.Produce("t", b"k\xa0", b"v\x85", Acks.LEADER)


# --- argument counts and integers ----------------------------------------------------------

GOOD = {
    "PRODUCE": "t k:v",
    "CONSUME": "t 0 0",
    "JOIN": "g t c",
    "SYNC": "g t c 1",
    "HEARTBEAT": "g t c 1",
    "LEAVE": "g t c 1",
    "COMMIT": "g t c 1 0 0",
    "OFFSET": "g t 0",
    "REPLICA_FETCH": "t 0 1 0",
    "SET_PARTITION_ROLE": "t 0 leader",
    "BROKER_FETCH": "t 0 1 0",
    "BROKER_REPLICA_ACK": "t 0 1 0",
    "ADMIN_CREATE_TOPIC": "t 1 1",
    "ADMIN_REGISTER_BROKER": "1 h 1",
    "ADMIN_BROKER_HEARTBEAT": "1",
    "ADMIN_SET_PARTITION_LEADER": "t 0 0 0",
    "ADMIN_FENCE_BROKER": "1",
    "ADMIN_UNFENCE_BROKER": "1",
    "ADMIN_RECONCILE_BROKER_HEALTH": "1",
    "ADMIN_ELECT_TOPIC_LEADERS": "t",
}
ARITY = {
    "PRODUCE": "<topic> <key>:<value> [acks=0|1|all]",
    "CONSUME": "<topic> <partition> <offset>",
    "JOIN": "<group> <topic> <consumer_id> [assignor=round_robin|range]",
    "SYNC": "<group> <topic> <consumer_id> <generation>",
    "HEARTBEAT": "<group> <topic> <consumer_id> <generation>",
    "LEAVE": "<group> <topic> <consumer_id> <generation>",
    "COMMIT": "<group> <topic> <consumer_id> <generation> <partition> <offset>",
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
OPTIONAL = {"JOIN": " assignor=range", "BROKER_FETCH": " 5", "ADMIN_REGISTER_BROKER": " 5"}


def test_every_command_is_covered() -> None:
    assert set(GOOD) == set(ARITY) == set(USAGE)


@pytest.mark.parametrize("command", sorted(GOOD))
def test_argument_counts(command: str) -> None:
    good = GOOD[command]
    message = f"V1|1|ERR|BAD_REQUEST|{command} requires: {ARITY[command]}".encode()
    assert not isinstance(answer(f"V1|1|{command}|{good}".encode()), bytes)
    assert answer(f"V1|1|{command}|".encode()) == message
    fewer = " ".join(good.split(" ")[:-1])
    assert answer(f"V1|1|{command}|{fewer}".encode()) == message
    full = good + OPTIONAL.get(command, "")
    assert not isinstance(answer(f"V1|1|{command}|{full}".encode()), bytes)
    if command == "PRODUCE":
        full += " more"
    assert answer(f"V1|1|{command}|{full} extra".encode()) == message


def test_metadata_takes_no_arguments() -> None:
    assert answer(b"V1|1|ADMIN_GET_METADATA|x") == (
        b"V1|1|ERR|BAD_REQUEST|ADMIN_GET_METADATA requires no args"
    )


@pytest.mark.parametrize(
    ("command", "args", "message"),
    [
        ("CONSUME", "t x 0", "invalid partition"),
        ("CONSUME", "t x y", "invalid partition"),
        ("CONSUME", "t 0 y", "invalid offset"),
        ("CONSUME", "t 0 -1", "invalid offset"),
        ("CONSUME", "role=x 0 0", "invalid topic"),
        ("SYNC", "g t c x", "invalid generation"),
        ("HEARTBEAT", "g t c 1.5", "invalid generation"),
        ("LEAVE", "g t c 9223372036854775808", "invalid generation"),
        ("COMMIT", "g t c x y z", "invalid generation"),
        ("COMMIT", "g t c 1 y z", "invalid partition"),
        ("COMMIT", "g t c 1 0 z", "invalid offset"),
        ("COMMIT", "g t c 1 0 -1", "invalid offset"),
        ("OFFSET", "g t x", "invalid partition"),
        ("OFFSET", "g] t/ 0", "invalid topic"),
        ("OFFSET", "g\x01 t 0", "invalid group"),
        ("JOIN", "g t c\x7f", "invalid consumer_id"),
        ("JOIN", "g t c range", "invalid assignor; expected assignor=round_robin|range"),
        ("REPLICA_FETCH", "t x y z", "invalid partition"),
        ("REPLICA_FETCH", "t 0 y z", "invalid replica_id"),
        ("REPLICA_FETCH", "t 0 1 z", "invalid offset"),
        ("SET_PARTITION_ROLE", "t x leader", "invalid partition"),
        ("SET_PARTITION_ROLE", "t 0 boss", "invalid role"),
        ("SET_PARTITION_ROLE", "t -1 leader", "partition must be >= 0"),
        ("BROKER_FETCH", "t x y z", "invalid partition"),
        ("BROKER_FETCH", "t 0 y z", "invalid follower_id"),
        ("BROKER_FETCH", "t 0 1 z", "invalid offset"),
        ("BROKER_FETCH", "t 0 1 0 z", "invalid max_messages"),
        ("BROKER_FETCH", "t 0 1 0 0", "max_messages must be > 0"),
        ("BROKER_REPLICA_ACK", "t 0 y z", "invalid follower_id"),
        ("BROKER_REPLICA_ACK", "t 0 1 z", "invalid acked_offset"),
        ("ADMIN_CREATE_TOPIC", "t x y", "invalid partitions"),
        ("ADMIN_CREATE_TOPIC", "t 1 y", "invalid replication_factor"),
        ("ADMIN_CREATE_TOPIC", "t 0 0", "partitions must be > 0"),
        ("ADMIN_CREATE_TOPIC", "t 1 0", "replication factor must be > 0"),
        ("ADMIN_CREATE_TOPIC", "__groups 1 1", "invalid topic"),
        ("ADMIN_REGISTER_BROKER", "x h 1", "invalid broker_id"),
        ("ADMIN_REGISTER_BROKER", "1 h x", "invalid port"),
        ("ADMIN_REGISTER_BROKER", "1 h 1 x", "invalid epoch"),
        ("ADMIN_REGISTER_BROKER", "-1 h 1", "broker id must be >= 0"),
        ("ADMIN_REGISTER_BROKER", "1 h 0", "broker port must be > 0"),
        ("ADMIN_BROKER_HEARTBEAT", "x", "invalid broker_id"),
        ("ADMIN_FENCE_BROKER", "x", "invalid broker_id"),
        ("ADMIN_UNFENCE_BROKER", "x", "invalid broker_id"),
        ("ADMIN_SET_PARTITION_LEADER", "t x 0 0", "invalid partition"),
        ("ADMIN_SET_PARTITION_LEADER", "t 0 x 0", "invalid leader_id"),
        ("ADMIN_SET_PARTITION_LEADER", "t 0 0 0,x", "invalid integer list"),
        ("ADMIN_SET_PARTITION_LEADER", "t 0 -2 0", "leader id must be >= -1"),
        ("ADMIN_SET_PARTITION_LEADER", "t -1 0 0", "partition must be >= 0"),
        ("ADMIN_RECONCILE_BROKER_HEALTH", "x", "invalid timeout_ms"),
        ("ADMIN_RECONCILE_BROKER_HEALTH", "0", "timeout must be > 0"),
        ("ADMIN_ELECT_TOPIC_LEADERS", "..", "invalid topic"),
    ],
)
def test_refused_arguments(command: str, args: str, message: str) -> None:
    expected = f"V1|1|ERR|BAD_REQUEST|{message}".encode()
    assert answer(f"V1|1|{command}|{args}".encode()) == expected
    assert not any(phrase in message for phrase in FORBIDDEN)


# --- options -------------------------------------------------------------------------------

BAD_ACKS = "invalid ack mode; expected acks=0|1|all"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("t k:v ACKS=ALL", None),
        ("t k:v enc=pct acks=0", None),
        ("t k:v acks=0 ENC=PCT", None),
        ("t k:v acks=", BAD_ACKS),
        ("t k:v acks=-1", BAD_ACKS),
        ("t k:v acks=1 acks=1", BAD_ACKS),
        ("t k:v enc=pct enc=pct", BAD_ACKS),
        ("t k:v enc=hex", BAD_ACKS),
        ("t k:v acks=1 foo=1", BAD_ACKS),
        ("t k:v foo", BAD_ACKS),
        ("t k:v foo acks=1", f"PRODUCE requires: {ARITY['PRODUCE']}"),
        ("t k:a%2 enc=pct", "malformed percent escape"),
        ("t %zz:a enc=pct", "malformed percent escape"),
        ("t k", "message must be key:value"),
        ("t k acks=9", "message must be key:value"),
        ("a/b k:v", "invalid topic"),
        ("__groups k:v", "invalid topic"),
        ("t  k:v", "ambiguous whitespace around message; use enc=pct"),
        ("t\tk:v", "ambiguous whitespace around message; use enc=pct"),
        ("t k:v  acks=1", "ambiguous whitespace around message; use enc=pct"),
        ("t k:v\u00a0acks=1", "ambiguous whitespace around message; use enc=pct"),
        ("t  k:v  enc=pct", None),
        ("t k:v  \t", None),
        ("t k:xmessages=y", "value cannot be carried in plain form; use enc=pct"),
        ("t k:", None),
        ("t :v", None),
        ("t :", None),
    ],
)
def test_produce_words(args: str, message: str | None) -> None:
    reply = answer(f"V1|1|PRODUCE|{args}".encode())
    if message is None:
        assert isinstance(reply, r.Produce)
    else:
        assert reply == f"V1|1|ERR|BAD_REQUEST|{message}".encode()


def test_lenient_produce_accepts_as_the_original() -> None:
    found = answer(b"V1|1|PRODUCE|t  k:a,b  acks=all", PlainValues.LENIENT)
    assert found == r.Produce("t", b"k", b"a,b", Acks.ALL)


def test_escaped_key_and_value_are_split_at_the_first_raw_colon() -> None:
    found = answer(b"V1|1|PRODUCE|t a%3Ab:c:%2C%0A enc=pct")
    assert found == r.Produce("t", b"a:b", b"c:,\n", Acks.LEADER)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("enc=pct keys=1 max=5", r.Consume("t", 0, 0, PCT, with_keys=True, max_records=5)),
        ("max=5 keys=1 enc=pct", r.Consume("t", 0, 0, PCT, with_keys=True, max_records=5)),
        ("max=1", r.Consume("t", 0, 0, max_records=1)),
        ("keys=1", None),
        ("enc=hex", None),
        ("enc=pct keys=2", None),
        ("enc=pct enc=pct", None),
        ("more", None),
        ("max", "invalid max"),
        ("max=0", "invalid max"),
        ("max=-1", "invalid max"),
        ("max=x", "invalid max"),
    ],
)
def test_consume_words(options: str, expected: r.Consume | str | None) -> None:
    reply = answer(f"V1|1|CONSUME|t 0 0 {options}".encode())
    if expected is None:
        expected = f"CONSUME requires: {ARITY['CONSUME']}"
    if isinstance(expected, str):
        assert reply == f"V1|1|ERR|BAD_REQUEST|{expected}".encode()
    else:
        assert reply == expected


def test_words_are_compared_without_case() -> None:
    assert answer(b"V1|1|join|g t c ASSIGNOR=Round_Robin") == r.Join(
        "g", "t", "c", BrokerAssignor.ROUND_ROBIN
    )
    assert answer(b"V1|1|Set_Partition_Role|t 0 LEADER") == r.SetPartitionRole(
        "t", 0, r.PartitionRole.LEADER
    )


# --- robustness ----------------------------------------------------------------------------


@given(st.binary(max_size=120))
def test_any_line_gives_a_request_or_one_reply_line(line: bytes) -> None:
    reply = answer(line)
    if isinstance(reply, bytes):
        assert reply.startswith(b"V1|0|ERR|BAD_REQUEST|") or b"|ERR|" in reply


@given(
    st.sampled_from([*GOOD, "ADMIN_GET_METADATA"]),
    st.lists(
        st.sampled_from(
            ["t", "g", "0", "-1", "k:v", "acks=all", "enc=pct", "max=2", "keys=1", "x,y"]
        )
        | st.text(max_size=6),
        max_size=7,
    ),
)
def test_any_words_give_a_request_or_a_bad_request(command: str, words: list[str]) -> None:
    args = " ".join(words).encode("utf-8", "surrogatepass").replace(b"\n", b" ")
    reply = answer(f"V1|77|{command}|".encode() + args)
    if isinstance(reply, bytes):
        assert reply.startswith(b"V1|77|ERR|BAD_REQUEST|")
        assert b"\n" not in reply
