"""Errors that carry what they are about, for protocols that tell it."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.errors import (
    DuplicateSequence,
    IllegalGeneration,
    OffsetRegression,
    PartitionNotOwned,
)


class StaleGeneration(IllegalGeneration):
    """The group is in another generation, which is ``current``."""

    def __init__(self, group: str, *, current: int, requested: int) -> None:
        super().__init__(f"group {group} is in generation {current}, not {requested}")
        self.current = current
        self.requested = requested


class NotOwner(PartitionNotOwned):
    """The member has not, and never had, ``partition``."""

    def __init__(self, group: str, member: str, partition: int, generation: int) -> None:
        super().__init__(f"group {group}: partition {partition} is not {member}'s")
        self.partition = partition
        self.generation = generation


class Regression(OffsetRegression):
    """A commit below ``current``, the committed offset of ``partition``."""

    def __init__(self, group: str, partition: int, *, current: int, got: int) -> None:
        super().__init__(f"group {group}: partition {partition} is at {current}, got {got}")
        self.partition = partition
        self.current = current
        self.got = got


class SequenceReused(DuplicateSequence):
    """Records have numbers under which the transaction has others. Nothing was staged.
    ``places``: which of those given."""

    def __init__(self, text: str, places: Sequence[int]) -> None:
        super().__init__(text)
        self.places = tuple(places)
