"""``scripts/bench``: all figures, as a table or as JSON."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import click
import trio

from paceline.client import Client, ClientSettings, connect
from paceline.version import __version__
from paceline_cluster.bench import (
    beside,
    cpu,
    cursus,
    growth,
    growth_plot,
    kafka_jars,
    latency,
    moments,
    rig,
    segments,
    throughput,
)
from paceline_cluster.bench import groups as consumer_groups
from paceline_cluster.bench.figures import Aim, Figure, table
from paceline_cluster.bench.rig import Rig
from paceline_cluster.cli.output import Printer, output_option
from paceline_cluster.errors import BadSetting, ClusterError

GROUPS = (
    "start",
    "latency",
    "produce",
    "consume",
    "segments",
    "cursus",
    "kafka",
    "groups",
    "failover",
    "growth",
    "spark",
)
RATE_AIM = Aim(8000, at_least=True)
SINGLE_WRITES = 3000
WINDOWED_WRITES = 30_000
WINDOW = 64
SIZES = (100, 1024)
PARTITIONS = (1, 12)
EVENT_SIZES = (100, 10 * 1024)
KAFKA_PER_S = 1000
CURSUS_NODES = (1, 3)
CURSUS_BATCHES_PER_S = 5
"""To each partition: 60,000 records for each second asked for."""
BATCHES = ((256 << 10, 12), (1 << 20, 12), (1 << 20, 1))


@click.command()
@click.option("--only", multiple=True, type=click.Choice(GROUPS), help="Measure these only.")
@click.option("--seconds", type=float, default=5.0, show_default=True, help="Of each throughput.")
@click.option("--failovers", type=int, default=5, show_default=True)
@click.option(
    "--spark-records",
    type=click.IntRange(min=100),
    default=1_000_000,
    show_default=True,
    help="That Spark reads each time.",
)
@click.option(
    "--beside-kafka",
    "jars",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="With --only spark: beside Spark's own connector for Kafka and a Kafka broker, whose jars "
    "lie in DIR (scripts/beside-kafka/README.md).",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Of each figure beside Kafka; the best one counts.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default=Path(".paceline"),
    show_default=True,
    help="Where the cluster's disks lie; a real disk, or fsync costs nothing.",
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With growth: write its curves there, as SVG.",
)
@output_option
def main(
    only: tuple[str, ...],
    seconds: float,
    failovers: int,
    spark_records: int,
    jars: Path | None,
    rounds: int,
    directory: Path,
    plot: Path | None,
    printer: Printer,
) -> None:
    """Measure a cluster of three processes with the default flush.mode=group.

    Without --only everything is measured, in about five minutes on a quiet machine.
    """
    groups = set(only or GROUPS)
    if plot is not None and "growth" not in groups:
        raise click.UsageError("--plot draws the curves of growth: add --only growth")
    if jars is not None:
        if groups != {"spark"}:
            raise click.UsageError("--beside-kafka compares Spark's connectors: add --only spark")
        _beside(jars, directory, spark_records, rounds, printer)
        return
    base = directory.resolve() / f"bench-{os.getpid()}"
    environment = _environment()
    printer.say(", ".join(f"{key} {value}" for key, value in environment.items()))
    figures: list[Figure] = []
    if groups - {"cursus", "growth", "kafka", "spark"}:
        with rig.cluster(base) as made:
            figures += trio.run(_measure, made, groups, seconds, failovers, printer.say)
    if "cursus" in groups:
        for nodes in CURSUS_NODES:
            with rig.cluster(base, nodes) as made:
                figures += trio.run(_cursus, made, seconds, printer.say)
    if "kafka" in groups:
        with rig.cluster(base) as made:
            figures += _kafka(made, seconds, printer.say)
    if "growth" in groups:
        figures += _growth(plot, printer.say)
    if "spark" in groups:
        with rig.cluster(base) as made:
            figures += _spark(made, spark_records, printer.say)
    data = {"environment": environment, "figures": [figure.to_json() for figure in figures]}
    printer.result(data, table(figures))


def _environment() -> dict[str, object]:
    """What a reader must know to compare figures; the calibration is that of before the run."""
    return {
        "paceline": __version__,
        "flush_mode": "group",
        "nodes": rig.NODES,
        "ten_million_additions": cpu.calibrate(),
        "python": platform.python_version(),
        "trio": metadata.version("trio"),
        "machine": platform.machine(),
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


async def _measure(
    made: Rig, groups: set[str], seconds: float, failovers: int, say: Callable[[str], None]
) -> list[Figure]:
    figures: list[Figure] = []

    def add(figure: Figure) -> None:
        say(f"{figure.name}: {figure.value:g} {figure.unit}")
        figures.append(figure)

    first = await moments.start(made)
    if "start" in groups:
        add(first)
        add(await moments.memory(made))
    async with connect(made.addresses, ClientSettings(client_id="bench")) as client:
        if "latency" in groups:
            await _latency(client, made, add)
        if "produce" in groups:
            await _produce(client, seconds, add)
        if "produce" in groups or "consume" in groups:
            for size, partitions in BATCHES:
                add(
                    await throughput.produce_batches(
                        client, size=size, partitions=partitions, seconds=seconds
                    )
                )
        if "consume" in groups:
            topic = throughput.batches_topic(*BATCHES[1])
            for figure in await throughput.consume(client, topic=topic, seconds=seconds):
                add(figure)
        await _protocols(client, made, groups, seconds, add)
        if "failover" in groups:
            add(await moments.failover(client, made, times=failovers))
    return figures


async def _cursus(made: Rig, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    """On a cluster of its own, that nothing else has written to."""
    await trio.to_thread.run_sync(made.up)
    figures = await cursus.measure(made, batches=max(1, round(seconds * CURSUS_BATCHES_PER_S)))
    for figure in figures:
        say(f"{figure.name}: {figure.value:g} {figure.unit}")
    return figures


def _growth(plot: Path | None, say: Callable[[str], None]) -> list[Figure]:
    grown = []
    for each in growth.measure():
        for figure in each.figures():
            say(f"{figure.name}: {figure.value:g} {figure.unit} {figure.details}")
        grown.append(each)
    if plot is not None:
        plot.write_text(growth_plot.plot(grown), encoding="utf-8")
    return [figure for each in grown for figure in each.figures()]


def _kafka(made: Rig, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    # Brings librdkafka, which only the development set-up has.
    from paceline_cluster.bench import kafka

    made.up()
    figures = []
    for figure in kafka.measure(made, sizes=SIZES, seconds=seconds, latency_per_s=KAFKA_PER_S):
        say(f"{figure.name}: {figure.value:g} {figure.unit}")
        figures.append(figure)
    return figures


def _spark(made: Rig, records: int, say: Callable[[str], None]) -> list[Figure]:
    # Spark is an extra.
    from paceline_cluster.bench import spark

    made.up()
    figures = []
    for figure in spark.measure(made.addresses, records):
        say(f"{figure.name}: {figure.value:g} {figure.unit}")
        figures.append(figure)
    return figures


def _beside(folder: Path, directory: Path, records: int, rounds: int, printer: Printer) -> None:
    """Spark's group alone, with Kafka in it."""
    from paceline_cluster.bench import kafka_broker, spark_beside, spark_runs

    try:
        connector = kafka_jars.find(folder, kafka_jars.CONNECTOR)
        broker = kafka_jars.find(folder, kafka_jars.BROKER)
    except BadSetting as error:
        raise click.BadParameter(str(error), param_hint="--beside-kafka") from error
    base = directory.resolve() / f"bench-{os.getpid()}"
    environment = {**_environment(), **spark_beside.versions(connector, broker)}
    printer.say(", ".join(f"{key} {value}" for key, value in environment.items()))
    rows: list[beside.Row] = []
    try:
        with (
            rig.cluster(base) as made,
            kafka_broker.running(broker, base / "kafka", partitions=spark_runs.PARTITIONS) as kafka,
        ):
            made.up()
            for row in spark_beside.measure(
                made.addresses, kafka, connector, records=records, rounds=rounds
            ):
                printer.say(f"{row.name}: {row.paceline:,.0f} {row.unit}, Kafka {row.kafka:,.0f}")
                rows.append(row)
    except ClusterError as error:
        raise click.ClickException(str(error)) from error
    data = {"environment": environment, "beside": [row.to_json() for row in rows]}
    printer.result(data, beside.table(rows))


async def _protocols(
    client: Client, made: Rig, groups: set[str], seconds: float, add: Callable[[Figure], None]
) -> None:
    if "segments" in groups:
        for figure in await segments.measure(client, sizes=EVENT_SIZES, seconds=seconds):
            add(figure)
    if "groups" in groups:
        for figure in await consumer_groups.steady(made, seconds=seconds):
            add(figure)


async def _latency(client: Client, made: Rig, add: Callable[[Figure], None]) -> None:
    for measure in (latency.native, latency.v1):
        add(await measure(client, made, in_flight=1, count=SINGLE_WRITES))
        windowed = await measure(client, made, in_flight=WINDOW, count=WINDOWED_WRITES)
        add(windowed)
        add(_rate_of(windowed))


async def _produce(client: Client, seconds: float, add: Callable[[Figure], None]) -> None:
    for size in SIZES:
        for partitions in PARTITIONS:
            add(
                await throughput.produce_records(
                    client, size=size, partitions=partitions, seconds=seconds
                )
            )


def _rate_of(windowed: Figure) -> Figure:
    value = windowed.details["writes_per_s"]
    return Figure(f"{windowed.name}, rate", value, "writes/s", RATE_AIM)


if __name__ == "__main__":
    sys.exit(main())
