"""Bounds and times of groups, as settings give them."""

from __future__ import annotations

from paceline.values import dataclass
from paceline_node.settings.coordination import GroupSettings, TransactionSettings
from paceline_node.settings.cursus import CursusSettings
from paceline_node.settings.tree import BrokerSettings, V1Settings

_GROUPS = GroupSettings()


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Times in seconds, sizes in bytes.

    ``groups_max`` and ``offsets_max`` are per family and partition of ``__groups``.
    ``member_bytes_max`` bounds what one member says of itself or is assigned, ``group_bytes_max``
    the same of all members together, which lies well below the largest record. ``unused_kept_s``:
    how long a group that has neither members nor offsets is safe from making room for new ones.
    ``retention_s``: how long the offsets of a group without members are kept; inf for ever.
    ``pending_max`` offsets of ``pending_bytes_max`` are what a transaction may commit in a group.
    ``leader_lease_s``: for how long a coordinator that was deposed unawares may still act as one.
    """

    groups_max: int = _GROUPS.groups_max
    members_max: int = _GROUPS.members_max
    offsets_max: int = _GROUPS.offsets_max
    member_bytes_max: int = _GROUPS.member_bytes_max
    group_bytes_max: int = _GROUPS.group_bytes_max
    offset_metadata_bytes_max: int = _GROUPS.offset_metadata_bytes_max
    pending_max: int = TransactionSettings().partitions_max
    pending_bytes_max: int = 8 * 1024 * 1024
    v1_session_s: float = V1Settings().session_timeout_ms / 1000
    cursus_session_s: float = CursusSettings().session_timeout_ms / 1000
    session_min_s: float = _GROUPS.session_min_ms / 1000
    session_max_s: float = _GROUPS.session_max_ms / 1000
    initial_delay_s: float = _GROUPS.initial_delay_ms / 1000
    leader_lease_s: float = BrokerSettings().session_ms / 1000
    unused_kept_s: float = 60.0
    retention_s: float = _GROUPS.offsets_retention_ms / 1000
    retention_check_s: float = _GROUPS.offsets_check_ms / 1000
