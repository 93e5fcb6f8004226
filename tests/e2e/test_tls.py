"""``up --tls``: a cluster in which everything is encrypted, and every command finds its way."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import stat
import urllib.request
from collections.abc import Callable
from pathlib import Path

from paceline.tls import ClientTls
from tests.e2e.cluster import Cluster, wait_until

LISTENERS = ("native", "v1", "http", "peer", "kafka", "cursus", "segment")


def trusting(cluster: Cluster) -> ssl.SSLContext:
    return ClientTls(**cluster.state()["tls"]).context()


def serial(cluster: Cluster, node: int) -> str:
    """Of the certificate that a node shows on its http port."""
    with (
        socket.create_connection(cluster.address(node, "http"), timeout=60) as plain,
        trusting(cluster).wrap_socket(plain, server_hostname="localhost") as stream,
    ):
        certificate = stream.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])


def test_everything_is_encrypted_and_works(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster("--nodes", "3", "--tls")
    status = cluster.json("status")
    assert status["healthy"], status["reasons"]
    assert {node["state"] for node in status["nodes"]} == {"running"}

    cluster.run("topic", "create", "orders", "--partitions", "3")
    cluster.run("produce", "orders", stdin=b"one\ntwo\nthree\n")
    cluster.run("node", "kill", "leader-of:orders/0")
    cluster.run("produce", "orders", stdin=b"four\n")
    cluster.run("node", "restart", "--stopped")
    cluster.run("health", "--exit-when-healthy")
    read = cluster.run("consume", "orders", "--exit-at-end").stdout
    assert sorted(read.split()) == [b"four", b"one", b"three", b"two"]

    for name in LISTENERS:  # nothing answers in clear text
        with socket.create_connection(cluster.address(0, name), timeout=60) as plain:
            plain.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b""
            while part := plain.recv(1000):
                answer += part
            assert len(answer) < 20, name
    host, port = cluster.address(0, "http")
    with urllib.request.urlopen(
        f"https://{host}:{port}/ready", context=trusting(cluster), timeout=60
    ) as page:
        assert page.status == 200
    assert f"https://{host}:{port}".encode() in cluster.run("status").stdout

    for key in cluster.dir.rglob("*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600, key
    certificates = cluster.json("health")["certificates"]
    assert {each["setting"] for each in certificates} == {
        "tls.certificate",
        "tls.client_authorities",
        "tls.peer_certificate",
        "tls.peer_authority",
    }

    before = serial(cluster, 0)
    cluster.run("cluster", "certify", "0", "--dir", str(cluster.dir))
    os.kill(cluster.node(0)["pid"], signal.SIGHUP)
    wait_until("node 0 shows another certificate", lambda: serial(cluster, 0) != before)
    log = Path(cluster.node(0)["dir"]) / "node.log"
    wait_until("the log says so", lambda: "certificates reloaded" in log.read_text())
    cluster.run("health", "--exit-when-healthy")


def test_a_cluster_cannot_be_encrypted_later(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster("--nodes", "1")
    refused = cluster.run("up", "--detach", "--tls", "--dir", str(cluster.dir), exit_code=None)
    assert refused.returncode == 69
    assert b"with TLS" in refused.stderr
