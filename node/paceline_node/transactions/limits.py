"""Bounds and times of transactions, as settings give them."""

from __future__ import annotations

from paceline.values import dataclass
from paceline_node.settings.counts import (
    IDS,
    OPEN_PARTITIONS,
    TRANSACTION_GROUPS,
    TRANSACTION_PARTITIONS,
)


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Times in seconds. ``ids_max`` counts the transactional ids of each family, and sinks.
    ``partitions_max`` and ``groups_max`` are of one transaction, ``staged_bytes_max`` likewise;
    ``open_partitions_max`` of all that are open, partitions, groups and offsets together;
    ``staged_total_bytes_max`` of all together, for they lie in memory. ``ids_kept_s`` is how long
    an idle transactional id is remembered, ``unused_ids_kept_s`` one that was never used, where
    there are too many, ``sinks_kept_s`` the same of a sink."""

    timeout_min_s: float = 1.0
    timeout_max_s: float = 900.0
    ids_max: int = IDS.bound
    unused_ids_kept_s: float = 60.0
    partitions_max: int = TRANSACTION_PARTITIONS.bound
    groups_max: int = TRANSACTION_GROUPS.bound
    open_partitions_max: int = OPEN_PARTITIONS.bound
    group_commit_max: int = 10_000
    staged_bytes_max: int = 8 * 1024 * 1024
    staged_total_bytes_max: int = 128 * 1024 * 1024
    ids_kept_s: float = 7 * 24 * 3600.0
    sinks_kept_s: float = 90 * 24 * 3600.0
    fenced_runs_kept_s: float = 7 * 24 * 3600.0
    expiry_check_s: float = 600.0
