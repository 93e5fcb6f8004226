"""Events in every shape of block that the protocol allows (wire/segment/DESIGN 3.2)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from uuid import UUID

from paceline.wire.segment import messages as m
from paceline.wire.segment.client import UNBOUNDED, closed_block
from paceline.wire.segment.events import frame_events
from paceline.wire.segment.partials import cut

Shape = Callable[[UUID, int, list[bytes], random.Random], bytes]


def _exact(writer: UUID, offset: int, events: list[bytes], rng: random.Random) -> bytes:
    return closed_block(writer, offset, events)


def _unbounded(writer: UUID, offset: int, events: list[bytes], rng: random.Random) -> bytes:
    run = frame_events(events)
    return _block(writer, offset, run, UNBOUNDED, len(run))


def _padded(writer: UUID, offset: int, events: list[bytes], rng: random.Random) -> bytes:
    run = frame_events(events)
    fill = m.encode(m.KeepAlive()) + m.encode(m.Padding(bytes(rng.randint(0, 40))))
    return _block(writer, offset, run + fill, len(run) + len(fill), len(run))


def _in_pieces(writer: UUID, offset: int, events: list[bytes], rng: random.Random) -> bytes:
    size = rng.randint(1, 200)
    region = b"".join(piece for event in events for piece in cut(m.encode(m.Event(event)), size))
    return _block(writer, offset, region, len(region), len(frame_events(events)))


def _with_tail(writer: UUID, offset: int, events: list[bytes], rng: random.Random) -> bytes:
    """The last Event begins inside the block and ends behind it."""
    last = m.encode(m.Event(events[-1]))
    begin, *tail = cut(last, rng.randint(1, len(last)))
    region = frame_events(events[:-1]) + begin
    stored = len(frame_events(events))
    return _block(writer, offset, region, len(region), stored) + b"".join(tail)


def _block(writer: UUID, offset: int, region: bytes, room: int, stored: int) -> bytes:
    return b"".join(
        (
            m.encode(m.BeginAppendBlock(writer, offset, room)),
            region,
            m.encode(m.EndAppendBlock(writer, offset + stored, stored)),
        )
    )


_SHAPES: Sequence[Shape] = (_exact, _unbounded, _padded, _in_pieces, _with_tail)


def block_of(writer: UUID, offset: int, events: list[bytes], rng: random.Random) -> bytes:
    """``events``, at least one, of a writer that has ``offset`` bytes before them."""
    return rng.choice(_SHAPES)(writer, offset, events, rng)
