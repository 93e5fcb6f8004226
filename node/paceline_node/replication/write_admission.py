"""Whether this node takes writes at all, whatever the partition."""

from __future__ import annotations

from collections.abc import Callable

from paceline.errors import NotLeader, StorageFull
from paceline.values import dataclass


def _always() -> bool:
    return True


@dataclass(slots=True)
class Admission:
    """Why this node takes no writes at present: no session with a controller, or
    too little room on its disk (DESIGN 4.1, 7)."""

    session_valid: Callable[[], bool] = _always
    storage_full: bool = False

    def check(self) -> None:
        """Raises NotLeader or StorageFull; nothing is appended then."""
        self.check_session()
        if self.storage_full:
            raise StorageFull("the disk is below its free-space floor (disk.min_free_bytes)")

    def check_session(self) -> None:
        """Raises NotLeader without a session."""
        if not self.session_valid():
            raise NotLeader("no session with a controller; another node may lead now")
