"""Whether who folds a log record by record may go on, when the log has changed meanwhile.

A fold holds what the records below its offset have said, and believes that those behind will say
what became of it. Two things end that, though offsets and epochs are as before:

* The log's content is another one. A log that begins anew (DESIGN 9.7) is filled again with what
  its leader has left: the tombstone of a value in the fold may not be among it. ``Log.generation``
  counts that, and repairs, and cuts of what was compacted. Other cuts it does not: the epoch of
  the last record folded tells of them.
* Compaction removed a tombstone that the fold has yet to reach, and whose value it holds. That is
  :class:`~paceline_node.storage.removed_tombstones.Removals`' rule: a fold has
  ``delete.retention.ms`` for its way, as a copy has.

Whoever keeps a fold for one leader epoch alone need not ask: a leader's log is neither cut nor
begun anew. Nor need who folds in the same step in which the log changes, as the log's own tables.
"""

from __future__ import annotations

from paceline.values import dataclass
from paceline_node.storage.log import Log


@dataclass(frozen=True, slots=True)
class FoldStart:
    """A log when a fold of it began: its content's number, and how far it was cleaned."""

    generation: int
    cleaned_offset: int


def fold_start(log: Log) -> FoldStart:
    """To be kept by who begins to fold ``log`` at its start now."""
    return FoldStart(log.generation, log.compaction.cleaned_offset)


def leads_on(log: Log, start: FoldStart, offset: int) -> bool:
    """Whether a fold that began at ``start`` and has reached ``offset`` may go on from there."""
    if log.generation != start.generation:
        return False
    return not log.compaction.removals.forbids(offset, start.cleaned_offset)
