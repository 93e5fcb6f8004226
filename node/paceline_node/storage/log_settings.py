"""Limits of one log."""

from __future__ import annotations

from paceline.values import dataclass
from paceline_node.settings import tree
from paceline_node.storage.compaction import CompactionRules
from paceline_node.storage.index import MAX_RELATIVE

_LOG = tree.LogSettings()


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Defaults: DESIGN 7.1; None means no limit.

    A segment is left when the next append would pass ``segment_bytes``, or when it is
    ``segment_ms`` old. Raises ValueError for what an index cannot address.
    """

    segment_bytes: int = _LOG.segment_bytes
    segment_ms: int = _LOG.segment_ms
    retention_ms: int | None = _LOG.retention_ms
    retention_bytes: int | None = None
    index_interval_bytes: int = _LOG.index_interval_bytes
    checkpoint_bytes: int = 16 * 1024 * 1024
    """How much an active segment may grow before the next checkpoint also writes its indexes and
    producers; recovery after a kill reads little more than this."""
    compaction: CompactionRules | None = None
    """None: the log is not compacted."""

    def __post_init__(self) -> None:
        if not 0 < self.segment_bytes <= MAX_RELATIVE:
            raise ValueError(f"segment_bytes {self.segment_bytes} is not in 1..{MAX_RELATIVE}")
        if self.index_interval_bytes <= 0:
            raise ValueError(f"index_interval_bytes {self.index_interval_bytes} is not positive")
