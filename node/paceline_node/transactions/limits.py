"""Bounds and times of transactions, as settings give them."""

from __future__ import annotations

from paceline.values import dataclass
from paceline_node.settings.coordination import TransactionSettings
from paceline_node.settings.counts import TRANSACTION_GROUPS

_TRANSACTIONS = TransactionSettings()


@dataclass(frozen=True, slots=True)
class TransactionLimits:
    """Times in seconds. ``ids_max`` counts the transactional ids of each family, and sinks.
    ``partitions_max`` and ``groups_max`` are of one transaction, ``staged_bytes_max`` likewise;
    ``open_partitions_max`` of all that are open, partitions, groups and offsets together;
    ``staged_total_bytes_max`` of all together, for they lie in memory. ``ids_kept_s`` is how long
    an idle transactional id is remembered, ``unused_ids_kept_s`` one that was never used, where
    there are too many, ``sinks_kept_s`` the same of a sink."""

    timeout_min_s: float = 1.0
    timeout_max_s: float = _TRANSACTIONS.timeout_max_ms / 1000
    ids_max: int = _TRANSACTIONS.ids_max
    unused_ids_kept_s: float = _TRANSACTIONS.unused_ids_kept_ms / 1000
    partitions_max: int = _TRANSACTIONS.partitions_max
    groups_max: int = TRANSACTION_GROUPS.bound
    open_partitions_max: int = _TRANSACTIONS.open_partitions_max
    group_commit_max: int = 10_000
    staged_bytes_max: int = _TRANSACTIONS.staged_bytes_max
    staged_total_bytes_max: int = _TRANSACTIONS.staged_total_bytes_max
    ids_kept_s: float = _TRANSACTIONS.ids_kept_ms / 1000
    sinks_kept_s: float = _TRANSACTIONS.sinks_kept_ms / 1000
    fenced_runs_kept_s: float = 7 * 24 * 3600.0
    expiry_check_s: float = _TRANSACTIONS.expiry_check_ms / 1000
