"""Settings of who may do what."""

from __future__ import annotations

from paceline.values import dataclass
from paceline_node.settings import counts
from paceline_node.settings.counts import counted
from paceline_node.settings.fields import setting


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """Who may do what."""

    super_users: tuple[str, ...] = setting(
        (),
        "Users, and principals as their certificates name them, who may do everything, whatever "
        "ACLs say; the same on all nodes. The first user of a cluster must be one of them.",
        reloadable=True,
    )
    acls_max: int = counted(counts.ACLS)
