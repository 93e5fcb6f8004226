"""Settings of consumer groups and transactions."""

from __future__ import annotations

from paceline.values import dataclass
from paceline_node.settings import counts
from paceline_node.settings.counts import counted
from paceline_node.settings.fields import setting

_KIB = 1024
_MIB = 1024 * _KIB
_GIB = 1024 * _MIB
_DAY_MS = 24 * 60 * 60 * 1000
_HOUR_MS = 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Consumer groups of all protocols; V1's session time-out is ``v1.session_timeout_ms``."""

    session_min_ms: int = setting(
        6000,
        "Shortest session time-out that a member may ask for.",
        low=10,
        high=_HOUR_MS,
        local=1000,
    )
    session_max_ms: int = setting(
        1_800_000,
        "Longest session time-out that a member may ask for; its rebalance time-out "
        "(max.poll.interval.ms) may be longer.",
        low=1000,
        high=_DAY_MS,
    )
    initial_delay_ms: int = setting(
        300, "How long the first member of a group waits for others to join.", low=0, high=60_000
    )
    commit_timeout_ms: int = setting(
        5000, "How long a change of a group may take to be replicated.", low=100, high=60_000
    )
    offsets_retention_ms: int = setting(
        7 * _DAY_MS,
        "How long the offsets of a group without members are kept after its last change; "
        "-1: for ever.",
        low=-1,
    )
    offsets_check_ms: int = setting(
        600_000, "Pause between two looks for such offsets.", low=100, high=_DAY_MS
    )
    partitions: int = setting(
        16,
        "Partitions of __groups, which the cluster makes when it first starts; later values change "
        "nothing.",
        low=1,
        high=256,
    )
    groups_max: int = counted(counts.GROUPS)
    members_max: int = counted(counts.MEMBERS)
    offsets_max: int = counted(counts.OFFSETS)
    lists_max: int = counted(counts.LISTED_GROUPS)
    lists_bytes: int = counted(counts.LISTED_BYTES)
    member_bytes_max: int = setting(
        64 * _KIB, "What one member may say of itself.", low=_KIB, high=_MIB
    )
    group_bytes_max: int = setting(
        4 * _MIB,
        "What all members of a group may say, and what its leader may assign, together.",
        low=_KIB,
        high=6 * _MIB,
    )
    offset_metadata_bytes_max: int = setting(
        4096, "Text stored with a committed offset.", low=0, high=_MIB
    )


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The transactions of all protocols."""

    timeout_max_ms: int = setting(
        900_000, "Longest time-out of a transaction that a client may ask for.", low=1000
    )
    commit_timeout_ms: int = setting(
        5000,
        "How long a change of a transaction may take to be replicated.",
        low=100,
        high=60_000,
    )
    ids_max: int = counted(counts.IDS)
    ids_kept_ms: int = setting(
        7 * _DAY_MS, "How long an idle transactional id is remembered.", low=1000
    )
    unused_ids_kept_ms: int = setting(
        60_000,
        "How long one that never had a transaction is safe from making room for new ones, where "
        "there are ids_max.",
        low=10,
    )
    sinks_kept_ms: int = setting(
        90 * _DAY_MS,
        "How long it is remembered which batch an idle sink has committed.",
        low=1000,
    )
    expiry_check_ms: int = setting(
        600_000, "Pause between two looks for idle ones.", low=100, high=_DAY_MS
    )
    partitions_max: int = counted(counts.TRANSACTION_PARTITIONS)
    open_partitions_max: int = counted(counts.OPEN_PARTITIONS)
    staged_bytes_max: int = setting(
        8 * _MIB,
        "Bytes of records that one Cursus transaction may stage.",
        low=_KIB,
        high=_GIB,
    )
    staged_total_bytes_max: int = setting(
        128 * _MIB,
        "The same of all transactions together; they lie in memory on every replica.",
        low=_KIB,
    )
