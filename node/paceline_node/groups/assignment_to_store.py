"""What a group's leading member has assigned, on its way into records, in pieces.

Making the records of a thousand members takes some 20 ms. Nothing is written or told before all
are there: the group changes in one step. Who joins, leaves or falls silent meanwhile begins
another round, and what was made is dropped with this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from paceline.errors import MessageTooLarge
from paceline.wire.consumer_protocol import PROTOCOL_TYPE
from paceline_node.groups.context import GroupContext
from paceline_node.groups.keys import GroupKey
from paceline_node.groups.member_records import Ready, make_ready
from paceline_node.groups.read_topics import reading
from paceline_node.groups.records import Group, Member, Phase, Seat
from paceline_node.sliced_work import Work

UNITS_AT_ONCE = 200
"""Two for each member: a few milliseconds."""


class Assigned(NamedTuple):
    """The group as it is to be, and the records of its members."""

    group: Group
    ready: dict[str, Ready]


class AssignmentToStore:
    """``work`` on what ``group`` is to become."""

    def __init__(self, group: Group, work: Work[Assigned]) -> None:
        self.group = group
        self._work = work

    def go_on(self) -> Assigned | None:
        """Do the next piece; the result once all is done."""
        spent = 0
        while spent < UNITS_AT_ONCE:
            try:
                spent += next(self._work)
            except StopIteration as end:
                result: Assigned = end.value
                return result
        return None


def assigning(
    context: GroupContext, key: GroupKey, group: Group, assignments: Mapping[str, bytes]
) -> Work[Assigned]:
    """The group ``key`` with what its members are assigned. Raises MessageTooLarge."""
    limit = context.limits.group_bytes_max
    total = sum(map(len, assignments.values()))
    if total > limit:
        raise MessageTooLarge(
            f"group {key}: {total} bytes of assignments, at most {limit} (groups.group_bytes_max)"
        )
    seats = context.store.seats.get(key, {})
    members: list[Member] = []
    ready: dict[str, Ready] = {}
    for member in group.members:
        yield 1
        seat = seats.get(member.member_id)
        assignment = assignments.get(member.member_id, b"")
        if assignment != member.assignment:
            member = context.stamped(key, replace(member, assignment=assignment))
            if seat is not None:
                ready[member.member_id] = make_ready(key, Seat(seat.place, member))
        members.append(member)
    read = group.read
    if group.protocol_type == PROTOCOL_TYPE:
        read = yield from reading(assignments.values(), context.topics)
    after = replace(group, phase=Phase.STABLE, members=tuple(members), read=read)
    return Assigned(after, ready)
