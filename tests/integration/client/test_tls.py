"""The client inside TLS, against a real node, and what it says when it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from paceline.client import (
    ClientSettings,
    ClientTls,
    Endpoint,
    Position,
    ProducerSettings,
    blocking,
)
from paceline.errors import AuthenticationFailed, PacelineError, RemoteProtocolError
from paceline_cluster.node_calls import ask_status
from tests.integration.node.machines import connect
from tests.integration.node.nodes import HANG_S, RunningNode, lone_node
from tests.integration.node.test_tls import Site, site

__all__ = ["site"]

LONG = ProducerSettings(delivery_timeout_s=HANG_S)


def settings(tls: ClientTls | None) -> ClientSettings:
    return ClientSettings(tls=tls, connect_timeout_s=HANG_S, operation_timeout_s=HANG_S)


def websocket(node: RunningNode) -> str:
    host, port = node.addresses["http"]
    return f"wss://{host}:{port}/native"


async def refused(bootstrap: str, tls: ClientTls | None) -> PacelineError:
    with pytest.raises(PacelineError) as failed:
        async with connect(bootstrap, settings(tls)):
            pass
    return failed.value


async def test_clients_inside_tls(tmp_path: Path, site: Site) -> None:
    pair = site.authority.issue("laptop", common_name="alice")
    tls = ClientTls(authority=site.authority.path, certificate=pair.certificate, key=pair.key)
    flags = site.asking("required")
    kinds = ("native", "http", "kafka", "segment")
    async with lone_node(tmp_path, flags, tls=kinds) as node:
        for way in (node.native, websocket(node)):
            async with connect(way, settings(tls)) as client:
                async with client.producer(LONG) as producer:
                    await producer.send("orders", b"value", key=b"key")
                async with client.consumer("orders", stop=Position.LATEST) as consumer:
                    assert b"value" in [record.value async for record in consumer]
        # An address that says all of it, in a program without a loop; a node asked by address.
        host, port = node.addresses["native"]
        url = Endpoint(host, port, None, tls).url

        def write() -> int:
            with blocking.connect(url) as client, client.producer(LONG) as producer:
                return producer.send("orders", b"blocking", key=b"key").offset

        assert await trio.to_thread.run_sync(write) == 2
        assert (await ask_status(url)).node_id == 0
        await refusals(node, site, tls)


async def refusals(node: RunningNode, site: Site, tls: ClientTls) -> None:
    stranger = ClientTls(authority=site.stranger.path, certificate=tls.certificate, key=tls.key)
    error = await refused(node.native, stranger)
    assert isinstance(error, AuthenticationFailed)
    assert "the node's certificate is not trusted" in str(error)
    elsewhere = ClientTls(
        authority=site.authority.path,
        certificate=tls.certificate,
        key=tls.key,
        server_name="other.example",
    )
    error = await refused(node.native, elsewhere)
    assert isinstance(error, AuthenticationFailed)
    assert "other.example" in str(error)
    error = await refused(node.native, ClientTls(authority=site.authority.path))
    assert isinstance(error, AuthenticationFailed)
    assert "the node refuses this client (certificate required)" in str(error)
    host, port = node.addresses["v1"]
    error = await refused(f"{host}:{port}", tls)
    assert isinstance(error, RemoteProtocolError)
    assert "does not speak TLS" in str(error)
