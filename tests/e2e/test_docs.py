"""Every page of the documentation, followed block by block on one cluster."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

from docs.reference.links import PLACE
from paceline_node.settings import Listener, ListenerKind
from tests.e2e.cluster import Cluster
from tests.e2e.forge import forge
from tests.e2e.pages import blocks, follow

README = Path(__file__).parents[2] / "README.md"
TEXTS = {
    "README": README,
    **{
        path.relative_to(PLACE).with_suffix("").as_posix(): path
        for path in sorted(PLACE.rglob("*.md"))
    },
}
PAGES = {
    name: path
    for name, path in TEXTS.items()
    if path != README and any(block.is_run for block in blocks(path.read_text(encoding="utf-8")))
}
RARE = ("pravega_client",)
"""Clients with wheels for few machines: what imports one is followed where it is installed."""
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


def clear(cluster: Cluster) -> None:
    """Let the next page find nothing of this one, and every node at work."""
    cluster.run("up", "--detach", "--dir", str(cluster.dir))
    cluster.run("topic", "delete", "*", "--yes", exit_code=None)
    for group in cluster.json("group", "list")["groups"]:
        subject = ("--subject", group["subject"]) if group["subject"] else ()
        name = ("delete", group["group"], "--family", group["family"], *subject, "--yes")
        cluster.run("group", *name, exit_code=None)  # one that was killed may be a member still
    cluster.run("health", "--exit-when-healthy")


@pytest.mark.timeout(HANG_S + 60)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in PAGES],
)
def test_a_page_does_what_it_says(shared_cluster: Cluster, tmp_path: Path, name: str) -> None:
    require_so(shared_cluster, tmp_path, PAGES[name])


def require_so(cluster: Cluster, tmp_path: Path, page: Path) -> None:
    """Follow a page, and leave the cluster as it was. Skips where a block needs what is not
    installed here, after all others."""
    folder = tmp_path / "page"
    folder.mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    descriptor, variables = forge().scripted(programs)
    places = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    env = {
        **cluster.env,
        **variables,
        "PATH": os.pathsep.join(places),
        "PACELINE_DIR": str(cluster.dir),
    }
    lacking = [module for module in RARE if importlib.util.find_spec(module) is None]
    try:
        left_out = follow(
            page,
            folder,
            env=env,
            addresses=addresses(cluster),
            lacking=lacking,
            pass_fds=[descriptor],
            timeout_s=HANG_S,
        )
    finally:
        for own in folder.glob("*/cluster.json"):  # left behind where the page was not to its end
            cluster.run("purge", "--yes", "--dir", str(own.parent), exit_code=None)
        clear(cluster)
    if left_out:
        lines = ", ".join(str(block.line) for block in left_out)
        pytest.skip(f"followed but for line {lines}: {', '.join(lacking)} is not installed here")


def test_what_is_not_run_says_why() -> None:
    for path in TEXTS.values():
        for block in blocks(path.read_text(encoding="utf-8")):
            assert block.kind in ("sh", "python", "toml", "text", "json"), f"{path}:{block.line}"
            assert block.is_run or block.why or block.kind in ("text", "json"), (
                f"{path}:{block.line}"
            )


def test_all_that_is_shown_is_in_blocks() -> None:
    """What is only indented is shown as code, too, and nobody would follow it."""
    for path in TEXTS.values():
        text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        assert not re.findall(r"\n\n((?: {4}|\t).*)", text), path
