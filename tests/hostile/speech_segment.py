"""What is said to the segment listener, in both of its dialects."""

from __future__ import annotations

import random
from collections.abc import Iterator
from uuid import UUID

from paceline.wire.segment import messages as m
from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.client import closed_block
from paceline.wire.segment.events import frame_events
from paceline.wire.segment.framing import HEADER, MAX_PAYLOAD_BYTES, encode

_BAIT, _PREY = "bait/s/0", "prey/s/0"
LIES = (
    HEADER.pack(m.Event.TYPE, MAX_PAYLOAD_BYTES),
    HEADER.pack(m.PartialMessage.TYPE, MAX_PAYLOAD_BYTES) + b"x",
    HEADER.pack(m.ReadSegment.TYPE, 2**32 - 1),
    HEADER.pack(-1, 5),
    b"\0",
)
PRAVEGA_HELLO = encode(w.Hello(15, 5))
PRAVEGA_LIES = (
    HEADER.pack(w.AppendBlockEnd.TYPE, MAX_PAYLOAD_BYTES),
    HEADER.pack(w.UpdateTableEntries.TYPE, MAX_PAYLOAD_BYTES) + b"x" * 100,
    HEADER.pack(w.ReadSegment.TYPE, 2**32 - 1),
    b"\0",
)


def cheap(rng: random.Random) -> Iterator[bytes]:
    writer = UUID(int=rng.getrandbits(128))
    yield encode(m.CreateSegment(_PREY)) + encode(m.SetupAppend(writer, _PREY))
    at = 0
    while True:
        yield encode(m.GetStreamSegmentInfo(_BAIT))
        yield encode(m.KeepAlive(b"x"))
        events = [b"x" * 100] * rng.randrange(1, 20)
        yield closed_block(writer, at, events)
        at += len(frame_events(events))


def costly(_: random.Random) -> Iterator[bytes]:
    while True:
        yield encode(m.ReadSegment(_BAIT, 0, 8 << 20))
        yield encode(m.KeepAlive(b"x" * 60_000))


def begun() -> bytes:
    return HEADER.pack(m.PartialMessage.TYPE, MAX_PAYLOAD_BYTES) + bytes(MAX_PAYLOAD_BYTES - 1)


def pravega_cheap(rng: random.Random) -> Iterator[bytes]:
    writer = UUID(int=rng.getrandbits(128))
    yield encode(w.SetupAppend(1, writer, _PREY, ""))
    while True:
        yield encode(w.GetStreamSegmentInfo(1, _BAIT, ""))
        yield encode(w.KeepAlive())


def pravega_costly(_: random.Random) -> Iterator[bytes]:
    while True:
        yield encode(w.ReadSegment(_BAIT, 0, 8 << 20, "", 4))


def pravega_begun() -> bytes:
    return HEADER.pack(w.UpdateTableEntries.TYPE, MAX_PAYLOAD_BYTES) + bytes(MAX_PAYLOAD_BYTES - 1)
