"""Frames, links and accepting over real loopback sockets."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest
import trio
import trio.testing

from paceline.errors import AuthenticationFailed, ConnectionLost, RemoteProtocolError
from paceline.types import NodeId
from paceline.wire.frame import Frame, Kind, encode_head
from paceline.wire.message import Message
from paceline_node.env import Disk, Env, RealHost
from paceline_node.net.accepting import AcceptGate, serve
from paceline_node.net.frame_bursts import Burst
from paceline_node.net.framestream import FrameStream, OutboxLimits, Payload
from paceline_node.net.network import RealDescriptors, RealNetwork
from paceline_node.net.transport import FilePart
from paceline_node.peers.auth import Identity, Secret
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import PeerServer, ServerLimits, Session

LOOPBACK = "127.0.0.1"
SECRET = Secret(bytes(range(32)))
ECHO = 200
HANG_S = 60.0
"""Nothing here takes this long; it bounds a hang."""


@pytest.fixture(autouse=True)
def _no_descriptor_leaks() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) <= before


@contextlib.asynccontextmanager
async def stream_pair() -> AsyncIterator[tuple[trio.abc.Stream, trio.abc.Stream]]:
    network = RealNetwork()
    (listener,) = await network.listen(LOOPBACK, 0)
    async with listener:
        near = await network.connect(LOOPBACK, network.bound_port(listener))
        far = await listener.accept()
    async with near, far:
        yield near, far


class RealFile:
    """A file as sending sees it; counts the reads that bypass sendfile."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._fd = os.open(path, os.O_RDONLY)
        self.reads = 0

    def fileno(self) -> int | None:
        return self._fd

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    async def read(self, size: int, position: int) -> bytes:
        self.reads += 1
        return await trio.to_thread.run_sync(os.pread, self._fd, size, position)

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    data = random.Random(5).randbytes(5_000_000)
    (tmp_path / "segment").write_bytes(data)
    return data


@pytest.fixture
def file(tmp_path: Path, content: bytes) -> Iterator[RealFile]:
    made = RealFile(tmp_path / "segment")
    yield made
    made.close()


# --- the network ---


async def test_streams_do_not_wait_to_fill_packets() -> None:
    async with stream_pair() as (near, far):
        for stream in (near, far):
            assert isinstance(stream, trio.SocketStream)
            assert stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


async def test_a_port_where_nobody_listens_refuses() -> None:
    network = RealNetwork()
    (listener,) = await network.listen(LOOPBACK, 0)
    port = network.bound_port(listener)
    await listener.aclose()
    for host in (LOOPBACK, "localhost"):
        with pytest.raises(ConnectionRefusedError, match=f"cannot connect to {host}:{port}"):
            await network.connect(host, port)


async def test_an_unknown_host_is_not_a_refusal() -> None:
    with pytest.raises(OSError, match=r"cannot connect to no-such-host.invalid:1") as caught:
        await RealNetwork().connect("no-such-host.invalid", 1)
    assert not isinstance(caught.value, ConnectionRefusedError)


async def test_a_port_in_use_is_named() -> None:
    network = RealNetwork()
    (listener,) = await network.listen(LOOPBACK, 0)
    port = network.bound_port(listener)
    with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}") as caught:
        await network.listen(LOOPBACK, port)
    assert caught.value.errno == errno.EADDRINUSE
    await listener.aclose()
    (again,) = await network.listen(LOOPBACK, port)  # at once: SO_REUSEADDR
    await again.aclose()


async def test_one_port_for_all_addresses_of_a_name() -> None:
    network = RealNetwork()
    listeners = await network.listen("localhost", 0)
    ports = {network.bound_port(listener) for listener in listeners}
    assert len(ports) == 1
    stream = await network.connect("localhost", ports.pop())
    await stream.aclose()
    for listener in listeners:
        await listener.aclose()


# --- frames ---


async def test_large_frames_cross_both_ways_at_once() -> None:
    sizes = [0, 1, 70_000, 3_000_000, 20_000_000, 5, 1_000_000]
    async with stream_pair() as (near, far):
        streams = FrameStream(near, name="a"), FrameStream(far, name="b")

        async def receive(stream: FrameStream) -> None:
            for number, size in enumerate(sizes):
                frame = await stream.receive()
                assert frame is not None
                assert frame.correlation == number
                assert bytes(frame.payload) == bytes([number]) * size

        async with trio.open_nursery() as nursery:
            for stream in streams:
                nursery.start_soon(stream.run_writer)
            async with trio.open_nursery() as work:
                for stream in streams:
                    work.start_soon(receive, stream)
                    for number, size in enumerate(sizes):
                        head = encode_head(Kind.ONE_WAY, 1, number, [], size)
                        stream.send(head, bytes([number]) * size)
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("size", [10, 40_000, 4_999_000])
async def test_file_ranges_arrive_between_other_bytes(
    file: RealFile, content: bytes, size: int
) -> None:
    async with stream_pair() as (near, far):
        sender, receiver = FrameStream(near, name="a"), FrameStream(far, name="b")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.run_writer)
            sender.send_frame(Kind.ONE_WAY, 1, 1, None, (b"<", FilePart(file, 7, size), b">"))
            sender.send_frame(Kind.ONE_WAY, 1, 2, None, FilePart(file, 0, size))
            first, second = await receiver.receive(), await receiver.receive()
            assert first is not None
            assert bytes(first.payload) == b"<" + content[7 : 7 + size] + b">"
            assert second is not None
            assert bytes(second.payload) == content[:size]
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("size", [10, 10_000])
async def test_frames_of_a_burst_leave_together_at_its_end(size: int) -> None:
    # 2000 frames are more than one system call takes, and of 10 KB more than a socket holds.
    burst = Burst()
    async with stream_pair() as (near, far):
        sender = FrameStream(near, name="a", burst=burst)
        receiver = FrameStream(far, name="b")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.run_writer)
            await trio.testing.wait_all_tasks_blocked()
            with burst:
                with burst:
                    sender.send_frame(Kind.ONE_WAY, 1, 0, None, bytes(size))
                for number in range(1, 2000):
                    sender.send_frame(Kind.ONE_WAY, 1, number, None, bytes(size))
                assert not sender.may_have_sent(0)
            assert sender.may_have_sent(0)
            sender.send_frame(Kind.ONE_WAY, 1, 2000, None, b"behind")
            for number in range(2001):
                frame = await receiver.receive()
                assert frame is not None
                assert frame.correlation == number
            assert sender.queued_bytes == 0
            nursery.cancel_scope.cancel()


async def test_a_burst_outlives_a_connection_that_ends_meanwhile() -> None:
    burst = Burst()
    async with stream_pair() as (near, far):
        gone = FrameStream(near, name="gone", burst=burst)
        with burst:
            gone.send_frame(Kind.ONE_WAY, 1, 0, None, b"x")
            await trio.aclose_forcefully(near)
        assert not gone.is_open
        await trio.aclose_forcefully(far)


@pytest.mark.parametrize("size", [1000, 1_000_000])
async def test_a_file_that_ends_early_ends_the_connection(
    file: RealFile, content: bytes, size: int
) -> None:
    async with stream_pair() as (near, far):
        sender, receiver = FrameStream(near, name="a"), FrameStream(far, name="b")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.run_writer)
            part = FilePart(file, len(content) - size // 2, size)
            sender.send_frame(Kind.ONE_WAY, 1, 1, None, part)
            with contextlib.suppress(ConnectionLost, RemoteProtocolError):
                assert await receiver.receive() is None
            with pytest.raises(ConnectionLost, match=f"file ends at {len(content)}"):
                sender.send(b"more")
            nursery.cancel_scope.cancel()


async def test_a_peer_that_stops_reading_blocks_drain_and_then_loses_the_connection() -> None:
    async with stream_pair() as (near, far):
        limits = OutboxLimits(drain_bytes=100_000, max_bytes=40_000_000)
        sender = FrameStream(near, name="stuck", outbox=limits)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.run_writer)
            chunk = encode_head(Kind.ONE_WAY, 1, 1, [], 9_000_000) + bytes(9_000_000)
            for _ in range(4):
                sender.send(chunk)
            with trio.move_on_after(0.05) as scope:
                await sender.drain()
            assert scope.cancelled_caught
            while sender.queued_bytes + len(chunk) <= limits.max_bytes:
                sender.send(chunk)
            with pytest.raises(ConnectionLost, match="stuck: does not read"):
                sender.send(chunk)
            with trio.fail_after(HANG_S):
                await sender.drain()
                while await far.receive_some(1 << 20):
                    pass


async def test_cancelling_everywhere_in_a_transfer_leaks_nothing(file: RealFile) -> None:
    """Cancel after ever more scheduler steps: both ends must close whatever was under way."""

    async def transfer() -> None:
        near, far = (trio.SocketStream(made) for made in trio.socket.socketpair())
        async with near, far:
            sender, receiver = FrameStream(near, name="a"), FrameStream(far, name="b")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sender.run_writer)
                nursery.start_soon(receiver.run_writer)
                sender.send_frame(Kind.ONE_WAY, 1, 1, None, bytes(3_000_000))
                sender.send_frame(Kind.ONE_WAY, 1, 2, None, FilePart(file, 0, 4_000_000))
                for _ in range(2):
                    await receiver.receive()
                nursery.cancel_scope.cancel()

    with trio.fail_after(HANG_S):
        for steps in range(80):
            async with trio.open_nursery() as nursery:

                async def cancel(scope: trio.CancelScope, after: int) -> None:
                    for _ in range(after):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()

                nursery.start_soon(cancel, nursery.cancel_scope, steps)
                await transfer()
                nursery.cancel_scope.cancel()


# --- links and server ---


@dataclass(frozen=True, slots=True)
class Text(Message):
    text: str


def env() -> Env:
    return Env(RealHost(), cast(Disk, None), RealNetwork(), random.Random(3))


def identity(node: int) -> Identity:
    return Identity(NodeId(node), UUID(int=node + 1), UUID(int=77))


@contextlib.asynccontextmanager
async def running_server(
    port: int = 0,
    *,
    on_close: Callable[[Session], None] | None = None,
    nodes: Sequence[str] = (),
) -> AsyncIterator[int]:
    network = RealNetwork()
    listeners = await network.listen(LOOPBACK, port)
    server = PeerServer(env(), identity(2), SECRET, on_close=on_close)
    server.expect_nodes(nodes)

    async def echo(session: Session, frame: Frame) -> tuple[Message, Payload]:
        await trio.lowlevel.checkpoint()
        return Text(f"{session.peer}:{Text.unpack(frame.body).text}"), frame.payload

    server.register(ECHO, echo)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run, listeners)
        yield network.bound_port(listeners[0])
        nursery.cancel_scope.cancel()


async def until_answered(links: PeerLinks) -> None:
    """Ask until it is answered: an attempt that was under way may still have been refused."""
    while True:
        with contextlib.suppress(ConnectionLost):
            await links.call(NodeId(2), ECHO, Text("x"), lane="control", timeout_s=HANG_S)
            return
        await trio.sleep(0.01)


async def test_nodes_talk_and_a_death_is_proved() -> None:
    refused: list[int] = []
    proved = trio.Event()

    def on_refused(node: NodeId) -> None:
        refused.append(node)
        proved.set()

    links = PeerLinks(env(), identity(1), SECRET, on_refused=on_refused)
    async with trio.open_nursery() as nursery:
        await nursery.start(links.run)
        async with running_server() as port:
            links.set_addresses({NodeId(2): (LOOPBACK, port)})

            async def ask(number: int) -> None:
                lane = ("control", "forward")[number % 2]
                payload = bytes([number]) * number * 10_000
                frame = await links.call(
                    NodeId(2), ECHO, Text(str(number)), payload, lane=lane, timeout_s=HANG_S
                )
                assert Text.unpack(frame.body).text == f"1:{number}"
                assert bytes(frame.payload) == payload

            async with trio.open_nursery() as asking:
                for number in range(50):
                    asking.start_soon(ask, number)
        with trio.fail_after(HANG_S):
            await proved.wait()
        assert refused == [2]
        async with running_server(port):
            links.heard(NodeId(2))  # as when the restarted node connects to us
            with trio.fail_after(HANG_S):
                await until_answered(links)
        nursery.cancel_scope.cancel()


async def test_a_stranger_is_turned_away_with_the_reason() -> None:
    links = PeerLinks(env(), identity(1), Secret(b"some other secret"))
    async with trio.open_nursery() as nursery, running_server() as port:
        await nursery.start(links.run)
        links.set_addresses({NodeId(2): (LOOPBACK, port)})
        with pytest.raises(AuthenticationFailed, match="node 1 and node 2 hold different"):
            await links.call(NodeId(2), ECHO, Text("x"), lane="control", timeout_s=HANG_S)
        nursery.cancel_scope.cancel()


async def test_strangers_that_say_nothing_keep_no_node_out() -> None:
    """Each connection more than so many ends the oldest that has not said who it is."""
    crowd = 3 * ServerLimits().strangers
    links = PeerLinks(env(), identity(1), SECRET)
    async with trio.open_nursery() as nursery, running_server() as port:
        strangers = [await RealNetwork().connect(LOOPBACK, port) for _ in range(crowd)]
        await nursery.start(links.run)
        links.set_addresses({NodeId(2): (LOOPBACK, port)})
        await until_answered(links)
        with trio.fail_after(HANG_S):
            for stranger in strangers[: crowd - ServerLimits().strangers]:
                with contextlib.suppress(trio.BrokenResourceError):
                    while await stranger.receive_some():
                        pass
        await until_answered(links)
        for stranger in strangers:
            await trio.aclose_forcefully(stranger)
        nursery.cancel_scope.cancel()


# --- running out of descriptors ---


@pytest.fixture
def no_holes() -> Iterator[None]:
    """The free numbers below the highest open descriptor are filled: the kernel gives the lowest
    first, and a number that jumps over what earlier tests left open would say that none is left."""
    highest = max(int(number) for number in os.listdir("/dev/fd"))
    with contextlib.ExitStack() as fillers:
        while RealDescriptors().next_number() < highest:
            fillers.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield


class LimitedDescriptors(RealDescriptors):
    """The real numbers under a limit of our own; wants ``no_holes``."""

    def __init__(self, spare: int) -> None:
        self._limit = self.next_number() + spare

    def limit(self) -> int:
        return self._limit


async def hold(stream: trio.abc.Stream) -> None:
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        while await stream.receive_some():
            await stream.send_all(b"served")


async def is_served(stream: trio.abc.Stream, *, within_s: float) -> bool:
    with trio.move_on_after(within_s), contextlib.suppress(trio.BrokenResourceError):
        await stream.send_all(b"?")
        return (await stream.receive_some()).startswith(b"served")
    return False


@pytest.mark.usefixtures("no_holes")
async def test_clients_wait_in_the_backlog_rather_than_take_reserved_descriptors() -> None:
    network = RealNetwork()
    (listener,) = await network.listen(LOOPBACK, 0)
    port = network.bound_port(listener)
    descriptors = LimitedDescriptors(spare=40)
    gate = AcceptGate(descriptors, reserve=30)
    served = []
    async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as last:
        await nursery.start(partial(serve, [listener], hold, max_connections=100, gate=gate))
        async with contextlib.AsyncExitStack() as clients:
            while gate.is_open:
                client = await clients.enter_async_context(await network.connect(LOOPBACK, port))
                served.append(await is_served(client, within_s=10))
            waiting = await last.enter_async_context(await network.connect(LOOPBACK, port))
            assert not await is_served(waiting, within_s=0.3)
            assert descriptors.next_number() < descriptors.limit() - 20, "the reserve is kept"
        assert await is_served(waiting, within_s=HANG_S)
        assert served.count(True) >= 2
        nursery.cancel_scope.cancel()


async def test_running_out_of_descriptors_pauses_accepting_and_ends_nothing() -> None:
    network = RealNetwork()
    (listener,) = await network.listen(LOOPBACK, 0)
    port = network.bound_port(listener)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(serve, [listener], hold, max_connections=100))
        first = await network.connect(LOOPBACK, port)
        assert await is_served(first, within_s=HANG_S)
        second = await network.connect(LOOPBACK, port)
        fillers = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (RealDescriptors().next_number() + 1, hard))
            with contextlib.suppress(OSError):
                while True:
                    fillers.append(os.open(os.devnull, os.O_RDONLY))
            third = socket.socket.__new__(socket.socket)  # no descriptor can be had for a third
            with pytest.raises(OSError, match="Too many open files"):
                third.__init__()
            assert RealDescriptors().next_number() == RealDescriptors().limit()
            assert await is_served(first, within_s=HANG_S), "who is connected is served"
            for filler in fillers:
                os.close(filler)
            fillers.clear()
            assert await is_served(second, within_s=HANG_S), "and accepting goes on"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            for filler in fillers:
                os.close(filler)
        await first.aclose()
        await second.aclose()
        nursery.cancel_scope.cancel()
