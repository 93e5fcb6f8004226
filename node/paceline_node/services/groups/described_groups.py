"""Groups as the native protocol tells of them."""

from __future__ import annotations

from paceline.wire.native import groups as wire
from paceline_node.groups.inspection import Description, Listing
from paceline_node.sliced_work import Work

_ASSIGNED_BYTES_PER_UNIT = 1024


def listed(found: Listing) -> wire.GroupListing:
    """A group in a list."""
    key = found.key
    return wire.GroupListing(
        key.family.value,
        key.group,
        key.subject,
        found.state,
        found.protocol_type,
        found.member_count,
        found.generation,
    )


def described(
    found: Description, topics: tuple[str, ...] = (), *, in_full: bool = True
) -> Work[wire.GroupDescription]:
    """A group with its members; ``topics``: what those read that name none. Not ``in_full``:
    without what only the members' own protocol understands."""
    members = []
    for each in found.members:
        member = each.member
        yield 1 + len(member.assignment) // _ASSIGNED_BYTES_PER_UNIT
        members.append(
            wire.GroupMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                session_timeout_ms=member.session_timeout_ms,
                silent_ms=int(each.silent_s * 1000),
                metadata=each.metadata if in_full else b"",
                assignment=member.assignment if in_full else b"",
                assigned=tuple(wire.TopicPartitions(*read) for read in each.assigned),
                host=member.client_host.removeprefix("/"),
            )
        )
    key, kept = found.key, found.group
    return wire.GroupDescription(
        family=key.family.value,
        group=key.group,
        subject=key.subject,
        state=found.state,
        generation=kept.generation,
        protocol_type=kept.protocol_type,
        protocol=kept.protocol,
        leader=kept.leader,
        members=tuple(members),
        listed=topics,
    )
