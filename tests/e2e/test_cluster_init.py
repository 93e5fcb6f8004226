"""``cluster init`` for machines that others reach: closed from the first moment, or told of."""

from __future__ import annotations

import re
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.tls import ClientTls
from paceline_cluster import ports
from tests.e2e.cluster import Cluster, wait_until
from tests.e2e.foreground import Runner

HEALTHCHECK = Path(__file__).parents[2] / "deploy" / "healthcheck.py"


def prepared(cluster: Cluster, *options: str) -> dict[str, Any]:
    """A cluster of one node for the host ``localhost``, on free ports."""
    words = ("cluster", "init", "--dir", str(cluster.dir), "--host", "localhost")
    made: dict[str, Any] = cluster.json(*words, "--data-dir", str(cluster.dir / "node-0"), *options)
    listeners = made["nodes"][0]["listeners"]
    config = cluster.dir / "node-0" / "node.toml"
    text = config.read_text()
    for name, port in zip(listeners, ports.free_numbers(len(listeners)), strict=True):
        text = re.sub(rf":{listeners[name].rpartition(':')[2]}\b", f":{port}", text)
        listeners[name] = f"localhost:{port}"
    config.write_text(text)
    return made


def is_served(made: dict[str, Any]) -> bool:
    """As Docker asks."""
    address = made["nodes"][0]["listeners"]["http"]
    return not subprocess.run([sys.executable, HEALTHCHECK, address], check=False).returncode


def v1_answer(address: str, authority: str) -> bytes:
    """To somebody without a certificate."""
    host, _, port = address.rpartition(":")
    context = ClientTls(authority=authority).context()
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname=host) as stream,
    ):
        stream.sendall(b"V1|1|PRODUCE|t a\n")
        return stream.recv(1000)


def test_a_cluster_for_others_is_never_open(runner: Runner, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    made = prepared(cluster)
    password = Path(made["password_file"])
    assert password.stat().st_mode & 0o777 == 0o600
    assert password.read_text().strip() not in (cluster.dir / "node-0/node.toml").read_text()
    runner.run(cluster.dir / "node-0" / "node.toml")
    wait_until("the node serves", lambda: is_served(made))

    listeners = made["nodes"][0]["listeners"]
    authority = made["tls"]["authority"]
    known = f"tls://{listeners['native']}?authority={authority}"
    cluster.run("topic", "create", "t", "--bootstrap", known, exit_code=77)
    with pytest.raises(ssl.SSLError, match="certificate required"):
        v1_answer(listeners["v1"], authority)

    administrator = f"{known}&username=admin&password_file={password}"
    cluster.run("topic", "create", "t", "--bootstrap", administrator)
    certificate = f"{known}&certificate={made['tls']['certificate']}&key={made['tls']['key']}"
    cluster.run("produce", "t", "--bootstrap", certificate, stdin=b"1\n2\n")
    health = cluster.json("health", "--bootstrap", administrator)
    assert {each["level"] for each in health["checks"]} == {"ok"}
    assert "exposed" not in (cluster.dir / "node-0/node.log").read_text()


def test_what_is_open_says_so(runner: Runner, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    made = prepared(cluster, "--insecure")
    assert (made["administrator"], made["tls"]) == (None, {})
    runner.run(cluster.dir / "node-0" / "node.toml")
    wait_until("the node serves", lambda: is_served(made))
    log = cluster.dir / "node-0" / "node.log"
    wait_until("the log says so", lambda: log.read_text().count("exposed") == 2)
    assert "whoever reaches v1, native, http" in log.read_text()

    bootstrap = made["nodes"][0]["listeners"]["native"]
    health = cluster.json("health", "--bootstrap", bootstrap)
    assert health["healthy"]
    told = [each["reason"] for each in health["checks"] if each["name"] == "exposure"]
    assert len(told) == 2
    assert all(
        reason in cluster.run("health", "--bootstrap", bootstrap).stdout.decode() for reason in told
    )


def test_words_that_contradict_each_other(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    words = ("cluster", "init", "--dir", str(cluster.dir), "--host", "broker-0")
    cluster.run(*words, "--insecure", "--admin", "ops", exit_code=64)
    cluster.run(*words, "--admin", "anonymous", exit_code=78)
    cluster.run(*words, "--set", 'security.super_users=["me"]', exit_code=78)
    assert not cluster.dir.exists()
