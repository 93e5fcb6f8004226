"""Every page of the documentation, followed block by block on one cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from docs.reference.links import PLACE
from paceline_node.settings import Listener, ListenerKind
from tests.e2e.cluster import Cluster
from tests.e2e.forge import forge
from tests.e2e.pages import blocks, follow

PAGES = {
    path.relative_to(PLACE).with_suffix("").as_posix(): path
    for path in sorted(PLACE.rglob("*.md"))
    if any(block.is_run for block in blocks(path.read_text(encoding="utf-8")))
}
SLOW = ("how-to/chaos", "how-to/pytest", "how-to/spark")
"""They start Java, or clusters of their own."""
HANG_S = 1800.0
"""Bounds a hang; on a quiet machine a page takes seconds."""


def addresses(cluster: Cluster) -> dict[str, str]:
    """Documented address -> where it is in this cluster."""
    return {
        str(Listener.default(kind, node["id"])).partition("://")[2]: node["listeners"][kind.value]
        for node in cluster.state()["nodes"]
        for kind in ListenerKind
        if kind.value in node["listeners"]
    }


@pytest.mark.timeout(HANG_S + 60)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in PAGES],
)
def test_a_page_does_what_it_says(shared_cluster: Cluster, tmp_path: Path, name: str) -> None:
    if "pravega" in PAGES[name].read_text():
        pytest.importorskip("pravega_client", reason="no wheel of the Pravega client fits here")
    folder = tmp_path / "page"
    folder.mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    descriptor, variables = forge().scripted(programs)
    places = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    env = {
        **shared_cluster.env,
        **variables,
        "PATH": os.pathsep.join(places),
        "PACELINE_DIR": str(shared_cluster.dir),
    }
    try:
        follow(
            PAGES[name],
            folder,
            env=env,
            addresses=addresses(shared_cluster),
            pass_fds=[descriptor],
            timeout_s=HANG_S,
        )
    finally:
        shared_cluster.run("up", "--detach", "--dir", str(shared_cluster.dir))
        shared_cluster.run("topic", "delete", "*", "--yes", exit_code=None)


def test_what_is_not_run_says_why() -> None:
    for path in PLACE.rglob("*.md"):
        for block in blocks(path.read_text(encoding="utf-8")):
            assert block.kind in ("sh", "python", "toml", "text", "json"), f"{path}:{block.line}"
            assert block.is_run or block.why or block.kind in ("text", "json"), (
                f"{path}:{block.line}"
            )
