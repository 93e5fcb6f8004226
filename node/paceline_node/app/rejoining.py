"""A node that no longer knows what it promised the metadata quorum (controller/RAFT 5).

It must not vote as if it had promised nothing. So it asks the quorum to be taken in as a new member
in the place of the one it was: with another directory id, under which it never voted. The leader
does so only while a majority of the *other* voters is live; what they know is all that was
committed. Until then the node serves nobody and changes nothing on its disk. Its logs stay, and are
compared with the leaders' as those of any replica that comes back untrusted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import structlog

from paceline_node.app.boot import METADATA, Boot
from paceline_node.app.joining import Address, ask_to_join
from paceline_node.controller.raft_store import MetadataCorrupt, set_aside
from paceline_node.env import Disk, Env
from paceline_node.peers.auth import Identity, Secret
from paceline_node.peers.channel import PeerTls
from paceline_node.storage.layout import DirectoryMeta, write_meta


async def rejoin(
    env: Env,
    boot: Boot,
    damage: MetadataCorrupt,
    *,
    secret: Secret,
    peer_address: Address,
    bootstrap: Sequence[Address],
    tls: PeerTls | None = None,
) -> None:
    """Return when the quorum has taken this node in under a new directory id, and the directory is
    that of a newcomer. Raises MetadataCorrupt where there is nobody to ask. Cancel-safe."""
    if not [address for address in bootstrap if address != peer_address]:
        raise MetadataCorrupt(
            f"{damage}; cluster.bootstrap names no other node that could take this one in again. "
            "Restore the directory from a backup, or give its data up: paceline node format "
            "--replace"
        ) from damage
    meta = new_identity(env, boot.meta)
    log = structlog.get_logger().bind(node=meta.node_id)
    log.error(
        "this node does not know what it promised the metadata quorum; it votes no more and asks "
        "to be taken in as a new member. If it waits for ever the lost voters were too many: stop "
        "all nodes and see paceline metadata force-quorum --help",
        reason=str(damage),
    )
    await ask_to_join(
        env,
        Identity(meta.node_id, meta.directory_id, meta.cluster_id),
        secret,
        peer_address,
        bootstrap,
        until=lambda reply: reply.admitted,
        tls=tls,
    )
    await begin_anew(env.disk, meta)
    log.info("taken in as a new member", directory_id=str(meta.directory_id))


def new_identity(env: Env, former: DirectoryMeta) -> DirectoryMeta:
    """The identity of the same node's directory as another member."""
    return replace(former, directory_id=env.uuid(), generation=former.generation + 1)


async def begin_anew(disk: Disk, meta: DirectoryMeta) -> None:
    """Give the directory another identity, and only then an empty metadata log: under the old one
    it would vote as if it never had. The old files stay beside it until the next time."""
    await write_meta(disk, meta)
    await set_aside(disk, METADATA)
