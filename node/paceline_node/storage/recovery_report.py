"""What is known of a log before it is opened, and what opening it found."""

from __future__ import annotations

from dataclasses import field

from paceline.values import dataclass
from paceline_node.storage.damage import DamagedRange
from paceline_node.storage.durability import Marked
from paceline_node.storage.torn_tail import Ending


@dataclass(frozen=True, slots=True)
class RecoveryHints:
    """What the node knows about a log before opening it.

    ``ending``: of the process before. ``recovery_point``: an offset below which everything was
    durable, the higher of ``recovery.ckpt``'s and the mark's; ``checkpoint``: the former's alone,
    up to which the epoch table on disk is complete and indexes may be believed (None: the same);
    ``point_known``: whether either says anything of this log; ``mark_exact``: it is the log's mark,
    and nobody was told of a record above it; ``mark``: the mark itself, if there is one, which
    knows the newest epoch; ``mark_lost``: there was one. ``log_start``: as written down (0: the
    first segment's base); ``first_offset``: where the first segment must begin at the latest, None
    if that is not known. ``removed_to``: compaction has removed something up to there, at least.
    ``disk_failed``: a sync failed before, so the page cache alone may hold what is above the point.
    """

    ending: Ending = Ending.POWER_CUT
    recovery_point: int = 0
    checkpoint: int | None = None
    point_known: bool = True
    mark_exact: bool = True
    mark: Marked | None = None
    mark_lost: bool = False
    log_start: int = 0
    first_offset: int | None = None
    removed_to: int = 0
    disk_failed: bool = False

    @property
    def clean(self) -> bool:
        """Whether indexes and ends may be taken for what they were when the log was closed."""
        return self.ending is Ending.CLEAN and self.point_known


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening found.

    ``lost_tail``: the log ends below the recovery point, so acknowledged records are gone and the
    replica cannot be trusted. ``truncated_bytes`` were cut as torn writes, of which the last
    ``discarded_valid_bytes`` began with a good batch; ``doubtful_tail``: nobody knows whether they
    had been acknowledged. ``rebuilt`` names derived state that was missing or bad.
    """

    scanned_bytes: int
    truncated_bytes: int
    discarded_valid_bytes: int
    damaged: tuple[DamagedRange, ...]
    lost_tail: bool
    rebuilt: tuple[str, ...]
    doubtful_tail: bool = False

    @property
    def reached_durable_mark(self) -> bool:
        """Whether all that was durable is still there (DESIGN 2.3)."""
        return not self.lost_tail and not self.damaged


@dataclass(slots=True)
class Findings:
    """What a recovery has come upon by now. ``dirty``: names in the directory changed."""

    scanned_bytes: int = 0
    truncated: int = 0
    discarded: int = 0
    damaged: list[DamagedRange] = field(default_factory=list)
    rebuilt: list[str] = field(default_factory=list)
    dirty: bool = False

    def report(self, hints: RecoveryHints, end: int) -> RecoveryReport:
        """All of it, of a log that ends at ``end``."""
        # After a power cut a torn tail is what one expects, and the mark as good as there can be.
        sure = hints.mark_exact if hints.ending is Ending.KILLED else hints.point_known
        return RecoveryReport(
            scanned_bytes=self.scanned_bytes,
            truncated_bytes=self.truncated,
            discarded_valid_bytes=self.discarded,
            damaged=tuple(self.damaged),
            lost_tail=end < hints.recovery_point,
            rebuilt=tuple(self.rebuilt),
            doubtful_tail=self.truncated > 0 and not sure,
        )
