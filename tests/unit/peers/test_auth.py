from __future__ import annotations

import os
import random
from pathlib import Path
from uuid import UUID

import msgpack
import pytest

from paceline.errors import (
    AuthenticationFailed,
    ConfigurationError,
    InconsistentClusterId,
    InvalidRequest,
    RemoteProtocolError,
    UnsupportedVersion,
)
from paceline.types import NO_NODE, NodeId
from paceline_node.peers.auth import (
    Acceptor,
    Identity,
    Initiator,
    Lane,
    Secret,
    read_secret,
)
from tests.unit.peers.memory_network import CLUSTER, SECRET, identity

OTHER_SECRET = Secret(b"another secret of enough length")
OTHER_CLUSTER = UUID(int=0xC2)


def initiator(
    who: Identity | None = None,
    *,
    secret: Secret = SECRET,
    target: int = 2,
    lane: Lane = Lane.RAFT,
    seed: int = 1,
) -> Initiator:
    return Initiator(
        who or identity(1),
        secret,
        target=NodeId(target),
        lane=lane,
        nonces=random.Random(seed).randbytes,
    )


def acceptor(who: Identity | None = None, *, secret: Secret = SECRET, seed: int = 2) -> Acceptor:
    return Acceptor(who or identity(2), secret, nonces=random.Random(seed).randbytes)


def test_both_sides_learn_who_the_other_is() -> None:
    one, two = initiator(), acceptor()
    reply = two.reply(one.hello().pack())
    prove, seen = two.finish(one.prove(reply.pack()).pack())
    answered = one.finish(prove.pack())
    assert (seen.node_id, seen.directory_id, seen.lane) == (1, UUID(int=0xD1), Lane.RAFT)
    assert (answered.node_id, answered.directory_id) == (2, UUID(int=0xD2))
    assert seen.cluster_id == answered.cluster_id == CLUSTER


def test_a_wrong_secret_is_found_by_the_acceptor_before_it_proves_anything() -> None:
    one, two = initiator(secret=OTHER_SECRET), acceptor()
    proof = one.prove(two.reply(one.hello().pack()).pack())
    with pytest.raises(AuthenticationFailed, match="node 1 and node 2 hold different cluster"):
        two.finish(proof.pack())


def test_the_initiator_refuses_an_acceptor_without_the_secret() -> None:
    one, two = initiator(), acceptor(secret=OTHER_SECRET)
    reply = two.reply(one.hello().pack())
    one.prove(reply.pack())
    forged = OTHER_SECRET.prove(b"paceline/peer/1/acceptor\0", one.hello().pack(), reply.pack())
    with pytest.raises(AuthenticationFailed, match="different cluster secrets"):
        one.finish([forged])


def test_reflected_proof_is_not_a_proof() -> None:
    one, two = initiator(), acceptor()
    mine = one.prove(two.reply(one.hello().pack()).pack())
    with pytest.raises(AuthenticationFailed):
        one.finish(mine.pack())


def test_a_replayed_exchange_is_refused() -> None:
    one, two = initiator(), acceptor(seed=2)
    proof = one.prove(two.reply(one.hello().pack()).pack())
    two.finish(proof.pack())
    again = acceptor(seed=3)  # a new connection has a new nonce
    again.reply(one.hello().pack())
    with pytest.raises(AuthenticationFailed):
        again.finish(proof.pack())


@pytest.mark.parametrize("field", range(7))
def test_every_field_of_the_hello_is_bound_by_the_proof(field: int) -> None:
    one, two = initiator(target=-1), acceptor()
    hello = one.hello().pack()
    changed = [9, CLUSTER.bytes, 3, UUID(int=5).bytes, 2, "fetch", bytes(32)]
    assert hello[field] != changed[field] or field == 1  # another cluster is refused earlier
    tampered = [*hello[:field], changed[field], *hello[field + 1 :]]
    if tampered == hello:
        tampered.append("unknown element")
    proof = one.prove(two.reply(tampered).pack())
    with pytest.raises(AuthenticationFailed):
        two.finish(proof.pack())


def test_both_clusters_are_named() -> None:
    one = initiator(identity(1, cluster=OTHER_CLUSTER))
    with pytest.raises(InconsistentClusterId) as caught:
        acceptor().reply(one.hello().pack())
    assert str(OTHER_CLUSTER) in str(caught.value)
    assert str(CLUSTER) in str(caught.value)
    stranger = acceptor(identity(2, cluster=OTHER_CLUSTER))
    reply = stranger.reply(initiator(identity(1, cluster=OTHER_CLUSTER)).hello().pack())
    with pytest.raises(InconsistentClusterId, match=str(OTHER_CLUSTER)):
        initiator().prove(reply.pack())


def test_a_node_without_a_cluster_may_only_join() -> None:
    newcomer = identity(7, cluster=None)
    with pytest.raises(InconsistentClusterId):
        acceptor().reply(initiator(newcomer).hello().pack())
    one, two = initiator(newcomer, target=-1, lane=Lane.JOIN), acceptor()
    prove, _ = two.finish(one.prove(two.reply(one.hello().pack()).pack()).pack())
    assert one.finish(prove.pack()).cluster_id == CLUSTER


def test_the_wrong_node_at_an_address_is_told_by_both_sides() -> None:
    with pytest.raises(AuthenticationFailed, match="expected node 3 at this address, found node 2"):
        acceptor().reply(initiator(target=3).hello().pack())
    careless = acceptor().reply(initiator(target=-1).hello().pack())
    with pytest.raises(AuthenticationFailed, match="expected node 3 at this address, found node 2"):
        initiator(target=3).prove(careless.pack())
    assert acceptor().reply(initiator(target=NO_NODE).hello().pack()).node_id == 2


def test_two_directories_with_one_node_id() -> None:
    twin = initiator(identity(2, directory=0xEE))
    with pytest.raises(AuthenticationFailed, match="both claim to be node 2"):
        acceptor().reply(twin.hello().pack())


def test_malformed_hellos() -> None:
    hello = initiator().hello().pack()
    with pytest.raises(UnsupportedVersion):
        acceptor().reply([0, *hello[1:]])
    with pytest.raises(InvalidRequest, match="unknown lane 'express'"):
        acceptor().reply([*hello[:5], "express", *hello[6:]])
    with pytest.raises(RemoteProtocolError, match="nonce of 3 bytes"):
        acceptor().reply([*hello[:6], b"abc"])
    for length in range(7):
        with pytest.raises(RemoteProtocolError):
            acceptor().reply(hello[:length])


def test_the_acceptor_learns_which_start_the_other_side_is() -> None:
    me = Identity(NodeId(1), UUID(int=1), CLUSTER, 7, UUID(int=70))
    asking, answering = initiator(me), acceptor()
    reply = answering.reply(asking.hello().pack())
    _, peer = answering.finish(asking.prove(reply.pack()).pack())
    assert (peer.boot_seq, peer.incarnation_id) == (7, UUID(int=70))


def test_a_version_that_does_not_say_which_start_it_is_is_answered() -> None:
    assert acceptor().reply(initiator().hello().pack()[:7]).node_id == 2


def test_what_is_proved_is_what_is_on_the_wire() -> None:
    """The transcript is built from decoded bodies: packing them must give the bytes sent."""
    hello = initiator().hello()
    assert msgpack.packb(msgpack.unpackb(hello.to_bytes())) == hello.to_bytes()


def test_secret_files(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"  0123456789abcdef0123456789abcdef\n")
    path.chmod(0o600)
    hello, reply = [1], [2]
    assert read_secret(path).prove(b"x", hello, reply) == SECRET.prove(b"x", hello, reply)
    path.chmod(0o640)
    with pytest.raises(ConfigurationError, match=r"mode is 0640.*chmod 600"):
        read_secret(path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(ConfigurationError, match="has 5 bytes"):
        read_secret(path)
    os.unlink(path)
    with pytest.raises(ConfigurationError, match="No such file"):
        read_secret(path)


def test_the_secret_does_not_show() -> None:
    assert "0123456789" not in repr(SECRET)
    assert "0123456789" not in str(SECRET)
