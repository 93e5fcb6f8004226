"""``groups.json`` and ``offsets.json`` of the V1 broker: rendering, reading (DESIGN 3.6).

::

    groups.json   {"<group>": {"topic": "orders", "generation": 2, "assignor": "round_robin",
                   "member_order": ["c1"], "assignments": {"c1": [0, 1, 2]},
                   "members": [{"consumer_id": "c1", "last_heartbeat_unix_ms": 1700000000000}]}}
    offsets.json  {"<group>": {"<topic>": {"<partition>": <offset>}}}

One line each, ended by LF. The original wrote ``null`` for empty lists, which is accepted here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from paceline.assignors.registry import BrokerAssignor
from paceline.errors import ConfigurationError
from paceline_node.groups.keys import GroupKey, TopicAndNumber
from paceline_node.groups.records import (
    Group,
    Member,
    Offset,
    Phase,
    group_entry,
    offset_entry,
)
from paceline_node.groups.topic_ids import UNBOUND
from paceline_node.groups.v1_groups import DEFAULT_ASSIGNOR, v1_key
from paceline_node.state_machines.machine import Entry

GROUPS_FILE = "groups.json"
OFFSETS_FILE = "offsets.json"

GroupsByName = Mapping[str, Group]
OffsetsByName = Mapping[str, Mapping[TopicAndNumber, Offset]]
_ASSIGNORS = [each.value for each in BrokerAssignor]


# --- writing --------------------------------------------------------------------------------------


def render_groups(groups: GroupsByName, heard: Mapping[tuple[str, str], int]) -> bytes:
    """The whole file. ``heard``: last heartbeats by group and consumer, where newer than stored."""
    shown = {name: _group(name, groups[name], heard) for name in sorted(groups)}
    return _line(shown)


def _group(name: str, group: Group, heard: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    return {
        "topic": group.topic,
        "generation": group.generation,
        "assignor": group.protocol,
        "member_order": [each.member_id for each in group.members],
        "assignments": {each.member_id: list(each.partitions) for each in group.members},
        "members": [
            {
                "consumer_id": each.member_id,
                "last_heartbeat_unix_ms": heard.get((name, each.member_id), each.heard_ms),
            }
            for each in group.members
        ],
    }


def render_offsets(offsets: OffsetsByName) -> bytes:
    """The whole file."""
    shown: dict[str, dict[str, dict[str, int]]] = {}
    for name in sorted(offsets):
        topics = shown.setdefault(name, {})
        for (topic, partition), stored in sorted(offsets[name].items()):
            topics.setdefault(topic, {})[str(partition)] = stored.offset
    return _line(shown)


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


# --- reading --------------------------------------------------------------------------------------


class BadFile(ConfigurationError):
    """A file to be taken over is not what it should be; the sentence names the place."""


def parse_groups(data: bytes) -> list[tuple[GroupKey, Group]]:
    """The groups of a file. Raises BadFile."""
    return [_read_group(name, value) for name, value in _object(data, GROUPS_FILE).items()]


def _read_group(name: str, value: object) -> tuple[GroupKey, Group]:
    where = f"{GROUPS_FILE}: group {name!r}"
    fields = _dict(value, where)
    assignments = _dict(fields.get("assignments"), where)
    heard = {
        _text(_dict(each, where).get("consumer_id"), where): _integer(
            _dict(each, where).get("last_heartbeat_unix_ms", 0), where
        )
        for each in _list(fields.get("members"), where)
    }
    order = [_text(each, where) for each in _list(fields.get("member_order"), where)]
    ids = [*order, *(each for each in heard if each not in order)]
    members = tuple(
        [
            Member(
                each,
                partitions=tuple(_integer(p, where) for p in _list(assignments.get(each), where)),
                heard_ms=heard.get(each, 0),
            )
            for each in ids
        ]
    )
    assignor = fields.get("assignor") or DEFAULT_ASSIGNOR
    if assignor not in _ASSIGNORS:
        raise BadFile(f"{where}: assignor {assignor!r}, expected one of {', '.join(_ASSIGNORS)}")
    return v1_key(name), Group(
        max(1, _integer(fields.get("generation", 0), where)),
        Phase.STABLE if members else Phase.EMPTY,
        protocol_type="v1",
        protocol=assignor,
        topic=_text(fields.get("topic"), where),
        partition_count=sum(len(each.partitions) for each in members),
        members=members,
        changed_ms=max(heard.values(), default=0),
    )


def parse_offsets(data: bytes, *, now_ms: int) -> list[tuple[GroupKey, str, int, Offset]]:
    """The offsets of a file, as if committed at ``now_ms``, of whatever topics have their names
    first. Raises BadFile."""
    found = []
    for name, topics in _object(data, OFFSETS_FILE).items():
        where = f"{OFFSETS_FILE}: group {name!r}"
        for topic, partitions in _dict(topics, where).items():
            for partition, offset in _dict(partitions, where).items():
                if not partition.isascii() or not partition.isdigit():
                    raise BadFile(f"{where}: partition {partition!r}, expected a whole number")
                at = _integer(offset, where)
                stored = Offset(at, commit_ms=now_ms, topic_id=UNBOUND)
                found.append((v1_key(name), topic, int(partition), stored))
    return found


def entries_of(
    groups: Iterable[tuple[GroupKey, Group]], offsets: Iterable[tuple[GroupKey, str, int, Offset]]
) -> list[tuple[GroupKey, Entry]]:
    """The records that take over what was read."""
    entries = [(key, group_entry(key, group)) for key, group in groups]
    entries += [
        (key, offset_entry(key, topic, partition, offset))
        for key, topic, partition, offset in offsets
    ]
    return entries


def _object(data: bytes, name: str) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise BadFile(f"{name}: {error}") from None
    return _dict(value, name)


def _dict(value: object, where: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadFile(f"{where}: expected an object, found {type(value).__name__}")
    return value


def _list(value: object, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadFile(f"{where}: expected a list, found {type(value).__name__}")
    return value


def _integer(value: object, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadFile(f"{where}: expected a whole number, found {value!r}")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise BadFile(f"{where}: expected text, found {type(value).__name__}")
    return value
