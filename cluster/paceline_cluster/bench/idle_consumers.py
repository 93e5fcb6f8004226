"""What consumers at rest cost their coordinator: thousands of them, registered and pinged, with
nothing to read. Run by ``scripts/show-consumers``; prints one JSON line.

The consumers are frames over sockets in this process (a whole client each would measure the
clients); the node is a process of its own, whose descriptors, memory and processor time are read
from ``/proc``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import trio

from paceline.client import connect
from paceline.values import dataclass
from paceline.wire.coordinator.codec import (
    Ask,
    Header,
    read_header,
    read_request,
    request_frame,
    response_frame,
)
from paceline.wire.coordinator.messages import (
    PositionsResponse,
    RegisterRequest,
    StartRequest,
    TopicCount,
)

GROUP_OF = 100
SETTLED_S = 300.0
_SIZE_BYTES = 4


@dataclass(slots=True)
class Cost:
    """Of the node's process."""

    descriptors: int
    resident_mib: float
    cpu_s: float


@dataclass(slots=True)
class Counts:
    started: int = 0
    pings: int = 0
    lost: int = 0


def cost_of(pid: int) -> Cost:
    """Read from ``/proc``."""
    process = Path("/proc") / str(pid)
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    ticks = int(fields[11]) + int(fields[12])
    pages = int((process / "statm").read_text().split()[1])
    return Cost(
        len(os.listdir(process / "fd")),
        round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1),
        ticks / os.sysconf("SC_CLK_TCK"),
    )


async def attend(stream: trio.SocketStream, number: int, interval_ms: int, counts: Counts) -> None:
    """One consumer, whatever ends it."""
    with suppress(trio.BrokenResourceError):
        await consume(stream, number, interval_ms, counts)
    counts.lost += 1


async def consume(stream: trio.SocketStream, number: int, interval_ms: int, counts: Counts) -> None:
    """One consumer: register, then answer, for as long as the connection lasts."""
    request = RegisterRequest(
        group_id=f"idle-{number // GROUP_OF}",
        consumer_id=f"c-{number}",
        auto_commit=1,
        auto_offset_rest="largest",
        heartbeat_interval_ms=interval_ms,
        max_heartbeat_retries=20,
        topic_count=(TopicCount(topic="idle", streams=1),),
    )
    await stream.send_all(request_frame(Header(Ask.REGISTER, False, 1, 1, "idle"), request))
    buffer = bytearray()
    is_registered = False
    generation = -1
    while data := await stream.receive_some(4096):
        buffer += data
        while len(buffer) >= _SIZE_BYTES:
            end = _SIZE_BYTES + int.from_bytes(buffer[:_SIZE_BYTES], "big")
            if len(buffer) < end:
                break
            frame = memoryview(bytes(buffer[_SIZE_BYTES:end]))
            del buffer[:end]
            if not is_registered:
                is_registered = True
                continue
            header, start = read_header(frame)
            body = read_request(header, frame, start)
            if isinstance(body, StartRequest):
                counts.started += generation < 0
                generation = body.generation
                answer = None
            else:
                counts.pings += header.ask is Ask.PING
                answer = PositionsResponse(generation=generation)
            await stream.send_all(response_frame(header, 0, answer))


async def measure(
    node: Mapping[str, Any], count: int, interval_ms: int, seconds: float
) -> dict[str, Any]:
    """Connect ``count`` consumers to ``node`` (of ``cluster.json``), wait until all are started,
    then watch it."""
    pid = node["pid"]
    async with connect(node["listeners"]["native"]) as client:
        await client.admin.create_topic("idle", partitions=GROUP_OF, replication_factor=1)
    host, _, port = node["listeners"]["kafka"].rpartition(":")
    counts = Counts()
    before = cost_of(pid)
    async with trio.open_nursery() as nursery:
        for number in range(count):
            stream = await trio.open_tcp_stream(host, int(port))
            nursery.start_soon(attend, stream, number, interval_ms, counts)
        with trio.fail_after(SETTLED_S):
            while counts.started + counts.lost < count:  # noqa: ASYNC110  many tasks count
                await trio.sleep(0.1)
        await trio.sleep(3 * interval_ms / 1000)
        at_rest, pings = cost_of(pid), counts.pings
        await trio.sleep(seconds)
        after = cost_of(pid)
        nursery.cancel_scope.cancel()
    cpu_s = after.cpu_s - at_rest.cpu_s
    answered = counts.pings - pings
    return {
        "consumers": count,
        "interval_ms": interval_ms,
        "seconds": seconds,
        "pings": answered,
        "lost": counts.lost,
        "cpu_of_one_core": round(cpu_s / seconds, 3),
        "us_a_ping": round(1e6 * cpu_s / max(1, answered)),
        "kib_a_consumer": round(1024 * (after.resident_mib - before.resident_mib) / count, 1),
        "before": asdict(before),
        "after": asdict(after),
    }


def main() -> None:
    """``CLUSTER.JSON COUNT INTERVAL_MS SECONDS``."""
    path, count, interval_ms, seconds = sys.argv[1:]
    [node] = json.loads(Path(path).read_text())["nodes"]
    found = trio.run(measure, node, int(count), int(interval_ms), float(seconds))
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
