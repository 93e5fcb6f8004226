"""What a replica's rules ask of its log."""

from __future__ import annotations

from typing import Protocol

from paceline.errors import CorruptMessage
from paceline_node.storage.compaction_file import CompactionState
from paceline_node.storage.epochs import EpochCache
from paceline_node.storage.producers import FrozenTable


class ReplicaLog(Protocol):
    """The synchronous part of a log that replication rules act on; ``storage.log.Log`` is one."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def oldest_whole_offset(self) -> int: ...
    @property
    def state_offset(self) -> int | None: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def durable_offset(self) -> int: ...
    @property
    def epochs(self) -> EpochCache: ...
    @property
    def compaction(self) -> CompactionState: ...

    def append_follower(self, data: memoryview, newest_epoch: int, told: EpochCache) -> object:
        """Append a leader's batches, none of an epoch above ``newest_epoch``, each of the one that
        the leader ``told``. Raises CorruptMessage; nothing is appended then."""

    def truncate(self, offset: int) -> None: ...
    def end_if_cut(self, offset: int) -> int:
        """Where ``truncate`` would end the log: it removes whole batches."""

    def begin_at(self, state: FrozenTable, *, is_kept: bool) -> None: ...
    def doubt(self, offset: int, error: CorruptMessage) -> None:
        """The segment that holds ``offset`` is to be read against the epoch table, and repaired."""

    def advance_start(self, offset: int) -> None: ...
    def prove(self) -> bool: ...
    def is_proven(self) -> bool: ...
