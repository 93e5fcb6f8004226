"""A client that speaks only Cursus's protocol page, through the death of a leader that coordinates
its group too."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from tests.e2e.cluster import Cluster
from tests.e2e.cursus import ask, brokers, elect, fields
from tests.e2e.seed_client import COMPRESSIONS, SeedClient, batch, records_of

TOPIC = "orders"
PRODUCED = 600
"""Records of each partition."""
STEP = 5
PAUSE_S = 0.01
"""Between a producer's batches, so that the kill falls among them."""
REGISTERED = """
import zlib


class Deflate:
    name = "deflate"
    compress = staticmethod(zlib.compress)
    decompress = staticmethod(zlib.decompress)
"""


@dataclass
class Progress:
    """What the parts of the script have got so far."""

    acked: dict[int, list[int]] = field(default_factory=lambda: {0: [], 1: []})
    streamed: list[bytes] = field(default_factory=list)
    polled: list[bytes] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)
    generations: list[int] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    underway: trio.Event = field(default_factory=trio.Event)

    def look(self) -> None:
        """Set ``underway`` once everything is in the middle of its work."""
        if self.committed and min(map(len, self.acked.values())) >= PRODUCED // 4:
            self.underway.set()

    @property
    def all_read(self) -> bool:
        return len(self.streamed) >= PRODUCED and len(self.polled) >= PRODUCED


def install_compressor(cluster_base: Path) -> Path:
    """A package with a compressor, as pip leaves it; where it lies."""
    site = cluster_base / "site"
    info = site / "deflate_compressor-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "deflate_compressor.py").write_text(REGISTERED)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deflate\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[paceline.cursus.compressors]\ndeflate = deflate_compressor:Deflate\n"
    )
    return site


@pytest.mark.timeout(180)
async def test_the_page_alone_through_a_leaders_death(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(install_compressor(tmp_path)))
    cluster = make_cluster("--set", "cursus.compressors=deflate")
    addresses = brokers(cluster)
    group = "team"
    leader = _coordinator(addresses, group)
    known = (leader + 1) % len(addresses)
    async with SeedClient(cluster.address(known, "cursus")) as maker:
        told = await maker.say(f"CREATE {TOPIC} 2")
        assert told.startswith(f"OK topic={TOPIC} partitions=2"), told
        assert await maker.say("LIST") == f"OK count=1 topics={TOPIC}"
        assert (await maker.say(f"SUBSCRIBE {TOPIC} {group}")).startswith("OK")
    for partition in range(2):
        elect(addresses[known], TOPIC, partition, leader)
    progress = Progress()
    address = cluster.address(known, "cursus")
    with trio.fail_after(150):
        async with trio.open_nursery() as nursery:
            for partition in range(2):
                nursery.start_soon(_produce, address, partition, progress)
            nursery.start_soon(_stream, address, progress)
            nursery.start_soon(_poll, address, progress)
            nursery.start_soon(_be_member, address, group, progress)
            await progress.underway.wait()
            os.kill(cluster.node(leader)["pid"], signal.SIGKILL)
            killed_at = sum(map(len, progress.acked.values()))
    assert killed_at < 2 * PRODUCED, "the kill came after everything was acknowledged"
    expected = list(range(1, PRODUCED + 1))
    assert progress.acked == {0: expected, 1: expected}
    # Idempotent: exactly once and in order, although retries crossed the failover.
    assert progress.streamed == [b"0:%d" % number for number in expected]
    assert progress.polled == [b"1:%d" % number for number in expected]
    assert progress.used == set(COMPRESSIONS)
    assert progress.committed == {0: PRODUCED, 1: PRODUCED}
    assert progress.generations == [1], "one member alone: the failover is no rebalance"


def _coordinator(addresses: list[str], group: str) -> int:
    return int(fields(ask(addresses[0], f"FIND_COORDINATOR group={group}"))["coordinator_id"])


async def _produce(address: tuple[str, int], partition: int, progress: Progress) -> None:
    """Batches in every compression; each again until it is acknowledged."""
    kinds = list(COMPRESSIONS)
    acked = progress.acked[partition]
    async with SeedClient(address) as client:
        while len(acked) < PRODUCED:
            if len(acked) >= PRODUCED // 2:
                await progress.underway.wait()  # the rest is for after the kill
            sequences = range(len(acked) + 1, len(acked) + STEP + 1)
            kind = kinds[len(acked) // STEP % len(kinds)]
            ack = await client.produce(
                COMPRESSIONS[kind](batch(TOPIC, partition, f"p{partition}", sequences))
            )
            if ack["status"] == "OK":
                assert (ack["seq_start"], ack["seq_end"]) == (sequences[0], sequences[-1])
                progress.used.add(kind)
                acked.extend(sequences)
                progress.look()
                await trio.sleep(PAUSE_S)
            else:
                await trio.sleep(0.05)


async def _stream(address: tuple[str, int], progress: Progress) -> None:
    async with SeedClient(address) as client:
        await client.send(f"STREAM {TOPIC} 0 0".encode())
        while len(progress.streamed) < PRODUCED:
            body = await client.receive()
            if body:  # else a keepalive
                progress.streamed += [each.payload for each in records_of(body)]


async def _poll(address: tuple[str, int], progress: Progress) -> None:
    async with SeedClient(address) as client:
        while len(progress.polled) < PRODUCED:
            found = await client.consume(TOPIC, 1, len(progress.polled))
            assert [each.offset for each in found] == list(
                range(len(progress.polled), len(progress.polled) + len(found))
            )
            progress.polled += [each.payload for each in found]
            await trio.sleep(0.05)


async def _be_member(address: tuple[str, int], group: str, progress: Progress) -> None:
    """Join, beat, commit what was read, leave: each as the page's consumer does it, again when the
    coordinator is away."""
    async with SeedClient(address) as client:
        told = await client.say(f"JOIN_GROUP {TOPIC} {group} c1")
        joined = re.fullmatch(r"OK generation=(\d+) member=(\S+) assignments=\[([\d ]*)\]", told)
        assert joined, told
        generation, member = joined[1], joined[2]
        progress.generations.append(int(generation))
        assert joined[3] == "0 1"
        synced = await client.say(f"SYNC_GROUP {TOPIC} {group} {member} {generation}")
        assert synced == told
        finished = False
        while not finished:
            await trio.sleep(0.1)
            finished = progress.all_read
            beat = await client.say(f"HEARTBEAT {TOPIC} {group} c1 {member} {generation}")
            assert not re.search("REBALANCE_REQUIRED|GEN_MISMATCH", beat), beat
            read = {0: len(progress.streamed), 1: len(progress.polled)}
            listed = ",".join(f"{partition}:{offset}" for partition, offset in read.items())
            line = f"BATCH_COMMIT {TOPIC} {group} {member} {generation} {listed}"
            if (await client.say(line)).startswith("OK"):
                progress.committed.update(read)
                progress.look()
            else:
                finished = False
        # What is committed survived: nothing goes back below it.
        back = await client.say(f"COMMIT {TOPIC} {group} 0 {PRODUCED - 1}")
        assert f"current={PRODUCED} got={PRODUCED - 1}" in back, back
        assert await client.say(f"COMMIT {TOPIC} {group} 1 {PRODUCED}") == "OK"
        left = await client.say(f"LEAVE_GROUP {TOPIC} {group} c1")
        assert left == f"OK group={group} member={member} left=true"
