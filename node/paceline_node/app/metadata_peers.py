"""What other nodes may ask of the quorum's member and the controller on this one."""

from __future__ import annotations

from paceline.types import NodeId
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.native.exchanges import Exchange
from paceline.wire.peer.api import PeerApi
from paceline_node.app.joining import JoinHandler
from paceline_node.app.peering import Peering
from paceline_node.controller.client import EXCHANGES
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.controller.quorum import Quorum
from paceline_node.controller.raft_types import Start
from paceline_node.controller.service import Controller
from paceline_node.peers.server import CallHandler, Session


def serve_peers(
    peering: Peering, quorum: Quorum, controller: Controller, store: MetadataStore
) -> None:
    """Let peers reach the quorum and the controller, tell both who is gone, and follow the
    addresses that the image tells."""

    def on_raft(session: Session, frame: Frame) -> None:
        quorum.receive(session.peer, frame.payload, Start(*session.start))

    def refused(node: NodeId) -> None:
        quorum.peer_refused(node)
        controller.peer_lost(node)

    joins = JoinHandler(
        store.image.cluster_id,
        quorum,
        is_elsewhere=peering.links.is_elsewhere,
        moved=peering.moved,
    )
    peering.server.register_direct(PeerApi.RAFT, on_raft)
    peering.server.register(PeerApi.JOIN_CLUSTER, joins.handle)
    for exchange in EXCHANGES:
        peering.server.register(exchange.api, _for_controller(exchange, controller))
    peering.on_refused(refused)
    store.subscribe(peering.on_image)


def _for_controller(exchange: Exchange, controller: Controller) -> CallHandler:
    async def handle(session: Session, frame: Frame) -> tuple[Message, bytes]:
        request = exchange.request.unpack(frame.body)
        return await controller.handle(session.peer, request), b""

    return handle
