"""TLS between nodes: what a channel says of whoever is at its other end (DESIGN 1.2)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import trio

from paceline.errors import AuthenticationFailed
from paceline.types import NodeId
from paceline.values import dataclass
from paceline_node.net.tls_handshake import Handshakes
from paceline_node.security.names import nodes_of
from paceline_node.security.tls import PeerContexts

HANDSHAKE_S = 3.0


@dataclass(frozen=True, slots=True)
class Channel:
    """An encrypted connection. ``nodes``: whom the other side's certificate names. ``binding``: the
    certificates of both sides, whoever dialled first; proofs of the cluster secret cover it."""

    nodes: frozenset[NodeId]
    binding: bytes

    def require(self, node: NodeId) -> None:
        """Raise AuthenticationFailed unless the other side may be ``node``."""
        if node not in self.nodes:
            named = ", ".join(f"node-{each}.paceline" for each in sorted(self.nodes)) or "no node"
            raise AuthenticationFailed(
                f"who says to be node {node} shows a certificate of {named}, not of "
                f"node-{node}.paceline"
            )


class PeerTls:
    """Makes channels. ``contexts`` gives what is shown on the next one: a new certificate changes
    it."""

    def __init__(self, contexts: Callable[[], PeerContexts]) -> None:
        self._contexts = contexts
        # Not those of clients: who floods their ports must not keep nodes apart.
        self._handshakes = Handshakes(timeout_s=HANDSHAKE_S)

    async def dial(self, stream: trio.abc.Stream) -> tuple[trio.abc.Stream, Channel]:
        """The connecting side. Raises HandshakeFailed, and the connection is closed then."""
        ours = self._contexts()
        encrypted = await self._handshakes.connect(stream, ours.dialing)
        return encrypted, _channel(encrypted, lambda theirs: (ours.certificate, theirs))

    async def accept(self, stream: trio.abc.Stream) -> tuple[trio.abc.Stream, Channel]:
        """The accepting side, as :meth:`dial`."""
        ours = self._contexts()
        encrypted = await self._handshakes.accept(stream, ours.accepting)
        return encrypted, _channel(encrypted, lambda theirs: (theirs, ours.certificate))


def _channel(
    encrypted: trio.SSLStream[trio.abc.Stream],
    in_order: Callable[[bytes], tuple[bytes, bytes]],
) -> Channel:
    certificate = encrypted.getpeercert()
    theirs = encrypted.getpeercert(binary_form=True)
    assert certificate, "both contexts require one"
    assert theirs, "both contexts require one"
    binding = b"".join(hashlib.sha256(each).digest() for each in in_order(theirs))
    return Channel(nodes_of(certificate), binding)
