"""The two sides of the peer handshake, without I/O (DESIGN 1; bytes: ``wire/peer/hello.py``).

Each side is used once: :class:`Initiator` and :class:`Acceptor` take the other's message bodies in
order and give their own. What a completed handshake establishes is a :class:`Peer`: node id,
directory id and lane are then bound to the connection, and no id inside a later request is
trusted over them.
"""

from __future__ import annotations

import enum
import hmac
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import msgpack

from paceline.errors import (
    AuthenticationFailed,
    ConfigurationError,
    InconsistentClusterId,
    InvalidRequest,
    RemoteProtocolError,
    UnsupportedVersion,
)
from paceline.types import NO_NODE, NodeId
from paceline.values import dataclass
from paceline.wire.peer.hello import (
    NONCE_BYTES,
    PEER_VERSION,
    UNKNOWN_CLUSTER,
    Hello,
    HelloReply,
    Prove,
)
from paceline_node.peers.channel import Channel

_INITIATOR_LABEL = b"paceline/peer/1/initiator\0"
_ACCEPTOR_LABEL = b"paceline/peer/1/acceptor\0"
MIN_SECRET_BYTES = 16
Nonces = Callable[[int], bytes]


class Lane(enum.StrEnum):
    """What a connection is for; one connection each, so that none waits behind another's bytes."""

    RAFT = "raft"
    FETCH = "fetch"
    REPAIR = "repair"
    CONTROL = "control"
    FORWARD = "forward"
    JOIN = "join"
    TRANSACTIONS = "transactions"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this node is. ``cluster_id`` is None while it has yet to join a cluster. The last two say
    which start of the directory this process is."""

    node_id: NodeId
    directory_id: UUID
    cluster_id: UUID | None
    boot_seq: int = 0
    incarnation_id: UUID = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Peer:
    """An authenticated other side. Who was connected to does not say which start it is."""

    node_id: NodeId
    directory_id: UUID
    cluster_id: UUID
    lane: Lane
    boot_seq: int = 0
    incarnation_id: UUID = UUID(int=0)


class Secret:
    """The cluster secret; kept out of every text form."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if len(key) < MIN_SECRET_BYTES:
            raise ConfigurationError(
                f"the cluster secret has {len(key)} bytes, at least {MIN_SECRET_BYTES} are needed"
            )
        self._key = key

    def __repr__(self) -> str:
        return "Secret(...)"

    def derived(self, label: bytes) -> bytes:
        """A secret for something else, from which this one cannot be found out."""
        return hmac.digest(self._key, b"paceline/derived/" + label, "sha256")

    def prove(
        self, label: bytes, hello: list[Any], reply: list[Any], binding: bytes = b""
    ) -> bytes:
        """The proof that the holder took part in exactly this exchange, over exactly the encrypted
        channel of ``binding``."""
        mac = hmac.new(self._key, label, "sha256")
        for body in (hello, reply):
            packed: bytes = msgpack.packb(body)
            mac.update(len(packed).to_bytes(4, "big"))
            mac.update(packed)
        mac.update(binding)  # of a fixed size, or nothing
        return mac.digest()

    def check(
        self,
        proof: bytes,
        label: bytes,
        hello: list[Any],
        reply: list[Any],
        binding: bytes = b"",
    ) -> bool:
        return hmac.compare_digest(proof, self.prove(label, hello, reply, binding))


def read_secret(path: str | Path) -> Secret:
    """The secret in a file: its bytes without surrounding white space.

    Raises ConfigurationError when the file cannot be read, is too short, or is open to other
    users (its mode must have no bits beyond 0600, DESIGN 1).
    """
    try:
        with open(path, "rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            key = file.read(4096).strip()
    except OSError as error:
        raise ConfigurationError(f"cluster secret {path}: {error.strerror or error}") from error
    if mode & ~0o600:
        raise ConfigurationError(
            f"cluster secret {path}: mode is {mode:04o}, other users could use it; "
            f"run: chmod 600 {path}"
        )
    return Secret(key)


class Initiator:
    """The connecting side: :meth:`hello`, then :meth:`prove`, then :meth:`finish`.

    ``target`` is the node it means to reach, -1 for whoever answers. A node without a cluster id
    (joining) accepts the acceptor's.
    """

    def __init__(
        self,
        identity: Identity,
        secret: Secret,
        *,
        target: NodeId,
        lane: Lane,
        nonces: Nonces,
        channel: Channel | None = None,
    ) -> None:
        self._channel = channel
        self._binding = b"" if channel is None else channel.binding
        self._identity = identity
        self._secret = secret
        self._target = target
        self._lane = lane
        self._hello = Hello(
            PEER_VERSION,
            identity.cluster_id or UNKNOWN_CLUSTER,
            identity.node_id,
            identity.directory_id,
            target,
            lane.value,
            nonces(NONCE_BYTES),
            boot_seq=identity.boot_seq,
            incarnation_id=identity.incarnation_id,
        )
        self._reply: list[Any] = []
        self._peer: Peer | None = None

    def hello(self) -> Hello:
        return self._hello

    def prove(self, body: list[Any]) -> Prove:
        """Answer the acceptor's HelloReply. Raises InconsistentClusterId, UnsupportedVersion,
        AuthenticationFailed (another node answered) or RemoteProtocolError."""
        reply = HelloReply.unpack(body)
        _check_reply_form(reply)
        ours = self._identity.cluster_id
        if ours is not None and reply.cluster_id != ours:
            raise _other_cluster("this node", ours, f"node {reply.node_id}", reply.cluster_id)
        if self._target not in (NO_NODE, reply.node_id):
            raise AuthenticationFailed(
                f"expected node {self._target} at this address, found node {reply.node_id}"
            )
        if self._channel is not None:
            self._channel.require(reply.node_id)
        self._reply = body
        self._peer = Peer(reply.node_id, reply.directory_id, reply.cluster_id, self._lane)
        hello = self._hello.pack()
        return Prove(self._secret.prove(_INITIATOR_LABEL, hello, body, self._binding))

    def finish(self, body: list[Any]) -> Peer:
        """Check the acceptor's proof. Raises AuthenticationFailed, RemoteProtocolError."""
        assert self._peer is not None, "prove() comes before finish()"
        proof = Prove.unpack(body).proof
        hello = self._hello.pack()
        if not self._secret.check(proof, _ACCEPTOR_LABEL, hello, self._reply, self._binding):
            raise _wrong_secret(self._identity.node_id, self._peer.node_id)
        return self._peer


class Acceptor:
    """The accepting side: :meth:`reply`, then :meth:`finish`."""

    def __init__(
        self,
        identity: Identity,
        secret: Secret,
        *,
        nonces: Nonces,
        channel: Channel | None = None,
    ) -> None:
        self._channel = channel
        self._binding = b"" if channel is None else channel.binding
        assert identity.cluster_id is not None, "a node without a cluster accepts no peers"
        self._identity = identity
        self._cluster_id = identity.cluster_id
        self._secret = secret
        self._nonce = nonces(NONCE_BYTES)
        self._hello: list[Any] = []
        self._peer: Peer | None = None

    def reply(self, body: list[Any]) -> HelloReply:
        """Answer a Hello. Raises UnsupportedVersion, InconsistentClusterId, AuthenticationFailed
        (meant for another node), InvalidRequest (unknown lane) or RemoteProtocolError."""
        hello = Hello.unpack(body)
        lane = self._check(hello)
        if self._channel is not None:
            self._channel.require(hello.node_id)
        self._hello = body
        self._peer = Peer(
            hello.node_id,
            hello.directory_id,
            hello.cluster_id,
            lane,
            hello.boot_seq,
            hello.incarnation_id,
        )
        return self._reply()

    def finish(self, body: list[Any]) -> tuple[Prove, Peer]:
        """Check the initiator's proof and give our own. Raises AuthenticationFailed."""
        assert self._peer is not None, "reply() comes before finish()"
        reply = self._reply().pack()
        proof = Prove.unpack(body).proof
        if not self._secret.check(proof, _INITIATOR_LABEL, self._hello, reply, self._binding):
            raise _wrong_secret(self._peer.node_id, self._identity.node_id)
        ours = self._secret.prove(_ACCEPTOR_LABEL, self._hello, reply, self._binding)
        return Prove(ours), self._peer

    def _check(self, hello: Hello) -> Lane:
        if hello.version < PEER_VERSION:
            raise UnsupportedVersion(
                f"node {hello.node_id} speaks peer protocol {hello.version}, "
                f"node {self._identity.node_id} speaks {PEER_VERSION}"
            )
        if len(hello.nonce) != NONCE_BYTES:
            raise RemoteProtocolError(f"nonce of {len(hello.nonce)} bytes, not {NONCE_BYTES}")
        try:
            lane = Lane(hello.lane)
        except ValueError:
            raise InvalidRequest(f"unknown lane {hello.lane!r}") from None
        joining = hello.cluster_id == UNKNOWN_CLUSTER and lane is Lane.JOIN
        if hello.cluster_id != self._cluster_id and not joining:
            here = f"node {self._identity.node_id}"
            raise _other_cluster(f"node {hello.node_id}", hello.cluster_id, here, self._cluster_id)
        mine = self._identity
        if hello.node_id == mine.node_id and hello.directory_id != mine.directory_id:
            raise AuthenticationFailed(
                f"two data directories, {hello.directory_id} and {mine.directory_id}, "
                f"both claim to be node {mine.node_id}"
            )
        if hello.target not in (NO_NODE, mine.node_id):
            raise AuthenticationFailed(
                f"node {hello.node_id} expected node {hello.target} at this address, "
                f"found node {self._identity.node_id}"
            )
        return lane

    def _reply(self) -> HelloReply:
        return HelloReply(
            PEER_VERSION,
            self._cluster_id,
            self._identity.node_id,
            self._identity.directory_id,
            self._nonce,
        )


def _check_reply_form(reply: HelloReply) -> None:
    if reply.version < PEER_VERSION:
        raise UnsupportedVersion(
            f"node {reply.node_id} speaks peer protocol {reply.version}, "
            f"this node speaks {PEER_VERSION}"
        )
    if len(reply.nonce) != NONCE_BYTES:
        raise RemoteProtocolError(f"nonce of {len(reply.nonce)} bytes, not {NONCE_BYTES}")


def _other_cluster(one: str, its: UUID, other: str, others: UUID) -> InconsistentClusterId:
    return InconsistentClusterId(f"{one} belongs to cluster {its}, {other} to cluster {others}")


def _wrong_secret(initiator: NodeId, acceptor: NodeId) -> AuthenticationFailed:
    return AuthenticationFailed(
        f"node {initiator} and node {acceptor} hold different cluster secrets"
    )
