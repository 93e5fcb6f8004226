"""``scripts/attack``: strangers at every port of a real cluster, one after the other, beside a load
that is well-behaved and judged."""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import trio

import paceline
from paceline_cluster.bench import rig
from paceline_cluster.bench.rig import Rig
from tests.hostile.judge import Bounds, Latency, Round, refusals
from tests.hostile.load import KAFKA_TOPIC, NATIVE_TOPIC, Customer, running
from tests.hostile.speech import SPEECHES
from tests.hostile.watch import Watch
from tests.hostile.ways import WAYS

CALM = "nobody"
"""The round before the attacks."""
_MIB = 1024 * 1024
_GRACE_S = 15.0
_BAIT_RECORDS, _BAIT_RECORD_BYTES = 512, 64 * 1024


def attacks() -> list[str]:
    """All of them, as PROTOCOL/WAY."""
    none = random.Random(0)
    return [
        f"{speech.name}/{way}"
        for speech in SPEECHES
        for way in WAYS
        if way != "bombs" or next(speech.bombs(none), None) is not None
    ]


def in_order(names: Sequence[str], seed: int) -> Iterator[str]:
    """All of them in a random order, again and again, each time another one."""
    rng = random.Random(seed)
    while True:
        yield from rng.sample(names, len(names))


class Siege:
    """A cluster, its load, and one attack after the other."""

    def __init__(
        self, cluster: Rig, watch: Watch, load: Sequence[Customer], seed: int, each_s: float
    ) -> None:
        self._cluster = cluster
        self._watch = watch
        self._load = load
        self._rng = random.Random(seed)
        self._each_s = each_s

    async def round(self, name: str) -> Round:
        """One attack, and what it did."""
        begun = time.monotonic()
        said = ""
        if name == CALM:
            await trio.sleep(self._each_s)
        else:
            said = await self._attack(name)
        sight = self._watch.take()
        latency: dict[str, Latency] = {}
        failures: list[str] = []
        for customer in self._load:
            seconds, failed = customer.take()
            latency[customer.name] = Latency.of(seconds)
            failures += failed
        return Round(
            attack=name,
            seconds=round(time.monotonic() - begun, 1),
            latency=latency,
            resident_mib=round(sight.resident_mib, 1),
            grown_mib=round(sight.grown_mib, 1),
            left_mib=round(sight.left_mib, 1),
            charged_mib=round(sight.charged_mib, 1),
            clients_ended=sight.clients_ended,
            leaderships_lost=sight.leaderships_lost,
            longest_step_ms=round(sight.longest_step_ms, 1),
            longest_step=sight.longest_step,
            nodes_ended=sight.ended,
            failures=failures,
            attacker=said,
        )

    async def _attack(self, name: str) -> str:
        """Run the attacker; what it said where it failed."""
        protocol, _, way = name.partition("/")
        [speech] = [each for each in SPEECHES if each.name == protocol]
        addresses = [
            (host, int(port))
            for host, _, port in (
                text.rpartition(":") for text in self._cluster.state.addresses(speech.listener)
            )
        ]
        command = [
            *(sys.executable, "-m", "tests.hostile.attacker", protocol, way),
            *(json.dumps(addresses), f"127.0.0.{self._rng.randrange(2, 10)}"),
            *(str(self._rng.getrandbits(32)), str(self._each_s)),
        ]
        result = None
        with trio.move_on_after(self._each_s + _GRACE_S):
            result = await trio.run_process(
                command, check=False, capture_stderr=True, stdout=subprocess.DEVNULL
            )
        if result is None:
            return ""  # it was busy with itself, which is over now
        return result.stderr.decode(errors="replace")[-2000:] if result.returncode else ""


async def _prepare(client: paceline.Client) -> None:
    """Topics and segments to be read, written by strangers, and used by the load."""
    create = client.admin.create_topic
    small = {"retention.bytes": str(64 * _MIB), "segment.bytes": str(16 * _MIB)}
    for name, configs in (("bait", {}), ("prey", small), (NATIVE_TOPIC, {}), (KAFKA_TOPIC, {})):
        await create(name, partitions=1, configs=configs)
    value = b"x" * _BAIT_RECORD_BYTES
    async with client.producer() as producer:
        await producer.send_many("bait", [value] * _BAIT_RECORDS)
    async with client.segments() as segments:
        for name in ("bait/s/0", "prey/s/0"):
            await segments.create(name)
        async with segments.writer("bait/s/0") as writer:
            for _ in range(_BAIT_RECORDS):
                await writer.append(value)


async def _siege(
    cluster: Rig,
    names: Sequence[str],
    *,
    seconds: float,
    each_s: float,
    seed: int,
    bounds: Bounds,
    report: Path,
) -> list[str]:
    """Attack for so long, or until the judge refuses for good: a dead node. What was refused."""
    refused: list[str] = []
    until = time.monotonic() + seconds
    async with paceline.connect(cluster.addresses) as client:
        await _prepare(client)
        servers = ",".join(cluster.state.addresses("kafka"))
        async with trio.open_nursery() as nursery, running(client, servers) as load:
            watch = Watch(cluster.state, client)
            nursery.start_soon(watch.run)
            siege = Siege(cluster, watch, load, seed, each_s)
            for name in _with_calm(names, seed):
                made = await siege.round(name)
                refused += _judged(made, bounds, report)
                if made.nodes_ended or time.monotonic() >= until:
                    break
            nursery.cancel_scope.cancel("judged")
        refused += [text for customer in load for text in customer.failures]
    return refused


def _with_calm(names: Sequence[str], seed: int) -> Iterator[str]:
    yield CALM
    yield from in_order(names, seed)


def _judged(made: Round, bounds: Bounds, report: Path) -> list[str]:
    with report.open("a") as file:
        file.write(json.dumps(dataclasses.asdict(made)) + "\n")
    click.echo(made.line)
    refused = list(refusals(made, bounds))
    for text in refused:
        click.echo(f"REFUSED {text}")
    return refused


@click.command()
@click.option("--seconds", type=click.FloatRange(min=1), default=3600.0, show_default=True)
@click.option("--each", "each_s", type=click.FloatRange(min=0.1), default=10.0, show_default=True)
@click.option("--seed", type=int, help="Repeats the order of another run.")
@click.option("--only", "wanted", multiple=True, help="PROTOCOL, WAY or PROTOCOL/WAY.")
@click.option("--memory-mib", type=int, default=256, help="limits.client_memory_bytes.")
@click.option("--left-mib", type=float, default=600, help="What all may leave behind.")
@click.option("--p99-ms", type=float, help="Refuse a higher one, too.")
@click.option("--steady", is_flag=True, help="Refuse any move of leadership, too.")
@click.option("--report", type=click.Path(path_type=Path), help="A file for the rounds, as JSON.")
@click.option("--list", "only_list", is_flag=True, help="Show the attacks and end.")
def main(
    seconds: float,
    each_s: float,
    seed: int | None,
    wanted: tuple[str, ...],
    memory_mib: int,
    left_mib: float,
    p99_ms: float | None,
    steady: bool,
    report: Path | None,
    only_list: bool,
) -> None:
    """Attack a cluster of three nodes on this machine, each protocol in each way, in a random
    order. Exit code 1 when a node ended, took more than twice what clients may hold, was left with
    more than it may remember, or a well-behaved request failed."""
    names = [name for name in attacks() if not wanted or {name, *name.split("/")} & set(wanted)]
    if only_list or not names:
        click.echo("\n".join(attacks()))
        sys.exit(0 if only_list else 2)
    chosen = random.SystemRandom().getrandbits(32) if seed is None else seed
    bounds = Bounds(2 * memory_mib, left_mib, p99_ms, steady)
    click.echo(f"seed {chosen}, {len(names)} attacks of {each_s:g} s, at most {bounds}")
    base = Path(tempfile.mkdtemp(prefix="paceline-attack-"))
    rounds = report or base / "rounds.jsonl"
    with rig.cluster(base / "nodes") as cluster:
        cluster.up(
            {
                "limits.client_memory_bytes": str(memory_mib * _MIB),
                "log.retention_check_ms": "2000",
            }
        )
        refused = trio.run(
            lambda: _siege(
                cluster,
                names,
                seconds=seconds,
                each_s=each_s,
                seed=chosen,
                bounds=bounds,
                report=rounds,
            )
        )
    click.echo(f"verdict: {'refused' if refused else 'ok'}; seed {chosen}; rounds in {rounds}")
    sys.exit(1 if refused else 0)


if __name__ == "__main__":
    main()
