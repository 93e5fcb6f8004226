"""Segments on real processes: the command line, and appenders on one connection under kill -9.

``PACELINE_SEGMENT_EVENTS`` (default 1500) Events for each of three appenders and
``PACELINE_SEGMENT_KILLS`` (default 2) size the second test: the long run is 50000 and 10.
``PACELINE_SEED`` repeats its choices.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from paceline.client import Client, connect
from paceline.errors import ElectionNotNeeded, PreferredLeaderNotAvailable
from paceline.types import NodeId
from tests.e2e.appenders import Appender, Crew
from tests.e2e.cluster import Cluster, environment_lines, wait_until

EVENTS = int(os.environ.get("PACELINE_SEGMENT_EVENTS", "1500"))
KILLS = int(os.environ.get("PACELINE_SEGMENT_KILLS", "2"))
SEED = int(os.environ.get("PACELINE_SEED", random.SystemRandom().randrange(2**32)))
REPORT = os.environ.get("PACELINE_SEGMENT_REPORT")
"""File that gets one JSON line per run (T5)."""

pytestmark = pytest.mark.timeout(1800 if EVENTS > 10_000 else 300)


@pytest.mark.slow
def test_the_command_line(shared_cluster: Cluster, tmp_path: Path) -> None:
    run, as_json = shared_cluster.run, shared_cluster.json
    name = "logs/app/0"
    run("segment", "create", name)
    lines = [line.encode() for line in environment_lines()[:2000]]
    first = as_json("segment", "append", name, stdin=b"\n".join(lines[:1500]))
    assert first["appended"] == 1500
    # The same input, longer now, by the same writer: what is stored already is left out.
    path = tmp_path / "lines"
    path.write_bytes(b"\n".join(lines))
    again = as_json("segment", "append", name, str(path), "--writer", first["writer"])
    assert again["appended"] == 500
    run("segment", "append", name, "--writer", first["writer"], stdin=b"else", exit_code=65)
    assert run("segment", "read", name).stdout == b"\n".join([*lines, b""])
    info = as_json("segment", "info", name)
    assert (info["start"], info["length"], info["sealed"]) == (0, again["level"], False)
    tail = tmp_path / "followed"
    follower = shared_cluster.spawn(
        "segment", "read", name, "--follow", "--from", str(info["length"]),
        stdin=Path(os.devnull), stdout=tail, stderr=tmp_path / "err",
    )  # fmt: skip
    run("segment", "append", name, stdin=b"later\n")
    wait_until("the follower sees it", lambda: tail.read_bytes() == b"later\n")
    run("segment", "seal", name)
    assert follower.wait(60) == 0
    run("segment", "append", name, stdin=b"too late\n", exit_code=65)
    run("segment", "truncate", name, str(8 + len(lines[0])))
    assert run("segment", "read", name).stdout == b"\n".join([*lines[1:], b"later", b""])
    start = str(8 + len(lines[0]))
    (parsed, *_) = run("segment", "read", name, "--from", start, "--output", "json").stdout.split(
        b"\n", 1
    )
    assert json.loads(parsed) == {"position": int(start), "value": lines[1].decode()}
    raw = run("segment", "read", name, "--raw").stdout
    assert raw[:8] == len(lines[1]).to_bytes(8, "big")
    consumed = run("consume", "logs_app", "--exit-at-end").stdout
    assert consumed.splitlines()[-2:] == [lines[-1], b"later"]
    run("segment", "delete", name)
    run("segment", "read", name, exit_code=65)


def test_each_segment_is_its_writers_stream(cluster: Cluster) -> None:
    """Three appenders share a connection to a leader, which is killed in the middle of blocks."""
    rng = random.Random(SEED)
    appenders = [Appender(f"three/way/{number}", _events(rng)) for number in range(3)]
    kills: list[dict[str, object]] = []
    crew = Crew([cluster.address(node, "segment") for node in range(3)], appenders)
    try:
        trio.run(_write_and_read, cluster, crew, rng, kills)
        # T3: kills fell inside the writing (_kill waits for that), on the connection of all three.
        assert len(kills) == KILLS
        assert crew.most_shared == 3
        assert all(appender.setups > KILLS for appender in appenders)
    finally:
        _report(kills, appenders, crew)
    cluster.run("down", "--dir", str(cluster.dir))
    cluster.run("log", "verify", *(str(cluster.dir / f"node-{node}") for node in range(3)))


def _events(rng: random.Random) -> list[bytes]:
    """10 B to 100 KiB, most of them small."""
    sizes = [10, 30, 100, 300, 1000]
    return [
        rng.randbytes(rng.choice(sizes) if rng.random() < 0.99 else rng.randint(10_000, 102_400))
        for _ in range(EVENTS)
    ]


async def _write_and_read(
    cluster: Cluster, crew: Crew, rng: random.Random, kills: list[dict[str, object]]
) -> None:
    appenders = list(crew.by_id.values())
    addresses = [cluster.node(each)["listeners"]["native"] for each in range(3)]
    async with connect(addresses) as client, client.segments() as segments:
        for appender in appenders:
            await segments.create(appender.name)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_kill, cluster, client, crew, rng, kills)
            await crew.run()
        for appender in appenders:
            reader = segments.reader(appender.name)
            content = bytearray()
            while data := await reader.read():
                content += data
            assert content == appender.content, f"{appender.name}, seed {SEED}"
        described = await client.admin.describe_topic("three_way")
        epochs = [each.leader_epoch for each in described.partitions]
        assert all(epoch >= 1 for epoch in epochs), epochs


async def _kill(
    cluster: Cluster,
    client: Client,
    crew: Crew,
    rng: random.Random,
    kills: list[dict[str, object]],
) -> None:
    """One portion of the Events after the other; each but the last is met by a kill."""
    appenders = list(crew.by_id.values())

    def levels() -> list[int]:
        return [each.level for each in appenders]

    def sent() -> list[int]:
        return [each.bounds[each.sent] for each in appenders]

    def stored() -> int:
        return sum(levels())

    for number in range(1, KILLS + 1):
        victim = rng.randrange(3)
        await crew.until(lambda: all(each.ready for each in appenders) and sent() == levels())
        await _gather(client, victim)
        # Who is not told to go elsewhere would learn it from its next block, one after the other.
        crew.gather(victim)
        await crew.until(lambda: all(each.ready for each in appenders))
        allowed, more = (EVENTS * end // (2 * KILLS + 2) for end in (2 * number, 2 * number + 1))
        before = stored()
        crew.allow(allowed)
        await crew.until(lambda before=before: stored() > before)
        # What is appended while a follower stands still is not acknowledged: the kill meets it.
        with _stopped(cluster, (victim + 1) % 3):
            crew.allow(more)
            await crew.until(lambda: sent() != levels())
            os.kill(cluster.node(victim)["pid"], signal.SIGKILL)
        kills.append(
            {
                "victim": victim,
                "levels": levels(),
                "sent": sent(),
            }
        )
        restart = partial(cluster.run, "node", "restart", str(victim))
        await trio.to_thread.run_sync(restart)
    crew.allow(EVENTS)


@contextmanager
def _stopped(cluster: Cluster, node: int) -> Iterator[None]:
    """SIGSTOP, then SIGCONT whatever happens."""
    pid = cluster.node(node)["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def _gather(client: Client, node: int) -> None:
    """Have one node lead all three segments, so that their appenders share its connection."""
    for partition in range(3):
        while True:
            try:
                await client.admin.elect_leader("three_way", partition, NodeId(node))
                break
            except ElectionNotNeeded:
                break
            except PreferredLeaderNotAvailable:
                await trio.sleep(0.05)  # not in sync again yet


def _report(kills: list[dict[str, object]], appenders: list[Appender], crew: Crew) -> None:
    if REPORT is None:
        return
    line = {
        "seed": SEED,
        "events": EVENTS,
        "kills": kills,
        "most_shared": crew.most_shared,
        "bytes": [each.bounds[-1] for each in appenders],
        "levels": [each.level for each in appenders],
        "setups": [each.setups for each in appenders],
    }
    with Path(REPORT).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
