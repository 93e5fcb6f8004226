"""A topic that somebody has been found to be allowed to read: what alone shows decoded records."""

from __future__ import annotations

from paceline.types import Isolation
from paceline_node.env import Env
from paceline_node.replication.partition import Partition
from paceline_node.services.records import RecordService
from paceline_node.services.scan import RecordScan


class ReadableTopic:
    """For listeners that decode what they read."""

    __slots__ = ("_env", "_name", "_records")

    def __init__(self, name: str, env: Env, records: RecordService) -> None:
        self._name = name
        self._env = env
        self._records = records

    def hosted(self, number: int) -> Partition | None:
        """This node's replica of a partition, whatever its role."""
        return self._records.hosted(self._name, number)

    def scan(
        self,
        replica: Partition,
        position: int,
        *,
        isolation: Isolation = Isolation.READ_COMMITTED,
        max_bytes: int,
        from_follower: bool = False,
    ) -> RecordScan:
        """One pass over a replica of the topic; see :class:`RecordScan`."""
        assert replica.topic == self._name, f"{replica} is not of {self._name}"
        return RecordScan(
            self._env,
            replica,
            position,
            isolation=isolation,
            max_bytes=max_bytes,
            from_follower=from_follower,
        )
