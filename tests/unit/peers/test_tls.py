"""Links between nodes over TLS: who is let in, and who is not though he knows the secret."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
import trio
from structlog.typing import EventDict

from paceline.errors import (
    AuthenticationFailed,
    ConnectionLost,
    PacelineError,
    RemoteProtocolError,
)
from paceline.types import NO_NODE, NodeId
from paceline_node.net.framestream import FrameStream
from paceline_node.peers.auth import Initiator, Lane
from paceline_node.peers.channel import Channel, PeerTls
from paceline_node.peers.handshake import initiate
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import ServerLimits
from paceline_node.security.tls import KeyFiles, PeerContexts, peer_contexts
from tests.authority import Authority, KeyPair
from tests.unit.peers.memory_network import SECRET, MemoryNetwork, identity
from tests.unit.peers.two_nodes import PORT, Node2, say, start_links

MANY_BYTES = 3_000_000


class Cluster:
    """Node 2 serves; others may try."""

    def __init__(self, network: MemoryNetwork, nursery: trio.Nursery, directory: Path) -> None:
        self.network = network
        self.nursery = nursery
        self.authority = Authority(directory)
        self.stranger = Authority(directory, "stranger")

    def tls(self, pair: KeyPair, trusted: str | None = None) -> PeerTls:
        made = self.contexts(pair, trusted)
        return PeerTls(lambda: made)

    def contexts(self, pair: KeyPair, trusted: str | None = None) -> PeerContexts:
        return peer_contexts(KeyFiles(pair.certificate, pair.key), trusted or self.authority.path)

    def node(self, number: int) -> PeerTls:
        return self.tls(self.authority.issue(f"node-{number}.paceline"))

    async def links(self, tls: PeerTls | None, who: int = 1) -> PeerLinks:
        links, _ = await start_links(self.network, self.nursery, who=who, tls=tls)
        return links


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork()


@pytest.fixture
async def cluster(network: MemoryNetwork, nursery: trio.Nursery, tmp_path: Path) -> Cluster:
    return Cluster(network, nursery, tmp_path)


async def serve(cluster: Cluster, **options: object) -> Node2:
    node = Node2(cluster.network, cluster.nursery, tls=cluster.node(2), **options)
    await node.start()
    return node


async def test_nodes_talk(cluster: Cluster) -> None:
    node = await serve(cluster)
    links = await cluster.links(cluster.node(1))
    assert await say(links, "hello") == "1 said hello"
    text = "x" * MANY_BYTES
    assert await say(links, text, timeout_s=30) == f"1 said {text}"
    assert node.opened == [(1, Lane.CONTROL)]


async def test_the_bytes_are_not_to_be_read(cluster: Cluster) -> None:
    await serve(cluster)
    seen = bytearray()
    plain_connect = cluster.network.connect

    async def connect(host: str, port: int) -> trio.abc.Stream:
        return Overheard(await plain_connect(host, port), seen)

    cluster.network.connect = connect  # type: ignore[method-assign]
    links = await cluster.links(cluster.node(1))
    assert await say(links, "a word in private") == "1 said a word in private"
    assert len(seen) > 1000
    assert b"private" not in seen


class Overheard(trio.abc.Stream):
    """Notes what goes either way."""

    def __init__(self, inner: trio.abc.Stream, seen: bytearray) -> None:
        self.inner, self.seen = inner, seen

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        self.seen += data
        await self.inner.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self.inner.receive_some(max_bytes)
        self.seen += data
        return data

    async def wait_send_all_might_not_block(self) -> None:
        await self.inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self.inner.aclose()


async def refused(links: PeerLinks) -> PacelineError:
    """What a call fails with once the link has been tried."""
    with pytest.raises((ConnectionLost, AuthenticationFailed, RemoteProtocolError)) as failed:
        await say(links, "hello")
    return failed.value


async def refusal(logs: list[EventDict]) -> str:
    """What node 2 says of a connection that it refused."""
    with trio.fail_after(30):
        while True:
            for line in logs:
                if line["event"] == "peer refused":
                    return str(line["reason"])
            await trio.sleep(0.01)


async def test_a_node_says_only_the_number_that_its_certificate_names(cluster: Cluster) -> None:
    """It knows the secret and has a certificate of the authority: of another node."""
    node = await serve(cluster)
    links = await cluster.links(cluster.node(3), who=1)
    error = await refused(links)
    assert isinstance(error, AuthenticationFailed)
    assert "node 1 shows a certificate of node-3.paceline" in str(error)
    assert node.opened == []


async def test_nor_does_who_answers(cluster: Cluster) -> None:
    node = Node2(cluster.network, cluster.nursery, tls=cluster.node(3))
    await node.start()
    error = await refused(await cluster.links(cluster.node(1)))
    assert isinstance(error, AuthenticationFailed)
    assert "node 2 shows a certificate of node-3.paceline" in str(error)
    assert node.opened == []


async def test_a_certificate_that_names_no_node(cluster: Cluster) -> None:
    await serve(cluster)
    links = await cluster.links(cluster.tls(cluster.authority.issue("broker-1.example")))
    assert "a certificate of no node" in str(await refused(links))


@pytest.mark.parametrize("which", ["foreign", "expired"])
async def test_certificates_that_are_not_trusted(cluster: Cluster, which: str) -> None:
    issuer = cluster.stranger if which == "foreign" else cluster.authority
    pair = issuer.issue("node-1.paceline", is_expired=which == "expired")
    with structlog.testing.capture_logs() as logs:
        node = await serve(cluster)
        await refused(await cluster.links(cluster.tls(pair)))
        reason = await refusal(logs)
    assert "certificate is refused" in reason
    assert ("expired" in reason) == (which == "expired")
    assert node.opened == []


async def test_a_server_that_is_not_trusted_hears_no_proof(cluster: Cluster) -> None:
    pair = cluster.stranger.issue("node-2.paceline")
    node = Node2(cluster.network, cluster.nursery, tls=cluster.tls(pair))
    await node.start()
    error = await refused(await cluster.links(cluster.node(1)))
    assert "certificate is refused" in str(error)
    assert node.opened == []


async def test_plaintext_on_an_encrypted_port(cluster: Cluster) -> None:
    with structlog.testing.capture_logs() as logs:
        node = await serve(cluster)
        error = await refused(await cluster.links(None))
        assert "the port that was connected to speaks TLS" in str(error)
        assert "does not speak TLS" in await refusal(logs)
    assert await say(await cluster.links(cluster.node(1)), "me") == "1 said me"
    assert node.opened == [(1, Lane.CONTROL)]


async def test_tls_on_a_plaintext_port(cluster: Cluster) -> None:
    with structlog.testing.capture_logs() as logs:
        await Node2(cluster.network, cluster.nursery).start()
        await refused(await cluster.links(cluster.node(1)))
        assert "who connected speaks TLS, and this port does not" in await refusal(logs)
    assert await say(await cluster.links(None), "me") == "1 said me"


async def test_a_new_certificate_is_shown_from_then_on(cluster: Cluster) -> None:
    node = await serve(cluster)
    shown = [cluster.contexts(cluster.authority.issue("node-3.paceline"))]
    links = await cluster.links(PeerTls(lambda: shown[0]))
    await refused(links)
    shown[0] = cluster.contexts(cluster.authority.issue("node-1.paceline"))
    with trio.fail_after(30):
        while not node.opened:
            await trio.sleep(0.01)
            links.heard(NodeId(2))
    assert await say(links, "again") == "1 said again"


async def test_strangers_that_do_not_shake_hands_make_room(cluster: Cluster) -> None:
    await serve(cluster, limits=ServerLimits(strangers=2))
    silent = [await cluster.network.connect("h", PORT) for _ in range(2)]
    assert await say(await cluster.links(cluster.node(1)), "me") == "1 said me"
    with trio.fail_after(30), contextlib.suppress(trio.BrokenResourceError):
        assert await silent[0].receive_some() == b""  # the oldest was ended


# --- the proof of the secret belongs to its channel -----------------------------------------------


@asynccontextmanager
async def frames_to_node_2(
    cluster: Cluster, tls: PeerTls
) -> AsyncIterator[tuple[FrameStream, Channel]]:
    stream, channel = await tls.dial(await cluster.network.connect("h", PORT))
    frames = FrameStream(stream, name="node 2")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(frames.run_writer)
        yield frames, channel
        nursery.cancel_scope.cancel()


def initiator(channel: Channel) -> Initiator:
    return Initiator(
        identity(1), SECRET, target=NO_NODE, lane=Lane.CONTROL, nonces=bytes, channel=channel
    )


async def test_a_proof_made_for_another_channel_is_refused(cluster: Cluster) -> None:
    """Somebody with a node's certificate stands between: what one side proves to him is of no use
    at the other, for it names the certificates that its own channel was made with."""
    await serve(cluster)
    ours, theirs = cluster.node(1), cluster.node(1)
    async with frames_to_node_2(cluster, ours) as (frames, channel):
        assert (await initiate(frames, initiator(channel))).node_id == 2
    async with frames_to_node_2(cluster, ours) as (_, elsewhere):
        pass
    async with frames_to_node_2(cluster, theirs) as (frames, channel):
        assert channel.nodes == elsewhere.nodes
        with pytest.raises(AuthenticationFailed, match="different cluster secrets"):
            await initiate(frames, initiator(elsewhere))
