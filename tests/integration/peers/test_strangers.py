"""Strangers at the peer port, from addresses of their own: nodes get in."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import trio

from paceline.types import NodeId
from paceline_node.net.framestream import FrameStream
from paceline_node.peers.auth import Initiator, Lane, Peer
from paceline_node.peers.handshake import initiate
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import ServerLimits
from tests.integration.peers.test_sockets import (
    HANG_S,
    LOOPBACK,
    SECRET,
    env,
    identity,
    running_server,
    until_answered,
)


async def from_address(host: str, port: int) -> trio.SocketStream:
    """A connection from an address of its own."""
    sock = trio.socket.socket()
    await sock.bind((host, 0))
    await sock.connect((LOOPBACK, port))
    return trio.SocketStream(sock)


async def slow_node(host: str, port: int, meanwhile: Callable[[], Awaitable[None]]) -> Peer:
    """A node that connects, and proves who it is after something else; who answers it."""
    frames = FrameStream(await from_address(host, port), name="slow")
    initiator = Initiator(
        identity(1), SECRET, target=NodeId(2), lane=Lane.CONTROL, nonces=os.urandom
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(frames.run_writer)
        await meanwhile()
        with trio.fail_after(HANG_S):
            found = await initiate(frames, initiator)
        nursery.cancel_scope.cancel()
    return found


@contextlib.asynccontextmanager
async def crowd_of_many(port: int) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Once from each of many addresses; returns once the first are ended for the later ones."""
    most = ServerLimits().strangers
    crowd: list[trio.SocketStream] = []

    async def come() -> None:
        hosts = [f"127.0.1.{number}" for number in range(1, 2 * most)]
        crowd.extend([await from_address(host, port) for host in hosts])
        await ends(crowd[-most - 1])

    try:
        yield come
    finally:
        for stranger in crowd:
            await trio.aclose_forcefully(stranger)


async def ends(stranger: trio.SocketStream) -> None:
    with trio.fail_after(HANG_S), contextlib.suppress(trio.BrokenResourceError):
        while await stranger.receive_some():
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="one address of loopback only")
async def test_a_crowd_elsewhere_keeps_no_slow_node_out() -> None:
    """Whoever opened 64 connections while a node said who it is ended the node's: by coming often
    from one address, or once from each of many."""
    most = ServerLimits().strangers
    async with running_server() as port, crowd_of_many(port) as of_many:
        crowd: list[trio.SocketStream] = []

        async def of_one() -> None:
            crowd.extend([await from_address("127.0.0.9", port) for _ in range(2 * most)])
            await ends(crowd[0])

        for meanwhile in (of_one, of_many):
            peer = await slow_node("127.0.0.2", port, meanwhile)
            assert peer.node_id == 2
        for stranger in crowd:
            await trio.aclose_forcefully(stranger)


@pytest.mark.skipif(sys.platform != "linux", reason="one address of loopback only")
async def test_nor_one_that_was_never_there() -> None:
    """After a start of either side: the cluster says where its nodes are."""
    async with running_server(nodes=["127.0.0.2"]) as port, crowd_of_many(port) as of_many:
        peer = await slow_node("127.0.0.2", port, of_many)
        assert peer.node_id == 2


async def test_links_tell_what_a_nodes_name_means() -> None:
    """Whoever is at a node's address may be a node before it has proved it here."""
    found: list[str] = []
    async with running_server() as port, trio.open_nursery() as nursery:
        links = PeerLinks(env(), identity(1), SECRET, on_connected=found.append)
        links.set_addresses({NodeId(2): ("localhost", port)})
        await nursery.start(links.run)
        with trio.fail_after(HANG_S):
            await until_answered(links)
        nursery.cancel_scope.cancel()
    assert set(found) == {LOOPBACK}
