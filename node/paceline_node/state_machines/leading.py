"""What a machine is told while its replica leads, and only then."""

from __future__ import annotations

from paceline_node.state_machines.machine import Journal


class Leading:
    """Only who leads has a journal, decides anything, or knows what time it is."""

    def __init__(self) -> None:
        self._journal: Journal | None = None

    @property
    def leads(self) -> bool:
        return self._journal is not None

    @property
    def journal(self) -> Journal:
        assert self._journal is not None, "only a leader decides"
        return self._journal

    def now(self) -> float:
        return self.journal.now()

    def wall_ms(self) -> int:
        return self.journal.wall_ms()
