"""The fault proxy between plain sockets: what passes, what is silence, what is a refusal."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from paceline_cluster.faulty.proxy import Mesh
from paceline_cluster.ports import free_numbers

HOST = "127.0.0.1"
HANG_S = 30.0
SILENCE_S = 0.15
"""Long enough for bytes on loopback to arrive if they were let through."""


class _Node:
    """Something that listens at a port and echoes what it is sent."""

    def __init__(self, port: int) -> None:
        self.address = (HOST, port)
        self._scope = trio.CancelScope()

    async def listen(self, *, task_status: trio.TaskStatus[None]) -> None:
        with self._scope:
            await trio.serve_tcp(
                self._echo, self.address[1], host=HOST, task_status=_Started(task_status)
            )

    async def _echo(self, stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)

    def die(self) -> None:
        """As a killed process: its sockets close, nobody listens any more."""
        self._scope.cancel()


class _Started:
    """Hides what serve_tcp tells, its listeners."""

    def __init__(self, inner: trio.TaskStatus[None]) -> None:
        self._inner = inner

    def started(self, _value: object = None) -> None:
        self._inner.started()


@asynccontextmanager
async def _mesh() -> AsyncIterator[tuple[Mesh, dict[int, _Node], trio.Nursery]]:
    ports = free_numbers(6)
    nodes = {number: _Node(ports[number]) for number in range(2)}
    mesh = Mesh({number: node.address for number, node in nodes.items()}, ports[2:])
    async with trio.open_nursery() as nursery:
        await nursery.start(mesh.run)
        for node in nodes.values():
            await nursery.start(node.listen)
        yield mesh, nodes, nursery
        nursery.cancel_scope.cancel()


async def _connect(mesh: Mesh, source: int, target: tuple[str, int]) -> trio.SocketStream:
    """Dial as ``source`` does; waits until the link has noticed that the target listens."""
    with trio.fail_after(HANG_S):
        while True:
            try:
                return await trio.open_tcp_stream(*mesh.routes(source)[target])
            except OSError:
                await trio.sleep(0.01)


async def _say(stream: trio.SocketStream, data: bytes) -> bytes:
    with trio.fail_after(HANG_S):
        await stream.send_all(data)
        answer = b""
        while len(answer) < len(data):
            part = await stream.receive_some()
            assert part, "the connection ended"
            answer += part
        return answer


async def _hears_nothing(stream: trio.SocketStream) -> bool:
    with trio.move_on_after(SILENCE_S) as scope:
        await stream.receive_some()
    return scope.cancelled_caught


async def test_bytes_pass_both_ways() -> None:
    async with _mesh() as (mesh, nodes, _):
        stream = await _connect(mesh, 0, nodes[1].address)
        data = bytes(range(256)) * 4000
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stream.send_all, data)
            answer = b""
            with trio.fail_after(HANG_S):
                while len(answer) < len(data):
                    answer += await stream.receive_some()
        assert answer == data
        await stream.aclose()


@pytest.mark.parametrize("cut", [(0, 1), (1, 0)])
async def test_a_cut_in_either_direction_is_silence_and_what_was_sent_arrives_later(
    cut: tuple[int, int],
) -> None:
    async with _mesh() as (mesh, nodes, _):
        stream = await _connect(mesh, 0, nodes[1].address)
        assert await _say(stream, b"before") == b"before"
        mesh.cut(*cut)
        await stream.send_all(b"during")
        assert await _hears_nothing(stream)
        mesh.mend(*cut)
        with trio.fail_after(HANG_S):
            assert await stream.receive_some() == b"during"
        await stream.aclose()


async def test_a_new_connection_over_a_cut_hears_nothing_until_it_is_mended() -> None:
    async with _mesh() as (mesh, nodes, _):
        (await _connect(mesh, 0, nodes[1].address)).socket.close()
        mesh.isolate(1)
        stream = await _connect(mesh, 0, nodes[1].address)
        await stream.send_all(b"hello")
        assert await _hears_nothing(stream)
        mesh.heal()
        with trio.fail_after(HANG_S):
            assert await stream.receive_some() == b"hello"
        await stream.aclose()


async def test_a_death_ends_connections_and_the_next_is_refused_at_once() -> None:
    """What a controller takes for proof (peers/DESIGN 2): no moment in which it could connect."""
    async with _mesh() as (mesh, nodes, _):
        stream = await _connect(mesh, 0, nodes[1].address)
        assert await _say(stream, b"x") == b"x"
        nodes[1].die()
        with trio.fail_after(HANG_S), contextlib.suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""  # a reset is as good as an end
        for _ in range(20):
            with pytest.raises(OSError, match="all attempts to connect"):
                await trio.open_tcp_stream(*mesh.routes(0)[nodes[1].address])
        await stream.aclose()


async def test_a_node_that_comes_back_is_reached_again() -> None:
    async with _mesh() as (mesh, nodes, nursery):
        stream = await _connect(mesh, 0, nodes[1].address)
        nodes[1].die()
        with trio.fail_after(HANG_S), contextlib.suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""
        again = _Node(nodes[1].address[1])
        await nursery.start(again.listen)
        fresh = await _connect(mesh, 0, again.address)
        assert await _say(fresh, b"y") == b"y"
        await fresh.aclose()
        await stream.aclose()


async def test_the_end_of_a_dead_node_is_not_told_over_a_cut() -> None:
    async with _mesh() as (mesh, nodes, _):
        stream = await _connect(mesh, 0, nodes[1].address)
        assert await _say(stream, b"x") == b"x"
        mesh.isolate(1)
        nodes[1].die()
        assert await _hears_nothing(stream)
        mesh.heal()
        with trio.fail_after(HANG_S), contextlib.suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""
        await stream.aclose()


async def test_a_slow_link_delays_every_chunk() -> None:
    async with _mesh() as (mesh, nodes, _):
        stream = await _connect(mesh, 0, nodes[1].address)
        mesh.slow(0, 1, delay_s=0.05)
        mesh.slow(1, 0, delay_s=0.05)
        began = trio.current_time()
        for _ in range(3):
            assert await _say(stream, b"ping") == b"ping"
        assert trio.current_time() - began >= 3 * 0.1
        mesh.heal()
        assert await _say(stream, b"pong") == b"pong"
        await stream.aclose()


async def test_both_directions_of_a_pair_share_their_flows() -> None:
    """Cutting 0 to 1 stops 0's answers to 1 as well as 0's requests."""
    async with _mesh() as (mesh, nodes, _):
        stream = await _connect(mesh, 1, nodes[0].address)
        assert await _say(stream, b"x") == b"x"
        mesh.cut(0, 1)
        await stream.send_all(b"asked")
        assert await _hears_nothing(stream)
        mesh.heal()
        with trio.fail_after(HANG_S):
            assert await stream.receive_some() == b"asked"
        await stream.aclose()


async def test_a_death_among_arriving_connections_ends_no_link() -> None:
    async with _mesh() as (mesh, nodes, nursery):
        node = nodes[1]
        for _ in range(20):
            first = await _connect(mesh, 0, node.address)
            assert await _say(first, b"x") == b"x"
            async with trio.open_nursery() as clients:
                for _ in range(8):
                    clients.start_soon(_try_to_connect, mesh.routes(0)[node.address])
                await trio.lowlevel.checkpoint()
                node.die()
            await first.aclose()
            node = _Node(node.address[1])
            await nursery.start(node.listen)


async def _try_to_connect(address: tuple[str, int]) -> None:
    with contextlib.suppress(OSError, trio.BrokenResourceError):
        async with await trio.open_tcp_stream(*address) as stream:
            with trio.move_on_after(0.01):
                await stream.receive_some()
