"""How things are said: slowly, not at all, too often, without listening. Each way of attack runs on
many connections until it is cancelled; who is closed comes again."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import trio

from tests.fuzz.engine import mangle
from tests.hostile.speech import Speech
from tests.integration.node.machines import open_stream

Address = tuple[str, int]
_GONE = (OSError, trio.BrokenResourceError, trio.ClosedResourceError)
_CONNECT_S = 5.0
_ANSWER_S = 10.0
_RECEIVE_BYTES = 1024 * 1024
_TOGETHER_BYTES = 64 * 1024
_LATER_S = 0.05


@dataclass(frozen=True)
class Aim:
    """Whom to attack: addresses of one listener on all nodes; and as whom, so that the load beside
    it has another address. ``share`` of the connections that a way has."""

    speech: Speech
    addresses: tuple[Address, ...]
    source: str
    rng: random.Random
    share: float = 1.0


@asynccontextmanager
async def _connection(aim: Aim) -> AsyncIterator[trio.abc.HalfCloseableStream]:
    host, port = aim.rng.choice(aim.addresses)
    with trio.fail_after(_CONNECT_S):
        stream = await open_stream((host, port), source=aim.source)
    try:
        if aim.speech.opening:
            with trio.fail_after(_ANSWER_S):
                await stream.send_all(aim.speech.opening)
                await stream.receive_some(1024)
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


async def _again_and_again(aim: Aim, one: Callable[[trio.SocketStream], Awaitable[None]]) -> None:
    """A connection, and another one when it has ended."""
    while True:
        try:
            async with _connection(aim) as stream:
                await one(stream)
        except* (*_GONE, trio.TooSlowError):
            pass
        await trio.sleep(_LATER_S)


async def _crowd(aim: Aim, count: int, one: Callable[[trio.SocketStream], Awaitable[None]]) -> None:
    async with trio.open_nursery() as nursery:
        for number in range(max(1, round(count * aim.share))):
            nursery.start_soon(_again_and_again, aim, one)
            if number % 50 == 0:
                await trio.sleep(_LATER_S)


async def _discard(stream: trio.SocketStream) -> None:
    while await stream.receive_some(_RECEIVE_BYTES):
        pass


async def _hang(stream: trio.SocketStream) -> None:
    """Until the node closes."""
    while await stream.receive_some(1024):  # noqa: ASYNC110
        await trio.sleep(_LATER_S)


def _together(talk: Iterator[bytes]) -> Iterator[bytes]:
    """Requests joined to what is sent at once."""
    while True:
        parts, size = [], 0
        for each in talk:
            parts.append(each)
            size += len(each)
            if size >= _TOGETHER_BYTES:
                break
        if not parts:
            return
        yield b"".join(parts)


# --- the ways -------------------------------------------------------------------------------------


async def slow(aim: Aim) -> None:
    """300 connections that send a byte a second, and take one."""

    async def one(stream: trio.SocketStream) -> None:
        talk = itertools.chain((aim.speech.hello,), aim.speech.cheap(aim.rng))
        for byte in itertools.chain.from_iterable(talk):
            await trio.sleep(1)
            await stream.send_all(bytes([byte]))
            with trio.move_on_after(0):
                await stream.receive_some(1)

    await _crowd(aim, 300, one)


async def silent(aim: Aim) -> None:
    """1,000 connections that say nothing, or a greeting, or the beginning of something."""

    async def one(stream: trio.SocketStream) -> None:
        speech = aim.speech
        first = next(speech.cheap(aim.rng))
        await stream.send_all(
            aim.rng.choice((b"", speech.hello, speech.hello + first[:-1], speech.hello + first))
        )
        await _hang(stream)

    await _crowd(aim, 1_000, one)


async def flooding(aim: Aim) -> None:
    """16 connections with as many short requests as they take."""

    async def one(stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_discard, stream)
            await stream.send_all(aim.speech.hello)
            for data in _together(aim.speech.cheap(aim.rng)):
                await stream.send_all(data)

    await _crowd(aim, 16, one)


async def never_reading(aim: Aim) -> None:
    """60 connections that ask for much and take nothing."""

    async def one(stream: trio.SocketStream) -> None:
        await stream.send_all(aim.speech.hello)
        for data in aim.speech.costly(aim.rng):
            await stream.send_all(data)

    await _crowd(aim, 60, one)


async def taking_slowly(aim: Aim) -> None:
    """60 connections that ask for much and take a KiB a second."""

    async def one(stream: trio.SocketStream) -> None:
        await stream.send_all(aim.speech.hello)
        for data in itertools.islice(aim.speech.costly(aim.rng), 20):
            with trio.move_on_after(1):
                await stream.send_all(data)
        while await stream.receive_some(1024):  # noqa: ASYNC110
            await trio.sleep(1)

    await _crowd(aim, 60, one)


async def lying(aim: Aim) -> None:
    """200 connections that announce what does not come, or cannot."""

    async def one(stream: trio.SocketStream) -> None:
        await stream.send_all(aim.speech.hello + aim.rng.choice(aim.speech.lies))
        await _hang(stream)

    await _crowd(aim, 200, one)


async def never_whole(aim: Aim) -> None:
    """40 connections that send all of a large message but its end."""
    data = aim.speech.hello + aim.speech.begun()

    async def one(stream: trio.SocketStream) -> None:
        await stream.send_all(data)
        await _hang(stream)

    await _crowd(aim, 40, one)


async def bombs(aim: Aim) -> None:
    """Four connections at a time that ask for much in little, each for one thing."""
    made = list(aim.speech.bombs(aim.rng))

    async def one(stream: trio.SocketStream) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_discard, stream)
            await stream.send_all(aim.speech.hello + aim.rng.choice(made))
            await trio.sleep(aim.rng.random() * _ANSWER_S / 5)
            nursery.cancel_scope.cancel("the next one")

    if made:
        await _crowd(aim, 4, one)


async def mangled(aim: Aim) -> None:
    """16 connections with conversations that are broken somewhere."""

    async def one(stream: trio.SocketStream) -> None:
        speech, rng = aim.speech, aim.rng
        said = b"".join(itertools.islice(speech.cheap(rng), rng.randrange(1, 8)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_discard, stream)
            await stream.send_all(speech.hello + mangle(said, rng))
            await trio.sleep(_LATER_S)
            nursery.cancel_scope.cancel("the next one")

    await _crowd(aim, 16, one)


async def crowding(aim: Aim) -> None:
    """3,000 connections that stay, and others that come and go."""

    async def stays(stream: trio.SocketStream) -> None:
        await stream.send_all(aim.speech.hello)
        await _hang(stream)

    async def goes(stream: trio.SocketStream) -> None:
        await stream.send_all(aim.speech.hello)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_crowd, aim, 3_000, stays)
        nursery.start_soon(_crowd, aim, 20, goes)


WAYS: Mapping[str, Callable[[Aim], Awaitable[None]]] = {
    way.__name__.replace("_", "-"): way
    for way in (
        slow,
        silent,
        flooding,
        never_reading,
        taking_slowly,
        lying,
        never_whole,
        bombs,
        mangled,
        crowding,
    )
}


async def attack(way: str, aim: Aim, seconds: float) -> None:
    """Attack in this way for so long."""
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(WAYS[way], aim))
            await trio.sleep_forever()
