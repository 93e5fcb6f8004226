"""``scripts/show-crowd``: what thousands of idle connections of each protocol cost one node, and
clients that do something beside them."""

from __future__ import annotations

import itertools
import json
import resource
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE

import click
import trio

import paceline
from paceline_cluster.bench import rig
from paceline_cluster.bench.rig import Rig
from tests.hostile.judge import Latency
from tests.hostile.load import KAFKA_TOPIC, NATIVE_TOPIC, Customer, running
from tests.hostile.speech import SPEECHES, Speech
from tests.hostile.watch import resident_mib

LEFT_OUT = {"peer"}
"""Who does not prove to be a node is closed there after seconds, and the oldest of 64 at once."""
_AT_ONCE = 50
_SOURCES = 8
_SETTLED_S = 300.0


async def _hold(speech: Speech, address: tuple[str, int], count: int) -> None:
    """Open connections, say so, and keep them until standard input ends; then say how many the node
    has closed."""
    streams: list[trio.SocketStream] = []
    numbers = iter(range(count))
    sources = itertools.cycle(f"127.0.0.{number + 2}" for number in range(_SOURCES))

    async def some() -> None:
        for _ in numbers:
            stream = await trio.open_tcp_stream(*address, local_address=next(sources))
            streams.append(stream)
            if speech.opening:
                await stream.send_all(speech.opening)
                await stream.receive_some(1024)
            await stream.send_all(speech.hello)

    async with trio.open_nursery() as nursery:
        for _ in range(_AT_ONCE):
            nursery.start_soon(some)
    sys.stdout.write(f"{len(streams)}\n")
    sys.stdout.flush()
    await trio.to_thread.run_sync(sys.stdin.read)
    closed = 0
    for stream in streams:
        closed += await _is_closed(stream)
    sys.stdout.write(f"{closed}\n")


async def _is_closed(stream: trio.SocketStream) -> bool:
    with trio.move_on_after(0):
        try:
            while await stream.receive_some(65536):
                pass
        except trio.BrokenResourceError:
            return True
        return True
    return False


async def _with_idle(
    cluster: Rig, speech: Speech, count: int, seconds: float, load: Sequence[Customer]
) -> str:
    """A row: memory before and beside the connections, and the load's latency beside them."""
    [entry] = cluster.state.nodes
    before = resident_mib(entry)
    host, _, port = entry.listeners[speech.listener].rpartition(":")
    command = [
        *(sys.executable, "-m", "tests.hostile.idle", "--child", speech.name),
        *(json.dumps([host, int(port)]), str(count)),
    ]
    process = await trio.lowlevel.open_process(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
    async with process.stdout as said, process.stdin as end:  # type: ignore[union-attr]
        with trio.fail_after(_SETTLED_S):
            opened = int(await said.receive_some(100) or b"0")
        for customer in load:
            customer.take()
        await trio.sleep(seconds)
        beside = resident_mib(entry)
        latency = {customer.name: Latency.of(customer.take()[0]) for customer in load}
        await end.aclose()
        closed = int(await said.receive_some(100) or b"0")
    await process.wait()
    times = "  ".join(
        f"{name} {each.p50_ms:.1f} {each.p99_ms:.1f} {each.max_ms:.1f} ms"
        for name, each in latency.items()
    )
    each_kib = 1024 * (beside - before) / max(1, opened)
    return (
        f"{speech.name:15} {opened:6} open, {closed} closed by the node; {before:.0f} to "
        f"{beside:.0f} MiB, {each_kib:.1f} KiB each;  {times}"
    )


async def _show(cluster: Rig, names: Sequence[str], count: int, seconds: float) -> list[str]:
    async with paceline.connect(cluster.addresses) as client:
        for name in (NATIVE_TOPIC, KAFKA_TOPIC):
            await client.admin.create_topic(name, partitions=1, replication_factor=1)
        servers = ",".join(cluster.state.addresses("kafka"))
        async with running(client, servers) as load:
            await trio.sleep(seconds)
            for customer in load:
                latency = Latency.of(customer.take()[0])
                click.echo(
                    f"nobody: {customer.name} {latency.p50_ms} {latency.p99_ms} {latency.max_ms} ms"
                )
            for speech in SPEECHES:
                if speech.name in names:
                    click.echo(await _with_idle(cluster, speech, count, seconds, load))
        return [text for customer in load for text in customer.failures]


def _child(arguments: Sequence[str]) -> None:
    name, address, count = arguments
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    [speech] = [each for each in SPEECHES if each.name == name]
    host, port = json.loads(address)
    trio.run(_hold, speech, (host, port), int(count))


@click.command()
@click.option("--connections", type=click.IntRange(1), default=10_000, show_default=True)
@click.option("--seconds", type=click.FloatRange(min=1), default=20.0, show_default=True)
@click.option("--only", "names", multiple=True, help="A protocol; may be repeated.")
def main(connections: int, seconds: float, names: tuple[str, ...]) -> None:
    """Open CONNECTIONS that say nothing after their greeting to one node, protocol by protocol, and
    show what they take of memory and of the time of clients that do something. Exit code 1 when a
    request of those failed."""
    chosen = names or [each.name for each in SPEECHES if each.name not in LEFT_OUT]
    base = Path(tempfile.mkdtemp(prefix="paceline-crowd-"))
    with rig.cluster(base / "nodes", 1) as cluster:
        cluster.up({"limits.connections": str(connections + 1000)})
        failures = trio.run(partial(_show, cluster, chosen, connections, seconds))
    base.rmdir()
    for text in failures:
        click.echo(f"REFUSED {text}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(sys.argv[2:])
    else:
        main()
