"""Reply bytes: payload vectors, what the real SDKs make of them, our own parser."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import LocalProtocolError, RemoteProtocolError
from paceline.wire.v1 import replies
from paceline.wire.v1.client import (
    Message,
    Reply,
    integer_field,
    list_field,
    parse_messages,
    parse_reply,
    produce_args,
    request_line,
    text_field,
)
from paceline.wire.v1.commands import parse_request
from paceline.wire.v1.errors import V1Code, V1Error
from paceline.wire.v1.replies import MessageList, consume_payload, error_line, ok_line
from paceline.wire.v1.requests import PartitionRole, Produce, ValueEncoding
from paceline.wire.v1.text import is_plain_safe

PCT = ValueEncoding.PERCENT


def listed(
    *items: tuple[int, bytes | None], encoding: ValueEncoding = ValueEncoding.PLAIN
) -> MessageList:
    messages = MessageList(encoding=encoding)
    for offset, value in items:
        assert messages.add(offset, None, value)
    return messages


# --- bytes ---------------------------------------------------------------------------------


def test_lines() -> None:
    assert ok_line("1") == b"V1|1|OK\n"
    assert ok_line("a b", b"x=1") == b"V1|a b|OK|x=1\n"
    error = V1Error(V1Code.REPLICATION_TIMEOUT, "acks=all timeout")
    assert error_line("43", error) == b"V1|43|ERR|REPLICATION_TIMEOUT|acks=all timeout\n"
    broken = V1Error(V1Code.INTERNAL, "two\nlines\r\nand \udcff")
    assert error_line("1", broken) == b"V1|1|ERR|INTERNAL|two lines and ?\n"


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (replies.produce_payload(partition=2, offset=0, hw=-1), "partition=2 offset=0 hw=-1"),
        (
            consume_payload(listed((0, b"created"), (1, b"paid"), (2, b"a:b|c=d")), hw=2),
            "messages=0:created,1:paid,2:a:b|c=d hw=2",
        ),
        (consume_payload(MessageList(), hw=-1), "messages= hw=-1"),
        (consume_payload(listed((7, None), (8, b"")), hw=8), "messages=7:,8: hw=8"),
        (
            consume_payload(listed((0, b"a,b c"), encoding=PCT), hw=0),
            "messages=0:a%2Cb%20c hw=0 enc=pct",
        ),
        (
            replies.replica_fetch_payload(
                replica=1, acked_offset=2, hw=2, isr=[0, 1], under_replicated=False
            ),
            "replica=1 acked_offset=2 hw=2 isr=[0 1] under_replicated=false",
        ),
        (
            replies.assignment_payload(generation=2, assigned=[0, 1, 2]),
            "generation=2 assigned=[0 1 2]",
        ),
        (replies.assignment_payload(generation=9, assigned=[]), "generation=9 assigned=[]"),
        (replies.HEARTBEAT_PAYLOAD, "heartbeat=ok"),
        (replies.LEAVE_PAYLOAD, "left=true"),
        (replies.COMMIT_PAYLOAD, "committed=true"),
        (replies.offset_payload(3), "offset=3"),
        (
            replies.role_payload(topic="orders", partition=2, role=PartitionRole.FOLLOWER, hw=2),
            "topic=orders partition=2 role=follower hw=2",
        ),
        (
            replies.create_topic_payload(
                topic="payments", partitions=2, replication_factor=2, term=1, index=8
            ),
            "topic=payments partitions=2 replication_factor=2 term=1 index=8",
        ),
        (
            replies.metadata_payload(topics=["payments", "orders"], brokers=[1, 0], fenced=[]),
            "topics=[orders payments] brokers=[0 1] fenced=[]",
        ),
        (
            replies.broker_fetch_payload(
                topic="orders",
                partition=2,
                follower=1,
                hw=2,
                records=listed((0, b"created"), (1, b"paid")),
            ),
            "topic=orders partition=2 follower=1 hw=2 records=0:created,1:paid",
        ),
        (
            replies.broker_replica_ack_payload(
                topic="orders",
                partition=2,
                follower=1,
                acked_offset=2,
                hw=2,
                isr=[0, 1],
                under_replicated=True,
            ),
            (
                "topic=orders partition=2 follower=1 acked_offset=2 hw=2 isr=[0 1] "
                "under_replicated=true"
            ),
        ),
        (
            replies.register_broker_payload(
                broker_id=1, host="127.0.0.1", port=9093, term=1, index=9
            ),
            "broker_id=1 host=127.0.0.1 port=9093 term=1 index=9",
        ),
        (
            replies.broker_heartbeat_payload(broker_id=1, term=1, index=10),
            "broker_id=1 heartbeat=ok term=1 index=10",
        ),
        (
            replies.partition_leader_payload(
                topic="payments", partition=0, leader=0, isr=[0, 1], term=1, index=11
            ),
            "topic=payments partition=0 leader=0 isr=[0 1] term=1 index=11",
        ),
        (
            replies.fence_payload(broker_id=1, fenced=True, term=1, index=12),
            "broker_id=1 fenced=true term=1 index=12",
        ),
        (
            replies.elect_payload(topic="payments", elected_changes=0),
            "topic=payments elected_changes=0",
        ),
        (replies.reconcile_payload(1), "reconciled=1"),
    ],
)
def test_payload_vectors(payload: bytes, expected: str) -> None:
    assert payload == expected.encode()


# --- message lists -------------------------------------------------------------------------


def test_an_unsafe_first_record_is_loud() -> None:
    with pytest.raises(V1Error, match=r"UNREPRESENTABLE\|offset=5; use enc=pct"):
        MessageList().add(5, None, b"a,b")
    with pytest.raises(V1Error):
        MessageList().add(5, None, b"\xff")


def test_a_later_unsafe_record_ends_the_list_before_it() -> None:
    messages = listed((5, b"good"))
    assert not messages.add(6, None, b"a,b")
    assert consume_payload(messages, hw=9) == b"messages=5:good hw=9"


def test_escaped_lists_carry_keys_and_anything() -> None:
    messages = MessageList(encoding=PCT, with_keys=True)
    assert messages.add(1, b"k:1", b"a,b")
    assert messages.add(2, None, None)
    payload = consume_payload(messages, hw=2)
    assert payload == b"messages=1:k%3A1:a%2Cb,2:: hw=2 enc=pct"
    assert parse_messages(payload, with_keys=True) == [
        Message(1, b"k:1", b"a,b"),
        Message(2, b"", b""),
    ]


def test_byte_limit_lets_at_least_one_record_in() -> None:
    messages = MessageList(max_bytes=12)
    assert messages.add(0, None, b"x" * 50)
    assert not messages.add(1, None, b"")
    messages = MessageList(max_bytes=11)
    assert messages.add(0, None, b"abc")  # 0:abc
    assert messages.add(1, None, b"def")  # ,1:def
    assert not messages.add(2, None, b"")
    assert len(messages) == 2
    assert messages.to_bytes() == b"0:abc,1:def"


def test_record_limit() -> None:
    messages = MessageList(max_records=2)
    assert [messages.add(offset, None, b"v") for offset in range(3)] == [True, True, False]


# --- as the SDKs read it -------------------------------------------------------------------


def python_sdk_messages(payload: str) -> list[tuple[int, str]]:
    """After the first ``messages=``, before the first `` hw=``, strip, split."""
    text = payload[payload.index("messages=") + len("messages=") :]
    text = text[: text.index(" hw=")].strip()
    items = [item for item in text.split(",") if item]
    return [(int(item[: item.index(":")]), item[item.index(":") + 1 :]) for item in items]


def typescript_sdk_messages(payload: str) -> list[tuple[int, str]]:
    """The same, but only up to a second ``messages=``, and JavaScript's trim."""
    text = payload.split("messages=")[1].split(" hw=")[0].strip("\ufeff \t\n\r\v\f")
    items = [item for item in text.split(",") if item]
    return [(int(item[: item.index(":")]), item[item.index(":") + 1 :]) for item in items]


HOSTILE_WORDS = ["a", ":", "|", "=", ",", " ", "\t", "\n", "\r", "\x1c", "\ufeff", "\xa0"]
HOSTILE_WORDS += ["messages=", " hw=", "7:x", "\u0434"]
HOSTILE = (
    st.lists(st.sampled_from(HOSTILE_WORDS), max_size=6).map("".join).map(str.encode)
    | st.text(max_size=5).map(str.encode)
    | st.binary(max_size=8)
)


@given(st.lists(HOSTILE, max_size=6))
def test_what_plain_replies_carry_is_what_both_sdks_read(values: list[bytes]) -> None:
    messages = MessageList()
    taken = []
    for offset, value in enumerate(values):
        if not messages and not is_plain_safe(value):
            break
        if not messages.add(offset, None, value):
            break
        taken.append((offset, value))
    payload = consume_payload(messages, hw=len(values) - 1)
    expected = [(offset, value.decode()) for offset, value in taken]
    assert python_sdk_messages(payload.decode()) == expected
    assert typescript_sdk_messages(payload.decode()) == expected
    assert parse_messages(payload) == [Message(offset, None, value) for offset, value in taken]
    assert b"\n" not in payload


def test_no_field_name_hides_a_later_one() -> None:
    """The SDKs take the first substring ``name=``: it must be the field of that very name."""
    payloads = [
        replies.produce_payload(partition=1, offset=2, hw=3),
        replies.replica_fetch_payload(
            replica=1, acked_offset=2, hw=3, isr=[4], under_replicated=True
        ),
        replies.role_payload(topic="hw.x", partition=1, role=PartitionRole.LEADER, hw=3),
        replies.assignment_payload(generation=1, assigned=[3]),
        replies.create_topic_payload(
            topic="t", partitions=1, replication_factor=2, term=3, index=4
        ),
        replies.register_broker_payload(broker_id=1, host="h", port=2, term=3, index=4),
        replies.partition_leader_payload(
            topic="t", partition=1, leader=2, isr=[5], term=3, index=4
        ),
        replies.fence_payload(broker_id=1, fenced=False, term=3, index=4),
    ]
    for payload in payloads:
        text = payload.decode()
        for name in re.findall(r"(?:^| )([a-z_]+)=", text):
            at = text.index(f"{name}=")
            assert at == 0 or text[at - 1] == " ", f"{name} in {text}"


# --- our own client side -------------------------------------------------------------------


def test_replies_are_read_back() -> None:
    assert parse_reply(ok_line("7")[:-1]) == Reply("7")
    assert parse_reply(ok_line("7", b"a|b")[:-1]).result() == b"a|b"
    reply = parse_reply(b"V1|7|ERR|BAD_REQUEST|x|y")
    with pytest.raises(V1Error) as caught:
        reply.result()
    assert (caught.value.reason, caught.value.message) == (V1Code.BAD_REQUEST, "x|y")


@pytest.mark.parametrize(
    "line", [b"", b"V1|1", b"V2|1|OK", b"V1|1|NO", b"V1|1|ERR", b"V1|1|ERR|WHAT|x", b"V1|1|ERR|x"]
)
def test_not_replies(line: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        parse_reply(line)


@given(st.binary(max_size=60))
def test_any_reply_line_gives_a_reply_or_a_protocol_error(line: bytes) -> None:
    try:
        reply = parse_reply(line)
    except RemoteProtocolError:
        return
    assert reply.error is not None or reply.payload in line


@given(st.binary(max_size=60), st.booleans())
def test_any_payload_gives_messages_or_a_protocol_error(tail: bytes, with_keys: bool) -> None:
    for head in (b"", b"messages=", b"messages=1:", b"x records="):
        try:
            messages = parse_messages(head + tail, with_keys=with_keys)
        except RemoteProtocolError:
            continue
        assert all(message.offset >= 0 for message in messages)


def test_fields() -> None:
    payload = b"replica=1 acked_offset=2 hw=-1 isr=[0 1] x=[] under_replicated=false"
    assert integer_field(payload, "replica") == 1
    assert integer_field(payload, "acked_offset") == 2
    assert integer_field(payload, "hw") == -1
    assert list_field(payload, "isr") == ["0", "1"]
    assert list_field(payload, "x") == []
    assert text_field(payload, "under_replicated") == "false"
    with pytest.raises(RemoteProtocolError, match="no field offset"):
        text_field(payload, "offset")
    with pytest.raises(RemoteProtocolError, match="no integer"):
        integer_field(payload, "isr")
    with pytest.raises(RemoteProtocolError, match="no list"):
        list_field(payload, "hw")


def test_broker_fetch_records_are_read_back() -> None:
    payload = replies.broker_fetch_payload(
        topic="t", partition=0, follower=1, hw=2, records=listed((0, b"a:b"), (1, b""))
    )
    assert parse_messages(payload) == [Message(0, None, b"a:b"), Message(1, None, b"")]


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_our_requests_carry_any_bytes(key: bytes, value: bytes) -> None:
    line = request_line("1", "PRODUCE", produce_args("t", key, value, acks="all"))
    assert line.count(b"\n") == 1
    args = line.removeprefix(b"V1|1|PRODUCE|").removesuffix(b"\n").decode()
    request = parse_request("PRODUCE", args)
    assert isinstance(request, Produce)
    assert (request.key, request.value) == (key, value)


@pytest.mark.parametrize(
    ("correlation", "command", "args"),
    [("1", "PRODUCE", "t k:a\nb"), ("1|2", "PING", ""), ("1", "P|Q", ""), ("1\n", "PING", b"")],
)
def test_requests_that_would_be_read_as_others(
    correlation: str, command: str, args: str | bytes
) -> None:
    with pytest.raises(LocalProtocolError):
        request_line(correlation, command, args)
