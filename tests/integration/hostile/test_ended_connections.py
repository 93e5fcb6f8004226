"""A connection that has ended is freed by counting references, however it ended.

What ends in a cycle may stay for ever: the node sets objects aside that the garbage collector has
looked at once (``app/garbage_collector.py``).
"""

from __future__ import annotations

import gc
import random
import socket
import ssl
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from types import FrameType, FunctionType, MethodType
from uuid import UUID

import pytest
import trio

from paceline.wire.cursus.frames import framed
from paceline.wire.segment import messages as m
from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.framing import encode
from paceline_node.client_memory import Holding
from paceline_node.net.connection_limit import LimitedConnection
from paceline_node.net.tls_handshake import Handshakes
from tests.authority import Authority
from tests.hostile import kafka, native, speech_coordinator, speech_kafka, speech_native
from tests.hostile.speech import SPEECHES, Speech
from tests.integration.node.machines import open_stream
from tests.integration.node.nodes import HANG_S, RunningNode, V1Client, lone_node

QUICK = {
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
    "topics.partitions": "1",
    "limits.stall_ms": "100",
    "limits.native_idle_ms": "100",
}
PART_BYTES = 300_000
"""Of a message that never is whole: more than any protocol takes in at once."""
LARGE_BYTES = 1000
_ANSWER_S = 0.05
_OURS = ("paceline.", "paceline_node.", "trio.SSLStream")
BOMB_BYTES = 1_000_000
Way = Callable[[Speech, trio.SocketStream], Awaitable[None]]


# --- what is left ---------------------------------------------------------------------------------


@contextmanager
def left_behind() -> Iterator[dict[str, int]]:
    """What the block leaves to the collector: objects of ours, frames and methods of ours, and who
    refers to many bytes."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        for each in gc.garbage:
            if (name := _name(each)).startswith(_OURS):
                found[name] += 1
            for part in gc.get_referents(each):
                if isinstance(part, bytes | bytearray | str) and sys.getsizeof(part) > LARGE_BYTES:
                    found[f"bytes of {name}"] += sys.getsizeof(part)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _name(each: object) -> str:
    match each:
        case FrameType():
            module = str(each.f_globals.get("__name__"))
            return f"{module}.{each.f_code.co_qualname}, a frame"
        case FunctionType() | MethodType():
            return f"{each.__module__}.{each.__qualname__}"
        case _:
            return f"{type(each).__module__}.{type(each).__qualname__}"


def living(kind: type[object]) -> list[object]:
    return [each for each in gc.get_objects() if isinstance(each, kind)]


def connections() -> int:
    """How many are being served by nodes of this process."""
    tasks = [trio.lowlevel.current_root_task()]
    count = 0
    while tasks:
        task = tasks.pop()
        if task is not None:
            count += getattr(task.coro, "__qualname__", "") == "_Accepting._run"
            tasks += [each for nursery in task.child_nurseries for each in nursery.child_tasks]
    return count


async def ended() -> None:
    with trio.fail_after(HANG_S):
        while connections():  # noqa: ASYNC110  no event tells
            await trio.sleep(0.002)


# --- ways to end ----------------------------------------------------------------------------------


def part_of(speech: Speech) -> bytes:
    return speech.hello + speech.begun()[:PART_BYTES]


async def listen(stream: trio.SocketStream, seconds: float = _ANSWER_S) -> None:
    with trio.move_on_after(seconds):
        while await stream.receive_some(1 << 20):
            pass


def reset(stream: trio.SocketStream) -> None:
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


async def says_nothing(_: Speech, stream: trio.SocketStream) -> None:
    await listen(stream)


async def says_nothing_more(speech: Speech, stream: trio.SocketStream) -> None:
    await stream.send_all(speech.hello)
    await listen(stream)


async def has_its_answers(speech: Speech, stream: trio.SocketStream) -> None:
    talk = speech.cheap(random.Random(1))
    await stream.send_all(speech.hello + b"".join(next(talk) for _ in range(40)))
    await listen(stream)


async def goes_while_answers_come(speech: Speech, stream: trio.SocketStream) -> None:
    talk = speech.costly(random.Random(1))
    await stream.send_all(speech.hello + b"".join(next(talk) for _ in range(10)))
    await trio.sleep(_ANSWER_S)
    reset(stream)


async def resets_in_a_message(speech: Speech, stream: trio.SocketStream) -> None:
    await stream.send_all(part_of(speech))
    await trio.sleep(_ANSWER_S)
    reset(stream)


async def closes_in_a_message(speech: Speech, stream: trio.SocketStream) -> None:
    await stream.send_all(part_of(speech))
    await stream.send_eof()
    await listen(stream)


async def stops_in_a_message(speech: Speech, stream: trio.SocketStream) -> None:
    """Those that allow silence for longer are left to it: it ends as others are ended."""
    await stream.send_all(part_of(speech))
    await listen(stream, 1.0 if speech.name not in _PATIENT else 0.0)


_PATIENT = {"http", "pravega", "segment", "segment-pravega", "v1"}
"""Of these a part of a message may be late for longer than a test waits."""


async def is_ended_for_memory(speech: Speech, stream: trio.SocketStream) -> None:
    await stream.send_all(part_of(speech))
    await trio.sleep(_ANSWER_S)
    for held in living(Holding):
        assert isinstance(held, Holding)
        held.finish("memory is short")
    await listen(stream)


async def makes_room_for_another(speech: Speech, stream: trio.SocketStream) -> None:
    await stream.send_all(part_of(speech))
    await trio.sleep(_ANSWER_S)
    for member in living(LimitedConnection):
        assert isinstance(member, LimitedConnection)
        member.scope.cancel("another client needs its place")
    await listen(stream)


async def takes_it_for_encrypted(_: Speech, stream: trio.SocketStream) -> None:
    await stream.send_all(b"\x16\x03\x01\x02\x00" + b"x" * 600)
    await stream.send_eof()
    await listen(stream)


def lie(number: int) -> Way:
    async def tells_a_lie(speech: Speech, stream: trio.SocketStream) -> None:
        await stream.send_all(speech.hello + speech.lies[number] + b"x" * 200)
        await listen(stream)

    tells_a_lie.__name__ = f"tells_lie_{number}"
    return tells_a_lie


TOGETHER: tuple[Way, ...] = (
    says_nothing,
    says_nothing_more,
    has_its_answers,
    goes_while_answers_come,
    resets_in_a_message,
    closes_in_a_message,
    stops_in_a_message,
    takes_it_for_encrypted,
)
ALONE: tuple[Way, ...] = (is_ended_for_memory, makes_room_for_another)
"""What ends all that there are."""


async def one(node: RunningNode, speech: Speech, way: Way) -> None:
    """A connection that ends in this way."""
    stream = await open_stream(node.addresses[speech.listener])
    assert isinstance(stream, trio.SocketStream)
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        if speech.opening:
            await stream.send_all(speech.opening)
            await stream.receive_some(1024)
        await way(speech, stream)
    await trio.aclose_forcefully(stream)


async def left_by(node: RunningNode, speech: Speech, *ways: Way) -> dict[str, int]:
    """What connections leave behind that end in these ways, at a time."""
    with left_behind() as found:
        async with trio.open_nursery() as nursery:
            for way in ways:
                nursery.start_soon(one, node, speech, way)
        await ended()
    return found


async def judge(node: RunningNode, speech: Speech, *ways: Way) -> dict[str, dict[str, int]]:
    """As :meth:`left_by`; where something is left, by whom."""
    await left_by(node, speech, ways[0])  # the first one of a kind loads modules
    left = {}
    for some in (ways, *((each,) for each in ALONE)):
        if found := await left_by(node, speech, *some):
            left[f"{speech.name}, together"] = found
            for way in some:
                left[f"{speech.name} {way.__name__}"] = await left_by(node, speech, way)
    return {who: found for who, found in left.items() if found}


def waiting() -> Iterator[Speech]:
    """Those of which a client may wait for something, waiting for it."""
    writer, idle = UUID(int=1), "idle/s/0"
    waits = {
        "native": native.repeated_fetch("bait", 1, times=2, wait_ms=20_000),
        "kafka": speech_kafka._newest(kafka.repeated_fetch("bait", 1, times=2, wait_ms=500)),
        "coordinator": speech_coordinator._registration("g", "c", "bait", streams=1, kind=0),
        "cursus": framed(b"STREAM topic=bait partition=0 group=g member=m offset=1"),
        "segment": b"".join(
            encode(each)
            for each in (
                m.CreateSegment(idle),
                m.SetupAppend(writer, idle),
                m.ReadSegment(idle, 0, 100),
            )
        ),
        "segment-pravega": b"".join(
            encode(each)
            for each in (w.SetupAppend(1, writer, idle, ""), w.ReadSegment(idle, 0, 100, "", 2))
        ),
    }
    waits["websocket"] = speech_native.message(waits["native"])
    for speech in SPEECHES:
        if speech.name in waits:
            yield replace(speech, hello=speech.hello + waits[speech.name])


async def prepare(node: RunningNode) -> None:
    async with V1Client(node.v1) as client:
        await client.ok("PRODUCE", "bait k:" + "x" * 100_000)
        await client.ok("PRODUCE", "prey k:0")
    await ended()


def ways_of(speech: Speech) -> Iterator[Way]:
    return chain(TOGETHER, map(lie, range(len(speech.lies))))


async def test_what_has_ended_is_gone(tmp_path: Path) -> None:
    left = {}
    async with lone_node(tmp_path, QUICK) as node:
        await prepare(node)
        for speech in SPEECHES:
            left |= await judge(node, speech, *ways_of(speech))
    assert not left, left


@pytest.mark.slow
async def test_who_waited_is_gone(tmp_path: Path) -> None:
    left = {}
    async with lone_node(tmp_path, QUICK) as node:
        await prepare(node)
        for speech in SPEECHES:
            await left_by(node, speech, has_its_answers)  # which makes the segments
        for speech in waiting():
            left |= await judge(node, speech, *ways_of(speech))
    assert not left, left


def says(words: bytes) -> Way:
    async def says_it(speech: Speech, stream: trio.SocketStream) -> None:
        await stream.send_all(speech.hello + words)
        await stream.send_eof()
        await listen(stream)

    says_it.__name__ = f"says {words[:40]!r}"
    return says_it


@pytest.mark.slow
async def test_what_was_refused_is_gone(tmp_path: Path) -> None:
    """Also what threads refuse, which read what is large or compressed."""
    left = {}
    async with lone_node(tmp_path, QUICK) as node:
        await prepare(node)
        for speech in SPEECHES:
            bombs = islice(speech.bombs(random.Random(3)), 10)
            ways = [says(each) for each in bombs if len(each) < BOMB_BYTES]
            if ways:
                left |= await judge(node, speech, *ways)
    assert not left, left


# --- TLS ------------------------------------------------------------------------------------------

ENCRYPTED = ("v1", "http", "kafka")


async def inside(address: tuple[str, int], context: ssl.SSLContext, speech: Speech) -> None:
    """A part of a message within TLS, and then no more."""
    stream = await open_stream(address)
    assert isinstance(stream, trio.SocketStream)
    handshakes = Handshakes(timeout_s=HANG_S)
    encrypted = await handshakes.connect(stream, context)
    with suppress(trio.BrokenResourceError):
        await encrypted.send_all(part_of(speech))
        await trio.sleep(_ANSWER_S)
    reset(stream)
    await ended()


async def test_what_was_encrypted_is_gone(tmp_path: Path) -> None:
    """And who was not, or was silent, where it is wanted."""
    authority = Authority(tmp_path)
    pair = authority.issue("localhost", "127.0.0.1")
    flags = {
        **QUICK,
        "tls.certificate": pair.certificate,
        "tls.key": pair.key,
        "tls.handshake_ms": "100",
    }
    context = ssl.create_default_context(cafile=authority.path)
    context.check_hostname = False
    left = {}
    async with lone_node(tmp_path, flags, tls=ENCRYPTED) as node:
        for speech in (each for each in SPEECHES if each.name in ENCRYPTED):
            address = node.addresses[speech.listener]
            await inside(address, context, speech)
            with left_behind() as found:
                await inside(address, context, speech)
            if found:
                left[speech.name] = dict(found)
            plain = replace(speech, opening=b"")
            left |= await judge(node, plain, resets_in_a_message, takes_it_for_encrypted)
    assert not left, left
