"""Which records a change of a group takes: members lie apart; those that changed are written.

A group of a thousand members is some megabytes, and one of them coming back is a few hundred bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paceline_node.coordination.machine import Entry
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.records import (
    Change,
    Group,
    Member,
    Seat,
    SeatKey,
    group_entry,
    seat_entry,
)

_NOBODY: Mapping[str, Seat] = {}
Written = list[tuple[Entry, Change]]


def records_of(key: GroupKey, group: Group, seats: Mapping[str, Seat] | None) -> Written:
    """What to write so that ``group`` is stored where ``seats`` are in the log, and what each
    record says: first the members, then the group, which is read as made of those before it.

    A member is as it was written when only the time differs at which it was last heard of."""
    seats = _NOBODY if seats is None else seats
    written: Written = []
    members = []
    last = -1
    for member in group.members:
        seat = seats.get(member.member_id)
        if seat is None or seat.place <= last or not _is_same(seat.member, member):
            place = last + 1 if seat is None or seat.place <= last else seat.place
            seat = Seat(place, member)
            entry = seat_entry(key, member.member_id, seat)
            written.append((entry, Change(SeatKey(key, member.member_id), seat)))
        last = seat.place
        members.append(seat.member)
    left = {each.member_id for each in members}
    for gone in [each for each in seats if each not in left]:
        written.append((seat_entry(key, gone, None), Change(SeatKey(key, gone), None)))
    head = group_entry(key, replace(group, members=(), is_head=True))
    written.append((head, Change(key, replace(group, members=tuple(members)))))
    return written


def seated(head: Group, seats: Mapping[str, Seat] | None) -> Group:
    """The group whose record is ``head``, with its members."""
    found = [] if seats is None else sorted(seats.values(), key=lambda each: each.place)
    return replace(head, members=tuple([each.member for each in found]), is_head=False)


def _is_same(stored: Member, member: Member) -> bool:
    return stored is member or stored == replace(member, heard_ms=stored.heard_ms)
