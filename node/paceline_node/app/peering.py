"""The node's place among its peers: links out, sessions in, addresses, and proofs of death.

A session or link of a node that breaks, and whose reconnect is refused, proves that its process is
gone (peers/DESIGN 2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from paceline.types import NodeId
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.join import QuorumMember
from paceline_node.controller.image import Image
from paceline_node.controller.raft_types import Config, MemberId
from paceline_node.env import Env
from paceline_node.peers.auth import Identity, Secret
from paceline_node.peers.channel import PeerTls
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import PeerServer, ServerLimits, Session
from paceline_node.settings import BootstrapPeer

_PEER = "peer"


class Peering:
    """Owns the links and the peer server. Made before the quorum, which sends through it, and knows
    nothing of it: what it serves to peers is registered by whom it concerns."""

    def __init__(
        self,
        env: Env,
        identity: Identity,
        secret: Secret,
        bootstrap: Sequence[BootstrapPeer],
        limits: ServerLimits,
        tls: PeerTls | None = None,
    ) -> None:
        self._env = env
        self._identity = identity
        self.decoy_secret = secret.derived(b"decoys")
        """By which users that there are not look alike on all nodes."""
        self._bootstrap = {
            NodeId(peer.node_id): (peer.host, peer.port)
            for peer in bootstrap
            if peer.node_id is not None
        }
        self._introduced: dict[NodeId, tuple[str, int]] = {}
        self._members: dict[NodeId, tuple[str, int]] = {}
        self._told: dict[NodeId, tuple[str, int]] = {}
        self._brokers: dict[NodeId, tuple[str, int]] = {}
        self._on_closed: list[Callable[[Session], None]] = []
        self._on_refused: list[Callable[[NodeId], None]] = []
        self.server = PeerServer(
            env,
            identity,
            secret,
            limits=limits,
            on_open=self._opened,
            on_close=self._closed,
            tls=tls,
        )
        self.links = PeerLinks(
            env,
            identity,
            secret,
            on_refused=self._refused,
            on_connected=self.server.reached_node,
            tls=tls,
        )
        self._set_addresses()

    def on_refused(self, callback: Callable[[NodeId], None]) -> None:
        """Call ``callback`` for every node whose process is proven to be gone."""
        self._on_refused.append(callback)

    def on_session_closed(self, callback: Callable[[Session], None]) -> None:
        """Call ``callback`` for every peer session that ends."""
        self._on_closed.append(callback)

    def send_raft(self, node: NodeId, data: bytes) -> None:
        """The quorum's way out: one way, dropped where there is no link."""
        self.links.post(node, PeerApi.RAFT, None, data, lane="raft")

    # --- addresses ------------------------------------------------------------------------------

    def introduce(self, members: Sequence[QuorumMember]) -> None:
        """Where the quorum's members are, as one of them told this node when it asked to be let
        in. It must answer them until the quorum's configuration lists it: those that it is sent
        before are older, and may not know who leads now."""
        self._introduced = {member.node_id: (member.host, member.port) for member in members}
        self._set_addresses()

    def moved(self, node: NodeId, address: tuple[str, int]) -> None:
        """A member says itself where it is now. It holds until the quorum's configuration says
        something new: without it, members that all moved could not even elect a leader."""
        self._told[node] = address
        self._set_addresses()

    def on_config(self, config: Config) -> None:
        """The quorum's members changed."""
        before, self._members = self._members, config.addresses()
        for node, address in self._members.items():
            if address != before.get(node):
                self._told.pop(node, None)
        if MemberId(self._identity.node_id, self._identity.directory_id.bytes) in config.member_ids:
            self._introduced.clear()
        self._set_addresses()

    def on_image(self, old: Image, new: Image) -> None:
        """Brokers registered, or left."""
        if new.brokers is old.brokers:
            return
        found = {}
        for node, broker in new.brokers.items():
            endpoint = broker.endpoint(_PEER)
            if endpoint is not None:
                found[node] = (endpoint.host, endpoint.port)
        self._brokers = found
        self._set_addresses()

    def _set_addresses(self) -> None:
        # A node that moved has the quorum know its address before it can register again.
        known = {
            **self._bootstrap,
            **self._brokers,
            **self._members,
            **self._introduced,
            **self._told,
        }
        known.pop(self._identity.node_id, None)
        self.links.set_addresses(known)
        self.server.expect_nodes(host for host, _ in known.values())

    # --- life and death -------------------------------------------------------------------------

    def _opened(self, session: Session) -> None:
        self.links.heard(session.peer)

    def _closed(self, session: Session) -> None:
        self.links.suspect(session.peer)
        for callback in self._on_closed:
            callback(session)

    def _refused(self, node: NodeId) -> None:
        for callback in self._on_refused:
            callback(node)

    async def run(
        self,
        listeners: Sequence[trio.abc.Listener[trio.abc.Stream]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve peers and keep links until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.links.run)
            await nursery.start(self.server.run, listeners)
            task_status.started()
