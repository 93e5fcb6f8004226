"""What is said to the Kafka listener."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

from paceline.wire.kafka import apis, cluster, records
from paceline.wire.kafka.apis import APIS, Api, RequestHeader
from paceline.wire.kafka.layout import Struct
from tests.hostile import kafka
from tests.unit.wire_kafka.values import Values

_ADMINISTRATION = frozenset({19, 20, 21, 37, 42, 44, 47})
"""What anybody may do who may do anything: no attack."""
_ITEMS = (3_000, 30_000)


def _framed(request: Struct, version: int, key: int) -> bytes:
    return bytes(apis.request_frame(RequestHeader(key, version, 1, "stranger"), request))


def _newest(request: Struct) -> bytes:
    [api] = [each for each in APIS.values() if each.request is type(request)]
    return _framed(request, api.last, api.key)


def cheap(rng: random.Random) -> Iterator[bytes]:
    asked = cluster.MetadataRequest(topics=None, allow_auto_topic_creation=False)
    some = (
        _newest(cluster.ApiVersionsRequest()),
        _newest(asked),
        _newest(kafka.repeated_queries("bait", times=1)),
        _newest(kafka.many_partitions_produced("prey", parts=1)),
        _newest(kafka.repeated_fetch("bait", 1 << 40, times=1, wait_ms=0)),
    )
    while True:
        yield rng.choice(some)


def costly(_: random.Random) -> Iterator[bytes]:
    part = records.FetchRequestTopicPartition(
        partition=0, fetch_offset=0, partition_max_bytes=32 << 20
    )
    topic = records.FetchRequestTopic(topic="bait", partitions=(part,))
    asked = records.FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=32 << 20, topics=(topic,), replica_id=-1
    )
    # Records that are made anew for old clients, and records out of files, in turn.
    frames = (_framed(asked, 1, 1), _framed(asked, 4, 1))
    while True:
        yield from frames


def bombs(rng: random.Random) -> Iterator[bytes]:
    yield _newest(kafka.repeated_fetch("bait", 1, times=10_000))
    yield _newest(kafka.repeated_queries("bait", times=30_000))
    yield _newest(kafka.crowd_of_batches("prey", batches=200_000))
    yield _newest(kafka.many_partitions_produced("prey", parts=10_000))
    yield _newest(kafka.great_produce("prey", megabytes=40))
    yield _newest(kafka.great_batch("prey", megabytes=40))
    for api in APIS.values():
        if api.key not in _ADMINISTRATION:
            yield from _swollen(api, rng)


def _swollen(api: Api, rng: random.Random) -> Iterator[bytes]:
    """A request of the API with each of its lists thousands of items long."""
    version = rng.randint(api.first, api.last)
    made = Values(rng, errors=(0,), longest_ms=1000).message(api.request, version)
    for field in dataclasses.fields(made):  # type: ignore[arg-type]
        value: Any = getattr(made, field.name)
        if isinstance(value, tuple) and value:
            for items in _ITEMS:
                longer = (value * items)[:items]
                yield _framed(dataclasses.replace(made, **{field.name: longer}), version, api.key)  # type: ignore[type-var]
