"""A segment store in memory behind the server's state machine, and a client that writes to it.

The smallest driver that the specification allows: appends are committed at once, nothing is
replicated. What the pure parts promise must hold here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from uuid import UUID

from paceline.wire.segment import messages as m
from paceline.wire.segment.appender import Appender
from paceline.wire.segment.client import UNBOUNDED, ReplyReader
from paceline.wire.segment.errors import SegmentProtocolError
from paceline.wire.segment.events import frame_events
from paceline.wire.segment.partials import cut
from paceline.wire.segment.server import (
    Append,
    BlockClosed,
    Refusal,
    Requested,
    ServerConnection,
    ServerLimits,
    SetUp,
    Violated,
)


class Store:
    """Segments, and what each writer has in them."""

    def __init__(self, *names: str) -> None:
        self.segments = {name: bytearray() for name in names}
        self.ends: dict[tuple[str, UUID], int] = {}

    def append(self, segment: str, writer: UUID, data: bytes, end: int) -> None:
        key = (segment, writer)
        assert self.ends.get(key, 0) == end - len(data), "compare-and-set"
        self.segments[segment] += data
        self.ends[key] = end


class Served:
    """One connection to a store; ``sent`` is all it has replied."""

    def __init__(self, store: Store, limits: ServerLimits | None = None) -> None:
        self.store = store
        self.machine = ServerConnection(limits)
        self.sent = bytearray()
        self._failed: list[Appender] = []
        self.violation: SegmentProtocolError | None = None

    def feed(self, data: bytes) -> list[m.SegmentMessage]:
        """Handle ``data``; the replies to it."""
        before = len(self.sent)
        for step in self.machine.receive(data):
            match step:
                case SetUp(appender):
                    self._set_up(appender)
                case Append(appender, run, _, end):
                    self.store.append(appender.segment, appender.connection_id, run, end)
                case BlockClosed(appender):
                    if appender not in self._failed:
                        level = self.store.ends.get((appender.segment, appender.connection_id), 0)
                        self._send(m.DataAppended(appender.connection_id, level))
                case Refusal(failed, reply):
                    if failed is not None:
                        self._failed.append(failed)
                    self._send(reply)
                case Requested(m.KeepAlive() as echo):
                    self._send(echo)
                case Violated(error):
                    self.violation = error
        return ReplyReader().receive(bytes(self.sent[before:]))

    def _set_up(self, appender: Appender) -> None:
        if appender.segment not in self.store.segments:
            appender.fail()
            self._send(m.NoSuchSegment(appender.segment))
            return
        level = self.store.ends.get((appender.segment, appender.connection_id), 0)
        appender.ready(level)
        self._send(m.AppendSetup(appender.segment, appender.connection_id, level))

    def _send(self, message: m.SegmentMessage) -> None:
        self.sent += m.encode(message)


def blocks(rng: random.Random, writer: UUID, offset: int, events: list[bytes]) -> Iterator[bytes]:
    """``events`` from ``offset`` on, in blocks of every shape: exact, unbounded, padded, with
    Events in pieces, with a tail."""
    at = 0
    while at < len(events):
        count = rng.randint(1, 5)
        chosen = events[at : at + count]
        at += count
        shape = rng.choice(("exact", "unbounded", "padded", "pieces", "tail"))
        block = _Shaped(rng, chosen, shape)
        yield m.encode(m.BeginAppendBlock(writer, offset, block.announced)) + block.region
        offset += block.stored
        yield m.encode(m.EndAppendBlock(writer, offset, block.stored)) + block.tail


class _Shaped:
    def __init__(self, rng: random.Random, events: list[bytes], shape: str) -> None:
        self.stored = len(frame_events(events))
        self.tail = b""
        region = [frame_events([event]) for event in events]
        if shape == "pieces":
            region = [b"".join(cut(each, rng.randint(1, 20))) for each in region]
            region.insert(rng.randint(0, len(region)), m.encode(m.KeepAlive(b"x")))
        if shape == "tail":
            pieces = list(cut(region[-1], rng.randint(1, 20)))
            kept = rng.randint(1, len(pieces) - 1)
            region[-1:] = pieces[:kept]
            self.tail = b"".join(pieces[kept:])
        if shape == "padded":
            region.append(m.encode(m.Padding(bytes(rng.randint(0, 9)))))
        self.region = b"".join(region)
        self.announced = UNBOUNDED if shape == "unbounded" else len(self.region)
