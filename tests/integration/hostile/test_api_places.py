"""Pages of the API that take long, for a stranger who asks for as many as he can."""

from __future__ import annotations

import contextlib
import sys

import pytest
import trio

from paceline_node.http.api.call import Call
from paceline_node.http.api.documents import Document
from paceline_node.http.api.pages import ApiPages, Route
from paceline_node.http.server import HttpServer
from paceline_node.loop_turns import Turns

LOOPBACK = "127.0.0.1"
HANG_S = 60.0
_PLACES, _CROWD = 4, 40


async def asks(host: str, port: int, path: str) -> trio.SocketStream:
    """Somebody at that address has asked for a page."""
    sock = trio.socket.socket()
    await sock.bind((host, 0))
    await sock.connect((LOOPBACK, port))
    stream = trio.SocketStream(sock)
    await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\n\r\n".encode())
    return stream


@pytest.mark.skipif(sys.platform != "linux", reason="one address of loopback only")
async def test_one_address_takes_no_more_than_half_of_the_places() -> None:
    """Eight pages of one stranger that waited for other nodes kept the API from everybody."""
    asked, patience, are_taken, are_served = 0, trio.Event(), trio.Event(), trio.Event()

    async def slow(_call: Call) -> Document:
        nonlocal asked
        asked += 1
        if asked == _PLACES:
            are_taken.set()
        if asked == _CROWD:
            are_served.set()
        await patience.wait()
        return {}

    async def quick(_call: Call) -> Document:
        return {"told": True}

    table = (Route("/api/slow", slow), Route("/api/quick", quick))
    server = HttpServer({}, branches=(ApiPages(table, Turns(), trio.to_thread.run_sync),))
    listeners = await trio.open_tcp_listeners(0, host=LOOPBACK)
    port = listeners[0].socket.getsockname()[1]
    async with trio.open_nursery() as nursery, contextlib.AsyncExitStack() as stack:
        await nursery.start(server.run, listeners)
        for _ in range(_CROWD):
            await stack.enter_async_context(await asks("127.0.0.9", port, "/api/slow"))
        with trio.fail_after(HANG_S):
            await are_taken.wait()
            for _ in range(20):
                async with await asks("127.0.0.2", port, "/api/quick") as other:
                    assert (await other.receive_some()).startswith(b"HTTP/1.1 200")
        assert asked == _PLACES
        patience.set()
        with trio.fail_after(HANG_S):
            await are_served.wait()
        nursery.cancel_scope.cancel()
