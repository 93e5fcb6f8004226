"""What can go wrong in the pipeline itself, besides what a broker answers.

These refine errors of ``paceline.errors`` and keep their codes.
"""

from __future__ import annotations

from paceline.errors import (
    ConfigurationError,
    CorruptMessage,
    OffsetOutOfRange,
    RequestTimedOut,
)

GO_ON = "Set failOnDataLoss=false to go on without them, or start a new checkpoint."


class OptionError(ConfigurationError, ValueError):
    """An option is missing, unknown or malformed; the sentence names it."""


class PacelineDataLoss(OffsetOutOfRange):
    """Records that the query was going to read are gone; ``rule`` is D1..D7 (DESIGN 4)."""

    def __init__(self, rule: str, what: str, way_out: str = GO_ON) -> None:
        super().__init__(f"{rule} {what}. {way_out}")
        self.rule = rule
        self.what = what
        self.way_out = way_out

    def __reduce__(self) -> tuple[type[PacelineDataLoss], tuple[str, str, str]]:
        return PacelineDataLoss, (self.rule, self.what, self.way_out)


class PacelineReadTimeout(RequestTimedOut):
    """A task got nothing from its partition for ``consumer.pollTimeoutMs``."""


class PacelineCorruptBatch(CorruptMessage):
    """A stored batch does not hold, not even after it was fetched again."""
