"""What members of the metadata quorum have promised: none comes back, as the same member, with less
than what it acknowledged and is committed."""

from __future__ import annotations

from collections.abc import Callable

from paceline_node.controller.quorum import Quorum
from paceline_node.controller.raft_types import MemberId


class Promises:
    """``fail`` is told of the invariant that broke, and how."""

    def __init__(self, fail: Callable[[str, str], None]) -> None:
        self._fail = fail
        self._held: dict[MemberId, int] = {}
        self._committed = 0

    def began(self, node: int, quorum: Quorum) -> None:
        """A process has read its disk."""
        held = self._held.get(quorum.member_id, 0)
        if quorum.last_index < held:
            self._fail(
                "I20",
                f"n{node} is the member of the quorum that it was, with a log up to "
                f"{quorum.last_index}; it had acknowledged {held}, which is committed",
            )

    def look(self, quorum: Quorum) -> None:
        """A leader of the quorum may have committed more."""
        committed = quorum.commit_index
        if committed <= self._committed:
            return
        self._committed = committed
        for member, match in quorum.acknowledged.items():
            self._held[member] = max(min(match, committed), self._held.get(member, 0))
