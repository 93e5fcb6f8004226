"""Readers' claims that a batch does not hold (DESIGN 4.3).

FETCH sends ranges of files as they lie there, and the reader checks them. One that finds a bad
checksum, or another batch than belongs there, says so with REPORT_CORRUPT. A claim is no proof:
this node reads the batch itself, and only what it finds bad starts the repair of a damaged replica
(replication/DESIGN 6).
"""

from __future__ import annotations

from paceline.errors import CorruptMessage, Throttled
from paceline.types import Isolation
from paceline.wire.batch_header import verify
from paceline.wire.native.data import ReportCorrupt
from paceline_node.env import Env
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.partitions.partition_access import PartitionAccess

PAUSE_S = 0.1
"""Between two looks: whoever claims without end costs the disk ten batches a second, no more."""


class CorruptionReports:
    """Looks at what readers claim to be corrupt."""

    def __init__(self, env: Env, records: PartitionAccess) -> None:
        self._env = env
        self._records = records
        self._next_at = 0.0

    async def examine(self, principal: Principal, claim: ReportCorrupt) -> bool:
        """Whether the batch at the claimed offset is bad here; its repair has begun then.

        Raises AuthorizationFailed (of those who may not read the topic), NotLeader and the like,
        OffsetOutOfRange, and Throttled when somebody claimed something a moment ago.
        """
        self._records.permit(principal, Operation.CONSUME, claim.topic)
        partition = self._records.leader(
            claim.topic, claim.partition, current_leader_epoch=claim.current_leader_epoch
        )
        now = self._env.now()
        if now < self._next_at:
            raise Throttled("another claim is being looked at; claim again if the batch stays bad")
        self._next_at = now + PAUSE_S
        try:
            await _read_two(partition, claim.offset)
        except CorruptMessage:
            partition.suspect(claim.offset)
            return True
        return False


async def _read_two(partition: Partition, offset: int) -> None:
    """Check the batch that holds ``offset``, and the one behind it: a reader that comes from
    nowhere cannot tell which of the two is out of its place. Raises CorruptMessage."""
    for _ in range(2):
        found = partition.read(offset, 1, Isolation.READ_UNCOMMITTED).slice
        if found is None:
            return  # nothing committed lies there: nobody was sent anything
        data = await found.read_async()
        for position, _ in found.batches(data):
            verify(data, position)
        offset = found.next_offset
