"""Settings of nodes are changed while they run, or wait for a restart and say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.e2e.cluster import Cluster, wait_until


def test_settings_are_shown_changed_and_given_their_defaults_again(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster("--nodes", "2")
    there = ("--dir", str(cluster.dir))

    def run(*words: str, exit_code: int = 0) -> Any:
        done = cluster.run("config", *words, *there, "--output", "json", exit_code=exit_code)
        return json.loads(done.stdout or done.stderr.splitlines()[-1])

    def held(*keys: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = run("list", *keys)["settings"]
        return found

    begun_with = cluster.state()["settings"]
    [before] = held("topics.partitions")
    assert (before["value"], before["default"], before["nodes"]) == ("3", "3", [0, 1])
    assert "topics.partitions" not in {each["key"] for each in held()}, "it has its default"

    # What can change at run time does.
    [changed] = run("set", "topics.partitions=5")["settings"]
    assert (changed["before"], changed["after"]) == ("3", "5")
    assert (changed["restart"], changed["nodes"]) == (False, [0, 1])
    logs = [Path(node["dir"]) / "node.log" for node in cluster.state()["nodes"]]
    wait_until(
        "both have read it", lambda: all("settings reloaded" in log.read_text() for log in logs)
    )
    assert cluster.json("topic", "create", "made-later", *there)["partitions"] == 5
    assert "topics.partitions" in {each["key"] for each in held()}

    # The rest waits for a restart, and that is said.
    said = cluster.run("config", "set", "log.segment_bytes=32MiB", "--node", "1", *there).stderr
    assert b"'paceline rolling-restart 1'" in said
    assert [each["nodes"] for each in held("log.segment_bytes")] == [[0], [1]]

    [changed] = run("unset", "topics.partitions")["settings"]
    assert (changed["before"], changed["after"]) == ("5", "3")
    assert run("unset", "topics.partitions")["settings"] == []
    assert cluster.state()["settings"] == begun_with, "'up' finds nothing to change"

    files = [Path(node["dir"]) / "node.toml" for node in cluster.state()["nodes"]]
    written = [file.read_text() for file in files]
    for words, code, message in (
        (("topics.partitons=5",), 78, "did you mean topics.partitions?"),
        (("topics.partitions=0", "log.segment_bytes=1MiB"), 78, "topics.partitions"),
        (("node.id=7",), 69, "stays as it was made"),
        (("node.rack=a",), 69, "each node has its own node.rack"),
        (("topics.partitions=5", "--node", "9"), 65, "there is no node 9"),
    ):
        assert message in run("set", *words, exit_code=code)["error"]["message"]
    assert [file.read_text() for file in files] == written
