"""Which tombstones and transaction markers a log no longer has, and who must therefore not go on
behind them. Pure.

A replica that was away may hold a value whose tombstone its leader has removed meanwhile: fetching
on from where it stopped, it would keep that value for ever. So a log knows up to where tombstones
and markers may be missing from it (``removed_to``). Whoever has all below that offset had the
tombstones before they went. Whoever has less begins anew, by copying the log from its start.

Copying takes time, and the leader goes on compacting. A copy is good as long as all that has been
removed since it began had been *settled* by then: the compaction that gave a tombstone its delete
horizon has taken away the values below it, so the copy never saw them. A compaction is known by the
cleaned offset that it reached (each that drops a value raises it). ``horizons`` says which horizons
came from which; ``settled_from`` is the highest of those from which anything was removed. A copy
that began at a lower cleaned offset begins again; so it has ``delete.retention.ms`` for its way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from paceline.types import NO_EPOCH, LeaderEpoch
from paceline.values import dataclass

UNKNOWN = -1
"""``removed_to`` of a log whose file does not say: :meth:`Removals.known` judges it."""

_HORIZONS = 64


@dataclass(frozen=True, slots=True)
class Removals:
    """``removed_to``: tombstones and markers below it may be missing. ``settled_from``: a copy that
    began when the log was cleaned less far may hold what they deleted. ``horizons``: pairs of a
    delete horizon in ms and the cleaned offset of the newest compaction that set it or an earlier
    one, both ascending.

    ``copy_epoch`` and ``copied_at``: this log was begun anew as a copy in that leader epoch, when
    the leader's was cleaned up to there; -1: it was not, or the epoch is over for good.
    """

    removed_to: int = 0
    settled_from: int = 0
    horizons: tuple[tuple[int, int], ...] = ()
    copy_epoch: LeaderEpoch = NO_EPOCH
    copied_at: int = -1

    def known(self, log_end: int, *, is_compacted: bool) -> Removals:
        """Anything may be missing from a compacted log of which nothing is known."""
        if self.removed_to != UNKNOWN:
            return self
        return replace(self, removed_to=log_end if is_compacted else 0)

    def forbids(self, fetch_offset: int, copied_at: int) -> bool:
        """Whether a replica whose log ends at ``fetch_offset`` must begin anew; ``copied_at``: it
        has done so in this leader epoch, when this log was cleaned up to there."""
        return fetch_offset < self.removed_to and copied_at < self.settled_from

    def token(self, epoch: LeaderEpoch) -> int:
        """What to tell the leader of that epoch as ``copied_at``. Another leader may have kept
        tombstones longer, and may have removed others: to it this copy proves nothing."""
        return self.copied_at if epoch == self.copy_epoch else -1

    def after(self, removed_to: int, expired: Iterable[int], cleaned_offset: int) -> Removals:
        """Batches below ``removed_to`` with these horizons have lost tombstones, or were markers;
        the log was cleaned up to ``cleaned_offset`` before."""
        settled = max((self._set_at(each, cleaned_offset) for each in expired), default=0)
        return replace(
            self,
            removed_to=max(self.removed_to, removed_to),
            settled_from=max(self.settled_from, settled),
        )

    def _set_at(self, horizon_ms: int, cleaned_offset: int) -> int:
        found = bisect_left(self.horizons, (horizon_ms, -1))
        return self.horizons[found][1] if found < len(self.horizons) else cleaned_offset

    def with_horizon(self, horizon_ms: int, cleaned_offset: int) -> Removals:
        """A compaction that has reached ``cleaned_offset`` gave batches this horizon. Where the
        clock or the topic's retention went back, earlier ones count as its own."""
        kept = [each for each in self.horizons if each[0] < horizon_ms]
        newest = max((each[0] for each in self.horizons), default=horizon_ms)
        kept.append((max(horizon_ms, newest), cleaned_offset))
        if len(kept) > _HORIZONS:
            kept = kept[::-2][::-1]
        return replace(self, horizons=tuple(kept))

    def cut(self) -> Removals:
        """The log was cut below its cleaned offset: what counts by that begins anew. No replica
        copies it now, for leaders are not cut."""
        return Removals(self.removed_to)

    def begun(self, epoch: LeaderEpoch, removed_to: int, cleaned_offset: int) -> Removals:
        """The log is empty, and is to be a copy of the leader's with that state. What the leader
        removes while the copy is good lies below its present cleaned offset."""
        return Removals(
            max(self.removed_to, removed_to, cleaned_offset),
            copy_epoch=epoch,
            copied_at=cleaned_offset,
        )

    def pack(self) -> list[Any]:
        """For :meth:`unpack`."""
        horizons = [list(each) for each in self.horizons]
        return [self.removed_to, self.settled_from, horizons, self.copy_epoch, self.copied_at]

    @classmethod
    def unpack(cls, packed: Any) -> Removals:
        """Raises ValueError, TypeError."""
        removed_to, settled_from, pairs, epoch, copied_at = packed
        horizons = tuple((horizon, offset) for horizon, offset in pairs)
        numbers = (removed_to, settled_from, epoch, copied_at, *(n for p in horizons for n in p))
        if any(type(each) is not int for each in numbers):
            raise ValueError("removals with something else than numbers")
        return cls(removed_to, settled_from, horizons, LeaderEpoch(epoch), copied_at)
