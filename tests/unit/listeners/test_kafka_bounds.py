"""What one Kafka connection may take of a node: memory for frames and answers, and time."""

from __future__ import annotations

import tracemalloc

import pytest
import trio
from trio.testing import MemoryReceiveStream, memory_stream_pair, wait_all_tasks_blocked

from paceline.errors import RemoteProtocolError
from paceline_node.client_memory import ClientMemory, Holding, Portion
from paceline_node.listeners.kafka.frames import FrameReader
from paceline_node.net.outbox import Outbox
from paceline_node.net.transport import FilePart, StreamTransport
from paceline_node.storage.memory_disk import MemoryDisk

MIB = 1024 * 1024
STALL_S = 10.0


def holding_of(account: ClientMemory, address: str = "10.0.0.1") -> Holding:
    return Holding(account, "kafka", address, lambda _: None)


class Peer:
    """A frame reader, and the stream of whoever sends to it."""

    def __init__(self, account: ClientMemory, address: str = "10.0.0.1") -> None:
        ours, self.theirs = memory_stream_pair()
        self.share = Portion(holding_of(account, address))
        self.reader = FrameReader(
            StreamTransport(ours), self.share, max_bytes=8 * MIB, stall_s=STALL_S
        )

    async def send(self, data: bytes) -> None:
        await self.theirs.send_all(data)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


async def test_idle_connections_hold_little() -> None:
    """10,000 of them took 667 MiB."""
    account = ClientMemory(MIB)
    peers = []
    tracemalloc.start()
    try:
        for _ in range(50):
            peer = Peer(account)
            peers.append(peer)
            await peer.send(framed(b"heartbeat"))
            await peer.reader.begin()
            assert await peer.reader.receive() is not None
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 50 * 16 * 1024


async def test_a_frame_that_stops_arriving_is_given_up(autojump_clock) -> None:
    for begin in (b"\0", b"\0\0\0\x64", b"\0\0\0\x64abc", (MIB).to_bytes(4, "big") + b"x"):
        peer = Peer(ClientMemory(MIB))
        await peer.send(begin)
        await peer.reader.begin()
        with pytest.raises(trio.TooSlowError):
            await peer.reader.receive()


async def test_a_slow_client_may_finish_a_large_frame(autojump_clock) -> None:
    peer = Peer(ClientMemory(MIB))
    body = bytes(MIB)

    async def trickle() -> None:
        data = framed(body)
        for at in range(0, len(data), 128 * 1024):
            await peer.send(data[at : at + 128 * 1024])
            await trio.sleep(STALL_S * 0.3)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(trickle)
        assert await peer.reader.receive() == body


async def test_a_frame_is_charged_as_it_arrives_and_until_it_is_done_with(autojump_clock) -> None:
    account = ClientMemory(16 * MIB)
    peer = Peer(account)
    await peer.send((4 * MIB).to_bytes(4, "big") + bytes(MIB // 2))
    got: list[memoryview | None] = []

    async def receive() -> None:
        got.append(await peer.reader.receive())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(receive)
        await wait_all_tasks_blocked()
        assert MIB // 2 <= account.held_bytes <= MIB
        await peer.send(bytes(4 * MIB - MIB // 2))
    assert got == [bytes(4 * MIB)]
    assert account.held_bytes == 4 * MIB
    peer.share.give(4 * MIB)
    assert account.held_bytes == 0


async def test_a_connection_that_ends_within_a_frame_gives_its_share_back(autojump_clock) -> None:
    budget = ClientMemory(MIB)
    peer = Peer(budget)
    await peer.send(MIB.to_bytes(4, "big") + b"begin")
    peer.theirs.send_stream.close()
    with pytest.raises(RemoteProtocolError, match="before a frame's end"):
        await peer.reader.receive()
    peer.share.holding.close()
    assert budget.held_bytes == 0
    peer.share.give(MIB)  # a batch that waited for a transaction's coordinator
    assert budget.held_bytes == 0


async def test_answers_in_memory_hold_requests_back_by_their_bytes() -> None:
    outbox = outbox_of(ClientMemory(64 * MIB))
    ours, theirs = memory_stream_pair()
    outbox.place().put([bytes(2 * MIB)])
    passed = trio.Event()

    async def next_request() -> None:
        await outbox.room()
        passed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(next_request)
        await wait_all_tasks_blocked()
        assert not passed.is_set()
        nursery.start_soon(outbox.run, StreamTransport(ours))
        await take(theirs.receive_stream, 2 * MIB)
        await passed.wait()
        assert outbox.unsent_bytes == 0
        nursery.cancel_scope.cancel()


async def test_a_slow_reader_is_kept_and_one_that_takes_nothing_is_not(autojump_clock) -> None:
    file = MemoryDisk().create("log")
    stored = bytes(range(256)) * (4 * MIB // 256)
    file.append([stored])
    outbox = outbox_of(ClientMemory(64 * MIB))
    stream = _SlowStream(seconds_per_mib=0.6 * STALL_S)
    outbox.place().put([bytes(2 * MIB), FilePart(file, 0, 4 * MIB)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run, StreamTransport(stream))
        await outbox.emptied()
        nursery.cancel_scope.cancel()
    assert stream.taken == bytes(2 * MIB) + stored
    outbox.place().put([b"answer"])
    with pytest.raises(trio.TooSlowError):
        await outbox.run(StreamTransport(_SlowStream(seconds_per_mib=1e12)))


async def test_who_reads_least_waits_first_where_answers_fill_the_memory() -> None:
    account = ClientMemory(2 * MIB)  # short above one
    greedy, other = outbox_of(account), outbox_of(account)
    greedy.place().put([bytes(MIB * 4 // 5)])
    await greedy.room()  # neither it nor the node has too much
    other.place().put([bytes(MIB // 3)])
    await other.room()  # less than its share
    fresh = outbox_of(account)
    await fresh.room()  # its one answer may always be made
    passed = trio.Event()

    async def next_request() -> None:
        await greedy.room()
        passed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(next_request)
        await wait_all_tasks_blocked()
        assert not passed.is_set()
        ours, theirs = memory_stream_pair()
        nursery.start_soon(greedy.run, StreamTransport(ours))
        await take(theirs.receive_stream, MIB * 4 // 5)
        await passed.wait()
        nursery.cancel_scope.cancel()
    other.close()
    assert account.held_bytes == 0
    other.place().put([b"a produce that was committed when the client had gone"])
    assert account.held_bytes == 0


async def test_an_answer_is_not_sent_before_its_last_byte_is(autojump_clock) -> None:
    outbox = outbox_of(ClientMemory(64 * MIB))
    stream = _SlowStream(seconds_per_mib=0.5 * STALL_S)
    outbox.place().put([b"answer"])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run, StreamTransport(stream))
        await wait_all_tasks_blocked()
        assert not outbox.is_empty
        assert outbox.unsent_bytes == len(b"answer")
        await outbox.emptied()
        assert stream.taken == b"answer"
        nursery.cancel_scope.cancel()


def outbox_of(account: ClientMemory) -> Outbox:
    return Outbox(Portion(holding_of(account)), max_unsent=64, max_bytes=MIB, stall_s=STALL_S)


async def take(stream: MemoryReceiveStream, count: int) -> None:
    while count:
        count -= len(await stream.receive_some(count))


class _SlowStream(trio.abc.Stream):
    """Takes bytes at a steady pace."""

    def __init__(self, seconds_per_mib: float) -> None:
        self._pace = seconds_per_mib / MIB
        self.taken = bytearray()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.sleep(len(data) * self._pace)
        self.taken += data

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        raise AssertionError("nobody reads here")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()
