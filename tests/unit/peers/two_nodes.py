"""Node 1, of which there are only links, and node 2, which serves them."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from paceline.errors import NotController
from paceline.types import NodeId
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.peer.api import PeerApi
from paceline_node.net.framestream import Payload
from paceline_node.peers.auth import Lane, Secret
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import PeerServer, Session
from tests.unit.peers.memory_network import SECRET, MemoryNetwork, Task, identity

TWO = NodeId(2)
ECHO, SLOW, FAIL, BUG, PARK = 200, 201, 202, 203, 204
PORT = 7002


@dataclass(frozen=True, slots=True)
class Text(Message):
    text: str


class Node2:
    """A peer server with test handlers, which can be started and killed."""

    def __init__(self, network: MemoryNetwork, nursery: trio.Nursery, **options: object) -> None:
        self.network = network
        self.nursery = nursery
        self.options = options
        self.heard: list[str] = []
        self.opened: list[tuple[int, Lane]] = []
        self.closed: list[tuple[int, Lane]] = []
        self.parked: list[tuple[Session, Frame]] = []
        self.task: Task | None = None
        self.server = self.make()

    def make(self) -> PeerServer:
        server = PeerServer(
            self.network.env(2),
            identity(2),
            self.options.get("secret", SECRET),  # type: ignore[arg-type]
            limits=self.options.get("limits"),  # type: ignore[arg-type]
            tls=self.options.get("tls"),  # type: ignore[arg-type]
            on_open=lambda s: self.opened.append((s.peer, s.lane)),
            on_close=lambda s: self.closed.append((s.peer, s.lane)),
        )
        server.register(ECHO, self.echo)
        server.register(SLOW, self.slow)
        server.register(FAIL, self.fail)
        server.register(BUG, self.bug)
        server.register_direct(PARK, lambda s, f: self.parked.append((s, f)))
        server.register_direct(
            PeerApi.RAFT, lambda s, f: self.heard.append(bytes(f.payload).decode())
        )
        return server

    async def start(self) -> None:
        listeners = await self.network.listen("h", PORT)
        self.task = Task(lambda task_status: self.server.run(listeners, task_status=task_status))
        await self.nursery.start(self.task)

    async def kill(self) -> None:
        """All connections end and the port refuses, as when a process dies."""
        assert self.task is not None
        await self.task.end()

    async def echo(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        await trio.lowlevel.checkpoint()
        return Text(f"{session.peer} said {Text.unpack(frame.body).text}"), bytes(frame.payload)

    async def slow(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        await trio.sleep(Text.unpack(frame.body).text.count("."))
        return Text("done"), b""

    async def fail(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        await trio.lowlevel.checkpoint()
        raise NotController("node 2 is not the controller")

    async def bug(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        await trio.lowlevel.checkpoint()
        raise ZeroDivisionError


async def start_links(
    network: MemoryNetwork,
    nursery: trio.Nursery,
    *,
    secret: Secret = SECRET,
    who: int = 1,
    **more: object,
) -> tuple[PeerLinks, list[int]]:
    refused: list[int] = []
    links = PeerLinks(network.env(), identity(who), secret, on_refused=refused.append, **more)  # type: ignore[arg-type]
    links.set_addresses({TWO: ("h", PORT)})
    await nursery.start(links.run)
    return links, refused


async def say(
    links: PeerLinks, text: str, *, api: int = ECHO, lane: str = "control", timeout_s: float = 5.0
) -> str:
    frame = await links.call(TWO, api, Text(text), b"pay", lane=lane, timeout_s=timeout_s)
    return Text.unpack(frame.body).text
