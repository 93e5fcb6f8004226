"""Consumer groups, their members, and how far they have read."""

from __future__ import annotations

from typing import Any

from paceline.wire.native.groups import GroupDescription, GroupListing, GroupMember


def listing_document(found: GroupListing) -> dict[str, Any]:
    """An item of ``group list``."""
    return {
        "group": found.group,
        "family": found.family,
        "subject": found.subject,
        "state": found.state,
        "members": found.member_count,
        "generation": found.generation,
    }


def group_document(found: GroupDescription, *, coordinator: int) -> dict[str, Any]:
    """What ``group describe`` tells of one, without its ``partitions``, which come last."""
    return {
        "group": found.group,
        "family": found.family,
        "subject": found.subject,
        "state": found.state,
        "generation": found.generation,
        "coordinator": coordinator,
        "protocol": found.protocol,
        "members": [member_document(each, leader=found.leader) for each in found.members],
    }


def member_document(found: GroupMember, *, leader: str) -> dict[str, Any]:
    """A member of a group whose members ``leader`` assigns to."""
    return {
        "member": found.member_id,
        "instance": found.instance_id,
        "client": found.client_id,
        "host": found.host or None,
        "partitions": sum(len(part.partitions) for part in found.assigned),
        "leader": found.member_id == leader,
        "session_timeout_ms": found.session_timeout_ms,
        "silent_ms": found.silent_ms,
    }


def progress_document(
    topic: str,
    partition: int,
    *,
    committed: int | None,
    start: int | None,
    end: int | None,
    member: str | None,
) -> dict[str, Any]:
    """How far a group has read a partition: ``committed``, or where nothing is, from its ``start``
    on. What is not known is None."""
    begin = start if committed is None else committed
    return {
        "topic": topic,
        "partition": partition,
        "committed": committed,
        "end": end,
        "lag": None if end is None or begin is None else max(0, end - begin),
        "member": member,
    }


def is_dealt_anew(found: GroupDescription) -> bool:
    """Whether the next member of the group is dealt all partitions of the topics that it has
    offsets of. Programs that choose partitions by themselves never made it a group of any type."""
    return not found.members and bool(found.protocol_type)
