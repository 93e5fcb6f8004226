"""The replication room's settings, from the node's."""

from __future__ import annotations

from dataclasses import replace

from paceline_node.replication.compaction_schedule import CompactionSettings
from paceline_node.replication.fetcher import FetchSettings
from paceline_node.replication.hosted_partitions import HostingSettings
from paceline_node.replication.maintenance import MaintenanceSettings
from paceline_node.replication.manager import ReplicationSettings
from paceline_node.replication.producer_quota import ProducerLimits
from paceline_node.replication.repairs import RepairSettings
from paceline_node.settings import LiveSettings, Settings, SimulatedReplicas
from paceline_node.storage.cleaner import CleanerLimits


def live_replication_settings(live: LiveSettings) -> ReplicationSettings:
    """The same, with what may change while the node runs."""
    return replace(
        replication_settings(live.current),
        catchup_bytes_per_s=lambda: live.current.replication.catchup_bytes_per_s,
    )


def replication_settings(settings: Settings) -> ReplicationSettings:
    """What of the node's settings concerns replicas."""
    replication = settings.replication
    floor = settings.disk.min_free_bytes
    return ReplicationSettings(
        lag_max_s=replication.lag_max_ms / 1000,
        flush_linger_s=settings.flush.linger_ms / 1000,
        simulated_max_lag=settings.v1.simulated_max_lag,
        fetch=FetchSettings(
            max_wait_s=replication.fetch_max_wait_ms / 1000,
            min_bytes=replication.fetch_min_bytes,
            max_bytes=replication.fetch_response_bytes,
            partition_max_bytes=replication.fetch_partition_bytes,
            backoff_min_s=replication.backoff_min_ms / 1000,
            backoff_max_s=replication.backoff_max_ms / 1000,
        ),
        table=HostingSettings(
            topic_defaults=settings.topic_configs(),
            index_interval_bytes=settings.log.index_interval_bytes,
            simulated_slots=settings.v1.simulated_replicas is SimulatedReplicas.AUTO,
        ),
        producers=ProducerLimits(
            settings.limits.partition_producers, settings.limits.client_producers
        ),
        compaction=CompactionSettings(
            check_s=settings.log.compaction_check_ms / 1000,
            limits=CleanerLimits(
                max_keys=settings.log.compaction_keys,
                bytes_per_s=settings.log.compaction_bytes_per_s,
            ),
        ),
        repairs=RepairSettings(scrub_interval_s=settings.log.scrub_interval_ms / 1000),
        maintenance=MaintenanceSettings(
            checkpoint_s=settings.log.checkpoint_ms / 1000,
            retention_s=settings.log.retention_check_ms / 1000,
            min_free_bytes=None if floor < 0 else floor,
        ),
    )
