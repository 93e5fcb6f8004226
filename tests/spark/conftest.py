"""Fixtures of the Spark tier: one cluster of three processes and one Spark session for all."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from paceline.client import blocking
from paceline.errors import ConfigurationError
from paceline.spark.java import find_java
from paceline.spark.session import local_session
from tests.e2e.cluster import Cluster
from tests.e2e.conftest import FEW_GROUPS, clusters, pytest_runtest_makereport
from tests.spark.queries import Job, Topics

__all__ = ["pytest_runtest_makereport"]

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Little of what runs once or twice is worth compiling by Java's second compiler. Both cores have
other things to do than collecting garbage."""
HANGS_S = 900
"""No test takes so long, nor the start of Spark and of the cluster before the first one: on two
cores with fifteen others at work that alone took 150 s, and a first job as long again."""
CHECKS = ("log.retention_check_ms=100", "log.compaction_check_ms=200")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(HANGS_S))


@pytest.fixture(scope="session")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three nodes that look for segments to delete, and to clean, all the time."""
    makers = clusters(request, tmp_path_factory.mktemp("spark"), *FEW_GROUPS)
    make: Callable[..., Cluster] = next(makers)
    yield make(*(word for check in CHECKS for word in ("--set", check)))
    next(makers, None)


@pytest.fixture(scope="session")
def bootstrap(cluster: Cluster) -> str:
    """Every node's native listener."""
    return ",".join(node["listeners"]["native"] for node in cluster.state()["nodes"])


@pytest.fixture(scope="session")
def client(bootstrap: str) -> Iterator[blocking.Client]:
    with blocking.connect(bootstrap.split(",")) as made:
        yield made


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def topics(client: blocking.Client, bootstrap: str, _numbers: Iterator[int]) -> Topics:
    """Makes topics of its own for a test."""
    return Topics(client, bootstrap, f"t{next(_numbers)}")


@pytest.fixture
def job(tmp_path: Path, bootstrap: str) -> Job:
    """Runs jobs of the command line in the tier's one session."""
    return Job(tmp_path, bootstrap)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session. Without any Java the tests are skipped, except where CI=1 says that they
    have to run."""
    try:
        find_java()
    except ConfigurationError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = local_session(
        "tests",
        master="local[2,3]",
        conf={
            "spark.sql.warehouse.dir": str(warehouse),
            "spark.local.dir": str(warehouse),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "1",
            # Nor by Spark.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        },
    )
    yield session
    session.stop()
    shutil.rmtree(warehouse, ignore_errors=True)
