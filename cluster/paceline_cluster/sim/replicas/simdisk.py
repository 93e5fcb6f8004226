"""The disk of a simulated broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

from paceline_cluster.sim.replicas.simlog import SimLog
from paceline_node.controller import durable_offsets
from paceline_node.controller.image import Image
from paceline_node.storage import incarnation
from paceline_node.storage.incarnation import Incarnation


@dataclass
class SimDisk:
    """What survives a process. ``boot`` counts the machine's starts."""

    directory_id: UUID
    log: SimLog = field(default_factory=SimLog)
    image: Image | None = None
    state: Incarnation | None = incarnation.FORMATTED
    high_watermark: int = 0
    noted_syncs: int = 0
    """What was noted beside the metadata of the syncs of the log (storage/DESIGN 6.2)."""

    def is_older(self, log: SimLog) -> bool:
        """Whether what lies beside ``log`` tells that it is an older copy."""
        return log.syncs < incarnation.known_syncs(self.state, self.noted_syncs)


def offset_of(image: Image | None) -> int:
    """Where the metadata of a disk end; none are there before the first start."""
    return durable_offsets.NOT_KNOWN if image is None else image.offset
