"""What is said to a coordinator that drives its consumers: groups of one connection each, patterns
that know many sets of states, lists of topics, and what nobody asked."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from paceline.wire.coordinator.codec import Ask, Header, request_frame, response_frame
from paceline.wire.coordinator.messages import (
    ConsultRequest,
    PingRequest,
    Position,
    PositionsResponse,
    RegisterRequest,
    TopicCount,
)
from paceline.wire.kafka.layout import Struct

_STREAMS = 1_000
_POSITIONS = 30_000
LIES = (
    (64 << 20).to_bytes(4, "big") + b"\x03\xe9\0\1",
    (40).to_bytes(4, "big") + b"\x03\xe9",
    b"\0\0\0\2\x03\xe9",
)


def _asked(ask: Ask, body: Struct, number: int = 1) -> bytes:
    return bytes(request_frame(Header(ask, False, 1, number, "stranger"), body))


def _registration(group: str, consumer: str, *topics: str, streams: int, kind: int) -> bytes:
    request = RegisterRequest(
        group_id=group,
        consumer_id=consumer,
        auto_commit=1,
        auto_offset_rest="smallest",
        heartbeat_interval_ms=1,
        max_heartbeat_retries=30_000,
        topic_count=tuple(TopicCount(topic=topic, streams=streams) for topic in topics),
        pattern_kind=kind,
    )
    return _asked(Ask.REGISTER, request)


def _name(rng: random.Random) -> str:
    return f"c{rng.getrandbits(64):x}"


def cheap(rng: random.Random) -> Iterator[bytes]:
    """Who coordinates? And at times a member of the group that all strangers share."""
    consult = _asked(Ask.CONSULT, ConsultRequest(group_id="crowd"))
    while True:
        yield from itertools.repeat(consult, rng.randrange(1, 50))
        yield _registration("crowd", _name(rng), "bait", streams=1, kind=0)


def costly(_: random.Random) -> Iterator[bytes]:
    """All brokers, as often as can be."""
    return itertools.repeat(_asked(Ask.CONSULT, ConsultRequest(group_id="crowd")))


def begun() -> bytes:
    """All of a large answer, but its end, of a member that nobody asked."""
    return _answer(_POSITIONS)[:-1]


def _answer(positions: int) -> bytes:
    """Positions of a topic that nobody reads, under the number of no question."""
    said = PositionsResponse(
        generation=1,
        positions=tuple(
            Position(topic="t" * 200, partition=number, offset=1 << 40)
            for number in range(positions)
        ),
    )
    return bytes(response_frame(Header(Ask.PING, False, 1, 7), 0, said))


def bombs(rng: random.Random) -> Iterator[bytes]:
    """Each on a connection of its own. Members of one group are told anew of all its partitions
    whenever another one comes or goes."""
    yield _registration("crowd", _name(rng), ".*", streams=_STREAMS, kind=1)
    yield _registration(_name(rng), "c", ".*", streams=_STREAMS, kind=1)
    yield _registration(_name(rng), "c", "(" * 60 + "a" + ")*" * 60, streams=1, kind=1)
    yield _registration("crowd", _name(rng), "(a|b)*a" + "(a|b)" * 40 + ".*", streams=9, kind=2)
    names = [f"{number}{'t' * 200}" for number in range(10_000)]
    yield _registration(_name(rng), "c", *names, streams=_STREAMS, kind=0)
    yield _registration(_name(rng), "c", *["bait"] * 30_000, streams=_STREAMS, kind=0)
    member = _registration("crowd", _name(rng), "bait", streams=1, kind=0)
    yield member + _answer(_POSITIONS)
    yield member + _answer(1) * 1_000
    yield member * 1_000
    yield member + _asked(Ask.PING, PingRequest()) * 1_000
