"""``metadata force-quorum`` over the data directories of stopped nodes on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from paceline.errors import PacelineError
from paceline.values import dataclass
from paceline_cluster.errors import BadInput, Refused
from paceline_node.app.boot import METADATA
from paceline_node.controller import force_quorum
from paceline_node.controller.force_quorum import Forced, Survivor
from paceline_node.controller.raft_store import is_newcomer
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.layout import read_meta


@dataclass(frozen=True, slots=True)
class Found:
    """What the directories hold; ``unreadable`` says why one is of no use."""

    survivors: dict[Path, Survivor]
    unreadable: dict[Path, str]


async def look(paths: Sequence[Path]) -> Found:
    """Read the metadata of every directory; nothing is changed. Raises Refused when a node runs on
    one of them."""
    survivors: dict[Path, Survivor] = {}
    unreadable: dict[Path, str] = {}
    for path in paths:
        with _locked(path) as disk:
            try:
                meta = await read_meta(disk)
                if meta is None:
                    unreadable[path] = "it is not formatted"
                elif is_newcomer(disk, METADATA):
                    unreadable[path] = "it holds no metadata"
                else:
                    survivors[path] = await force_quorum.examine(disk, METADATA, meta)
            except (PacelineError, OSError) as error:
                unreadable[path] = str(error)
    return Found(survivors, unreadable)


def decide(found: Found) -> Forced:
    """Who goes on. Raises InvalidRequest, and BadInput where there is nobody."""
    if not found.survivors:
        raise BadInput("none of these directories holds metadata that can be read")
    return force_quorum.decide(list(found.survivors.values()))


async def force(found: Found, forced: Forced) -> int:
    """Write it; the number of partitions that elect anew. Raises Refused, MetadataCorrupt."""
    [path] = [path for path, each in found.survivors.items() if each is forced.keeper]
    with _locked(path) as disk:
        return await force_quorum.force(disk, METADATA, forced, wall_ms=time.time_ns() // 1_000_000)


@contextmanager
def _locked(path: Path) -> Iterator[RealDisk]:
    """The directory, held against any node."""
    disk = RealDisk(str(path))
    try:
        try:
            disk.lock()
        except BlockingIOError as error:
            raise Refused(f"{path} is in use by a running node ({error}); stop it first") from None
        yield disk
    finally:
        disk.close()
