"""The machine, with a wall clock that jumps and points to die at, on command."""

from __future__ import annotations

from paceline_cluster.faulty.control import ControlPage
from paceline_cluster.faulty.crash_points import CrashPoints
from paceline_node.env import RealHost


class FaultyHost(RealHost):
    """A :class:`RealHost` that obeys a :class:`ControlPage` and dies at armed points."""

    def __init__(self, page: ControlPage, crashes: CrashPoints | None = None) -> None:
        super().__init__()
        self._page = page
        self._crashes = crashes

    def wall_ms(self) -> int:
        return super().wall_ms() + self._page.wall_offset_ms

    def buggify(self, site: str) -> bool:
        if self._crashes is not None:
            self._crashes.strike(site)
        return False
