"""Commands: every word in each of its forms, and every refusal that a client's parser looks for."""

from __future__ import annotations

import contextlib
import json
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.types import Acks, Isolation
from paceline.wire.cursus import replies, requests
from paceline.wire.cursus.batch import Dialect
from paceline.wire.cursus.commands import COMMANDS, WORDS, parse_command
from paceline.wire.cursus.errors import ERROR_CLASSES, CursusError, class_of
from paceline.wire.cursus.inbound import CommandText, read_frame
from paceline.wire.cursus.partitioner import fnv1a_64, partition_for
from paceline.wire.cursus.requests import (
    AuthPolicy,
    Credentials,
    OffsetReset,
    Partitioner,
    Request,
    TopicPolicy,
    TransactionFence,
)
from tests.unit.wire_cursus.vectors import T12


def parse(text: str) -> Request:
    found = read_frame(text.encode(), WORDS)
    assert isinstance(found, CommandText)
    return parse_command(found).request


def refusal(text: str) -> str:
    with pytest.raises(CursusError) as caught:
        parse(text)
    return caught.value.line()


COMMITTED, UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
EARLIEST, LATEST = OffsetReset.EARLIEST, OffsetReset.LATEST
REAL, SEED = Dialect.REAL, Dialect.SEED
FENCE = TransactionFence("x", "p", 3)
KEPT = TopicPolicy(
    "delete,compact", Partitioner.ROUND_ROBIN, AuthPolicy.ACL, ("a", "b"), ("*",), 24, 4096
)


def place(**changes: object) -> requests.ReadPlace:
    values: dict[str, object] = {
        "topic": "t", "partition": 1, "offset": 42, "group": None, "member": None,
        "generation": None, "isolation": COMMITTED, "reset": EARLIEST, "max_records": 8192,
        "dialect": REAL,
    }  # fmt: skip
    return requests.ReadPlace(**{**values, **changes})  # type: ignore[arg-type]


POLICY = frozenset(field.name for field in fields(TopicPolicy))
PARSED: list[tuple[str, Request]] = [
    ("protocol_info", requests.ProtocolInfo()),
    ("HELP", requests.Help()),
    ("exit", requests.Exit()),
    ("NEGOTIATE version=1", requests.Negotiate(1, (), False)),
    ("NEGOTIATE version=1 features=* require_features=true", requests.Negotiate(1, None, True)),
    ("NEGOTIATE version=2 features=b_1,a,b_1", requests.Negotiate(2, ("b_1", "a"), False)),
    ("AUTH principal=p token=t", requests.Auth(Credentials("p", "t"))),
    ("CREATE t 3", requests.CreateTopic("t", 3, False, False, None, TopicPolicy())),
    ("CREATE topic=t", requests.CreateTopic("t", 4, False, False, None, TopicPolicy())),
    (
        ("CREATE topic=t partitions=2 idempotent=true replication_factor=3"
        " cleanup_policy=compact,delete partitioner=round_robin auth_policy=acl read_acl=a,b"
        " write_acl=* retention_hours=24 retention_bytes=4096"),
        requests.CreateTopic("t", 2, True, False, 3, KEPT, POLICY),
    ),
    (
        "CREATE topic=t event_sourcing=true",
        requests.CreateTopic("t", 4, False, True, None, TopicPolicy()),
    ),
    (
        "CREATE topic=t retention_hours=0 read_acl=",
        requests.CreateTopic(
            "t", 4, False, False, None, TopicPolicy(), frozenset({"retention_hours", "read_acl"})
        ),
    ),
    ("DELETE t", requests.DeleteTopic("t")),
    ("DELETE topic=t", requests.DeleteTopic("t")),
    ("LIST", requests.ListTopics(None)),
    ("LIST topic=t", requests.ListTopics("t")),
    ("DESCRIBE topic=t", requests.DescribeTopic("t")),
    ("METADATA topic=t", requests.TopicMetadata("t")),
    ("LIST_OFFSETS topic=t", requests.ListOffsets("t", None)),
    ("LIST_OFFSETS topic=t partition=7", requests.ListOffsets("t", 7)),
    (
        "PUBLISH topic=t message=a=b  message=c ",
        requests.Publish("t", None, Acks.LEADER, "", "", 0, 0, False, "a=b  message=c "),
    ),
    (
        ("PUBLISH topic=t acks=-1 producerId=p partition=2 key=k seqNum=7 epoch=9 isIdempotent=true"
        " message="),
        requests.Publish("t", 2, Acks.ALL, "p", "k", 7, 9, True, ""),
    ),
    ("PUBLISH topic=t partition=-1 message=m",
     requests.Publish("t", None, Acks.LEADER, "", "", 0, 0, False, "m")),
    ("CONSUME t 1 42", requests.Consume(place(dialect=SEED), 0)),
    ("CONSUME topic=t partition=1 offset=42 member=m",
     requests.Consume(place(member="m"), 0)),
    (
        ("CONSUME topic=o-*? partition=1 member=m group=g generation=3 isolation=read_uncommitted"
        " autoOffsetReset=latest batch=10 wait_ms=250"),
        requests.Consume(
            place(topic="o-*?", offset=None, member="m", group="g", generation=3,
                  isolation=UNCOMMITTED, reset=LATEST, max_records=10),
            250,
        ),
    ),
    ("STREAM topic=t partition=1 offset=42 generation=0 isolation_level=read_uncommitted",
     requests.Stream(place(isolation=UNCOMMITTED))),
    ("STREAM t 1 42", requests.Stream(place(dialect=SEED))),
    ("FIND_COORDINATOR group=g", requests.FindCoordinator("g", None)),
    ("FIND_COORDINATOR txn=x", requests.FindCoordinator(None, "x")),
    ("LIST_CLUSTER", requests.ListCluster()),
    ("CLUSTER_STATUS", requests.ClusterStatus()),
    ("ELECT_LEADER topic=t partition=0 broker=b-1", requests.ElectLeader("t", 0, "b-1")),
    ("REGISTER_GROUP topic=t group=g", requests.RegisterGroup("t", "g")),
    ("SUBSCRIBE t g", requests.RegisterGroup("t", "g")),
    ("SUBSCRIBE topic=t group=g", requests.RegisterGroup("t", "g")),
    ("JOIN_GROUP t g c", requests.JoinGroup("t", "g", "c", None)),
    ("JOIN_GROUP topic=t group=g member=c generation=2", requests.JoinGroup("t", "g", "c", 2)),
    ("SYNC_GROUP t g c 2", requests.SyncGroup("t", "g", "c", 2)),
    ("SYNC_GROUP topic=t group=g member=c generation=2", requests.SyncGroup("t", "g", "c", 2)),
    ("HEARTBEAT t g base base-1234 2", requests.Heartbeat("t", "g", "base-1234", 2)),
    ("HEARTBEAT topic=t group=g member=c generation=2", requests.Heartbeat("t", "g", "c", 2)),
    ("LEAVE_GROUP t g c", requests.LeaveGroup("t", "g", "c", None, True)),
    ("LEAVE_GROUP topic=t group=g member=c", requests.LeaveGroup("t", "g", "c", None, False)),
    ("FETCH_OFFSET topic=t partition=0 group=g", requests.FetchOffset("t", 0, "g")),
    (
        "FETCH_OFFSET topic=t partition=0 group=g member=a-0001 generation=3",
        requests.FetchOffset("t", 0, "g", "a-0001", 3),
    ),
    ("COMMIT_OFFSET topic=t partition=0 group=g offset=5 member=c generation=2",
     requests.CommitOffset("t", 0, "g", 5, "c", 2)),
    ("COMMIT t g 0 5", requests.CommitOffset("t", 0, "g", 5, None, None)),
    ("BATCH_COMMIT topic=t group=g member=c generation=2 P0:10,P1:20",
     requests.BatchCommit("t", "g", "c", 2, ((0, 10), (1, 20)))),
    ("BATCH_COMMIT t g c 2 0:10,P1:20",
     requests.BatchCommit("t", "g", "c", 2, ((0, 10), (1, 20)))),
    ("GROUP_STATUS group=g", requests.GroupStatus("g")),
    ("LIST_GROUPS", requests.ListGroups()),
    (
        ("APPEND_STREAM topic=t key=k version=1 event_type=E schema_version=2 producerId=p"
        ' metadata={"a": 1}  message= m '),
        requests.AppendStream("t", "k", 1, "E", 2, "p", '{"a": 1} ', " m "),
    ),
    ("APPEND_STREAM topic=t key=k version=2 message=",
     requests.AppendStream("t", "k", 2, "", 1, "", "", "")),
    ("STREAM_VERSION topic=t key=k", requests.StreamVersion("t", "k")),
    ("SAVE_SNAPSHOT topic=t key=k version=1 message=s", requests.SaveSnapshot("t", "k", 1, "s")),
    ("READ_SNAPSHOT topic=t key=k", requests.ReadSnapshot("t", "k")),
    ("READ_STREAM topic=t key=k", requests.ReadStream("t", "k", 1)),
    ("READ_STREAM topic=t key=k from_version=4", requests.ReadStream("t", "k", 4)),
    ("INIT_PRODUCER_ID transaction=x", requests.InitProducerId("x")),
    ("BEGIN_TXN txn=x producer_id=p epoch=3", requests.BeginTransaction(FENCE)),
    ("TXN_PUBLISH transactional_id=x topic=t partition=-1 producerId=p seqNum=1 epoch=3 message=m",
     requests.TransactionPublish(FENCE, "t", None, 1, "", "m")),
    (
        ("SEND_OFFSETS_TO_TXN transactional_id=x producerId=p epoch=3 topic=t group=g member=c"
        " generation=1 P0:5"),
        requests.SendOffsets(FENCE, "t", "g", "c", 1, ((0, 5),)),
    ),
    ("END_TXN txn=x producerId=p epoch=3 result=commit", requests.EndTransaction(FENCE, True)),
    ("END_TXN txn=x producerId=p epoch=3 action=abort", requests.EndTransaction(FENCE, False)),
    ("TXN_STATUS transactional_id=x", requests.TransactionStatus("x")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "request_"), PARSED, ids=[text for text, _ in PARSED])
def test_parsed(text: str, request_: Request) -> None:
    assert parse(text) == request_
    assert parse(f" \t{text.replace(' ', '  ', 1)}") == request_


def test_every_command_is_tried() -> None:
    assert {text.split()[0].upper() for text, _ in PARSED} == set(COMMANDS)


REFUSED = [
    ("LISTEN", 'ERROR: unknown_command command="LISTEN"'),
    ("", 'ERROR: unknown_command command=""'),
    ("RAFT_APPLY x", "ERROR: internal_command_unauthorized command=RAFT_APPLY"),
    ("CREATE", 'ERROR: missing_topic expected="CREATE topic=<name> [partitions=<N>]"'),
    ("CREATE topic=t partitions=0",
     'ERROR: invalid_partitions reason="must be a positive integer"'),
    ("CREATE topic=t partitions=x",
     'ERROR: invalid_partitions reason="must be a positive integer"'),
    ("CREATE topic=t partitions=65536", 'ERROR: invalid_partitions reason="at most 65535"'),
    ("CREATE topic=t cleanup_policy=x", "ERROR: invalid_topic_policy topic_policy=x"),
    ("CREATE topic=t event_sourcing=true cleanup_policy=compact",
     ("ERROR: unsupported_topic_policy topic=t "
     'reason="an event-sourcing topic keeps every event"')),
    ("DELETE", "ERROR: missing_topic command=DELETE"),
    ("LIST_OFFSETS topic=t partition=x", "ERROR: invalid_partition command=LIST_OFFSETS"),
    ("PUBLISH topic=t acks=9 message=m", "ERROR: invalid_acks value=9"),
    ("PUBLISH topic=t isIdempotent=maybe message=m",
     "ERROR: invalid_is_idempotent value=maybe"),
    ("PUBLISH topic=t", "ERROR: missing_message command=PUBLISH"),
    ("PUBLISH topic=t transactional_id=x message=m",
     "ERROR: transaction_metadata_forbidden command=PUBLISH"),
    ("CONSUME t", "ERROR: invalid_consume_syntax command=CONSUME"),
    ("CONSUME topic=t", "ERROR: invalid_consume_syntax command=CONSUME"),
    ("STREAM topic=t", "ERROR: invalid_stream_syntax command=STREAM"),
    ("CONSUME topic=t partition=0 isolation=x", "ERROR: invalid_isolation isolation=x"),
    ("FIND_COORDINATOR", "ERROR: missing_coordinator_key command=FIND_COORDINATOR"),
    ("HEARTBEAT topic=t group=g member=m", "ERROR: missing_generation command=HEARTBEAT"),
    ("SYNC_GROUP topic=t group=g member=m", "ERROR: missing_generation command=SYNC_GROUP"),
    ("BATCH_COMMIT topic=t group=g member=m generation=1",
     "ERROR: no_valid_offsets command=BATCH_COMMIT"),
    ("BATCH_COMMIT topic=t group=g member=m generation=1 0:1",
     'ERROR: invalid_batch_commit_entry entry="0:1"'),
    ("BATCH_COMMIT topic=t group=g member=m generation=1 P0:1,P0:2",
     "ERROR: duplicate_partition partition=0 group=g topic=t"),
    ("AUTH principal=p", "ERROR: invalid_auth command=AUTH"),
    ("TXN_PUBLISH txn=x topic=t producerId=p epoch=0 message=m",
     ("ERROR: invalid_seq_num command=TXN_PUBLISH "
     'reason="seqNum must be greater than zero"')),
    ("NEGOTIATE", ("ERROR: missing_protocol_version class=validation retryable=false"
     " command=NEGOTIATE")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line"), REFUSED, ids=[text for text, _ in REFUSED])
def test_refused(text: str, line: str) -> None:
    if text:
        assert refusal(text) == line
    else:
        with pytest.raises(CursusError, match="unknown_command"):
            read_frame(b"\x00\x00", WORDS)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("CREATE topic=__groups", "invalid_topic_name"),
        ("CREATE a=b 2", "invalid_topic_name"),
        ("METADATA topic=..", "invalid_topic_name"),
        ("METADATA topic=" + "a" * 250, "invalid_topic_name"),
        ("CONSUME topic=__* partition=0", "invalid_topic_name"),
        ("HEARTBEAT topic=t group=g member=m generation=x", "invalid_generation"),
        ("PUBLISH topic=t seqNum=-1 message=m", "invalid_seq_num"),
        ("PUBLISH topic=t epoch=x message=m", "invalid_epoch"),
        ("NEGOTIATE version=x", "invalid_protocol_version"),
        ("NEGOTIATE version=1 features=A", "invalid_protocol_features"),
        ("NEGOTIATE version=1 require_features=x", "invalid_require_features"),
        ("APPEND_STREAM topic=t key=k version=0 message=m", "invalid_version"),
        ("APPEND_STREAM topic=t key=k message=m", "missing_version"),
        ("APPEND_STREAM topic=t version=1 message=m", "missing_key"),
        ("APPEND_STREAM topic=t key=k version=1", "missing_message"),
        ("APPEND_STREAM topic=t key=k version=1 schema_version=x message=m",
         "invalid_schema_version"),
        ("JOIN_GROUP topic=t group=g member=" + "m" * 256, "invalid_member"),
    ],
)  # fmt: skip
def test_refused_by_word(text: str, word: str) -> None:
    assert refusal(text).split()[1] == word


def test_refusals_of_read_stream_are_json() -> None:
    line = refusal("READ_STREAM topic=t key=k from_version=0")
    told = json.loads(line)
    assert told["status"] == "ERROR"
    assert told["error"].startswith("invalid_from_version command=READ_STREAM")


def test_credentials_stand_on_any_command() -> None:
    found = read_frame(b"LIST_OFFSETS topic=t principal=p auth_token=s", WORDS)
    assert isinstance(found, CommandText)
    assert parse_command(found).credentials == Credentials("p", "s")


@given(st.text(max_size=60))
@settings(deadline=None)
def test_messages_arrive_as_they_are(message: str) -> None:
    request = parse(f"PUBLISH topic=t message={message}")
    assert isinstance(request, requests.Publish)
    assert request.message == message


@given(st.sampled_from(sorted(WORDS)), st.text(max_size=80))
@settings(deadline=None)
def test_any_text_is_a_request_or_a_refusal(word: str, rest: str) -> None:
    with contextlib.suppress(CursusError):
        parse(f"{word} {rest}")


# --- errors and replies ---------------------------------------------------------------------------


def test_classes_are_told_when_negotiated() -> None:
    refused = CursusError("GEN_MISMATCH", "current=2")
    assert refused.line() == "ERROR: GEN_MISMATCH current=2"
    assert refused.line(classed=True) == (
        "ERROR: GEN_MISMATCH class=fencing retryable=false current=2"
    )
    assert CursusError("NOT_LEADER").line(classed=True).endswith("class=routing retryable=true")
    words = ("missing_x", "invalid_y", "empty_z", "broker_error", "topic_not_found")
    assert [class_of(word) for word in words] == [*["validation"] * 3, "internal", "not_found"]
    assert {class_of(word) for word in (*words, "NOT_OWNER")} <= set(ERROR_CLASSES)


def test_the_acknowledgement_vector() -> None:
    ack = replies.Ack("OK", 8, 3, "p", 7, 8, "127.0.0.1:9000")
    assert replies.ack_json(ack).encode() == T12[4:]
    assert json.loads(replies.ack_json(ack._replace(error='a "b"\\')))["error"] == "a 'b'/"


def test_replies() -> None:
    assert replies.ok() == "OK"
    assert replies.ok(topic="t", deleted=True) == "OK topic=t deleted=true"
    assert replies.ok(topic="t", **replies.policy_fields(TopicPolicy())) == (
        "OK topic=t cleanup_policy=delete partitioner=hash_key auth_policy=open read_acl="
        " write_acl= retention_hours=0 retention_bytes=0"
    )
    assert replies.list_offsets("t", [replies.PartitionOffsets(0, 0, 6, 7, 6)]) == (
        "OK topic=t partitions=1 offsets=P0:earliest=0:latest=6:leo=7:hwm=6"
    )
    assert replies.assignment(1, "a-1893", [0, 1]) == (
        "OK generation=1 member=a-1893 assignments=[0 1]"
    )
    assert replies.assignment(1, "a", [], resumed=True).endswith("assignments=[] resumed=true")
    assert replies.stream_close("stopped", 5) == "STREAM_CONTROL type=CLOSE reason=stopped offset=5"
    assert replies.stream_out_of_range(1, 2, 3, 2) == (
        "STREAM_CONTROL type=CLOSE reason=offset_out_of_range offset=2"
        " requested=1 earliest=2 latest=3"
    )
    assert replies.snapshot(1, 'a"é') == 'OK snapshot={"version":1,"payload":"a\\"é"}'
    assert replies.stream_head("t", "k", 0, 1, (1, "s")) == (
        '{"status":"OK","topic":"t","key":"k","partition":0,"count":1,'
        '"snapshot":{"version":1,"payload":"s"}}'
    )
    assert replies.stream_error("topic_not_found topic=t") == (
        '{"error":"topic_not_found topic=t","status":"ERROR"}'
    )


HASHES = [
    ("a", 0xAF63DC4C8601EC8C, 1, 4),
    ("order-123", 0x1B96F9C28B5D5ABA, 0, 6),
    ("user-42", 0x32C6D7A54D35DACB, 0, 3),
    ("same-key", 0xC328F079565E13A9, 1, 1),
    ("한글", 0x5900DAC74A762E41, 2, 5),
]


@pytest.mark.parametrize(("key", "hashed", "of_3", "of_12"), HASHES)
def test_the_brokers_partitioner(key: str, hashed: int, of_3: int, of_12: int) -> None:
    raw = key.encode()
    assert fnv1a_64(raw) == hashed
    assert (partition_for(raw, 3), partition_for(raw, 12)) == (of_3, of_12)
