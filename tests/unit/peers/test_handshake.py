"""The handshake when the other side goes away in the middle of it."""

from __future__ import annotations

import pytest
import trio
from trio.testing import memory_stream_pair

from paceline.errors import ConnectionLost
from paceline.types import NodeId
from paceline_node.net.framestream import FrameStream
from paceline_node.peers.auth import Acceptor, Initiator, Lane, Peer
from paceline_node.peers.handshake import accept, initiate
from tests.unit.peers.memory_network import SECRET, identity


@pytest.mark.parametrize("is_initiator", [True, False])
async def test_a_node_that_dies_in_the_handshake_was_sent_nothing(is_initiator: bool) -> None:
    """A lost connection like any other: whoever registers just then tries again."""
    ours, theirs = memory_stream_pair()
    frames = FrameStream(ours, name="a node")

    async def shake_hands() -> Peer:
        if is_initiator:
            initiator = Initiator(
                identity(1), SECRET, target=NodeId(2), lane=Lane.CONTROL, nonces=bytes
            )
            return await initiate(frames, initiator)
        return await accept(frames, Acceptor(identity(1), SECRET, nonces=bytes))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(frames.run_writer)
        await theirs.send_eof()
        with pytest.raises(ConnectionLost, match="closed during the handshake") as caught:
            await shake_hands()
        nursery.cancel_scope.cancel()
    assert not caught.value.was_sent
