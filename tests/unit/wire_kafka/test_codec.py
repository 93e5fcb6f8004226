"""The codec made from the layouts: round trips, bounds, versions, frames (wire/kafka/DESIGN 1 to
3)."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import ErrorCode, RemoteProtocolError, UnsupportedVersion
from paceline.wire.kafka import apis, cluster, groups, records
from paceline.wire.kafka.apis import APIS, Api, RequestHeader
from paceline.wire.kafka.layout import Struct
from paceline.wire.kafka.reading import MAX_ITEMS, read_struct
from paceline.wire.kafka.writing import write_struct
from tests.unit.wire_kafka.values import Values

ERRORS = tuple(code.value for code in ErrorCode if code < 10_000)


def layouts() -> list[Any]:
    return [
        pytest.param(api, version, message, id=f"{message.__name__}-{version}")
        for api in APIS.values()
        for version in range(api.first, api.last + 1)
        for message in (api.request, api.response)
    ]


def encoded(message: Struct, api: Api, version: int) -> bytes:
    out = bytearray()
    write_struct(out, message, version, flexible=api.is_flexible(version))
    return bytes(out)


@pytest.mark.parametrize(("api", "version", "message"), layouts())
def test_what_is_written_is_read(api: Api, version: int, message: type[Struct]) -> None:
    values = Values(random.Random(version), errors=ERRORS, longest_ms=1 << 31)
    for _ in range(20):
        value = values.message(message, version)
        data = memoryview(encoded(value, api, version))
        assert read_struct(message, version, data, 0, flexible=api.is_flexible(version)) == value


@pytest.mark.parametrize(("api", "version", "message"), layouts())
def test_a_cut_message_is_refused_wherever_it_is_cut(
    api: Api, version: int, message: type[Struct]
) -> None:
    values = Values(random.Random(version), errors=ERRORS, longest_ms=1 << 31)
    data = encoded(values.message(message, version), api, version)[:400]
    for end in range(len(data) - 1):
        with pytest.raises(RemoteProtocolError):
            read_struct(
                message, version, memoryview(data)[:end], 0, flexible=api.is_flexible(version)
            )


def test_bytes_after_the_message_are_refused() -> None:
    request = groups.HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    data = encoded(request, APIS[12], 4) + b"\0"
    with pytest.raises(RemoteProtocolError, match="1 bytes follow the message"):
        read_struct(groups.HeartbeatRequest, 4, memoryview(data), 0, flexible=True)


@given(st.binary(max_size=300), st.sampled_from(sorted(APIS)), st.data())
def test_noise_is_read_or_refused(noise: bytes, key: int, data: st.DataObject) -> None:
    api = APIS[key]
    version = data.draw(st.integers(api.first, api.last))
    try:
        value = read_struct(
            api.request, version, memoryview(noise), 0, flexible=api.is_flexible(version)
        )
    except RemoteProtocolError:
        return
    assert isinstance(value, api.request)


def test_a_count_beyond_the_frame_is_refused_before_anything_is_made() -> None:
    data = memoryview((1 << 30).to_bytes(4, "big") + bytes(100))
    with pytest.raises(RemoteProtocolError, match="1073741824 items announced, 100 bytes are left"):
        read_struct(cluster.MetadataRequest, 0, data, 0, flexible=False)


@pytest.mark.parametrize(
    ("start", "filler"),
    [
        # no transactional id, acks, timeout, so many topics without name or partition
        (b"\0" + bytes(6) + b"\x81\x80\x80\x02", b"\1\1\0"),
        # one topic without name, so many partitions
        (b"\0" + bytes(6) + b"\2\1\x81\x80\x80\x02", bytes(4) + b"\0\0"),
        # no topic, so many unknown tagged fields
        (b"\0" + bytes(6) + b"\1\x80\x80\x80\x02", b"\0\0"),
    ],
)
def test_a_large_frame_of_the_smallest_items_is_refused_before_they_are_made(
    start: bytes, filler: bytes
) -> None:
    data = memoryview(start + filler * (4 << 20))
    with traced() as peak_bytes, pytest.raises(RemoteProtocolError, match="4194304 items announce"):
        read_struct(records.ProduceRequest, 9, data, 0, flexible=True)
    assert peak_bytes() < 1 << 20


def test_the_items_of_a_message_are_counted_together() -> None:
    def request(partitions_each: int) -> memoryview:
        part = records.ProduceRequestTopicPartition()
        topic = records.ProduceRequestTopic(partition_data=(part,) * partitions_each)
        whole = records.ProduceRequest(topic_data=(topic,) * 1024)
        return memoryview(encoded(whole, APIS[0], 9))

    assert MAX_ITEMS == 32 * 1024
    few, many = request(31), request(32)
    with traced() as peak_bytes:
        read = read_struct(records.ProduceRequest, 9, few, 0, flexible=True)
    assert len(read.topic_data) == 1024
    assert peak_bytes() < 16 << 20
    with pytest.raises(RemoteProtocolError, match="of the 32768 that a message may have"):
        read_struct(records.ProduceRequest, 9, many, 0, flexible=True)


def test_header_tags_are_counted_too() -> None:
    header = apis.request_frame(RequestHeader(12, 4, 1, "c"), groups.HeartbeatRequest())[4:15]
    with pytest.raises(RemoteProtocolError, match="tagged fields: 4194304 items announced"):
        apis.read_request(
            memoryview(header + b"\x80\x80\x80\x02" + bytes(8 << 20)), 11, APIS[12], 4
        )


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """The most memory that was taken at once, beyond what was before."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_null_where_a_value_is_required_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="group_id is null"):
        read_struct(
            groups.HeartbeatRequest, 0, memoryview(b"\xff\xff" + bytes(6)), 0, flexible=False
        )


def test_null_topics_are_all_topics_from_version_1_on() -> None:
    null = memoryview(b"\xff\xff\xff\xff")
    assert read_struct(cluster.MetadataRequest, 1, null, 0, flexible=False).topics is None
    with pytest.raises(RemoteProtocolError, match="topics is null"):
        read_struct(cluster.MetadataRequest, 0, null, 0, flexible=False)


def test_bytes_after_a_request_are_let_be() -> None:
    request = cluster.MetadataRequest(topics=None)
    frame = apis.request_frame(RequestHeader(3, 12, 1, "rdkafka"), request)
    body = memoryview(bytes(frame[4:]) + b"\0\0\0")
    header, start = apis.read_header(body)
    assert apis.read_request(body, start, APIS[3], header.version) == request


# --- tag sections ---


def test_unknown_tags_are_skipped_at_every_level() -> None:
    api = APIS[12]
    plain = encoded(groups.HeartbeatRequest(group_id="g", member_id="m"), api, 4)
    assert plain[-1:] == b"\0"
    tagged = plain[:-1] + bytes([2, 5, 3]) + b"abc" + bytes([9, 0])
    value = read_struct(groups.HeartbeatRequest, 4, memoryview(tagged), 0, flexible=True)
    assert value == groups.HeartbeatRequest(group_id="g", member_id="m")


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        (bytes([2, 5, 0, 5, 0]), "tag 5 after tag 5"),
        (bytes([1, 5, 9]), "9 bytes announced, 0 are left"),
        (b"\xff\xff\xff\xff\xff\xff", "longer than 5 bytes"),
    ],
)
def test_broken_tag_sections_are_refused(tags: bytes, said: str) -> None:
    data = encoded(groups.HeartbeatRequest(group_id="g", member_id="m"), APIS[12], 4)[:-1] + tags
    with pytest.raises(RemoteProtocolError, match=said):
        read_struct(groups.HeartbeatRequest, 4, memoryview(data), 0, flexible=True)


def test_tagged_fields_stand_in_the_tag_section_only_when_set() -> None:
    bare = records.FetchRequest(max_wait_ms=5)
    named = records.FetchRequest(max_wait_ms=5, cluster_id="c")
    short, long = encoded(bare, APIS[1], 12), encoded(named, APIS[1], 12)
    assert long[:-5] == short[:-1]
    assert long[-5:] == bytes([1, 0, 2, 2]) + b"c"
    assert read_struct(records.FetchRequest, 12, memoryview(long), 0, flexible=True) == named


# --- frames ---


def test_the_first_request_of_kcat() -> None:
    frame = bytes.fromhex("0000001f001200030000000100026331000b6c696272646b61666b6106322e302e3200")
    body = memoryview(frame)[4:]
    header, start = apis.read_header(body)
    assert header == RequestHeader(18, 3, 1, "c1")
    request = apis.read_request(body, start, apis.require_api(header), header.version)
    assert request == cluster.ApiVersionsRequest(
        client_software_name="librdkafka", client_software_version="2.0.2"
    )
    assert apis.request_frame(header, request) == frame


def test_versions_unknown_are_answered_in_version_0() -> None:
    assert apis.version_unknown_response(1).hex() == "0000001000000001002300000001001200000003"


@pytest.mark.parametrize("api", list(APIS.values()), ids=lambda api: api.request.__name__)
def test_responses_are_framed_and_read_back(api: Api) -> None:
    values = Values(random.Random(api.key), errors=ERRORS, longest_ms=1 << 31)
    for version in range(api.first, api.last + 1):
        response = values.message(api.response, version)
        frame = apis.response_frame(api, version, 77, response)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert int.from_bytes(frame[4:8], "big") == 77
        assert apis.read_response(memoryview(frame), 8, api, version) == response


class Lying(NamedTuple):
    """Records that lie elsewhere."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)


@pytest.mark.parametrize("version", range(13))
def test_records_that_lie_apart_are_sent_in_their_place(version: int) -> None:
    def response(*slices: Any) -> records.FetchResponse:
        partitions = tuple(
            records.FetchResponseEntryPartition(partition_index=i, error_code=0, records=data)
            for i, data in enumerate(slices)
        )
        return records.FetchResponse(
            responses=(records.FetchResponseEntry(topic="t", partitions=partitions),)
        )

    first, third = b"a" * 200, b"b" * 70_000
    parts = apis.response_parts(
        APIS[1], version, 9, response(Lying(first), b"", Lying(third), None)
    )
    sent = b"".join(part.data if isinstance(part, Lying) else bytes(part) for part in parts)
    whole = apis.response_frame(APIS[1], version, 9, response(first, b"", third, None))
    assert sent == whole
    assert sum(isinstance(part, Lying) for part in parts) == 2


@pytest.mark.parametrize("client_id", [None, "", "c1", "клиент"])
def test_headers_of_every_kind_of_client_id(client_id: str | None) -> None:
    header = RequestHeader(12, 4, 5, client_id)
    request = groups.HeartbeatRequest(group_id="g", member_id="m")
    body = memoryview(apis.request_frame(header, request))[4:]
    read, start = apis.read_header(body)
    assert read == header
    assert apis.read_request(body, start, APIS[12], 4) == request


@pytest.mark.parametrize(
    ("key", "version", "said"),
    [(99, 0, "no API has the key 99"), (1, 13, "API 1 version 13: served are 0 to 12")],
)
def test_apis_and_versions_that_are_not_served(key: int, version: int, said: str) -> None:
    with pytest.raises(UnsupportedVersion, match=said):
        apis.require_api(RequestHeader(key, version, 1, None))


def test_every_api_is_advertised_with_its_range() -> None:
    told = {
        (entry.api_key, entry.min_version, entry.max_version)
        for entry in apis.advertised(APIS).api_keys
    }
    assert told == {(api.key, api.first, api.last) for api in APIS.values()}
    assert {(0, 0, 9), (22, 0, 4)} < told  # what librdkafka infers its features from
