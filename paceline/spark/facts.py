"""What a planner knows of the cluster at one moment. Pure values."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.types import TopicPartition
from paceline.values import dataclass


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """``end`` for the query's isolation, learnt from the leader in ``epoch``. ``epoch_end``: where
    the checkpoint's leader epoch ends in that leader's log, ``stored_end``: where its log ends for
    whoever reads what is not committed; None when they need not be asked."""

    log_start: int
    end: int
    epoch: int
    epoch_end: int | None = None
    stored_end: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """``ids``: topic -> id as hex text, of topics that exist."""

    cluster: str
    ids: Mapping[str, str]
    partitions: Mapping[TopicPartition, PartitionFacts]

    def ends(self) -> dict[TopicPartition, int]:
        """Where every partition ends."""
        return {at: facts.end for at, facts in self.partitions.items()}
