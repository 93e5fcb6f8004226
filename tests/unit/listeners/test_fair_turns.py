"""Whoever asks for much stands behind himself: sources take turns, and their connections."""

from __future__ import annotations

from pathlib import Path

import trio
import trio.testing

from paceline.wire.frame import Kind, encode_head
from paceline.wire.native import data
from paceline.wire.native.api import PROTOCOL_VERSION, NativeApi
from paceline.wire.native.data import Hello
from paceline_node.fair_line import ASKER, Asker, FairLine
from paceline_node.fair_places import FairPlaces
from paceline_node.loop_turns import Turns
from tests.unit.listeners.lone import lone_node

MANY = Asker("10.0.0.9", 1)
SAME = Asker("10.0.0.9", 2)
OTHER = Asker("10.0.0.1", 3)


def test_sources_take_turns_and_their_connections() -> None:
    line = FairLine[str]()
    for name in "abcd":
        line.add(MANY, name)
    line.add(SAME, "x")
    line.add(OTHER, "1")
    line.add(OTHER, "2")
    line.add(OTHER, "3")
    line.remove(OTHER, "2")
    assert len(line) == 7
    assert [line.next() for _ in range(8)] == ["a", "1", "x", "3", "b", "c", "d", None]
    line.add(MANY, "e")
    assert line.next(lambda source: source != MANY.source) is None
    assert line.next() == "e"
    assert len(line) == 0


async def test_many_slices_of_one_stand_before_nobody_else(autojump_clock) -> None:
    turns, done = Turns(), list[str]()

    async def works(asker: Asker, slices: int) -> None:
        ASKER.set(asker)
        for _ in range(slices):
            await turns.next()
            done.append(asker.source)

    async with trio.open_nursery() as nursery:
        for _ in range(256):
            nursery.start_soon(works, MANY, 2)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
        before = len(done)
        nursery.start_soon(works, OTHER, 2)
    at = [number for number, source in enumerate(done) if source == OTHER.source]
    assert len(done) == 514
    assert at[0] - before <= 4
    assert at[1] - at[0] <= 3


async def test_who_gives_up_keeps_nobody_waiting(autojump_clock) -> None:
    turns, passed = Turns(), list[int]()

    async def works(number: int, scope: trio.CancelScope) -> None:
        with scope:
            await turns.next()
            passed.append(number)

    scopes = [trio.CancelScope() for _ in range(30)]
    async with trio.open_nursery() as nursery:
        for number, scope in enumerate(scopes):
            nursery.start_soon(works, number, scope)
        await trio.lowlevel.checkpoint()
        for scope in scopes[1::2]:
            scope.cancel()
    assert {0, *range(2, 30, 2)} <= set(passed)
    with trio.fail_after(1):
        await turns.next()


async def test_places_of_one_source_are_not_all(autojump_clock) -> None:
    places, inside, served = FairPlaces(8, of_one=4), list[str](), list[str]()
    release = trio.Event()

    async def asks(asker: Asker) -> None:
        ASKER.set(asker)
        async with places.place():
            inside.append(asker.source)
            if asker.source == MANY.source:
                await release.wait()
            served.append(asker.source)

    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as gone:
            async with trio.open_nursery() as crowd:
                for _ in range(50):
                    crowd.start_soon(asks, MANY)
                await trio.testing.wait_all_tasks_blocked()
                assert inside == [MANY.source] * 4
                for _ in range(20):
                    nursery.start_soon(asks, OTHER)
                await trio.testing.wait_all_tasks_blocked()
                assert served == [OTHER.source] * 20
                gone.cancel()
        assert inside.count(MANY.source) == 4, "who has gone away takes no place"
        release.set()
        for _ in range(8):
            nursery.start_soon(asks, MANY)
    assert served.count(MANY.source) == 8


async def test_requests_of_one_connection_let_others_through(
    tmp_path: Path, autojump_clock
) -> None:
    """As many as were under way on a connection stood before anybody else's, at each turn."""
    large = data.MetadataRequest(tuple(f"t{number}" for number in range(5000)))
    async with lone_node(tmp_path) as node:
        crowd, other = await node.connect("native"), await node.native()
        hello = Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, "t").pack()
        burst = [encode_head(Kind.REQUEST, NativeApi.HELLO, 0, hello, 0)]
        burst += [
            encode_head(Kind.REQUEST, NativeApi.METADATA, number, large.pack(), 0)
            for number in range(1, 200)
        ]
        rounds = 0

        async def turns() -> None:
            nonlocal rounds
            while True:
                await trio.lowlevel.checkpoint()
                rounds += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(turns)
            nursery.start_soon(crowd.send_all, b"".join(burst))
            while rounds < 1000:
                await trio.lowlevel.checkpoint()
            begun = rounds
            await other.ask(NativeApi.METADATA, data.MetadataRequest(None), data.MetadataReply)
            assert rounds - begun < 20
            nursery.cancel_scope.cancel()
