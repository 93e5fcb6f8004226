"""Committed offsets: storing, reading, forgetting. Who may do so is the families' business."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from paceline.errors import GroupFull, OffsetRegression
from paceline.wire.message import Utf8
from paceline_node.groups.context import GroupContext
from paceline_node.groups.keys import Family, GroupKey, TopicAndNumber
from paceline_node.groups.offset_shares import UNKNOWN, OffsetShares
from paceline_node.groups.pending_offsets import PendingOffsets
from paceline_node.groups.records import (
    Offset,
    PendingKey,
    group_entry,
    offset_entry,
    pending_entry,
    places,
    seat_entry,
)
from paceline_node.state_machines.machine import Entry

_FORGET_AT_ONCE = 250
_SPARE = 256
"""One in so many goes beyond those that have to: a record for each new offset is too much."""
_LOOKED_AT = 10_000
"""Of a group's offsets for some that may go, which takes a few milliseconds."""
_REFUSED_S = 1.0
_REFUSED_MAX = 256
_GROUPS_AT_ONCE = 50
_NONE_PENDING = PendingOffsets()
_COUNTED = "each 256 bytes of metadata counted as one more"


class OffsetRule(enum.Enum):
    """What a family lets commits do."""

    FREE = "free"
    """Any offset (V1, Kafka)."""
    FORWARD = "forward"
    """Never below the committed one; an equal one changes nothing (Cursus)."""


class Commit(NamedTuple):
    """An offset to store. ``topic_id``: the topic in which it was reached; None for the one that
    has the name now."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: UUID | None = None


class OffsetBook:
    """The offsets of all families."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self.shares = OffsetShares(context.store)
        self._refused: dict[tuple[Family, str], float] = {}
        """Until when nobody looks again for offsets that may go."""

    def resign(self) -> None:
        """Decide nothing any more."""
        self.shares.clear()
        self._refused.clear()

    def commit(
        self, key: GroupKey, commits: Sequence[Commit], rule: OffsetRule, client: str = UNKNOWN
    ) -> None:
        """Store all of ``commits``, or none; those of topics that are no more count for nothing.
        New ones, and longer metadata, count for ``client`` (``offset_shares.py``). Raises
        OffsetRegression, GroupFull, and what writing raises."""
        self.check_commits(key, commits, client)
        self.store(key, commits, rule)
        self.shares.use(key, client)

    def store(self, key: GroupKey, commits: Sequence[Commit], rule: OffsetRule) -> None:
        """As :meth:`commit`, however many offsets there are already."""
        if rule is OffsetRule.FREE:
            found = [self.entry(key, each, self.next_order) for each in commits]
        else:
            moving = [each for each in commits if self._moves(key, each)]
            found = [self.forward_entry(key, each) for each in moving]
        entries = [each for each in found if each is not None]
        if entries:
            self._context.write(key, *entries)

    def check_commits(
        self, key: GroupKey, commits: Sequence[Commit], client: str = UNKNOWN
    ) -> None:
        """As :meth:`check_room`, for the places that ``commits`` take beyond those of before."""
        known = self._context.store.offsets.get(key, {})
        last = {(each.topic, each.partition): each.metadata for each in commits}
        new = sum(
            places(metadata.encode()) - (places(known[at].metadata) if at in known else 0)
            for at, metadata in last.items()
        )
        self.check_room(key, new, client)

    def check_room(self, key: GroupKey, new: int, client: str = UNKNOWN, reserved: int = 0) -> None:
        """Raise GroupFull where ``new`` places more are more than the group's family, or half of
        that than ``client``, may have, and nobody gives way; ``reserved`` of them need not be
        free."""
        store, most = self._context.store, self._context.limits.offsets_max
        count, share = store.offset_counts[key.family], max(1, most // 2)
        if new <= 0 or count + new <= share:
            return
        own = self.shares.count(key.family, client) + new
        if client != UNKNOWN and own > share:
            self.shares.refused_count += 1
            raise GroupFull(
                f"group {key}: {client} would have {own} offsets of family {key.family.value} "
                f"here, {_COUNTED}, one client at most {share}, half of groups.offsets_max"
            )
        over = min(count + new - most, new - reserved)
        if over > 0 and self._make_room(key, over, own, client) < over:
            self.shares.refused_count += 1
            raise GroupFull(
                f"group {key}: its coordinator keeps {count} offsets of family {key.family.value} "
                f"already, {_COUNTED}, at most {most} (groups.offsets_max)"
            )

    def _make_room(self, key: GroupKey, over: int, own: int, client: str) -> int:
        """Forget offsets of whoever has most that take at least ``over`` places; how many those
        are. Raises what writing raises."""
        at, now = (key.family, client), self._context.now()
        if now < self._refused.get(at, now):
            return 0
        most, store = self._context.limits.offsets_max, self._context.store
        wanted = min(max(over, _FORGET_AT_ONCE), over + most // _SPARE)
        gone = 0
        givers = self.shares.givers(key, own, most, self._context.has_members)
        for number, giver in enumerate(givers):
            if gone >= wanted or (gone >= over and number >= _GROUPS_AT_ONCE):
                break
            before = store.places.get(giver, 0)
            self.forget(giver, self._first(giver, wanted - gone))
            gone += before - store.places.get(giver, 0)
        self.shares.evicted_count += gone
        if gone < over:
            if len(self._refused) >= _REFUSED_MAX:
                self._refused.clear()
            self._refused[at] = now + _REFUSED_S
        return gone

    @property
    def next_order(self) -> int:
        """The order of an offset that is sent now."""
        return self._context.store.last_order + 1

    def forward_entry(self, key: GroupKey, commit: Commit) -> Entry | None:
        """The record of a commit that goes on from the offset of before. It has that one's order:
        what is pending besides may be higher, and only what set the offset of before holds it
        back."""
        before = self.fetch(key, commit.topic, commit.partition)
        return self.entry(key, commit, 0 if before is None else before.order)

    def entry(self, key: GroupKey, commit: Commit, order: int) -> Entry | None:
        """The record of ``commit``; None where its topic is no more."""
        current = self._context.topics.current(commit.topic)
        if current is None or commit.topic_id not in (None, current):
            return None
        stored = Offset(
            commit.offset,
            commit.leader_epoch,
            Utf8(commit.metadata.encode()),
            self._context.wall_ms(),
            current,
            order,
        )
        return offset_entry(key, commit.topic, commit.partition, stored)

    def _moves(self, key: GroupKey, commit: Commit) -> bool:
        before = self.fetch(key, commit.topic, commit.partition)
        if before is None or commit.offset > before.offset:
            return True
        if commit.offset < before.offset:
            raise OffsetRegression(
                f"group {key}: {commit.topic}/{commit.partition} is at {before.offset}, "
                f"got {commit.offset}"
            )
        return False

    def fetch(self, key: GroupKey, topic: str, partition: int) -> Offset | None:
        """The committed offset, None when there is none."""
        found = self._context.store.offsets.get(key, {}).get((topic, partition))
        if found is None or not self._context.topics.holds(topic, found.topic_id):
            return None
        return found

    def fetch_all(self, key: GroupKey) -> list[tuple[TopicAndNumber, Offset]]:
        """All that the group has committed, by topic and partition."""
        known = self._context.store.offsets.get(key, {})
        holds = self._context.topics.holds
        return sorted((at, found) for at, found in known.items() if holds(at[0], found.topic_id))

    def _first(self, key: GroupKey, wanted: int) -> list[TopicAndNumber]:
        """The group's first offsets, as many as take so many places; but none beside one that is
        pending, which would be held back no more."""
        store = self._context.store
        pendings = store.pending.get(key, _NONE_PENDING)
        found: list[TopicAndNumber] = []
        for at, offset in islice(store.offsets.get(key, {}).items(), _LOOKED_AT):
            if wanted <= 0:
                break
            if not pendings.at(*at):
                found.append(at)
                wanted -= places(offset.metadata)
        return found

    def delete_piece(self, key: GroupKey, partitions: Iterable[TopicAndNumber]) -> bool:
        """Forget a batch of the offsets of ``partitions``, each behind what open transactions have
        pending there, which would bring it back; whether that was the last. Raises what writing
        raises."""
        found = list(islice(self._all_at(key, partitions), _FORGET_AT_ONCE + 1))
        if found:
            self._context.write(key, *found[:_FORGET_AT_ONCE])
        return len(found) <= _FORGET_AT_ONCE

    def _all_at(self, key: GroupKey, partitions: Iterable[TopicAndNumber]) -> Iterator[Entry]:
        store = self._context.store
        known, pendings = store.offsets.get(key, {}), store.pending.get(key, _NONE_PENDING)
        for at in dict.fromkeys(partitions):
            for producer_id in pendings.producers_at(*at):
                yield pending_entry(PendingKey(key, *at, producer_id), None)
            if at in known:
                yield offset_entry(key, *at, None)

    def forget(self, key: GroupKey, partitions: Iterable[TopicAndNumber]) -> None:
        """Forget offsets, but nothing that is pending; those that are not there do not matter.
        Raises what writing raises."""
        known = self._context.store.offsets.get(key, {})
        gone = [each for each in partitions if each in known]
        if gone:
            self._context.write(key, *_tombstones(key, gone))

    def forget_group(self, key: GroupKey) -> None:
        """Forget a group and all its offsets, however many those are. Raises what writing
        raises."""
        while not self.forget_piece(key):
            pass

    def forget_piece(self, key: GroupKey) -> bool:
        """Forget a batch of what there is of a group; whether that was the last. Raises what
        writing raises."""
        found = list(islice(self._all_of(key), _FORGET_AT_ONCE + 1))
        if found:
            self._context.write(key, *found[:_FORGET_AT_ONCE])
        return len(found) <= _FORGET_AT_ONCE

    def _all_of(self, key: GroupKey) -> Iterator[Entry]:
        """Tombstones for a group and all its offsets, those of open transactions too: they would
        bring it back."""
        store = self._context.store
        if key in store.pending:
            yield from (pending_entry(at, None) for at, _ in store.pending[key].items())
        yield from (offset_entry(key, *at, None) for at in store.offsets.get(key, ()))
        yield from (seat_entry(key, each, None) for each in store.seats.get(key, ()))
        if self._context.group(key) is not None:
            yield group_entry(key, None)


def _tombstones(key: GroupKey, partitions: Iterable[TopicAndNumber]) -> list[Entry]:
    return [offset_entry(key, topic, partition, None) for topic, partition in partitions]
