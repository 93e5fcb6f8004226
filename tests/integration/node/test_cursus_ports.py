"""The ports of Cursus: its own over TLS or not, health and metrics."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from paceline.client import connect
from paceline.errors import ConfigurationError, RemoteProtocolError
from paceline.types import Acks
from paceline_node.settings import InvalidSettings
from tests.integration.node.certificates import Certificates
from tests.integration.node.cursus_client import ONE, CursusClient, batch, numbered
from tests.integration.node.nodes import listener_ports, lone_node, make_node


async def test_health_and_metrics_have_ports_of_their_own(tmp_path: Path) -> None:
    async with lone_node(tmp_path, ONE, more_kinds=("cursus-health", "cursus-metrics")) as node:
        health, metrics = node.addresses["cursus-health"], node.addresses["cursus-metrics"]
        assert await ask(health, "/live") == (200, '{"status":"live"}')
        ready = '{"status":"ready","checks":{"broker":"ok"}}'
        assert await ask(health, "/ready") == (200, ready)
        assert await ask(health, "/health") == (200, "OK")
        assert await ask(health, "/") == (200, "OK")
        assert (await ask(health, "/live", "POST"))[0] == 405
        assert (await ask(health, "/metrics"))[0] == 404
        async with CursusClient(node.addresses["cursus"]) as client:
            await client.create("t 1")
            await client.produce(batch("t", numbered(1, 5), acks=Acks.ALL))
            assert "ERROR" in await client.say("METADATA topic=none")
            await client.say("JOIN_GROUP t g a")
            await client.say("COMMIT t g 0 2")
            async with CursusClient(node.addresses["cursus"]) as streaming:
                await streaming.send(b"STREAM t 0 5")
                await streaming.receive()
                page = (await ask(metrics, "/metrics"))[1]
        samples = dict(
            line.rpartition(" ")[::2] for line in page.splitlines() if not line.startswith("#")
        )
        assert any(name.startswith("paceline_") for name in samples)
        told = {
            "cursus_broker_ready": 1,
            "cursus_broker_client_connections_active": 2,
            "cursus_broker_client_connections_total": 2,
            'cursus_broker_commands_total{command="BATCH",result="ok"}': 1,
            'cursus_broker_commands_total{command="METADATA",result="error"}': 1,
            'cursus_broker_command_errors_total{code="topic_not_found",command="METADATA"}': 1,
            'cursus_broker_command_duration_seconds_count{command="BATCH"}': 1,
            'cursus_partition_log_start_offset{partition="0",topic="t"}': 0,
            'cursus_partition_log_end_offset{partition="0",topic="t"}': 5,
            'cursus_partition_high_watermark{partition="0",topic="t"}': 5,
            'cursus_cluster_partition_leader_epoch{partition="0",topic="t"}': 0,
            "cursus_cluster_under_replicated_partitions": 0,
            "cursus_cluster_offline_partitions": 0,
            "cursus_streams_active": 1,
            'cursus_consumer_group_members{group="g",topic="t"}': 1,
            'cursus_consumer_group_generation{group="g",topic="t"}': 1,
            'cursus_consumer_group_committed_offset{group="g",partition="0",topic="t"}': 2,
            'cursus_consumer_group_lag{group="g",partition="0",topic="t"}': 3,
        }
        assert {name: float(samples[name]) for name in told} == told
        assert float(samples["cursus_storage_bytes"]) > 0


@pytest.mark.parametrize("is_open", [True, False])
async def test_probes_of_a_closed_cluster(tmp_path: Path, is_open: bool) -> None:
    """They show nothing, and are told whether the node serves, as ``/ready`` of http says it."""
    flags = {**ONE, "security.super_users": "root", "http.open_ready": str(is_open).lower()}
    async with lone_node(tmp_path, flags, more_kinds=("cursus-health",)) as node:
        async with connect(node.native) as anybody:
            await anybody.admin.users.create("root", "wonderland", iterations=4096)
        health = node.addresses["cursus-health"]
        if is_open:
            assert await ask(health, "/ready") == (200, '{"status":"ready","checks":{}}')
            assert await ask(health, "/health") == (200, "OK")
        else:
            assert (await ask(health, "/ready"))[0] == 403
            assert (await ask(health, "/health"))[0] == 403


async def ask(address: tuple[str, int], path: str, method: str = "GET") -> tuple[int, str]:
    stream = await trio.open_tcp_stream(*address)
    request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with stream:
        await stream.send_all(request.encode())
        answer = b"".join([part async for part in stream]).decode()
    head, _, body = answer.partition("\r\n\r\n")
    assert method != "POST" or "allow: GET, HEAD" in head.lower().replace("get, head", "GET, HEAD")
    return int(head.split()[1]), body


@dataclass(frozen=True)
class Certified:
    """A node's settings for TLS, and what its clients trust."""

    flags: Mapping[str, str]
    context: ssl.SSLContext


@pytest.fixture
def certified(tmp_path: Path) -> Certified:
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(cafile=certificates.authority)
    return Certified({**ONE, **certificates.settings, "tls.handshake_ms": "2000"}, context)


def encrypt(client: CursusClient, certified: Certified) -> None:
    client.stream = trio.SSLStream(client.stream, certified.context, server_hostname="localhost")


async def test_over_tls(tmp_path: Path, certified: Certified) -> None:
    async with lone_node(tmp_path, certified.flags, tls=("cursus",)) as node:
        async with CursusClient(node.addresses["cursus"]) as client:
            encrypt(client, certified)
            await client.create("t 1")
            ack = await client.produce(batch("t", numbered(1, 2000), acks=Acks.ALL))
            assert (ack["status"], ack["last_offset"]) == ("OK", 1999)
            assert len(await client.read("CONSUME t 0 0")) == 2000
        async with CursusClient(node.addresses["cursus"]) as plain:
            await plain.send(b"LIST")  # no handshake: an alert, and not a word
            with pytest.raises(RemoteProtocolError, match="frame of 352518400 bytes"):
                await plain.receive()
        async with CursusClient(node.addresses["cursus"]) as silent:
            assert await silent.receive() == b"EOF"


async def test_over_tls_or_not_on_one_port(tmp_path: Path, certified: Certified) -> None:
    """Clients for Java encrypt what they write, but not what they ask of coordinators."""
    async with lone_node(tmp_path, certified.flags, tls=("cursus?tls=optional",)) as node:
        address = node.addresses["cursus"]
        async with CursusClient(address) as silent, CursusClient(address) as late:
            async with CursusClient(address) as client, CursusClient(address) as plain:
                encrypt(client, certified)
                await client.create("t 1")
                await plain.ok("METADATA topic=t")
                await client.produce(batch("t", numbered(1, 2)))
                assert len(await plain.read("CONSUME t 0 0")) == 2
            # Who says nothing may begin either way, however late.
            assert await late.say("LIST") == "OK count=1 topics=t"
            encrypt(silent, certified)
            assert await silent.say("LIST") == "OK count=1 topics=t"


def test_a_bad_certificate_is_named(tmp_path: Path) -> None:
    flags = {"tls.certificate": "/nowhere", "tls.key": "/nowhere"}
    with pytest.raises(ConfigurationError, match=r"tls\.certificate /nowhere"):
        make_node(tmp_path, 0, listener_ports(), flags, tls=("cursus",))
    with pytest.raises(InvalidSettings, match=r"needs tls\.certificate and tls\.key"):
        make_node(tmp_path, 0, listener_ports(), {}, tls=("cursus",))
