"""groups.json and offsets.json: the original's bytes, and what an older broker may have left."""

from __future__ import annotations

import pytest

from paceline_node.groups.keys import GroupKey, partition_of
from paceline_node.groups.records import Group, Member, Offset, Phase
from paceline_node.groups.store import GroupStore
from paceline_node.groups.topic_ids import UNBOUND
from paceline_node.groups.v1_file_task import FoundFiles
from paceline_node.groups.v1_files import (
    BadFile,
    entries_of,
    parse_groups,
    parse_offsets,
    render_groups,
    render_offsets,
)
from paceline_node.groups.v1_groups import v1_key
from paceline_node.state_machines.machine import Entry

GROUPS = (
    b'{"g1":{"topic":"orders","generation":2,"assignor":"round_robin","member_order":["c1"],'
    b'"assignments":{"c1":[0,1,2]},"members":[{"consumer_id":"c1",'
    b'"last_heartbeat_unix_ms":1700000000000}]}}\n'
)
OFFSETS = b'{"g1":{"orders":{"0":5,"10":7}}}\n'


def read_back(groups: bytes, offsets: bytes) -> GroupStore:
    store = GroupStore()
    for _, entry in entries_of(parse_groups(groups), parse_offsets(offsets, now_ms=1)):
        store.apply(entry)
    return store


def named(found: dict[GroupKey, object]) -> dict[str, object]:
    return {key.group: value for key, value in found.items()}


def test_the_example_of_the_specification_comes_back_byte_for_byte() -> None:
    store = read_back(GROUPS, OFFSETS)
    assert render_groups(named(store.groups), {}) == GROUPS
    assert render_offsets(named(store.offsets)) == OFFSETS


def test_a_newer_heartbeat_than_the_stored_one_is_shown() -> None:
    store = read_back(GROUPS, b"{}")
    shown = render_groups(named(store.groups), {("g1", "c1"): 1700000000999})
    assert b'"last_heartbeat_unix_ms":1700000000999' in shown


def test_nothing_is_an_empty_object() -> None:
    assert render_groups({}, {}) == b"{}\n"
    assert render_offsets({}) == b"{}\n"


def test_an_empty_group_has_empty_lists() -> None:
    group = Group(3, Phase.EMPTY, protocol="range", topic="t")
    assert render_groups({"g": group}, {}) == (
        b'{"g":{"topic":"t","generation":3,"assignor":"range","member_order":[],'
        b'"assignments":{},"members":[]}}\n'
    )


def test_null_lists_missing_assignor_and_generation_zero() -> None:
    text = (
        b'{"g":{"topic":"t","generation":0,"member_order":null,"assignments":{"a":null},'
        b'"members":[{"consumer_id":"a","last_heartbeat_unix_ms":5}]},'
        b'"h":{"topic":"t","generation":-3,"member_order":null,"assignments":null,"members":null}}'
    )
    groups = dict(parse_groups(text))
    first, second = groups[v1_key("g")], groups[v1_key("h")]
    assert (first.generation, first.protocol) == (1, "round_robin")
    assert first.members == (Member("a", heard_ms=5),)
    assert (second.generation, second.phase, second.members) == (1, Phase.EMPTY, ())


def test_the_order_of_members_is_kept() -> None:
    text = (
        b'{"g":{"topic":"t","generation":4,"member_order":["z","a"],"assignments":{"a":[0]},'
        b'"members":[{"consumer_id":"a","last_heartbeat_unix_ms":1},'
        b'{"consumer_id":"z","last_heartbeat_unix_ms":2}]}}'
    )
    [(_, group)] = parse_groups(text)
    assert [(each.member_id, each.partitions) for each in group.members] == [("z", ()), ("a", (0,))]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b'{"g":[]}',
        b'{"g":{"generation":1}}',
        b'{"g":{"topic":"t","assignor":"sticky"}}',
        b'{"g":{"topic":"t","members":{}}}',
        b'{"g":{"topic":"t","members":[{"consumer_id":1}]}}',
        b'{"g":{"topic":"t","generation":"x"}}',
        b"\xff",
    ],
)
def test_a_bad_groups_file_is_named(text: bytes) -> None:
    with pytest.raises(BadFile, match=r"groups\.json"):
        parse_groups(text)


@pytest.mark.parametrize(
    "text", [b"[]", b'{"g":1}', b'{"g":{"t":{"x":1}}}', b'{"g":{"t":{"0":"1"}}}']
)
def test_a_bad_offsets_file_is_named(text: bytes) -> None:
    with pytest.raises(BadFile, match=r"offsets\.json"):
        parse_offsets(text, now_ms=0)


def test_null_objects_are_empty() -> None:
    assert parse_offsets(b'{"g":null}', now_ms=0) == []
    assert parse_groups(b"null") == []


def test_offsets_of_groups_that_are_in_no_other_file() -> None:
    store = read_back(b"{}", b'{"lost":{"t":{"0":9}}}')
    assert store.offsets == {v1_key("lost"): {("t", 0): Offset(9, commit_ms=1, topic_id=UNBOUND)}}


@pytest.mark.parametrize("count", [1, 4, 16])
def test_what_was_found_belongs_into_one_of_the_partitions_that_there_are(count: int) -> None:
    keys = [v1_key(f"g{number}") for number in range(20)]
    found = FoundFiles([(key, Entry(key.group.encode(), b"")) for key in keys])
    shared = [found.of_partition(number, count) for number in range(count)]
    assert sum(map(len, shared)) == len(keys)
    for key, entry in found.entries:
        assert entry in shared[partition_of(key, count)]
