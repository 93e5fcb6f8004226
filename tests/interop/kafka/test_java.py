"""What speaks Kafka from the Java world, unmodified: the Java client, Spark, the log-dump tool.

Needs a JDK of 17 or newer, and Maven to bring the libraries; ``scripts/interop`` runs it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.test_kafka_clients import bootstrap, make_topic

HERE = Path(__file__).parent
BUILD = Path(__file__).parents[3] / "build" / "interop"
MISSING = [tool for tool in ("mvn", "java", "javac") if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not installed here: {', '.join(MISSING)}"),
    pytest.mark.timeout(1800),
]
HANG_S = 900
SPARK_COUNT = 2000
OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch"),
    *("sun.nio.cs", "sun.security.action", "sun.util.calendar", "jdk.internal.ref"),
)
"""Packages that Spark reaches into (its JavaModuleOptions)."""


def libraries(name: str) -> str:
    """The class path of a project here; Maven fetches what is not there yet."""
    lib = BUILD / name
    if not lib.is_dir():
        fresh = lib.with_name(f"{name}.part")
        words = ["dependency:copy-dependencies", f"-DoutputDirectory={fresh}"]
        run("mvn", "-B", "-q", "-f", str(HERE / f"{name}.pom.xml"), *words)
        fresh.rename(lib)
    return f"{lib}/*"


def run(*words: str) -> str:
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=HANG_S, check=False, env=os.environ
    )
    assert done.returncode == 0, f"{words[0]}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def java(name: str, program: str, *words: str, options: tuple[str, ...] = ()) -> str:
    return run("java", *options, "-cp", libraries(name), str(HERE / program), *words)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("interop"))
    try:
        made.up()
        yield made
    finally:
        made.purge()


@pytest.mark.parametrize("part", ["produce", "group", "transactions", "admin"])
def test_the_java_client(cluster: Cluster, part: str) -> None:
    assert f"ok {part}" in java("kafka", "Clients.java", bootstrap(cluster), part)


def test_spark_reads_and_writes(cluster: Cluster, tmp_path: Path) -> None:
    for topic in ("spark-in", "spark-out"):
        make_topic(cluster, topic)
    options = tuple(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED)
    words = (bootstrap(cluster), str(tmp_path / "checkpoint"), str(SPARK_COUNT))
    assert "ok spark" in java("spark", "SparkKafka.java", *words, options=options)


def test_the_log_dump_tool_reads_our_files(cluster: Cluster) -> None:
    """All topics of the tests before, all partitions, after a clean stop; batches of every kind of
    producer among them."""
    cluster.run("down", "--dir", str(cluster.dir))
    files = sorted(cluster.dir.glob("node-*/topics/*/*.log"))
    files = [each for each in files if each.stat().st_size]
    assert len(files) >= 9
    tool = ("java", "-cp", libraries("kafka"), "kafka.tools.DumpLogSegments")
    logs = ",".join(map(str, files))
    dumped = run(*tool, "--deep-iteration", "--skip-record-metadata", "--files", logs)
    assert re.findall(r"isvalid: (\w+)", dumped)
    assert set(re.findall(r"isvalid: (\w+)", dumped)) == {"true"}
    assert "Found" not in dumped
    for kind, sound in (("index", "--index-sanity-check"), ("timeindex", "--verify-index-only")):
        indexes = [path for each in files if (path := each.with_suffix(f".{kind}")).exists()]
        assert indexes
        told = run(*tool, sound, "--files", ",".join(map(str, indexes)))
        assert not re.search(r"mismatch|Non-consecutive|corrupt|out of order", told, re.IGNORECASE)
