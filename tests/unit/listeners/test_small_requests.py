"""Thousands of small requests at a time keep nobody else unserved, whatever protocol they speak."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import trio

from paceline.wire.cursus.frames import framed
from paceline.wire.frame import Kind, encode_head
from paceline.wire.message import Message
from paceline.wire.native import data
from paceline.wire.native.api import PROTOCOL_VERSION, NativeApi
from paceline.wire.segment import messages as segment
from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.framing import encode as encode_pravega
from paceline_node.fair_line import ASKER, Asker
from paceline_node.loop_turns import SLICE_UNITS, SMALL_UNITS, Turns
from tests.unit.listeners.lone import lone_node

STRANGERS = 200
EACH = 10
MOST = 2 * SLICE_UNITS // SMALL_UNITS
"""Of Kafka's kind in a round: those that come while nobody waits, and those that were let out."""
CROWD = Asker("10.0.0.9", 1)
OTHER = Asker("10.0.0.1", 2)


class Rounds(trio.abc.Instrument):
    """Counts the rounds of the loop."""

    def __init__(self) -> None:
        self.number = 0

    def before_io_wait(self, timeout: float) -> None:
        self.number += 1


@pytest.fixture
async def rounds():
    found = Rounds()
    trio.lowlevel.add_instrument(found)
    yield found
    trio.lowlevel.remove_instrument(found)


async def test_a_lone_source_waits_for_nothing(autojump_clock, rounds) -> None:
    turns = Turns()
    ASKER.set(OTHER)
    for _ in range(50):
        before = rounds.number
        for _ in range(SLICE_UNITS // SMALL_UNITS):
            await turns.small()
        assert rounds.number == before
        await trio.lowlevel.checkpoint()


async def test_who_is_released_and_gives_up_keeps_nobody_waiting(autojump_clock) -> None:
    turns, passed = Turns(), list[int]()

    async def asks(number: int, scope: trio.CancelScope) -> None:
        with scope:
            await turns.small()
            passed.append(number)

    scopes = [trio.CancelScope() for _ in range(300)]
    async with trio.open_nursery() as nursery:
        for number, scope in enumerate(scopes):
            nursery.start_soon(asks, number, scope)
        for _ in range(4):
            await trio.lowlevel.checkpoint()
        before = len(passed)
        assert before < 300
        for scope in scopes[1::2]:
            scope.cancel()
    assert 150 <= len(passed) <= 150 + before
    with trio.fail_after(1):
        await turns.small()


async def test_a_round_serves_a_bounded_number_and_sources_take_turns(
    autojump_clock, rounds
) -> None:
    turns, served = Turns(), dict[int, int]()

    async def asks(asker: Asker) -> None:
        ASKER.set(asker)
        while True:
            await turns.small()
            served[rounds.number] = served.get(rounds.number, 0) + 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        for number in range(1500):
            nursery.start_soon(asks, Asker(CROWD.source, number))
        while rounds.number < 200:
            await trio.lowlevel.checkpoint()
        ASKER.set(OTHER)
        for _ in range(20):
            begun = rounds.number
            await turns.small()
            assert rounds.number - begun <= 3
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert max(served.values()) <= MOST + 1
    busy = sum(served.values()) / len(served)
    assert busy >= SLICE_UNITS // SMALL_UNITS - 1, "a round serves a whole slice's worth"


# --- through the listeners ------------------------------------------------------------------------


def _kafka() -> bytes:
    body = struct.pack(">hhih", 18, 0, 7, 1) + b"x"  # ApiVersions, which needs no log-in
    return struct.pack(">i", len(body)) + body


def _native(api: NativeApi, body: Message) -> bytes:
    return encode_head(Kind.REQUEST, api, 1, body.pack(), 0)


HELLO = _native(NativeApi.HELLO, data.Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, "t"))
PRAVEGA_HELLO = encode_pravega(pravega.Hello(15, 5))
LIVE = b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Spoken(NamedTuple):
    """``greeting`` goes before any request; ``most`` requests in a round."""

    listener: str
    greeting: bytes
    request: bytes
    most: int


SPOKEN = {
    "kafka": Spoken("kafka", b"", _kafka(), MOST),
    "native": Spoken(
        "native", HELLO, _native(NativeApi.LIST_OFFSETS, data.ListOffsets(0, ())), 2 * SLICE_UNITS
    ),
    "cursus": Spoken("cursus", b"", framed(b"PROTOCOL_INFO"), MOST),
    "v1": Spoken("v1", b"", b"V1|1|NOTHING|\n", MOST),
    "segment": Spoken("segment", b"", segment.encode(segment.KeepAlive()), 2 * SLICE_UNITS),
    "pravega": Spoken(
        "segment", PRAVEGA_HELLO, encode_pravega(pravega.KeepAlive()), 2 * SLICE_UNITS
    ),
    "http": Spoken("http", b"", LIVE, MOST),
}


class Talker:
    """A client that says the same again and again."""

    def __init__(self, stream: trio.abc.Stream, spoken: Spoken) -> None:
        self._stream = stream
        self._spoken = spoken
        self.answer_bytes = 0

    async def greet(self) -> None:
        if self._spoken.greeting:
            await self._stream.send_all(self._spoken.greeting)
            await self._stream.receive_some()

    async def ask(self) -> None:
        """Ask, and read what comes first; in memory that is all of a small answer."""
        await self._stream.send_all(self._spoken.request)
        self.answer_bytes = len(await self._stream.receive_some())

    async def flood(self, note: Callable[[int], None]) -> None:
        await self._stream.send_all(self._spoken.request * EACH)
        while answered := await self._stream.receive_some():
            note(len(answered))


@pytest.mark.parametrize("name", SPOKEN)
async def test_many_who_ask_little_keep_nobody_unserved(
    name: str, tmp_path: Path, autojump_clock, rounds
) -> None:
    spoken = SPOKEN[name]
    came, total = Counter[int](), STRANGERS * EACH

    def note(size: int) -> None:
        came[rounds.number] += size

    async with lone_node(tmp_path) as node, trio.open_nursery() as nursery:
        honest = Talker(await node.connect(spoken.listener, OTHER.source), spoken)
        await honest.greet()
        begun = rounds.number
        await honest.ask()
        alone = rounds.number - begun
        crowd = [
            Talker(await node.connect(spoken.listener, CROWD.source), spoken)
            for _ in range(STRANGERS)
        ]
        for stranger in crowd:
            await stranger.greet()
        for stranger in crowd:
            nursery.start_soon(stranger.flood, note)
        begun = rounds.number
        while came.total() < total * honest.answer_bytes // 4 and rounds.number - begun < 200:
            await trio.lowlevel.checkpoint()
        begun = rounds.number
        await honest.ask()
        took = rounds.number - begun
        while came.total() < total * honest.answer_bytes:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    in_a_round = max(came.values()) / honest.answer_bytes
    assert in_a_round <= spoken.most
    assert took <= 4 * alone
