"""SIGHUP: what may change in a running node changes, what may not is named."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.v1 import V1Client

ASK = "V1|1|ADMIN_GET_METADATA|"


def test_sighup_takes_over_what_a_running_node_can_change(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster("--nodes", "1")
    node = cluster.node(0)
    config, log = Path(node["dir"]) / "node.toml", Path(node["dir"]) / "node.log"
    written = config.read_text()

    def hang_up(more: str, *expected: str) -> None:
        """Change the file, send the signal, and wait for the lines that say what became of it."""
        config.write_text(written + more)
        told = len(log.read_text())
        os.kill(node["pid"], signal.SIGHUP)
        wait_until(
            f"the log says {expected}",
            lambda: all(words in log.read_text()[told:] for words in expected),
        )

    with V1Client(cluster.address(0, "v1")) as client:
        assert client.send_line(ASK).startswith("V1|1|OK|topics=")
        hang_up(
            '\n[v1]\nadmin_commands = "deny"\n[limits]\nconnections = 9\n',
            *("settings reloaded", "v1.admin_commands"),
            *("settings need a restart", "limits.connections"),
        )
        assert client.send_line(ASK) == "V1|1|ERR|NOT_AUTHORIZED|admin commands disabled"
        hang_up("\n[v1]\nadmin_comands = 3\n", "settings not reloaded", "admin_comands")
        hang_up('\n[logging]\nlevel = "debug"\n', "settings reloaded", "v1.admin_commands")
        assert client.send_line(ASK).startswith("V1|1|OK|topics=")
        hang_up('\n[logging]\nlevel = "debug"\n', "settings reloaded, nothing changed")
    defaults = written.replace("[topics]", "[topics]\npartitions = 5")
    assert defaults != written
    written = defaults
    hang_up("", "settings reloaded", "topics.partitions")
    assert cluster.json("topic", "create", "made-later")["partitions"] == 5
    assert cluster.json("status")["nodes"][0]["state"] == "running"
