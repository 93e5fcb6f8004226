"""Which records a change of a group takes: members lie apart; those that changed are written.

A group of a thousand members is some megabytes, and one of them coming back is a few hundred bytes.
Where all of them change at once, their records are made before, bit by bit (:class:`Ready`): what
is left for the one moment at which the group changes is to put them together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from operator import attrgetter
from typing import NamedTuple

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
from paceline_node.state_machines.machine import Entry

_NOBODY: Mapping[str, Seat] = {}
Written = list[tuple[Entry, Change]]
_what_it_is = attrgetter(*[each.name for each in fields(Member) if each.name != "heard_ms"])


class Ready(NamedTuple):
    """The record of a member in its seat, made before it is written."""

    seat: Seat
    entry: Entry
    change: Change


ReadyMembers = Mapping[str, Ready]
NONE_READY: ReadyMembers = {}


def make_ready(key: GroupKey, seat: Seat) -> Ready:
    """The record that puts a member into ``seat``."""
    member_id = seat.member.member_id
    return Ready(seat, seat_entry(key, member_id, seat), Change(SeatKey(key, member_id), seat))


def records_of(
    key: GroupKey,
    group: Group,
    seats: Mapping[str, Seat] | None,
    ready: ReadyMembers = NONE_READY,
    stamped: Callable[[Member], Member] = lambda member: member,
) -> Written:
    """What to write so that ``group`` is stored where ``seats`` are in the log, and what each
    record says: first the members, then the group, which is read as made of those before it.

    A member is as it was written when only the time differs at which it was last heard of; of one
    that is written ``stamped`` puts in that time. ``ready`` are records that were made before; of
    another member, or of a seat that is taken, they are made anew."""
    seats = _NOBODY if seats is None else seats
    written: Written = []
    members = []
    last = -1
    for member in group.members:
        made = ready.get(member.member_id)
        if made is not None and made.seat.member is member and made.seat.place > last:
            seat = made.seat
            written.append((made.entry, made.change))
        else:
            found = seats.get(member.member_id)
            if found is None or found.place <= last or not is_same(found.member, member):
                place = last + 1 if found is None or found.place <= last else found.place
                made = make_ready(key, Seat(place, stamped(member)))
                found = made.seat
                written.append((made.entry, made.change))
            seat = found
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


def is_same(stored: Member, member: Member) -> bool:
    """Whether they differ at most in when they were last heard of."""
    return stored is member or bool(_what_it_is(stored) == _what_it_is(member))
