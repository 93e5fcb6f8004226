"""Which groups make room for new ones where a family has as many as it may have.

One that has neither members nor offsets and did not change for a while: nothing is lost with it
but its name. Whoever has offsets is safe for ``groups.offsets_retention_ms``. Those of V1 stay for
ever, as their generations may not begin anew (DESIGN 3.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paceline_node.groups.keys import Family, GroupKey
from paceline_node.groups.store import GroupStore


def unused(
    store: GroupStore, family: Family, before_ms: int, has_members: Callable[[GroupKey], bool]
) -> Iterator[GroupKey]:
    """Groups of ``family`` that nobody uses and that did not change since ``before_ms``."""
    if family is Family.V1:
        return
    for key, group in store.groups.items():
        if key.family is not family or group.members or group.changed_ms > before_ms:
            continue
        if key not in store.offsets and key not in store.pending and not has_members(key):
            yield key
