"""Random bytes and mangled conversations on every client port: the node goes on, nothing leaks.

``PACELINE_SEEDS`` sets how many seeds are tried; a failure names its seed.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
import structlog
import trio

from paceline.types import Acks, Compression, Isolation
from paceline.wire.batch import build_batch
from paceline.wire.compression import compress
from paceline.wire.cursus.batch import CursusBatch, CursusRecord, Dialect, encode_batch
from paceline.wire.cursus.commands import COMMANDS
from paceline.wire.cursus.frames import framed
from paceline.wire.frame import encode_head
from paceline.wire.native import data
from paceline.wire.native.api import NativeApi
from paceline.wire.records import Record
from paceline.wire.segment import messages as segment
from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.framing import encode
from tests.fuzz.pravega import TARGETS as PRAVEGA_TARGETS
from tests.integration.node.machines import open_stream
from tests.integration.node.native import HELLO, NativeConnection, request
from tests.integration.node.nodes import HANG_S, RunningNode, V1Client, lone_node

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
SEEDS = range(int(os.environ.get("PACELINE_SEEDS", "1")))
ROUNDS = 15
PARSED = {target.name: target for target in PRAVEGA_TARGETS}
V1_WORDS = (
    *("V1", "V2", "|", "PRODUCE", "CONSUME", "REPLICA_FETCH", "BROKER_FETCH", "ADMIN_GET_METADATA"),
    *(
        "ADMIN_CREATE_TOPIC",
        "ADMIN_REGISTER_BROKER",
        "ADMIN_BROKER_HEARTBEAT",
        "SET_PARTITION_ROLE",
    ),
    *("orders", "__groups", "k:v", "0", "1", "-1", "99999999999999999999", "acks=all", "enc=pct"),
    *(
        "leader",
        "follower",
        " ",
        "\t",
        "\r",
        "\n",
        "\n",
        ",",
        "%",
        "%zz",
        "\x00",
        "\u2028",
        "max=1",
    ),
)


def v1_talk(rng: random.Random) -> bytes:
    lines = []
    for _ in range(rng.randrange(1, 8)):
        words = rng.choices(V1_WORDS, k=rng.randrange(1, 9))
        command = rng.choice(V1_WORDS)
        lines.append(f"V1|{rng.randrange(9)}|{command}|{' '.join(words)}\n")
    return mangled(rng, "".join(lines).encode())


def native_talk(rng: random.Random) -> bytes:
    batch = build_batch([Record(value=rng.randbytes(rng.randrange(50)))])
    part = data.ProducePartition("orders", rng.randrange(4), len(batch))
    wanted = data.FetchPartition("orders", 0, rng.randrange(3), 100)
    frames = [
        request(NativeApi.PRODUCE, data.Produce(10, Acks.ALL, (part,)), bytes(batch)),
        request(NativeApi.FETCH, data.Fetch(10, 1, 9, Isolation.READ_COMMITTED, (wanted,))),
        request(NativeApi.METADATA, data.MetadataRequest(None)),
        request(NativeApi.INIT_PRODUCER, data.InitProducer()),
        request(NativeApi.DESCRIBE_TOPIC, data.DescribeTopic("orders")),
        encode_head(rng.randrange(4), rng.randrange(40), rng.randrange(9), body(rng), 0),
    ]
    hello = request(NativeApi.HELLO, HELLO)
    talk = b"".join(rng.choices(frames, k=rng.randrange(1, 6)))
    return hello + mangled(rng, talk)


def cursus_talk(rng: random.Random) -> bytes:
    words = sorted(COMMANDS)
    record = CursusRecord(0, rng.randrange(9), b"p", b"k", 1, rng.randbytes(rng.randrange(50)))
    whole = CursusBatch(
        rng.choice(list(Dialect)),
        rng.choice(("orders", "__groups", "")),
        rng.randrange(-1, 5),
        rng.choice(list(Acks)),
        rng.random() < 0.5,
        [record] * rng.randrange(4),
    )
    packed = encode_batch(whole)
    bodies = [packed, compress(rng.choice(list(Compression)), packed), b""]
    arguments = ("topic=orders", "partition=0", "orders", "0", "1", "group=g", "message=m", "=")
    for _ in range(3):
        line = " ".join((rng.choice(words), *rng.choices(arguments, k=rng.randrange(7))))
        bodies += [line.encode(), b"\x00\x00" + line.encode()]
    talk = b"".join(framed(body) for body in rng.choices(bodies, k=rng.randrange(1, 6)))
    return mangled(rng, talk)


def http_talk(rng: random.Random) -> bytes:
    head = (
        b"GET %b HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ) % rng.choice((b"/native", b"/live", b"/ready", b"/metrics", b"*", b"//[", b"/native?x=1"))
    return mangled(rng, head) if rng.random() < 0.5 else head + rng.randbytes(rng.randrange(300))


def segment_talk(rng: random.Random) -> bytes:
    writer = UUID(int=rng.randrange(2))
    whole = segment.encode(segment.Event(b"event"))
    talk = [
        segment.CreateSegment("a/b/0"),
        segment.SetupAppend(writer, "a/b/0"),
        segment.BeginAppendBlock(writer, rng.choice((0, 13)), rng.choice((13, 99))),
        segment.Event(rng.randbytes(5)),
        segment.PartialMessage(rng.randrange(3), whole[: rng.randrange(13)]),
        segment.EndAppendBlock(writer, 13, 13),
        segment.ReadSegment("a/b/0", rng.choice((0, 5, 9**9)), rng.choice((0, 100, 2**31 - 1))),
        segment.GetStreamSegmentInfo("a/b/0"),
        segment.TruncateSegment("a/b/0", rng.randrange(20)),
        segment.SealSegment("a/b/1"),
        segment.DeleteSegment("a/b/0"),
        segment.KeepAlive(rng.randbytes(9)),
    ]
    said = talk[: rng.randrange(1, 7)] + rng.choices(talk, k=rng.randrange(5))
    return mangled(rng, b"".join(map(segment.encode, said)))


def pravega_segment_talk(rng: random.Random) -> bytes:
    return mangled(rng, encode(pravega.Hello(15, 5)) + PARSED["segment-pravega"].make(rng))


def pravega_talk(rng: random.Random) -> bytes:
    return mangled(rng, PARSED["pravega-calls"].make(rng))


def peer_talk(rng: random.Random) -> bytes:
    """Handshakes of nobody we know; all that a stranger can say to a peer listener."""
    frame = encode_head(rng.randrange(4), rng.choice((0, 1, 2, 50, 100)), 1, body(rng), 0)
    return mangled(rng, frame)


def noise(rng: random.Random) -> bytes:
    return rng.randbytes(rng.randrange(2000))


def body(rng: random.Random, depth: int = 0) -> list[object]:
    kinds: list[Callable[[], object]] = [
        lambda: rng.choice((0, -1, 2**63 - 1, -(2**63), 2**64 - 1)),
        lambda: rng.choice(("orders", "", "__groups", "\x00")),
        lambda: rng.randbytes(16),
        lambda: None,
        lambda: rng.random(),
        lambda: True,
        lambda: {"k": 1},
        lambda: body(rng, depth + 1) if depth < 4 else [],
    ]
    return [rng.choice(kinds)() for _ in range(rng.randrange(7))]


def mangled(rng: random.Random, talk: bytes) -> bytes:
    """The same with some bytes changed, lost, doubled; sometimes unchanged."""
    changed = bytearray(talk)
    for _ in range(rng.choice((0, 0, 1, 2, 8))):
        at = rng.randrange(len(changed))
        match rng.randrange(4):
            case 0:
                changed[at] = rng.randrange(256)
            case 1:
                del changed[at : at + rng.randrange(9)]
            case 2:
                changed[at:at] = changed[at : at + rng.randrange(40)]
            case _:
                changed[at] ^= 1 << rng.randrange(8)
        if not changed:
            break
    return bytes(changed)


TALKS = {
    "v1": (v1_talk, noise),
    "native": (native_talk, noise),
    "http": (http_talk, noise),
    "peer": (peer_talk, noise),
    "segment": (segment_talk, pravega_segment_talk, noise),
    "pravega": (pravega_talk, noise),
    "cursus": (cursus_talk, noise),
}
FAILURES = {
    "connection failed",
    "v1 request failed",
    "cursus request failed",
    "page failed",
    "peer request failed",
    "segment request failed",
    "pravega call failed",
}
"""What the log calls a connection or request that met a bug and was contained."""


async def talk(node: RunningNode, kind: str, rng: random.Random) -> None:
    """One connection: say something, listen or not, leave somehow."""
    said = rng.choice(TALKS[kind])(rng)
    stream = await open_stream(node.addresses[kind])
    try:
        with trio.move_on_after(0.2):
            await stream.send_all(said)
            if rng.random() < 0.5:
                await stream.send_eof()
            while rng.random() < 0.9 and await stream.receive_some():
                pass
    except trio.BrokenResourceError:
        pass
    finally:
        await trio.aclose_forcefully(stream)


async def settled(node: RunningNode) -> tuple[int, int]:
    """Tasks and descriptors, once they have stopped falling."""
    with trio.fail_after(HANG_S):
        before = (1 << 30, 1 << 30)
        while (now := _counts()) < before:
            before = now
            await trio.sleep(0.3)
    return now


def _counts() -> tuple[int, int]:
    gc.collect()
    return trio.lowlevel.current_statistics().tasks_living, len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("seed", SEEDS)
async def test_noise_harms_nobody_and_leaves_nothing_behind(tmp_path, seed: int) -> None:
    rng = random.Random(seed)
    with structlog.testing.capture_logs() as logged:
        await _be_noisy(tmp_path, rng)
    assert not [entry for entry in logged if entry["event"] in FAILURES]


async def _be_noisy(directory: Path, rng: random.Random) -> None:
    async with lone_node(directory, ONE) as node:
        await _still_serves(node)
        before = await settled(node)
        for _ in range(ROUNDS):
            async with trio.open_nursery() as nursery:
                for kind in TALKS:
                    for _ in range(10):
                        nursery.start_soon(talk, node, kind, random.Random(rng.random()))
            await _still_serves(node)
        tasks, descriptors = await settled(node)
        # Topics that the noise made have files of their own.
        files = len([path for path in node.directory.rglob("*") if path.is_file()])
        assert tasks <= before[0] + 2, "tasks were left behind"
        assert descriptors <= before[1] + files, "descriptors were left behind"


async def _still_serves(node: RunningNode) -> None:
    told = await V1Client.ask_once(node.v1, b"V1|1|PRODUCE|steady k:v acks=all\n")
    assert told.startswith("V1|1|OK|"), told
    async with NativeConnection(node.addresses["native"]) as connection:
        status = await connection.status()
        assert (status.state, status.reasons) == ("running", ())
