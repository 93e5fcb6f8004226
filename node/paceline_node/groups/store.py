"""All groups and offsets of one partition: the fold of its records, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from paceline_node.groups.keys import Family, GroupKey, TopicAndNumber
from paceline_node.groups.member_records import seated
from paceline_node.groups.pending_offsets import PendingOffsets
from paceline_node.groups.records import (
    Begun,
    Change,
    Group,
    Offset,
    OffsetKey,
    Pending,
    PendingKey,
    Seat,
    SeatKey,
    decode,
    places,
)
from paceline_node.state_machines.machine import Entry

Offsets = dict[TopicAndNumber, Offset]


class GroupStore:
    """``groups`` and ``offsets`` are read freely; only :meth:`apply` changes them. ``seats`` are
    members that have records of their own. ``counts`` are groups by family, those that have nothing
    but offsets too. ``places`` are what a group's offsets count for, pending ones too, and
    ``offset_counts`` the same by family; ``changes`` counts changes by family, for whoever shows
    them elsewhere. ``offsets_changed`` is told how many more places a group has. ``last_order`` is
    the highest order of an offset (``records.Offset``) that was folded: those that compaction has
    left out are compared with nothing any more."""

    def __init__(self) -> None:
        self.groups: dict[GroupKey, Group] = {}
        self.offsets: dict[GroupKey, Offsets] = {}
        self.pending: dict[GroupKey, PendingOffsets] = {}
        self.begun: Begun | None = None
        self.last_order = 0
        self.counts: dict[Family, int] = dict.fromkeys(Family, 0)
        self.places: dict[GroupKey, int] = {}
        self.offset_counts: dict[Family, int] = dict.fromkeys(Family, 0)
        self.changes: dict[Family, int] = dict.fromkeys(Family, 0)
        self.seats: dict[GroupKey, dict[str, Seat]] = {}
        self.offsets_changed: Callable[[GroupKey, int], None] = lambda key, delta: None
        self._written: dict[bytes, tuple[Entry, Change]] = {}

    def wrote(self, written: Iterable[tuple[Entry, Change]]) -> None:
        """These entries, about to be applied, say this: to decode a thousand members again would
        keep the loop for as long as encoding them did."""
        self._written = {each[0].key: each for each in written}

    def apply(self, entry: Entry) -> None:
        """Fold one record. Raises RemoteProtocolError for one that cannot be read."""
        written = self._written.pop(entry.key, None) if self._written else None
        is_known = written is not None and written[0] is entry
        change = written[1] if written is not None and is_known else decode(entry)
        match change:
            case Change(SeatKey() as key, value):
                self._change_seat(key, value)
            case Change(GroupKey() as key, value):
                self._change_group(key, value)
            case Change(OffsetKey() as key, value):
                self._change_offset(key, value)
            case Change(PendingKey() as key, value):
                self._change_pending(key, value)
            case Change(None, Begun() as begun):
                self.begun = begun

    def knows(self, key: GroupKey) -> bool:
        """Whether there is anything of the group."""
        return key in self.groups or key in self.offsets or key in self.pending

    def _change_group(self, key: GroupKey, value: object) -> None:
        was_known = self.knows(key)
        if isinstance(value, Group):
            self.groups[key] = seated(value, self.seats.get(key)) if value.is_head else value
        else:
            self.groups.pop(key, None)
        self.counts[key.family] += self.knows(key) - was_known
        self.changes[key.family] += 1

    def _change_offset(self, key: OffsetKey, value: object) -> None:
        was_known = self.knows(key.group)
        offsets = self.offsets.setdefault(key.group, {})
        before = offsets.pop((key.topic, key.partition), None)
        if isinstance(value, Offset):
            offsets[key.topic, key.partition] = value
            self.last_order = max(self.last_order, value.order)
        if not offsets:
            del self.offsets[key.group]
        self._take_places(key.group, before, value)
        self.counts[key.group.family] += self.knows(key.group) - was_known
        self.changes[key.group.family] += 1

    def _change_pending(self, key: PendingKey, value: object) -> None:
        was_known = self.knows(key.group)
        of_group = self.pending.setdefault(key.group, PendingOffsets())
        before = of_group.of_producer(key.producer_id).get(key)
        if isinstance(value, Pending):
            of_group.put(key, value)
            self.last_order = max(self.last_order, value.order)
        else:
            of_group.put(key, None)
        if not of_group:
            del self.pending[key.group]
        self._take_places(key.group, before, value)
        self.counts[key.group.family] += self.knows(key.group) - was_known

    def _take_places(self, key: GroupKey, before: object, after: object) -> None:
        delta = _places(after) - _places(before)
        if not delta:
            return
        taken = self.places.get(key, 0) + delta
        if taken:
            self.places[key] = taken
        else:
            del self.places[key]
        self.offset_counts[key.family] += delta
        self.offsets_changed(key, delta)

    def _change_seat(self, key: SeatKey, value: object) -> None:
        """Of the group that its own record, the last of the batch, makes of it."""
        seats = self.seats.setdefault(key.group, {})
        if isinstance(value, Seat):
            seats[key.member_id] = value
        else:
            seats.pop(key.member_id, None)
        if not seats:
            del self.seats[key.group]

    def clear(self) -> None:
        """Forget everything."""
        self.groups.clear()
        self.offsets.clear()
        self.pending.clear()
        self.places.clear()
        self.seats.clear()
        self.begun = None
        self.last_order = 0
        for family in Family:
            self.counts[family] = self.offset_counts[family] = 0
            self.changes[family] += 1

    def all_keys(self) -> Iterator[GroupKey]:
        """Every group that has a state or an offset."""
        yield from self.groups
        for key in self.offsets:
            if key not in self.groups:
                yield key


def _places(value: object) -> int:
    return places(value.metadata) if isinstance(value, Offset | Pending) else 0
