"""What is said to the native listener, and to its WebSocket."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

from paceline.types import Isolation
from paceline.wire.frame import Kind, encode_head
from paceline.wire.native import data
from paceline.wire.native.api import NativeApi
from tests.hostile import native
from tests.integration.node.native import HELLO, request

_MIB = 1024 * 1024
HELLO_BYTES = request(NativeApi.HELLO, HELLO)
LIES = (
    native.announced(64 * _MIB),
    native.announced(64 * _MIB) + b"begin",
    native.announced(2**32 - 1),
    native.announced(0),
    b"\0",
)
_HARMLESS = (
    NativeApi.METADATA,
    NativeApi.LIST_OFFSETS,
    NativeApi.FETCH,
    NativeApi.DESCRIBE_TOPIC,
    NativeApi.FIND_COORDINATOR,
    NativeApi.JOIN_GROUP,
    NativeApi.SYNC_GROUP,
    NativeApi.COMMIT_OFFSETS,
    NativeApi.FETCH_OFFSETS,
    NativeApi.COMMIT_TRANSACTION_OFFSETS,
    NativeApi.BEGIN_ATTEMPT,
    NativeApi.COMMIT_GROUP,
)
"""Requests that change nothing but what is the attacker's own."""


def cheap(rng: random.Random) -> Iterator[bytes]:
    some = (
        native.metadata_of_everything(requests=1),
        native.repeated_queries("bait", times=1),
        native.many_partitions_produced("prey", parts=1),
        native.repeated_fetch("bait", 1 << 40, times=1, wait_ms=0),
        native.frame(NativeApi.STATUS, data.Status()),
    )
    while True:
        yield rng.choice(some)


def costly(_: random.Random) -> Iterator[bytes]:
    part = data.FetchPartition("bait", 0, 0, 32 * _MIB)
    body = data.Fetch(0, 1, 32 * _MIB, Isolation.READ_COMMITTED, (part,))
    fetch = native.frame(NativeApi.FETCH, body)
    metadata = native.metadata_of_everything(requests=50)
    while True:
        yield fetch
        yield metadata


def begun() -> bytes:
    """60 MiB of a frame, but for the last byte."""
    return encode_head(Kind.REQUEST, NativeApi.STATUS, 1, [], 60 * _MIB) + bytes(60 * _MIB - 1)


def bombs(rng: random.Random) -> Iterator[bytes]:
    yield native.repeated_fetch("bait", 1, times=10_000)
    yield native.crowd_of_polls("bait", 1 << 40, polls=200, times=50)
    yield native.metadata_of_many_names(names=60_000)
    yield native.metadata_of_many_names(names=200_000)
    yield native.repeated_queries("bait", times=10_000)
    yield native.metadata_of_everything(requests=900)
    yield native.long_correlations(numbers=900_000)
    yield native.crowd_of_batches("prey", batches=900_000)
    yield native.one_great_produce("prey", megabytes=40)
    yield native.one_great_record("prey", megabytes=15)
    yield native.many_partitions_produced("prey", parts=900)
    yield native.produced("prey", timestamp_ms=2**63 - 1)
    yield native.record_of_headers("prey", headers=400_000)
    yield native.claimed_records("prey", records=4_000_000)
    nested: list[Any] = []
    for _ in range(200):
        nested = [nested, nested] if len(nested) < 1 else [nested]
    for api in _HARMLESS:
        yield encode_head(Kind.REQUEST, api, 1, nested, 0)
        for items in (1_000, 60_000):
            item = rng.choice(([], "bait", ["bait", 0], ["bait", 0, 1, 1, 1], 0, b"x"))
            body = [[item] * items for _ in range(4)]
            yield encode_head(Kind.REQUEST, api, 1, body, 0)


# --- WebSocket ------------------------------------------------------------------------------------


def message(payload: bytes, *, opcode: int = 2, final: bool = True) -> bytes:
    """A masked message; with a mask of zeros the payload is as it is."""
    head = bytes([opcode | (0x80 if final else 0)])
    size = len(payload)
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 1 << 16:
        head += b"\xfe" + size.to_bytes(2, "big")
    else:
        head += b"\xff" + size.to_bytes(8, "big")
    return head + bytes(4) + payload


def over_websocket(
    talk: Callable[[random.Random], Iterator[bytes]],
) -> Callable[[random.Random], Iterator[bytes]]:
    """The same, each as a message of its own."""
    return lambda rng: (message(each) for each in talk(rng))


UPGRADE = (
    b"GET /native HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def begun_in_pieces() -> bytes:
    """A message of 60 MiB in fragments, of which the last does not come."""
    first = (60 * _MIB).to_bytes(4, "big") + bytes(_MIB)
    return message(first, final=False) + message(bytes(_MIB), opcode=0, final=False) * 58
