"""Listeners inside TLS, from outside: who is let in, as whom, and what is said of the others."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs
from structlog.typing import EventDict

from paceline.client import Position
from paceline.client.endpoint import Endpoint
from paceline_node.security.principals import (
    AllowAll,
    Operation,
    Principal,
    Proof,
    Resource,
)
from tests.authority import Authority, KeyPair
from tests.integration.node.machines import connect, open_stream
from tests.integration.node.nodes import HANG_S, RunningNode, V1Client, cluster, lone_node
from tests.integration.node.test_v1_cluster import create

ONE = {"topics.replication_factor": "1", "topics.min_insync_replicas": "1"}
CLIENTS = ("v1", "native", "http", "segment", "cursus", "kafka", "pravega")
MORE = ("cursus-health", "cursus-metrics")
ALL = (*CLIENTS, *MORE)
Address = tuple[str, int]


class Site:
    """An authority, a node's certificate by it, and what its settings say of that."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.stranger = Authority(directory, "stranger")
        pair = self.authority.issue("localhost", "127.0.0.1")
        self.flags = {**ONE, "tls.certificate": pair.certificate, "tls.key": pair.key}

    def asking(self, choice: str) -> dict[str, str]:
        """Settings of a node that asks its clients for certificates."""
        own = {"tls.client_auth": choice, "tls.client_authorities": self.authority.path}
        return {**self.flags, **own}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


class Noting:
    """Allows everything, and remembers who asked."""

    def __init__(self) -> None:
        self.seen: set[Principal] = set()

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        AllowAll().authorize(principal, operation, resource)
        self.seen.add(principal)


async def encrypted(address: Address, context: ssl.SSLContext) -> trio.SSLStream[trio.SocketStream]:
    plain = await open_stream(address)
    stream = trio.SSLStream(plain, context, server_hostname="localhost", https_compatible=True)
    try:
        with trio.fail_after(HANG_S):
            await stream.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(plain)
        raise
    return stream


@contextlib.asynccontextmanager
async def connected(
    address: Address, context: ssl.SSLContext
) -> AsyncIterator[trio.SSLStream[trio.SocketStream]]:
    stream = await encrypted(address, context)
    try:
        yield stream
    finally:
        await trio.aclose_forcefully(stream)


class EncryptedV1(V1Client):
    """A V1 client inside TLS."""

    def __init__(self, address: Address, context: ssl.SSLContext) -> None:
        super().__init__(address)
        self._context = context

    async def __aenter__(self) -> EncryptedV1:
        self._stream = await encrypted(self._address, self._context)  # type: ignore[assignment]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._stream is not None
        await trio.aclose_forcefully(self._stream)


async def get(address: Address, path: str, context: ssl.SSLContext) -> tuple[int, bytes]:
    async with connected(address, context) as stream:
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        await stream.send_all(request.encode())
        data = b"".join([bytes(part) async for part in stream])
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@contextlib.asynccontextmanager
async def writing_and_reading(
    bootstrap: str, context: ssl.SSLContext
) -> AsyncIterator[list[bytes | None]]:
    """What was read of what was written."""

    async def dial(endpoint: Endpoint) -> trio.abc.Stream:
        return await encrypted((endpoint.host, endpoint.port), context)

    async with connect(bootstrap, dial=dial) as client:
        async with client.producer() as producer:
            for value in (b"one", bytes(700_000)):
                await producer.send("orders", value)
        async with client.consumer("orders", stop=Position.LATEST) as consumer:
            yield [record.value async for record in consumer]


async def refusal(logs: list[EventDict], protocol: str) -> str:
    """Why the listener of a protocol refused somebody."""
    with trio.fail_after(HANG_S):
        while True:
            for line in logs:
                if line.get("protocol") == protocol and line["event"] == "client refused":
                    return str(line["reason"])
            await trio.sleep(0.01)


async def test_every_protocol_inside_tls(tmp_path: Path, site: Site) -> None:
    context = site.authority.client()
    async with lone_node(tmp_path, site.flags, tls=ALL, more_kinds=MORE) as node:
        for way in ("{}:{}".format(*node.addresses["native"]), websocket(node)):
            async with writing_and_reading(way, context) as found:
                assert sorted(found, key=repr)[-1] == b"one"
                assert len(found) % 2 == 0
        async with EncryptedV1(node.v1, context) as v1:
            assert (await v1.ok("PRODUCE", "orders k:v acks=all"))["offset"]
        for kind, path in (
            ("http", "/live"),
            ("http", "/ready"),
            ("http", "/metrics"),
            ("cursus-health", "/ready"),
            ("cursus-metrics", "/metrics"),
        ):
            status, _ = await get(node.addresses[kind], path, context)
            assert status == 200, (kind, path)


def websocket(node: RunningNode) -> str:
    host, port = node.addresses["http"]
    return f"ws://{host}:{port}/native"


async def test_a_client_is_whom_its_certificate_names(tmp_path: Path, site: Site) -> None:
    """In every protocol that has something to ask, and none where it shows no certificate."""
    alice = Principal("alice", Proof.CERTIFICATE)
    pair = site.authority.issue("laptop.example", common_name="alice")
    policy = Noting()
    flags = site.asking("optional")
    async with lone_node(tmp_path, flags, tls=ALL, policy=policy, more_kinds=MORE) as node:
        for kind, ask in (
            ("v1", ask_v1),
            ("native", ask_native),
            ("http", ask_http),
            ("websocket", ask_websocket),
        ):
            for context, who in (
                (site.authority.client(pair), alice),
                (site.authority.client(), Principal("anonymous", Proof.NONE)),
            ):
                policy.seen.clear()
                await ask(node, context)
                assert policy.seen == {who}, kind


async def ask_v1(node: RunningNode, context: ssl.SSLContext) -> None:
    async with EncryptedV1(node.v1, context) as v1:
        await v1.ok("PRODUCE", "orders k:v acks=1")


async def ask_native(node: RunningNode, context: ssl.SSLContext) -> None:
    async with writing_and_reading(node.native, context):
        pass


async def ask_http(node: RunningNode, context: ssl.SSLContext) -> None:
    await get(node.addresses["http"], "/metrics", context)


async def ask_websocket(node: RunningNode, context: ssl.SSLContext) -> None:
    async with writing_and_reading(websocket(node), context):
        pass


async def test_rules_make_the_name(tmp_path: Path, site: Site) -> None:
    policy = Noting()
    flags = {**site.asking("required"), "tls.principal_rules": "RULE:^CN=([^,]+),.*$/$1@acme/U"}
    pair = site.authority.issue("x.example", common_name="alice")
    with capture_logs() as logs:
        async with lone_node(tmp_path, flags, tls=("v1",), policy=policy) as node:
            policy.seen.clear()
            await ask_v1(node, site.authority.client(pair))
            assert {who.name for who in policy.seen} == {"ALICE@ACME"}
            # A valid certificate with which no rule can do anything.
            other = site.authority.client(site.authority.issue("x.example"))
            with pytest.raises((trio.BrokenResourceError, AssertionError)):
                await ask_v1(node, other)
            assert "no rule of tls.principal_rules fits" in await refusal(logs, "v1")


@pytest.mark.parametrize("which", ["none", "foreign", "expired", "node"])
async def test_who_has_to_show_a_certificate(tmp_path: Path, site: Site, which: str) -> None:
    """A name that belongs to nodes is nobody's."""
    pairs: Mapping[str, KeyPair | None] = {
        "none": None,
        "foreign": site.stranger.issue("x.example", common_name="alice"),
        "expired": site.authority.issue("x.example", common_name="alice", is_expired=True),
        "node": site.authority.issue("x.example", common_name="node:0"),
    }
    said = {
        "none": "shows no certificate",
        "foreign": "certificate is refused",
        "expired": "has expired",
        "node": "no client may be called 'node:0'",
    }
    good = site.authority.client(site.authority.issue("x.example", common_name="alice"))
    with capture_logs() as logs:
        async with lone_node(tmp_path, site.asking("required"), tls=ALL, more_kinds=MORE) as node:
            for kind in ALL:
                with contextlib.suppress(trio.BrokenResourceError):
                    context = site.authority.client(pairs[which])
                    async with connected(node.addresses[kind], context) as stream:
                        assert await stream.receive_some() == b""
                assert said[which] in await refusal(logs, kind), kind
            await ask_v1(node, good)  # others go on


async def test_one_listener_asks_and_another_does_not(tmp_path: Path, site: Site) -> None:
    flags = site.asking("none")
    kinds = ("v1?client_auth=required", "http")
    async with lone_node(tmp_path, flags, tls=kinds) as node:
        assert (await get(node.addresses["http"], "/live", site.authority.client()))[0] == 200
        with pytest.raises((trio.BrokenResourceError, AssertionError)):
            await ask_v1(node, site.authority.client())
        await ask_v1(node, site.authority.client(site.authority.issue("x", common_name="bob")))


async def test_plaintext_on_encrypted_ports(tmp_path: Path, site: Site) -> None:
    with capture_logs() as logs:
        async with lone_node(tmp_path, site.flags, tls=ALL, more_kinds=MORE) as node:
            for kind in ALL:
                with trio.fail_after(HANG_S):
                    async with await open_stream(node.addresses[kind]) as stream:
                        await stream.send_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                        answer = b"".join([bytes(part) async for part in stream])
                        # An alert, and nothing of the protocol.
                        assert answer.startswith(b"\x15\x03"), kind
                        assert len(answer) < 20, kind
                assert "does not speak TLS" in await refusal(logs, kind), kind
            await ask_v1(node, site.authority.client())


async def test_tls_on_plaintext_ports(tmp_path: Path, site: Site) -> None:
    with capture_logs() as logs:
        async with lone_node(tmp_path, ONE, more_kinds=MORE) as node:
            for kind in ALL:
                with pytest.raises(trio.BrokenResourceError):
                    await encrypted(node.addresses[kind], site.authority.client())
                if kind in ("native", "kafka"):
                    event = f"{kind} connection refused"
                    told = [line["why"] for line in logs if line["event"] == event]
                else:
                    told = [await refusal(logs, kind if kind in CLIENTS else "http")]
                assert "speaks TLS, and this port does not" in told[0], kind
            async with V1Client(node.v1) as v1:
                await v1.ok("PRODUCE", "orders k:v acks=1")


@pytest.mark.slow
async def test_handshakes_that_stall_are_given_up(tmp_path: Path, site: Site) -> None:
    flags = {**site.flags, "tls.handshake_ms": "8000"}
    with capture_logs() as logs:
        async with lone_node(tmp_path, flags, tls=("v1", "http")) as node:

            async def stall(kind: str) -> None:
                async with contextlib.AsyncExitStack() as stack:
                    stalled = [
                        await stack.enter_async_context(await open_stream(node.addresses[kind]))
                        for _ in range(5)
                    ]
                    for stream in stalled[1:]:
                        await stream.send_all(b"\x16\x03\x01\x02\x00\x01")  # and no more of it
                    if kind == "v1":
                        await ask_v1(node, site.authority.client())
                    for stream in stalled:
                        with trio.fail_after(HANG_S):
                            assert await stream.receive_some() == b""
                assert "no TLS handshake in 8 s" in await refusal(logs, kind)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(stall, "v1")
                nursery.start_soon(stall, "http")


async def test_a_cluster_whose_nodes_encrypt(tmp_path: Path, site: Site) -> None:
    """Writes go on through a crash; a node joins; one that has another's certificate does not."""
    async with cluster(tmp_path, peer_tls=Peers(site)) as nodes:
        await create(nodes, "orders", 1)
        async with connect(nodes.bootstrap_native) as client, client.producer() as producer:
            await producer.send("orders", b"one")
            leader = await nodes.leader("orders", 0)
            await nodes.crash(leader)
            await producer.send("orders", b"two")
            await nodes.start(leader)
            await nodes.start(3)
            async with client.consumer("orders", stop=Position.LATEST) as consumer:
                assert [record.value async for record in consumer] == [b"one", b"two"]


class Peers:
    """Settings by which each node encrypts towards the others, as the node it is."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def __call__(self, number: int) -> dict[str, str]:
        pair = self._site.authority.issue(f"node-{number}.paceline")
        return {
            "tls.certificate": pair.certificate,
            "tls.key": pair.key,
            "tls.peer_authority": self._site.authority.path,
        }
