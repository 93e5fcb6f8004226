"""What a follower keeps for one partition in one leader epoch (DESIGN 3.4).

Pure: deciding whether an answer may be believed, and where to truncate. The log itself is changed
by ``replica.py``.
"""

from __future__ import annotations

import enum
from typing import Protocol

from paceline.types import LeaderEpoch, NodeId
from paceline.values import dataclass

CORRUPT_BEFORE_SUSPICION = 3


class FetchOutcome(enum.Enum):
    """What an answer to a fetch did to the follower."""

    DROPPED = "dropped"
    """Not for this request, epoch or position; nothing changed."""
    APPENDED = "appended"
    """Records were appended; the high watermark may have moved as well."""
    IDLE = "idle"
    """No records; the high watermark may have moved."""
    PROVEN = "proven"
    """No records, but the leader has what this log withheld (storage/DESIGN 6.1): sync it now."""
    TRUNCATED = "truncated"
    """The log forked from the leader's and was cut; fetch again, more rounds may follow."""
    BEHIND = "behind"
    """The log has nothing in common with what the leader still has. Nothing changed: fetch the
    leader's state, then let the log begin anew there (``Replica.begin_at``)."""
    REFUSED = "refused"
    """The leader knows another epoch or replica set; wait for metadata or the backoff."""
    LACKING = "lacking"
    """The leader lacks records that this replica, which is complete, knows to be committed. Nothing
    changed: tell the controller (``Repairs.leader_lacks``)."""
    LONGER = "longer"
    """The log reaches further than the leader's, which leads by what it was before all went down,
    and has committed nothing since. Nothing changed: tell the controller, as before."""
    CORRUPT = "corrupt"
    """Records did not hold their checksum or order; nothing was appended."""


class EpochLookup(Protocol):
    """The question of storage/DESIGN 2.4: where does an epoch end in a log?"""

    def end_offset_for(self, epoch: int, leo: int) -> tuple[int, int] | None: ...


@dataclass(slots=True)
class FollowerState:
    """Where a follower stands with its leader.

    ``in_flight`` is the nonce of the request whose answer is awaited. ``confirmed`` is the highest
    end that the leader of this epoch has called committed and this log held at that time: the log
    is never cut below it (I22).
    """

    leader: NodeId
    leader_epoch: LeaderEpoch
    in_flight: int | None = None
    confirmed: int = -1
    corrupt_in_row: int = 0
    is_behind: bool = False
    """The newest answer was :attr:`FetchOutcome.BEHIND`."""
    leader_lacks: bool = False
    """An answer was :attr:`FetchOutcome.LACKING`; the next leader epoch ends that."""

    def accepts(self, nonce: int, leader_epoch: int, fetch_offset: int, log_end: int) -> bool:
        """Whether an answer belongs to the request under way and to the log as it is now.

        An answer that is late, repeated, from another epoch, or to a position the log has left is
        dropped: its ``high_watermark`` and records speak of a log that may be gone.
        """
        return (
            self.in_flight == nonce
            and leader_epoch == self.leader_epoch
            and fetch_offset == log_end
        )

    def count_corrupt(self) -> bool:
        """Note a corrupt answer; True when the leader must be told to look at that range."""
        self.corrupt_in_row += 1
        return self.corrupt_in_row >= CORRUPT_BEFORE_SUSPICION


def truncation_point(
    epochs: EpochLookup, log_end: int, diverging_epoch: int, diverging_end: int
) -> int:
    """Where to cut a log whose last epoch ends elsewhere in the leader's log.

    The leader names the largest epoch it has that is not above ours, and its end there. If we have
    that epoch too, both agree up to the smaller end; otherwise we keep what lies below our own
    next epoch. Each round lowers the end, so rounds come to an end (KIP-101, KIP-279).
    """
    mine = epochs.end_offset_for(diverging_epoch, log_end)
    if mine is None:
        # An empty epoch table: nothing here speaks against the leader's end.
        return min(log_end, diverging_end)
    epoch, end = mine
    return min(end, diverging_end) if epoch == diverging_epoch else end
