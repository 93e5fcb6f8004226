"""What a topic's configuration says about its logs."""

from __future__ import annotations

from paceline_node.settings.topic_config import TopicConfig
from paceline_node.storage.compaction import CompactionRules
from paceline_node.storage.log_settings import LogSettings


def log_settings(config: TopicConfig, *, index_interval_bytes: int) -> LogSettings:
    """A log's limits as its topic's configuration asks."""
    compaction = None
    segment_ms = config.segment_ms
    if config.is_compacted:
        compaction = CompactionRules(
            config.min_cleanable_dirty_ratio,
            config.min_compaction_lag_ms,
            config.max_compaction_lag_ms,
            config.delete_retention_ms,
        )
        # What is in the active segment cannot be compacted, so it must not grow older than that.
        segment_ms = min(segment_ms, config.max_compaction_lag_ms)
    expires = config.expires
    return LogSettings(
        segment_bytes=config.segment_bytes,
        segment_ms=segment_ms,
        retention_ms=config.retention_ms if expires and config.retention_ms >= 0 else None,
        retention_bytes=config.retention_bytes if expires and config.retention_bytes >= 0 else None,
        index_interval_bytes=index_interval_bytes,
        compaction=compaction,
    )
