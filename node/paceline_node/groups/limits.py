"""Bounds and times of groups, as settings give them."""

from __future__ import annotations

from paceline.values import dataclass
from paceline_node.settings.counts import GROUPS, MEMBERS, OFFSETS


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

    groups_max: int = GROUPS.bound
    members_max: int = MEMBERS.bound
    offsets_max: int = OFFSETS.bound
    member_bytes_max: int = 64 * 1024
    group_bytes_max: int = 4 * 1024 * 1024
    offset_metadata_bytes_max: int = 4096
    pending_max: int = 10_000
    pending_bytes_max: int = 8 * 1024 * 1024
    v1_session_s: float = 10.0
    cursus_session_s: float = 10.0
    session_min_s: float = 6.0
    session_max_s: float = 1800.0
    initial_delay_s: float = 0.3
    leader_lease_s: float = 3.0
    unused_kept_s: float = 60.0
    retention_s: float = 7 * 24 * 3600.0
    retention_check_s: float = 600.0
