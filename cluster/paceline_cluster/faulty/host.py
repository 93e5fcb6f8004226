"""The machine, with a wall clock that jumps on command."""

from __future__ import annotations

from paceline_cluster.faulty.control import ControlPage
from paceline_node.env import RealHost


class FaultyHost(RealHost):
    """A :class:`RealHost` that obeys a :class:`ControlPage`."""

    def __init__(self, page: ControlPage) -> None:
        super().__init__()
        self._page = page

    def wall_ms(self) -> int:
        return super().wall_ms() + self._page.wall_offset_ms
