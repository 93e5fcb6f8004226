"""Fixtures of the end-to-end tier: clusters of real processes, their logs shown on failure."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.foreground import Runner

LONGEST = (
    "test_readme.py",
    "test_docs.py",
    "test_lost_metadata.py",
    "test_bad_sectors.py",
    "test_descriptors.py",
    "test_distrust.py",
    "test_mistakes.py",
    "test_commands.py",
    "test_cursus_client.py",
)
"""Files that take longest: begun first, or all others were done while one worker has them yet."""
LOG_LINES = 60
KEEP_VARIABLE = "PACELINE_E2E_KEEP"
"""Directory to which the clusters of failed tests are moved."""

_CLUSTERS = pytest.StashKey[list[Cluster]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    is_long = item.path.parent == Path(__file__).parent and item.path.name in LONGEST
    return LONGEST.index(item.path.name) if is_long else len(LONGEST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed:
        for cluster in item.session.stash.get(_CLUSTERS, []):
            report.sections.append((f"logs of {cluster.dir}", cluster.logs(LOG_LINES)))
            cluster.failed = True
    return report


FEW_GROUPS = ("--set", "groups.partitions=4")
"""Sixteen partitions that a test does not need are most of a node's start. The clusters that the
documentation is followed on have them."""


def clusters(
    request: pytest.FixtureRequest, base: Path, *always: str
) -> Iterator[Callable[..., Cluster]]:
    """Makes clusters, with the options ``always``, and removes them at the end; moves those of
    failed tests away if asked to."""
    made: list[Cluster] = []
    live = request.session.stash.setdefault(_CLUSTERS, [])

    def make(*words: str) -> Cluster:
        cluster = Cluster(base / f"c{len(made)}")
        cluster.base.mkdir()
        made.append(cluster)
        live.append(cluster)
        cluster.up(*always, *words)
        return cluster

    yield make
    keep = os.environ.get(KEEP_VARIABLE)
    for cluster in made:
        live.remove(cluster)
        if cluster.failed and keep:
            cluster.run("down", "--dir", str(cluster.dir), exit_code=None)
            shutil.move(cluster.base, Path(keep) / f"{request.node.name}-{cluster.base.name}")
        else:
            cluster.purge()
            shutil.rmtree(cluster.base, ignore_errors=True)


@pytest.fixture
def make_cluster(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[..., Cluster]]:
    """Start clusters with options of ``paceline up``; each test has its own."""
    yield from clusters(request, tmp_path, *FEW_GROUPS)


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Three nodes with the quick timing profile."""
    return make_cluster()


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    made = Runner(Cluster(tmp_path))
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="module")
def shared_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three nodes for all tests of a module that leave them as they found them."""
    makers = clusters(request, tmp_path_factory.mktemp("shared"))
    make = next(makers)
    yield make()
    next(makers, None)
