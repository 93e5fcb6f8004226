"""How a node finds and enters the metadata quorum of a running cluster (DESIGN 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from uuid import UUID

import structlog
import trio

from paceline.errors import (
    AuthenticationFailed,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    NotController,
    PacelineError,
    Throttled,
)
from paceline.types import NO_NODE, NodeId
from paceline.wire.frame import Frame
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.join import JoinCluster, JoinReply, QuorumMember
from paceline_node.controller.quorum import Quorum
from paceline_node.controller.raft_types import Member
from paceline_node.env import Env
from paceline_node.peers.auth import Identity, Secret
from paceline_node.peers.channel import PeerTls
from paceline_node.peers.dial import ask
from paceline_node.peers.server import Session

Address = tuple[str, int]
_ASK_TIMEOUT_S = 3.0
_AGAIN_S = 0.25


async def ask_to_join(
    env: Env,
    identity: Identity,
    secret: Secret,
    peer_address: Address,
    bootstrap: Iterable[Address],
    *,
    until: Callable[[JoinReply], bool],
    tls: PeerTls | None = None,
) -> JoinReply:
    """Ask the bootstrap peers, and the members they name, until an answer satisfies ``until``.

    Raises AuthenticationFailed or InconsistentClusterId at once: waiting mends neither. Tries for
    ever otherwise; cancel-safe.
    """
    log = structlog.get_logger().bind(node=identity.node_id)
    request = JoinCluster(identity.node_id, identity.directory_id, *peer_address)
    known = list(dict.fromkeys(bootstrap))
    reported = ""
    while True:
        for address in tuple(known):
            if address == peer_address:
                continue
            try:
                _, frame = await ask(
                    env,
                    address,
                    identity,
                    secret,
                    api=PeerApi.JOIN_CLUSTER,
                    body=request,
                    timeout_s=_ASK_TIMEOUT_S,
                    tls=tls,
                )
                reply = JoinReply.unpack(frame.body)
            except (AuthenticationFailed, InconsistentClusterId):
                raise
            except PacelineError as error:
                if str(error) != reported:
                    log.info("joining: no answer yet", peer=address, reason=str(error))
                    reported = str(error)
                continue
            if until(reply):
                return reply
            found = [(member.host, member.port) for member in reply.members]
            known = list(dict.fromkeys([*known, *found]))
        await trio.sleep(_AGAIN_S * env.rng.uniform(0.5, 1.0))


class JoinHandler:
    """Answers JOIN_CLUSTER; the quorum's leader admits, the others say who leads."""

    def __init__(
        self,
        cluster_id: UUID,
        quorum: Quorum,
        *,
        is_elsewhere: Callable[[NodeId, Address], bool],
        moved: Callable[[NodeId, Address], None],
    ) -> None:
        self._cluster_id = cluster_id
        self._quorum = quorum
        self._is_elsewhere = is_elsewhere
        self._moved = moved

    async def handle(self, session: Session, frame: Frame) -> tuple[JoinReply, bytes]:
        """Admit or refer. The id and directory are those the connection proved. Raises
        DuplicateBrokerRegistration while the node runs elsewhere, or with another disk."""
        wish = JoinCluster.unpack(frame.body)
        member = Member(session.peer, session.directory_id, wish.host, wish.port)
        self._note_move(member)
        try:
            self._quorum.membership.admit(member)
        except (NotController, Throttled):
            return self._reply(member), b""
        return self._reply(member), b""

    def _note_move(self, member: Member) -> None:
        """Follow a member that comes back at another address, unless it is a copy of the
        directory of one that is still where it was."""
        members = self._quorum.config.members
        if member in members or all(member.id != each.id for each in members):
            return
        address = (member.host, member.port)
        if self._is_elsewhere(member.node_id, address):
            raise DuplicateBrokerRegistration(
                f"node {member.node_id} is running at another address with this data directory "
                "or a copy of it; stop that process first"
            )
        self._moved(member.node_id, address)

    def _reply(self, member: Member) -> JoinReply:
        members = self._quorum.config.members
        leader = self._quorum.leader_id
        return JoinReply(
            self._cluster_id,
            member in members,
            NO_NODE if leader is None else NodeId(leader),
            tuple(QuorumMember(m.node_id, m.host, m.port) for m in members),
        )
