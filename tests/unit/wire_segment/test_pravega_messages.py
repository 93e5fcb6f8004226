"""The Pravega dialect: captured vectors, every message, requests out of hostile bytes."""

from __future__ import annotations

import os
import random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.errors import Fault, SegmentProtocolError
from paceline.wire.segment.fields import TableKey
from paceline.wire.segment.framing import (
    HEADER,
    HEADER_BYTES,
    Direction,
    SegmentMessage,
    check_in,
    decode_payload,
    encode,
)
from paceline.wire.segment.requests import RequestReader, Unsupported
from tests.unit.wire_segment.test_properties import messages

WRITER = UUID("0e63a64e-8d63-2cc7-c60b-8c8a5b8be74e")
SEGMENT = "sc/st/0.#epoch.0"
EVENT = bytes.fromhex("0000000000000002") + b"e0"
CAPTURED = {
    # Vector 12, from the PyPI client: Hello, set-up, the Event "e0" with number 1.
    "ffffff81 00000008 0000000f 00000005": w.Hello(15, 5),
    "00000001 0000002c 0000000000000001 0e63a64e8d632cc7c60b8c8a5b8be74e"
    "0010 73632f73742f302e2365706f63682e30 0000": w.SetupAppend(1, WRITER, SEGMENT, ""),
    "00000004 00000036 0e63a64e8d632cc7c60b8c8a5b8be74e 0000000a 0000000a"
    "0000000000000002 6530 00000001 0000000000000001 0000000000000002": w.AppendBlockEnd(
        WRITER, 10, EVENT, 1, 1, 2
    ),
    # ConditionalBlockEnd, by the layout of the public Rust client: number 1, expected 0, "bytes".
    "00000059 00000031 0e63a64e8d632cc7c60b8c8a5b8be74e 0000000000000001 0000000000000000"
    "00000005 6279746573 0000000000000003": w.ConditionalBlockEnd(WRITER, 1, 0, b"bytes", 3),
}
ANSWERS = {
    "00000002 00000032 0000000000000001 0010 73632f73742f302e2365706f63682e30"
    "0e63a64e8d632cc7c60b8c8a5b8be74e 8000000000000000": w.AppendSetup(
        1, SEGMENT, WRITER, w.NO_EVENT
    ),
    "00000007 00000030 0e63a64e8d632cc7c60b8c8a5b8be74e 0000000000000001 8000000000000000"
    "0000000000000002 000000000000000a": w.DataAppended(WRITER, 1, w.NO_EVENT, 2, 10),
}
TABLE_UPDATE = (
    "0000004a 00000039 0000000000000009 0003 612f62 0000 00000001"
    "0000000d 00000001 6b ffffffffffffffff 00000009 00000005 76616c7565 ffffffffffffffff"
)


@pytest.mark.parametrize(("text", "message"), CAPTURED.items())
def test_captured_requests(text: str, message: SegmentMessage) -> None:
    data = bytes.fromhex(text)
    assert RequestReader().receive(data) == [message]
    assert encode(message) == data


@pytest.mark.parametrize(("text", "message"), ANSWERS.items())
def test_answers(text: str, message: SegmentMessage) -> None:
    assert encode(message) == bytes.fromhex(text)


def test_a_table_update() -> None:
    message = w.UpdateTableEntries(
        9, "a/b", "", ((TableKey(b"k", w.NOT_THERE), b"value"),), w.ANY_POSITION
    )
    assert encode(message) == bytes.fromhex(TABLE_UPDATE)
    assert RequestReader().receive(bytes.fromhex(TABLE_UPDATE)) == [message]


def test_ranges_of_versions() -> None:
    assert w.speaks(15, 5)
    assert w.speaks(99, 17)
    assert not w.speaks(99, 18)
    assert not w.speaks(4, 0)
    assert not w.speaks(5, 17)


@given(messages(w.MESSAGES))
def test_every_message_comes_back(message: SegmentMessage) -> None:
    data = encode(message)
    kind, length = HEADER.unpack_from(data)
    sender = Direction.CLIENT if Direction.CLIENT in message.FROM else Direction.SERVER
    assert decode_payload(check_in(w.MESSAGES, kind, length, sender), data[8:]) == message


@given(st.lists(messages(w.MESSAGES), max_size=5), st.randoms(use_true_random=False))
def test_requests_however_they_are_split(sent: list[SegmentMessage], rng: random.Random) -> None:
    requests = [each for each in sent if Direction.CLIENT in each.FROM]
    stream = b"".join(map(encode, requests))
    reader = RequestReader()
    found = []
    at = 0
    while at < len(stream):
        step = rng.randint(1, 40)
        found += reader.receive(stream[at : at + step], at_most=rng.randint(1, 3))
        while reader.has_more:
            found += reader.receive(b"", at_most=rng.randint(1, 3))
        at += step
    assert found == requests
    assert reader.buffered_bytes == 0


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("00000003 00000010", Fault.E1),  # AppendBlock, which only Java clients send
        ("00000002 00000010", Fault.E2),
        ("00000001 01000000", Fault.E3),
        ("00000022 01000000", Fault.E3),
        ("00000001 00000003 000000", Fault.E4),
        ("00000022 00000003 000000", Fault.E4),
        ("0000000b 0000000e 0000000000000001 0002 c328 0000", Fault.E5),
        # Counts that promise more than there is.
        ("0000004c 00000012 0000000000000001 0000 0000 7fffffff 0000", Fault.E4),
        ("00000059 0000002c" + "00" * 32 + "ffffffff" + "00" * 8, Fault.E4),
    ],
)
def test_violations(text: str, fault: Fault) -> None:
    reader = RequestReader()
    good = encode(w.KeepAlive())
    assert reader.receive(good + bytes.fromhex(text)) == [w.KeepAlive()]
    assert reader.fault is not None
    assert reader.fault.fault is fault
    assert reader.receive(good) == []


def test_what_is_not_served_is_named() -> None:
    data = bytes.fromhex("00000022 0000000a 0000000000000007 ffff")
    assert RequestReader().receive(data) == [Unsupported(7, "getSegmentAttribute")]


def test_any_bytes_end_well() -> None:
    """Quick by default; ``PACELINE_EXAMPLES`` makes it long: mangled requests, never an exception,
    never more kept than one message."""
    for run in range(int(os.environ.get("PACELINE_EXAMPLES", "3000"))):
        rng = random.Random(run)
        reader = RequestReader()
        for _ in range(rng.randint(1, 10)):
            whole = bytearray(bytes.fromhex(rng.choice([*CAPTURED, TABLE_UPDATE])))
            for _ in range(rng.choice((0, 0, 1, 3))):
                whole[rng.randrange(len(whole))] = rng.choice((0, 1, 0x7F, 0xFF))
            for request in reader.receive(bytes(whole)):
                assert isinstance(request, SegmentMessage | Unsupported)
        assert reader.buffered_bytes < HEADER_BYTES + 0xFFFFFF


@settings(max_examples=300)
@given(st.sampled_from(sorted(w.MESSAGES)), st.binary(max_size=120))
def test_any_payload_ends_well(kind: int, payload: bytes) -> None:
    try:
        decode_payload(w.MESSAGES[kind], payload)
    except SegmentProtocolError:
        return
