"""Record batches, and frames of Kafka 0.8, byte for byte."""

from __future__ import annotations

import pytest

from paceline.wire.batch import build_batch
from paceline.wire.batch_header import stamp, verify
from paceline.wire.end_marker import EndMarker, build_end_marker, read_end_marker
from paceline.wire.kafka import apis, cluster, records
from paceline.wire.kafka.apis import APIS, RequestHeader
from paceline.wire.kafka.layout import Struct
from paceline.wire.records import Record, decode_records

NOW = 1_700_000_000_000
SENT = bytes.fromhex(
    "000000000000000000000046ffffffff02eac6ddbc0000000000010000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff0000000210000000026b027600160000020102770202680231"
)
STORED = bytes.fromhex(
    "0000000000000064000000460000000702eac6ddbc0000000000010000018bcfe568000000018bcfe56800"
    "ffffffffffffffffffffffffffff0000000210000000026b027600160000020102770202680231"
)
MARKERS = {
    True: "00000000000000660000004200000007020f7d9c690030000000000000018bcfe568000000018bcfe56800"
    "0000000000000fa10002ffffffff000000012000000008000000010c00000000000300",
    False: "0000000000000066000000420000000702fb434a210030000000000000018bcfe568000000018bcfe56800"
    "0000000000000fa10002ffffffff000000012000000008000000000c00000000000300",
}


def test_a_batch_as_sent_and_as_stored() -> None:
    made = build_batch(
        [
            Record(-1, NOW, b"k", b"v"),
            Record(-1, NOW, None, b"w", (("h", b"1"),)),
        ]
    )
    assert made == SENT
    stamp(made, 0, 100, 7)
    assert made == STORED
    verify(made)
    assert [each.offset for each in decode_records(made)] == [100, 101]


@pytest.mark.parametrize("commits", MARKERS)
def test_end_markers(commits: bool) -> None:
    marker = EndMarker(commits, coordinator_epoch=3)
    made = build_end_marker(marker, producer_id=4001, producer_epoch=2, timestamp_ms=NOW)
    stamp(made, 0, 102, 7)
    assert made == bytes.fromhex(MARKERS[commits])
    verify(made)
    assert read_end_marker(made) == marker


# --- frames of Kafka 0.8: kcat's requests, and the answers -------------------

MESSAGE_SET = bytes.fromhex("0000000000000000000000101fecd70a0000000000016b0000000176")
OLD_REQUESTS = [
    ("K1", 3, 1, cluster.MetadataRequest(topics=()), "0000001000030000000000010002633100000000"),
    (
        "K3",
        0,
        3,
        records.ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=(
                records.ProduceRequestTopic(
                    name="t0",
                    partition_data=(
                        records.ProduceRequestTopicPartition(index=0, records=MESSAGE_SET),
                    ),
                ),
            ),
        ),
        (
            "00000042000000000000000300026331ffff00007530000000010002743000000001000000000000001c"
            "0000000000000000000000101fecd70a0000000000016b0000000176"
        ),
    ),
    (
        "K5",
        2,
        4,
        records.ListOffsetsRequest(
            replica_id=-1,
            topics=(
                records.ListOffsetsRequestTopic(
                    name="t0",
                    partitions=(records.ListOffsetsRequestTopicPartition(timestamp=-2),),
                ),
            ),
        ),
        (
            "0000002c000200000000000400026331ffffffff00000001000274300000000100000000fffffffffffffffe"
            "00000001"
        ),
    ),
    (
        "K7",
        1,
        5,
        records.FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            topics=(
                records.FetchRequestTopic(
                    topic="t0",
                    partitions=(records.FetchRequestTopicPartition(partition_max_bytes=1 << 20),),
                ),
            ),
        ),
        (
            "00000034000100000000000500026331ffffffff000001f40000000100000001000274300000000100000000"
            "000000000000000000100000"
        ),
    ),
]
OLD_RESPONSES = [
    (
        "K2",
        3,
        1,
        cluster.MetadataResponse(
            brokers=(cluster.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=19098),),
            topics=(
                cluster.MetadataResponseTopic(
                    error_code=0,
                    name="t0",
                    partitions=(
                        cluster.MetadataResponseTopicPartition(
                            error_code=0,
                            partition_index=0,
                            leader_id=1,
                            replica_nodes=(1,),
                            isr_nodes=(1,),
                        ),
                    ),
                ),
            ),
        ),
        (
            "0000004300000001000000010000000100093132372e302e302e3100004a9a00000001000000027430000000"
            "010000000000000000000100000001000000010000000100000001"
        ),
    ),
    (
        "K4",
        0,
        3,
        records.ProduceResponse(
            responses=(
                records.ProduceResponseEntry(
                    name="t0",
                    partition_responses=(
                        records.ProduceResponseEntryPartition(error_code=0, base_offset=0),
                    ),
                ),
            )
        ),
        "0000001e000000030000000100027430000000010000000000000000000000000000",
    ),
    (
        "K6",
        2,
        4,
        records.ListOffsetsResponse(
            topics=(
                records.ListOffsetsResponseTopic(
                    name="t0",
                    partitions=(
                        records.ListOffsetsResponseTopicPartition(
                            error_code=0, old_style_offsets=(0,)
                        ),
                    ),
                ),
            )
        ),
        "0000002200000004000000010002743000000001000000000000000000010000000000000000",
    ),
    (
        "K8",
        1,
        5,
        records.FetchResponse(
            responses=(
                records.FetchResponseEntry(
                    topic="t0",
                    partitions=(
                        records.FetchResponseEntryPartition(
                            error_code=0, high_watermark=1, records=MESSAGE_SET
                        ),
                    ),
                ),
            )
        ),
        (
            "0000003e0000000500000001000274300000000100000000000000000000000000010000001c"
            "0000000000000000000000101fecd70a0000000000016b0000000176"
        ),
    ),
]


@pytest.mark.parametrize(
    ("key", "number", "request_", "frame"),
    [each[1:] for each in OLD_REQUESTS],
    ids=[each[0] for each in OLD_REQUESTS],
)
def test_requests_of_0_8(key: int, number: int, request_: Struct, frame: str) -> None:
    header = RequestHeader(key, 0, number, "c1")
    assert apis.request_frame(header, request_).hex() == frame
    body = memoryview(bytes.fromhex(frame))[4:]
    read, start = apis.read_header(body)
    assert read == header
    assert apis.read_request(body, start, APIS[key], 0) == request_


@pytest.mark.parametrize(
    ("key", "number", "response", "frame"),
    [each[1:] for each in OLD_RESPONSES],
    ids=[each[0] for each in OLD_RESPONSES],
)
def test_responses_of_0_8(key: int, number: int, response: Struct, frame: str) -> None:
    assert apis.response_frame(APIS[key], 0, number, response).hex() == frame
    read = apis.read_response(memoryview(bytes.fromhex(frame)), 8, APIS[key], 0)
    assert apis.response_frame(APIS[key], 0, number, read).hex() == frame
