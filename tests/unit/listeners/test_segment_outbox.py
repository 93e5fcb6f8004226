"""In which order a segment client hears replies and acknowledgements."""

from __future__ import annotations

from uuid import UUID

import trio
from trio.testing import wait_all_tasks_blocked

from paceline.wire.segment.messages import DataAppended, ReadFlags, SegmentRead, encode
from paceline_node.client_memory import ClientMemory, Holding
from paceline_node.listeners.segment.outbox import SegmentOutbox
from paceline_node.net.transport import StreamTransport

MIB = 1024 * 1024
APPENDER, OTHER = UUID(int=1), UUID(int=2)


async def test_acknowledgements_go_ahead_and_between_replies() -> None:
    """Only the newest of each appender is told, and never within a reply that leaves in pieces."""
    account = ClientMemory(64 * MIB)
    holding = Holding(account, "segment", "10.0.0.1", lambda _: None)
    outbox = SegmentOutbox(holding, limit_bytes=16 * MIB, stall_s=1.0, cut_bytes=0)
    reply = SegmentRead("a/b/0", 0, ReadFlags.NONE, bytes(MIB))
    stream = _GatedStream()
    outbox.send(reply)
    outbox.send(reply)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run, StreamTransport(stream))
        await wait_all_tasks_blocked()  # in the first reply
        assert account.held_bytes == 2 * len(encode(reply))
        for level in (3, 5, 8):
            outbox.acknowledge(APPENDER, level)
        outbox.acknowledge(OTHER, 4)
        outbox.forget(OTHER)
        stream.gate.set()
        await outbox.emptied()
        nursery.cancel_scope.cancel()
    told = encode(DataAppended(APPENDER, 8))
    assert stream.taken == encode(reply) + told + encode(reply)
    assert account.held_bytes == 0


class _GatedStream(trio.abc.Stream):
    """Takes bytes once the gate is open."""

    def __init__(self) -> None:
        self.gate = trio.Event()
        self.taken = bytearray()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self.gate.wait()
        self.taken += data

    async def wait_send_all_might_not_block(self) -> None:
        await self.gate.wait()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        raise AssertionError("nobody reads here")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
