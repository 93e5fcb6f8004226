"""What clients are told by a node that still starts (DESIGN 2.1).

Its ports are bound first, so that two nodes do not take the same ones, and a start may take long:
logs are recovered, a quorum is waited for, or room on the disk. For a moment clients wait in the
listen backlog and lose nothing. After that they are sent away at once, and find another node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import trio

from paceline.errors import NotLeader, RemoteProtocolError
from paceline.health import judge_start
from paceline.wire.frame import FrameReader, encode_error
from paceline_node.client_memory import ClientMemory
from paceline_node.http.api.pages import ApiOfStarting
from paceline_node.http.console.files import ConsoleFiles
from paceline_node.http.cursus_pages import health_pages
from paceline_node.http.page import Branch, Page, PageMaker
from paceline_node.http.pages import LIVE_PAGES, ready_page
from paceline_node.http.server import HttpLimits, HttpServer
from paceline_node.listeners.serving import (
    BoundListener,
    Client,
    Serve,
    behind,
    let_read,
    serve_clients,
)
from paceline_node.net.accepting import AcceptGate
from paceline_node.net.tls_acceptor import TlsAcceptor
from paceline_node.security.origins import BrowserCheck
from paceline_node.security.principals import Principal
from paceline_node.settings import Listener, ListenerKind

PATIENCE_S = 5.0
"""So long a start keeps clients waiting."""
_HELLO_S = 5.0
_HELLO_BYTES = 64 * 1024
_CONNECTIONS = 256
"""Of each listener."""


class _Lent(trio.abc.Listener[trio.abc.Stream]):
    """A listener that stays open when its server ends."""

    def __init__(self, listener: trio.abc.Listener[trio.abc.Stream]) -> None:
        self._listener = listener

    async def accept(self) -> trio.abc.Stream:
        return await self._listener.accept()

    async def aclose(self) -> None:
        """Whoever lent it closes it."""


class StartingNode:
    """The client listeners of a node between their binding and its service. ``reasons`` says what
    it waits for; ``door`` is what the connections of a listener go through."""

    def __init__(
        self,
        reasons: Callable[[], Sequence[str]],
        door: Callable[[Listener], TlsAcceptor | None],
        browsers: BrowserCheck,
        gate: AcceptGate,
        console: ConsoleFiles,
    ) -> None:
        self._reasons = reasons
        self._door = door
        self._gate = gate
        self._memory = ClientMemory(_CONNECTIONS * _HELLO_BYTES)
        self._servers = {
            ListenerKind.HTTP: _server(
                {"/": console.index, **self._pages()}, browsers, (ApiOfStarting(reasons), console)
            ),
            ListenerKind.CURSUS_HEALTH: _server(health_pages(self._checks), browsers),
        }

    async def run(self, bound: Sequence[BoundListener]) -> None:
        """Send clients away until cancelled; the listeners stay open."""
        async with trio.open_nursery() as nursery:
            for each in bound:
                if each.config.kind is not ListenerKind.PEER:
                    sockets = [_Lent(socket) for socket in each.sockets]
                    nursery.start_soon(self._answer, replace(each, sockets=sockets))

    async def _answer(self, bound: BoundListener) -> None:
        kind, door = bound.config.kind, self._door(bound.config)
        server = self._servers.get(kind)
        if server is not None:
            await server.run(bound.sockets, gate=self._gate, door=door)
            return
        handle: Serve = _send_away
        if kind is ListenerKind.NATIVE:
            handle = self._refuse if door is None else behind(door, self._refuse)
        await serve_clients(
            bound, handle, max_connections=_CONNECTIONS, gate=self._gate, memory=self._memory
        )

    async def _refuse(self, stream: trio.abc.Stream, _client: Client) -> None:
        """Answer a native client's first request."""
        frames = FrameReader(max_frame_bytes=_HELLO_BYTES)
        with (
            trio.move_on_after(_HELLO_S),
            suppress(trio.BrokenResourceError, trio.ClosedResourceError, RemoteProtocolError),
        ):
            while (frame := frames.next_frame()) is None:
                data = await stream.receive_some(_HELLO_BYTES)
                if not data:
                    break
                frames.feed(data)
            else:
                refusal = NotLeader("; ".join(self._reasons()))
                await stream.send_all(encode_error(frame.api, frame.correlation, refusal))
                await let_read(stream)
        await trio.aclose_forcefully(stream)

    def _pages(self) -> dict[str, PageMaker]:
        async def ready(_principal: Principal) -> Page:
            return ready_page(judge_start(self._reasons()), {})

        return {**LIVE_PAGES, "/ready": ready}

    def _checks(self, _principal: Principal) -> Mapping[str, str]:
        return {"broker": "; ".join(self._reasons())}


def _server(
    pages: Mapping[str, PageMaker], browsers: BrowserCheck, branches: Sequence[Branch] = ()
) -> HttpServer:
    limits = HttpLimits(connections=_CONNECTIONS)
    return HttpServer(pages, browsers=browsers, limits=limits, branches=branches)


async def _send_away(stream: trio.abc.Stream, _client: Client) -> None:
    await trio.aclose_forcefully(stream)
