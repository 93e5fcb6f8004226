"""Have records that a query was going to read gone missing? Pure (DESIGN 4: D1-D5, D7).

D6 is what a task finds, in ``reading.py``. Gaps inside a log are legal: compaction, markers and
aborted transactions leave them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paceline.spark.errors import OptionError, PacelineDataLoss
from paceline.spark.facts import Facts, PartitionFacts
from paceline.spark.offsets import StreamOffset
from paceline.types import TopicPartition
from paceline.values import dataclass


@dataclass(frozen=True, slots=True)
class Loss:
    """One finding: ``at`` goes on at ``resume``, None when it is gone; ``count`` records went."""

    rule: str
    at: TopicPartition
    what: str
    resume: int | None
    count: int

    def error(self) -> PacelineDataLoss:
        """As it is raised under ``failOnDataLoss=true``."""
        return PacelineDataLoss(self.rule, f"{self.at}: {self.what}")


def find(start: StreamOffset, facts: Facts) -> list[Loss]:
    """What is missing of what lies behind ``start``, by partition.

    Raises OptionError when the checkpoint is another cluster's.
    """
    if start.cluster != facts.cluster:
        raise OptionError(
            f"paceline: the checkpoint is of cluster {start.cluster}, this is {facts.cluster}"
        )
    found = []
    for at in sorted(start.ends):
        loss = _judge(at, start, facts)
        if loss is not None:
            found.append(loss)
    for at in sorted(facts.partitions):
        known = facts.partitions[at]
        if at not in start.ends and known.log_start > 0 and known.end > known.log_start:
            what = f"a new partition whose first records are gone (log starts at {known.log_start})"
            found.append(Loss("D5", at, what, known.log_start, known.log_start))
    return found


def _judge(at: TopicPartition, start: StreamOffset, facts: Facts) -> Loss | None:
    position = start.ends[at]
    known = facts.partitions.get(at)
    if at.topic not in facts.ids or known is None:
        return Loss("D4", at, f"gone; the query was at offset {position}", None, 0)
    ids = start.ids[at.topic], facts.ids[at.topic]
    if ids[0] != ids[1]:
        what = f"the topic was deleted and made anew (id {ids[0]}, now {ids[1]})"
        return Loss("D3", at, what, known.log_start, 0)
    if known.log_start > position:
        what = f"offsets [{position}, {known.log_start}) are gone (log starts at {known.log_start})"
        return Loss("D1", at, what, known.log_start, known.log_start - position)
    return _judge_end(at, position, start.epochs.get(at, -1), known)


def _judge_end(at: TopicPartition, position: int, epoch: int, known: PartitionFacts) -> Loss | None:
    if known.epoch_end is not None and known.epoch_end < position:
        what = (
            f"leader epoch {epoch} ends at {known.epoch_end}, the query was at {position}: "
            "an unclean election"
        )
        # Up to there both logs are the same: what lies behind is new, what lies before was read.
        resume = max(known.epoch_end, known.log_start)
        return Loss("D7", at, what, resume, position - known.epoch_end)
    # A query that read what was not committed, and now does not, waits for it.
    end = known.end if known.stored_end is None else known.stored_end
    if end < position:
        what = f"the log ends at {end}, the query was at {position}"
        # As for D7: no leader of a newer epoch has written anything before the end.
        return Loss("D2", at, what, end, position - end)
    return None


def check_ids(wanted: Mapping[str, str], facts: Facts) -> None:
    """Raise PacelineDataLoss where a topic of which only one id is wanted has another."""
    for topic in sorted(wanted.keys() & facts.ids.keys()):
        if wanted[topic] != facts.ids[topic]:
            raise PacelineDataLoss(
                "D3",
                f"{topic}: the topic was deleted and made anew (id {wanted[topic]}, now "
                f"{facts.ids[topic]}), and this query is of the former one alone (topicIds)",
                "The new one needs a query of its own; an archive, another directory, too.",
            )


def accept(start: StreamOffset, losses: list[Loss], facts: Facts) -> StreamOffset:
    """``start`` moved to where reading can go on under ``failOnDataLoss=false``."""
    ends, epochs, lost = dict(start.ends), dict(start.epochs), dict(start.lost)
    ids, resumed = dict(start.ids), dict(start.resumed)
    for loss in losses:
        if loss.resume is None:
            for places in (ends, epochs, lost, resumed):
                places.pop(loss.at, None)
            continue
        ends[loss.at] = resumed[loss.at] = loss.resume
        epochs[loss.at] = facts.partitions[loss.at].epoch
        lost[loss.at] = lost.get(loss.at, 0) + loss.count
        ids[loss.at.topic] = facts.ids[loss.at.topic]
    return replace(start, ids=ids, ends=ends, epochs=epochs, lost=lost, resumed=resumed)
