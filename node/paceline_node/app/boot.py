"""From an unopened data directory to a known identity: lock, meta, incarnation, trust.

Nothing here talks to another node, except that an empty directory with bootstrap peers joins
their cluster (DESIGN 2.3). A node never forms a cluster by itself because it found no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import trio

from paceline.errors import ConfigurationError
from paceline.types import NodeId
from paceline.values import dataclass
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import User
from paceline_node.controller.raft_store import is_newcomer, write_bootstrap, write_newcomer
from paceline_node.controller.raft_types import Member
from paceline_node.env import Disk, Env
from paceline_node.storage import incarnation
from paceline_node.storage.incarnation import Incarnation, Verdict
from paceline_node.storage.layout import (
    META,
    META_COPY,
    TOPICS,
    DirectoryMeta,
    format_directory,
    keep_meta,
    read_meta,
)

METADATA = "metadata"


class DirectoryInUse(Exception):
    """Another process holds the data directory's lock; process exit code 3."""


@dataclass(frozen=True, slots=True)
class Boot:
    """What the data directory says about this node, and whether its logs can be trusted.

    ``disk_failed``: a sync failed under the process before this one, so what it wrote last may be
    in the page cache alone and has to be written again (``storage/rewrite_after_failed_sync.py``).
    ``same_boot``: the page cache is still that which the process before wrote to.
    ``incarnation_id`` and ``boot_seq`` tell this process from all others; ``wall_ms`` is when it
    started.
    """

    meta: DirectoryMeta
    previous: Incarnation | None
    verdict: Verdict
    boot_id: str
    incarnation_id: UUID
    wall_ms: int
    disk_failed: bool = False
    same_boot: bool = False

    @property
    def boot_seq(self) -> int:
        """The count of starts that this process will register."""
        return incarnation.next_count(self.previous, self.wall_ms)

    @property
    def metadata_reached(self) -> int:
        """How far the metadata log reached that the process before knew; -1: not known."""
        return (
            -1 if self.previous is None else self.previous.metadata.of(self.meta.directory_id.bytes)
        )

    @property
    def acked_unsynced(self) -> bool:
        """Whether the process before may have acknowledged what it had not synced."""
        return self.previous is None or not self.previous.flush_floor.counts_durable


async def format_node(
    disk: Disk, meta: DirectoryMeta, voters: Sequence[Member], users: Sequence[User] = ()
) -> None:
    """Make an empty directory a node's. With ``voters``, this node among them, it also gets the
    bootstrap snapshot of the metadata quorum, the same for all of them, which has the ``users``
    that the cluster begins with; without, it joins by its bootstrap peers.

    Raises ConfigurationError when the directory is in use already.
    """
    try:
        if any(voter.directory_id == meta.directory_id for voter in voters):
            await write_bootstrap(
                disk,
                METADATA,
                cluster_id=meta.cluster_id,
                voters=voters,
                state=Image.bootstrap(meta.cluster_id, users).to_snapshot(),
            )
        else:
            await write_newcomer(disk, METADATA)
    except FileExistsError as error:
        raise ConfigurationError("the data directory is in use by a node already") from error
    await format_directory(disk, meta)


async def take_lock(disk: Disk) -> None:
    """Hold the directory for the life of this process. Raises DirectoryInUse, OSError."""
    await trio.lowlevel.checkpoint()
    try:
        disk.lock()
    except BlockingIOError as error:
        raise DirectoryInUse(error.strerror or str(error)) from error


async def open_directory(env: Env, node_id: NodeId) -> Boot | None:
    """Read who this directory belongs to and judge the start; None when it is not formatted.

    Raises ConfigurationError when it belongs to another node id, and when it holds a node's data
    and nothing says whose: to begin anew there would forget what that node promised.
    """
    meta = await read_meta(env.disk)
    if meta is None:
        if env.disk.list(TOPICS) or not is_newcomer(env.disk, METADATA):
            raise ConfigurationError(
                f"{META} and {META_COPY} are missing from a data directory that holds a node's "
                "data; restore one of them, or give the data up: paceline node format --replace"
            )
        return None
    if meta.node_id != node_id:
        raise ConfigurationError(
            f"the data directory belongs to node {meta.node_id}, node.id is {node_id}"
        )
    await keep_meta(env.disk, meta)
    previous = await incarnation.read(env.disk, meta.node)
    boot_id = incarnation.boot_identity(env)
    verdict = incarnation.judge(previous, boot_id)
    disk_failed = incarnation.has_failed(env.disk)
    if disk_failed:
        verdict = Verdict.UNTRUSTED
    same_boot = previous is not None and boot_id != "" and boot_id == previous.boot_id
    wall_ms = env.host.wall_ms()
    return Boot(
        meta=meta,
        previous=previous,
        verdict=verdict,
        boot_id=boot_id,
        incarnation_id=env.uuid(),
        wall_ms=wall_ms,
        disk_failed=disk_failed,
        same_boot=same_boot,
    )


def new_meta(env: Env, cluster_id: UUID, node_id: NodeId) -> DirectoryMeta:
    """The identity of a directory about to be formatted."""
    return DirectoryMeta(cluster_id, node_id, env.uuid())
