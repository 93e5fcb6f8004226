"""What ``up`` says to do for another number of voters can be done."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.cluster import Cluster

HANG_S = 400.0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_up_says_how_a_cluster_comes_to_have_fewer_voters(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster("--nodes", "3", "--timeout", "300")
    there = ("--dir", str(cluster.dir))

    def hint_for(*words: str) -> list[list[str]]:
        """The commands that a refused ``up`` names, as words."""
        done = cluster.run("up", *words, *there, "--output", "json", exit_code=69)
        assert b"purge" not in done.stderr
        said: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])["error"]
        return [shlex.split(each)[1:] for each in said["hint"].split("'")[1::2] if " " in each]

    [grow] = hint_for("--voters", "5")
    assert grow == ["up", "--nodes", "5", "--voters", "5", *there]

    setting, restart, remove = hint_for("--voters", "1")
    for words in (setting, [*restart, "--timeout", "300"]):
        cluster.run(*words, timeout_s=HANG_S)
    for node in ("2", "1"):
        cluster.run(*[node if word == "NODE" else word for word in remove], timeout_s=HANG_S)
    assert cluster.json("quorum", "describe", *there)["voters"] == [0]
    cluster.run("up", "--voters", "1", "--detach", *there)

    cluster.run("config", "set", "raft.voters=3", *there)
    cluster.run("down", *there)
    _, up, _ = hint_for("--voters", "1")
    assert up == ["up", *there], "nothing runs that could be restarted"
    cluster.run("rolling-restart", *there, exit_code=69)
