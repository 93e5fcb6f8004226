"""All outgoing links of a node: one authenticated connection per (node, lane).

Two ways to ask: :meth:`PeerLinks.call` awaits the answer, :meth:`PeerLinks.submit` hands it to a
callback; neither costs a task or a timer of its own. :meth:`PeerLinks.post` sends one way.

This is also where the death of a process is proved (DESIGN 2): when no connection to a node is
left and a new one is refused, nobody listens at its address, and ``on_refused`` is called, once
until the node has been reached or heard again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import structlog
import trio

from paceline.errors import ConnectionLost, PacelineError
from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline_node.env import Env
from paceline_node.net.deadlines import Deadlines
from paceline_node.net.framestream import Payload, chunks_of
from paceline_node.peers.auth import Identity, Lane, Secret
from paceline_node.peers.channel import PeerTls
from paceline_node.peers.link import (
    Address,
    Done,
    Link,
    LinkContext,
    LinkLimits,
    LinkState,
    LinkTiming,
)


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """One link as metrics and status show it."""

    node: NodeId
    lane: Lane
    state: LinkState
    queued_bytes: int


class Ticket:
    """A request under way."""

    __slots__ = ("_correlation", "_link")

    def __init__(self, link: Link, correlation: int) -> None:
        self._link = link
        self._correlation = correlation

    def cancel(self) -> None:
        """Forget the answer: the callback will not be called. The request is not unsent."""
        self._link.forget(self._correlation)


class PeerLinks:
    """``on_refused``, and ``on_connected`` with the address that a link has found somebody at, are
    called synchronously and must not raise."""

    def __init__(
        self,
        env: Env,
        identity: Identity,
        secret: Secret,
        *,
        timing: LinkTiming | None = None,
        limits: LinkLimits | None = None,
        on_refused: Callable[[NodeId], None] | None = None,
        on_connected: Callable[[str], None] | None = None,
        tls: PeerTls | None = None,
    ) -> None:
        self._deadlines = Deadlines()
        self._context = LinkContext(
            env=env,
            identity=identity,
            secret=secret,
            timing=timing or LinkTiming(),
            limits=limits or LinkLimits(),
            deadlines=self._deadlines,
            owner=self,
            tls=tls,
        )
        self._addresses: dict[NodeId, Address] = {}
        self._links: dict[tuple[NodeId, str], Link] = {}
        self._reached: set[NodeId] = set()
        self._nursery: trio.Nursery | None = None
        self._log = structlog.get_logger(component="peers", node=identity.node_id)
        self.on_refused = on_refused
        self._on_connected = on_connected

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the links; runs until cancelled. Requests made before it wait for it."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._deadlines.run)
            for link in self._links.values():
                nursery.start_soon(link.run)
            task_status.started()
            try:
                await self._keep_alive()
            finally:
                # As long as this block runs, the nursery takes tasks. Sessions that end later must
                # not start any.
                self._nursery = None

    def set_addresses(self, addresses: Mapping[NodeId, Address]) -> None:
        """Where each node's peer listener is; replaces what was known. Links to nodes that are
        gone are closed; a new address is tried at once if the link is down."""
        old, self._addresses = self._addresses, dict(addresses)
        for (node, lane), link in sorted(self._links.items()):
            address = self._addresses.get(node)
            if address is None:
                del self._links[node, lane]
                link.close()
            elif address != old.get(node):
                link.kick(address)
        self._reached &= self._addresses.keys()

    # --- asking -----------------------------------------------------------------------------------

    async def call(
        self,
        node: NodeId,
        api: int,
        body: Message | None,
        payload: Payload = b"",
        *,
        lane: str,
        timeout_s: float,
    ) -> Frame:
        """Ask ``node`` and wait for its RESPONSE frame.

        Raises the typed error it answered; RequestTimedOut; ConnectionLost, whose ``was_sent`` is
        False when surely no byte of the request left; AuthenticationFailed or
        InconsistentClusterId when the node is not one of ours. While the link rests after a failed
        attempt it fails at once, so that the caller can look for another node. Cancel-safe: the
        answer is dropped, the request may still be carried out.
        """
        waiter = _Waiter()
        ticket = self.submit(node, api, body, payload, lane=lane, timeout_s=timeout_s, done=waiter)
        try:
            await waiter.answered.wait()
        finally:
            ticket.cancel()
        answer = waiter.answer
        if isinstance(answer, PacelineError):
            try:
                raise answer
            finally:
                del answer, waiter, ticket  # that hold it
        assert answer is not None
        return answer

    def submit(
        self,
        node: NodeId,
        api: int,
        body: Message | None,
        payload: Payload = b"",
        *,
        lane: str,
        timeout_s: float,
        done: Done,
    ) -> Ticket:
        """Ask ``node``; ``done`` is called once with the RESPONSE frame or a typed error, later.

        Raises as :meth:`call` when the request cannot even be queued; ``done`` is not called then.
        """
        link = self._link(node, lane)
        return Ticket(link, link.submit(api, body, chunks_of(payload), timeout_s, done))

    def post(
        self,
        node: NodeId,
        api: int,
        body: Message | None = None,
        payload: Payload = b"",
        *,
        lane: str,
    ) -> bool:
        """Send one way; never blocks. False when it was dropped: no link (one is being made), no
        address, or the outbox is full."""
        try:
            link = self._link(node, lane)
        except ConnectionLost:
            return False
        return link.post(api, body, chunks_of(payload))

    # --- life and death of nodes ------------------------------------------------------------------

    def heard(self, node: NodeId) -> None:
        """``node`` opened a session here: it is alive, so links to it are tried at once."""
        self._reached.add(node)
        for link in self._links_to(node):
            link.kick()

    def suspect(self, node: NodeId) -> None:
        """A session from ``node`` ended: unless a link to it is open, find out at once whether it
        still listens (``on_refused`` tells)."""
        links = self._links_to(node)
        if not links and node in self._addresses:
            links = [self._link(node, Lane.CONTROL)]
        if not any(link.is_open for link in links):
            for link in links:
                link.kick()

    def is_elsewhere(self, node: NodeId, address: Address) -> bool:
        """Whether ``node`` is connected, and at another address than this one."""
        known = self._addresses.get(node, address)
        return known != address and any(link.is_open for link in self._links_to(node))

    def states(self) -> list[LinkStatus]:
        """All links, for metrics and status."""
        return [
            LinkStatus(link.node, link.lane, link.state, link.queued_bytes)
            for _, link in sorted(self._links.items())
        ]

    def link_connected(self, address: str) -> None:
        """A link's attempt found somebody (called by the link)."""
        if self._on_connected is not None:
            self._on_connected(address)

    def link_opened(self, link: Link) -> None:
        """A link came up (called by the link)."""
        self._reached.add(link.node)

    def link_refused(self, link: Link) -> None:
        """A link's attempt was refused (called by the link)."""
        node = link.node
        if node not in self._reached or any(other.is_open for other in self._links_to(node)):
            return
        self._reached.discard(node)
        self._log.info("peer is dead: lost and refused", peer=node)
        if self.on_refused is not None:
            self.on_refused(node)

    def _links_to(self, node: NodeId) -> list[Link]:
        return [link for key, link in sorted(self._links.items()) if key[0] == node]

    def _link(self, node: NodeId, lane: str) -> Link:
        link = self._links.get((node, lane))
        if link is None:
            address = self._addresses.get(node)
            if address is None:
                raise ConnectionLost(f"node {node} has no known address", was_sent=False)
            link = Link(self._context, node, Lane(lane), address)
            self._links[node, link.lane] = link
            if self._nursery is not None:
                self._nursery.start_soon(link.run)
        return link

    async def _keep_alive(self) -> None:
        while True:
            await trio.sleep(self._context.timing.ping_s)
            for _, link in sorted(self._links.items()):
                link.check_silence()


class _Waiter:
    """Receives one answer for one waiting task."""

    __slots__ = ("answer", "answered")

    def __init__(self) -> None:
        self.answered = trio.Event()
        self.answer: Frame | PacelineError | None = None

    def __call__(self, answer: Frame | PacelineError) -> None:
        self.answer = answer
        self.answered.set()
