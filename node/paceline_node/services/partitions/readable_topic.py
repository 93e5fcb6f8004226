"""A topic that somebody has been found to be allowed to read: what alone shows decoded records.

Who reads on for long is asked about again, for each pass over the log: rights end (DESIGN 1.5).
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from paceline.types import Isolation
from paceline_node.env import Env
from paceline_node.replication.partition import Partition
from paceline_node.services.partitions.partition_access import PartitionAccess
from paceline_node.services.partitions.record_scan import RecordScan


class ReadableTopic:
    """For listeners that decode what they read. All that reads raises AuthorizationFailed, as
    ``ask`` does, once that is not allowed any more."""

    __slots__ = ("_env", "_name", "_records", "ask")

    def __init__(
        self, name: str, env: Env, records: PartitionAccess, ask: Callable[[], None]
    ) -> None:
        self._name = name
        self._env = env
        self._records = records
        self.ask = ask

    def hosted(self, number: int) -> ReadableReplica | None:
        """This node's replica of a partition, whatever its role."""
        partition = self._records.hosted(self._name, number)
        return None if partition is None else ReadableReplica(self._env, partition, self.ask)

    def leader(self, number: int) -> ReadableReplica:
        """This node's leading replica of a partition. Raises UnknownTopicOrPartition, NotLeader."""
        replica = ReadableReplica(self._env, self._records.leader(self._name, number), self.ask)
        replica.check_leading()
        return replica


class ReadableReplica:
    """One replica of it."""

    __slots__ = ("_ask", "_env", "_partition")

    def __init__(self, env: Env, partition: Partition, ask: Callable[[], None]) -> None:
        self._env = env
        self._partition = partition
        self._ask = ask

    def check_leading(self) -> None:
        """Raise NotLeader unless it leads."""
        self._partition.replica.check_leading()

    @property
    def start(self) -> int:
        """The first offset that there is."""
        return self._partition.log_start_offset

    @property
    def log_end(self) -> int:
        """Behind the last record, committed or not."""
        return self._partition.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._partition.high_watermark

    def readable_end(self, isolation: Isolation) -> int:
        """End of what readers of ``isolation`` see."""
        return self._partition.readable_end(isolation)

    async def wait_readable(self, offset: int, isolation: Isolation, wait_s: float) -> None:
        """Return once readers of ``isolation`` see ``offset``, the role changes, or ``wait_s`` are
        over. Cancel-safe."""
        self._ask()
        happened = trio.Event()
        token = self._partition.when_readable(offset, happened.set, isolation)
        try:
            with trio.move_on_after(wait_s):
                await happened.wait()
        finally:
            self._partition.cancel(token)

    def scan(
        self,
        position: int,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int,
        from_follower: bool = False,
    ) -> RecordScan:
        """One pass over it; see :class:`RecordScan`."""
        self._ask()
        return RecordScan(
            self._env,
            self._partition,
            position,
            isolation=isolation,
            max_bytes=max_bytes,
            from_follower=from_follower,
        )

    def fetched(self, records: int, size_bytes: int) -> None:
        """Count what a reader was given."""
        self._partition.traffic.fetched(records, size_bytes)
