"""From an unopened data directory to a known identity: lock, meta, incarnation, trust.

Nothing here talks to another node, except that an empty directory with bootstrap peers joins
their cluster (SETTLED R5). A node never forms a cluster by itself because it found no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from paceline.errors import ConfigurationError
from paceline.types import NodeId
from paceline_node.controller.image import Image
from paceline_node.controller.raft_store import write_bootstrap
from paceline_node.controller.raft_types import Member
from paceline_node.env import Disk, Env
from paceline_node.storage import incarnation
from paceline_node.storage.incarnation import Incarnation, Verdict
from paceline_node.storage.layout import DirectoryMeta, format_directory, read_meta

METADATA = "metadata"


class DirectoryInUse(Exception):
    """Another process holds the data directory's lock; process exit code 3."""


@dataclass(frozen=True, slots=True)
class Boot:
    """What the data directory says about this node, and whether its logs can be trusted.

    ``disk_failed``: a sync failed under the process before this one, so what it wrote last may be
    in the page cache alone and has to be written again (``storage/rewriting.py``).
    """

    meta: DirectoryMeta
    previous: Incarnation | None
    verdict: Verdict
    boot_id: str
    disk_failed: bool = False


async def format_node(disk: Disk, meta: DirectoryMeta, voters: Sequence[Member]) -> None:
    """Make an empty directory a node's. With ``voters``, this node among them, it also gets the
    bootstrap snapshot of the metadata quorum; without, it joins by its bootstrap peers.

    Raises ConfigurationError when the directory is in use already.
    """
    if any(voter.directory_id == meta.directory_id for voter in voters):
        try:
            await write_bootstrap(
                disk,
                METADATA,
                cluster_id=meta.cluster_id,
                voters=voters,
                state=Image.bootstrap(meta.cluster_id).to_snapshot(),
            )
        except FileExistsError as error:
            raise ConfigurationError("the data directory is in use by a node already") from error
    await format_directory(disk, meta)


def take_lock(disk: Disk) -> None:
    """Hold the directory for the life of this process. Raises DirectoryInUse."""
    try:
        disk.lock()
    except BlockingIOError as error:
        raise DirectoryInUse(error.strerror or str(error)) from error


async def open_directory(env: Env, node_id: NodeId) -> Boot | None:
    """Read who this directory belongs to and judge the start; None when it is not formatted.

    Raises ConfigurationError when it belongs to another node id.
    """
    meta = await read_meta(env.disk)
    if meta is None:
        return None
    if meta.node_id != node_id:
        raise ConfigurationError(
            f"the data directory belongs to node {meta.node_id}, node.id is {node_id}"
        )
    previous = await incarnation.read(env.disk)
    boot_id = incarnation.boot_identity(env)
    verdict = incarnation.judge(previous, boot_id)
    disk_failed = incarnation.has_failed(env.disk)
    if disk_failed:
        verdict = Verdict.UNTRUSTED
    return Boot(meta, previous, verdict, boot_id, disk_failed)


def new_meta(env: Env, cluster_id: UUID, node_id: NodeId) -> DirectoryMeta:
    """The identity of a directory about to be formatted."""
    return DirectoryMeta(cluster_id, node_id, env.uuid())
