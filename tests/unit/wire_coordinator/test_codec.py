"""The coordinator protocol: the published frames, round trips, what is refused
(wire/coordinator/DESIGN 1)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import RemoteProtocolError, UnsupportedVersion
from paceline.wire.coordinator.codec import (
    Ask,
    Header,
    Response,
    ask_of,
    read_header,
    read_request,
    read_response,
    request_frame,
    response_frame,
)
from paceline.wire.coordinator.messages import (
    Assigned,
    Broker,
    ConsultRequest,
    ConsultResponse,
    PingRequest,
    Position,
    PositionsResponse,
    RegisterRequest,
    RegisterResponse,
    StartRequest,
    StopRequest,
    TopicCount,
)
from paceline.wire.kafka.layout import Struct

BROKERS = (
    Broker(creator_id="b1-1", id=1, host="n1", port=9092),
    Broker(creator_id="b2-1", id=2, host="n2", port=9092),
)
REGISTER = RegisterRequest(
    group_id="g", consumer_id="g_h-1", auto_commit=1, auto_offset_rest="smallest"
)


def of_consumer(ask: Ask, correlation_id: int, version: int = 0) -> Header:
    return Header(ask, False, version, correlation_id, "c1")


def of_coordinator(ask: Ask, correlation_id: int, version: int = 0) -> Header:
    return Header(ask, False, version, correlation_id, "coordinator-2")


def bare(ask: Ask) -> Header:
    return Header(ask, is_layout_7=True)


REQUESTS = [
    ("V1", bare(Ask.CONSULT), ConsultRequest(), "00000002044c"),
    ("V4", of_consumer(Ask.CONSULT, 7), ConsultRequest(), "0000000c03e800000000000700026331"),
    (
        "V6",
        bare(Ask.REGISTER),
        REGISTER,
        "0000001d044d0001670005675f682d31010008736d616c6c65737400000bb80003",
    ),
    (
        "V7",
        of_consumer(Ask.REGISTER, 8),
        REGISTER,
        "0000002703e9000000000008000263310001670005675f682d31010008736d616c6c65737400000bb80003",
    ),
    (
        "V8",
        of_coordinator(Ask.PING, 1),
        PingRequest(),
        "0000001703ea000000000001000d636f6f7264696e61746f722d32",
    ),
    ("V11", bare(Ask.PING), PingRequest(), "00000002044e"),
    (
        "V13",
        of_coordinator(Ask.STOP, 2),
        StopRequest(),
        "0000001703eb000000000002000d636f6f7264696e61746f722d32",
    ),
    (
        "V15",
        of_coordinator(Ask.START, 3),
        StartRequest(
            partitions=(
                Assigned(topic="t0", partition=0, offset=43),
                Assigned(topic="t0", partition=1, offset=0),
            )
        ),
        (
            "0000003903ec000000000003000d636f6f7264696e61746f722d3200020002743000000000000000000000002b"
            "00027430000000010000000000000000"
        ),
    ),
    ("V17", bare(Ask.START), StartRequest(), "0000000404500000"),
    (
        "V18",
        of_consumer(Ask.REGISTER, 9, 1),
        RegisterRequest(
            group_id="g",
            consumer_id="g_h-1",
            auto_commit=1,
            auto_offset_rest="smallest",
            topic_count=(TopicCount(topic="t0", streams=2),),
        ),
        (
            "0000003603e9000100000009000263310001670005675f682d31010008736d616c6c65737400000bb80003"
            "0000000100027430000200ffffffff"
        ),
    ),
    (
        "V20",
        of_coordinator(Ask.START, 4, 1),
        StartRequest(
            coordinator_epoch=5,
            generation=5,
            partitions=(
                Assigned(topic="t0", partition=0, leader_id=1, leader_epoch=7, offset=43, stream=0),
            ),
        ),
        (
            "0000003b03ec000100000004000d636f6f7264696e61746f722d3200000005000000050001000274300000000"
            "00000000100000007000000000000002b0000"
        ),
    ),
    (
        "V21",
        of_coordinator(Ask.PING, 5, 1),
        PingRequest(coordinator_epoch=5, generation=5),
        "0000001f03ea000100000005000d636f6f7264696e61746f722d320000000500000005",
    ),
]

RESPONSES = [
    (
        "V2",
        bare(Ask.CONSULT),
        0,
        ConsultResponse(coordinator_id=2, brokers=BROKERS),
        (
            "0000002c0000000200000002000462312d310000000100026e3100002384000462322d310000000200026e32"
            "00002384"
        ),
    ),
    ("V3", bare(Ask.CONSULT), 15, ConsultResponse(), "00000008000fffff00000000"),
    (
        "V5",
        of_consumer(Ask.CONSULT, 7),
        0,
        ConsultResponse(coordinator_id=2, brokers=BROKERS),
        (
            "000000320000000700000000000200000002000462312d310000000100026e3100002384000462322d310000"
            "000200026e3200002384"
        ),
    ),
    (
        "V9",
        of_coordinator(Ask.PING, 1),
        0,
        PositionsResponse(positions=(Position(topic="t0", partition=0, offset=42),)),
        "0000001a000000010000000000010002743000000000000000000000002a",
    ),
    ("V10", of_coordinator(Ask.PING, 1), 0, None, "000000080000000100000000"),
    (
        "V12",
        bare(Ask.PING),
        0,
        PositionsResponse(positions=(Position(topic="t0", partition=0, offset=42),)),
        "000000130000000100027430000130000000000000002a",
    ),
    (
        "V14",
        of_coordinator(Ask.STOP, 2),
        0,
        PositionsResponse(positions=(Position(topic="t0", partition=0, offset=43),)),
        "0000001a000000020000000000010002743000000000000000000000002b",
    ),
    ("V16", of_coordinator(Ask.START, 3), 0, None, "000000080000000300000000"),
    (
        "V19",
        of_consumer(Ask.REGISTER, 9, 1),
        0,
        RegisterResponse(
            coordinator_epoch=5,
            generation=4,
            consumer_id="g_h-1",
            heartbeat_interval_ms=3000,
            max_heartbeat_retries=3,
        ),
        "0000001d000000090001000000000005000000040005675f682d3100000bb80003",
    ),
    (
        "V22",
        of_coordinator(Ask.PING, 5, 1),
        0,
        PositionsResponse(generation=5, positions=(Position(topic="t0", partition=0, offset=50),)),
        "0000001e000000050001000000000005000100027430000000000000000000000032",
    ),
]


@pytest.mark.parametrize(
    ("header", "body", "frame"), [pytest.param(*row[1:], id=row[0]) for row in REQUESTS]
)
def test_published_requests(header: Header, body: Struct, frame: str) -> None:
    assert request_frame(header, body).hex() == frame
    data = memoryview(bytes.fromhex(frame))[4:]
    read, start = read_header(data)
    assert read == header
    assert read_request(read, data, start) == body


@pytest.mark.parametrize(
    ("header", "error", "body", "frame"), [pytest.param(*row[1:], id=row[0]) for row in RESPONSES]
)
def test_published_responses(header: Header, error: int, body: Struct | None, frame: str) -> None:
    assert response_frame(header, error, body).hex() == frame
    data = memoryview(bytes.fromhex(frame))[4:]
    assert read_response(header, data) == Response(header.correlation_id, error, body)


@pytest.mark.parametrize(
    ("header", "body", "frame"), [pytest.param(*row[1:], id=row[0]) for row in REQUESTS]
)
def test_requests_cut_or_prolonged_are_refused(header: Header, body: Struct, frame: str) -> None:
    whole = bytes.fromhex(frame)[4:]
    for data in [*(whole[:end] for end in range(len(whole))), whole + b"\0"]:
        with pytest.raises(RemoteProtocolError):
            read_request(*_split(memoryview(data)))


def _split(data: memoryview) -> tuple[Header, memoryview, int]:
    header, start = read_header(data)
    return header, data, start


@pytest.mark.parametrize(("name", "number"), [("0", 0), ("17", 17), ("2-17", 17)])
def test_layout_7_names_partitions_by_strings(name: str, number: int) -> None:
    text = len(name).to_bytes(2, "big") + name.encode()
    frame = bytes.fromhex("0450") + b"\0\1" + b"\0\2t0" + text + (43).to_bytes(8, "big")
    body = read_request(*_split(memoryview(frame)))
    assert body == StartRequest(partitions=(Assigned(topic="t0", partition=number, offset=43),))


@pytest.mark.parametrize("name", ["", "x", "2-", "-", "99999999999", "4294967295", "٣"])
def test_names_that_are_no_partition(name: str) -> None:
    text = len(name.encode()).to_bytes(2, "big") + name.encode()
    frame = bytes.fromhex("0450") + b"\0\1" + b"\0\2t0" + text + (43).to_bytes(8, "big")
    with pytest.raises(RemoteProtocolError, match="names no partition"):
        read_request(*_split(memoryview(frame)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"auto_commit": 2}, "auto_commit is 2"),
        ({"auto_offset_rest": "Smallest"}, "'Smallest', expected smallest or largest"),
        ({"pattern_kind": 3}, "pattern_kind is 3"),
        ({"pattern_kind": 1}, "a topic pattern must be the only entry"),
    ],
)
def test_registrations_that_mean_nothing(change: dict[str, Any], said: str) -> None:
    values = {"group_id": "g", "consumer_id": "c", "auto_commit": 1, "auto_offset_rest": "largest"}
    request = RegisterRequest(**values | change)
    frame = memoryview(request_frame(of_consumer(Ask.REGISTER, 1, 1), request))[4:]
    with pytest.raises(RemoteProtocolError, match=said):
        read_request(*_split(frame))


@pytest.mark.parametrize("version", [-1, 2, 7])
def test_unknown_versions_are_answered_without_a_body(version: int) -> None:
    header = of_consumer(Ask.CONSULT, 5, version)
    frame = memoryview(b"\x03\xe8" + version.to_bytes(2, "big", signed=True) + b"\0\0\0\5\0\2c1")
    read, start = read_header(frame)
    assert read == header
    with pytest.raises(UnsupportedVersion, match="served are 0 to 1"):
        read_request(read, frame, start)
    answer = response_frame(read, 35, None)
    assert answer[4:].hex() == "00000005" + "0001" + "0023", "the highest version served"


@pytest.mark.parametrize("number", [0, 99, 999, 1005, 1049, 1099, 1105, -1, 32767])
def test_types_of_other_protocols(number: int) -> None:
    assert ask_of(number) is None
    with pytest.raises(RemoteProtocolError, match="not a request of the coordinator protocol"):
        read_header(memoryview(number.to_bytes(2, "big", signed=True) + bytes(20)))


@given(st.binary(max_size=200), st.sampled_from(range(1000, 1105)))
def test_noise_is_read_or_refused(noise: bytes, number: int) -> None:
    frame = memoryview(number.to_bytes(2, "big") + noise)
    try:
        body = read_request(*_split(frame))
    except (RemoteProtocolError, UnsupportedVersion):
        return
    assert isinstance(body, Struct)
