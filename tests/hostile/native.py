"""Attacks on the native listener: bytes to send after a greeting."""

from __future__ import annotations

import struct

from paceline.types import Acks, Compression, Isolation
from paceline.wire.batch import build_batch, build_raw_batch
from paceline.wire.compression import compress
from paceline.wire.frame import Kind, encode_head
from paceline.wire.message import Message
from paceline.wire.native import data
from paceline.wire.native.api import NativeApi
from paceline.wire.records import Record, encode_varint

_MIB = 1024 * 1024


def frame(api: int, body: Message, payload: bytes = b"", *, correlation: int = 7) -> bytes:
    """One request."""
    return encode_head(Kind.REQUEST, api, correlation, body.pack(), len(payload)) + payload


def repeated_fetch(topic: str, offset: int, *, times: int, wait_ms: int = 200) -> bytes:
    """A long poll that names one partition many times, from the end of its log."""
    part = data.FetchPartition(topic, 0, offset, _MIB)
    fetch = data.Fetch(wait_ms, _MIB, _MIB, Isolation.READ_COMMITTED, (part,) * times)
    return frame(NativeApi.FETCH, fetch)


def crowd_of_polls(topic: str, offset: int, *, polls: int, times: int) -> bytes:
    """Long polls that one append wakes all at once, none of which has enough then."""
    part = data.FetchPartition(topic, 0, offset, _MIB)
    fetch = data.Fetch(20_000, 2**30, _MIB, Isolation.READ_COMMITTED, (part,) * times)
    return b"".join(frame(NativeApi.FETCH, fetch, correlation=number) for number in range(polls))


def metadata_of_many_names(*, names: int) -> bytes:
    """METADATA of topics that do not exist."""
    wanted = tuple(f"{number:x}" for number in range(names))
    return frame(NativeApi.METADATA, data.MetadataRequest(wanted, allow_auto_create=False))


def metadata_of_one_name(topic: str, *, times: int) -> bytes:
    """METADATA that names one topic many times."""
    asked = data.MetadataRequest((topic,) * times, allow_auto_create=False)
    return frame(NativeApi.METADATA, asked)


def repeated_queries(topic: str, *, times: int) -> bytes:
    """LIST_OFFSETS that names one partition many times."""
    query = data.OffsetQuery(topic, 0, -1)
    return frame(
        NativeApi.LIST_OFFSETS, data.ListOffsets(Isolation.READ_COMMITTED, (query,) * times)
    )


def metadata_of_everything(*, requests: int) -> bytes:
    """METADATA of all topics again and again, without waiting for an answer."""
    body = data.MetadataRequest(None)
    return b"".join(
        frame(NativeApi.METADATA, body, correlation=number) for number in range(requests)
    )


def long_correlations(*, numbers: int) -> bytes:
    """A request whose body is a long list of nothing that a request would have."""
    return encode_head(Kind.REQUEST, NativeApi.STATUS, 1, [0] * numbers, 0)


def crowd_of_batches(topic: str, *, batches: int) -> bytes:
    """A PRODUCE of as many of the smallest batches as fit."""
    payload = bytes(build_batch([Record(value=b"")])) * batches
    part = data.ProducePartition(topic, 0, len(payload))
    return frame(NativeApi.PRODUCE, data.Produce(10_000, Acks.LEADER, (part,)), payload)


def one_great_produce(topic: str, *, megabytes: int = 60) -> bytes:
    """A PRODUCE of whole batches, near the largest frame."""
    batch = bytes(build_batch([Record(value=bytes(_MIB - 200))]))
    payload = batch * megabytes
    part = data.ProducePartition(topic, 0, len(payload))
    return frame(NativeApi.PRODUCE, data.Produce(10_000, Acks.LEADER, (part,)), payload)


def one_great_record(topic: str, *, megabytes: int) -> bytes:
    """A record near the largest."""
    return _one(topic, bytes(build_batch([Record(value=bytes(megabytes * _MIB))])))


def many_partitions_produced(topic: str, *, parts: int) -> bytes:
    """A PRODUCE that names one partition many times, with a batch for each."""
    batch = bytes(build_batch([Record(value=b"")]))
    part = data.ProducePartition(topic, 0, len(batch))
    body = data.Produce(10_000, Acks.LEADER, (part,) * parts)
    return frame(NativeApi.PRODUCE, body, batch * parts)


def produced(topic: str, *, timestamp_ms: int) -> bytes:
    """One record of a time."""
    return _one(topic, bytes(build_batch([Record(timestamp_ms=timestamp_ms, value=b"v")])))


def record_of_headers(topic: str, *, headers: int) -> bytes:
    """A record of empty headers, packed to a few kilobytes."""
    fields = b"\0\0\0\1\1" + encode_varint(headers) + b"\0\1" * headers
    payload = encode_varint(len(fields)) + fields
    packed = compress(Compression.ZSTD, payload)
    return _one(topic, bytes(build_raw_batch(packed, record_count=1, attributes=Compression.ZSTD)))


def claimed_records(topic: str, *, records: int) -> bytes:
    """A batch that says it holds millions of records, and does once unpacked."""
    packed = compress(Compression.ZSTD, bytes(records * 7))
    return _one(
        topic, bytes(build_raw_batch(packed, record_count=records, attributes=Compression.ZSTD))
    )


def _one(topic: str, batch: bytes) -> bytes:
    part = data.ProducePartition(topic, 0, len(batch))
    return frame(NativeApi.PRODUCE, data.Produce(10_000, Acks.LEADER, (part,)), batch)


def announced(size: int) -> bytes:
    """The length of a frame that never comes."""
    return struct.pack(">I", size)
