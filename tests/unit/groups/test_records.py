"""The records of ``__groups``: bytes, round trips, what a reader refuses."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import RemoteProtocolError
from paceline.wire.message import Utf8
from paceline_node.groups.keys import Family, GroupKey, partition_of
from paceline_node.groups.records import (
    Begun,
    Change,
    Group,
    Member,
    Offset,
    OffsetKey,
    Phase,
    Protocol,
    decode,
    group_entry,
    marker_entry,
    offset_entry,
)
from paceline_node.groups.store import GroupStore
from paceline_node.state_machines.machine import Entry

NAMES = st.text(st.characters(codec="utf-8"), max_size=10)
KEYS = st.builds(GroupKey, st.sampled_from(Family), NAMES, NAMES)
MEMBERS = st.builds(
    Member,
    NAMES,
    st.none() | NAMES,
    NAMES,
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.lists(st.builds(Protocol, NAMES, st.binary(max_size=8)), max_size=2).map(tuple),
    st.binary(max_size=8),
    st.lists(st.integers(0, 99), max_size=4).map(tuple),
    st.integers(0, 2**50),
)
GROUPS = st.builds(
    Group,
    st.integers(0, 2**31),
    st.sampled_from(Phase),
    NAMES,
    NAMES,
    NAMES,
    NAMES,
    st.integers(0, 99),
    st.lists(MEMBERS, max_size=3).map(tuple),
    st.integers(0, 2**50),
)
KEY = GroupKey(Family.V1, "g")


@given(KEYS, GROUPS)
def test_group_round_trip(key: GroupKey, group: Group) -> None:
    assert decode(group_entry(key, group)) == Change(key, group)
    assert decode(group_entry(key, None)) == Change(key, None)


@given(KEYS, NAMES, st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), NAMES)
def test_offset_round_trip(
    key: GroupKey, topic: str, partition: int, offset: int, metadata: str
) -> None:
    stored = Offset(offset, 3, Utf8(metadata.encode()), 4)
    where = OffsetKey(key, topic, partition)
    assert decode(offset_entry(key, topic, partition, stored)) == Change(where, stored)
    assert decode(offset_entry(key, topic, partition, None)) == Change(where, None)


def test_bytes_of_the_keys() -> None:
    name = bytes.fromhex("0002 7631 0001 67 0000")
    assert group_entry(KEY, None) == Entry(b"\x01\x01" + name, None)
    offset = offset_entry(KEY, "t", 5, None)
    assert offset == Entry(b"\x01\x02" + name + bytes.fromhex("0001 74 00000005"), None)
    marker = marker_entry(Begun(0, 7))
    assert marker == Entry(bytes.fromhex("01 03 0000 0000 0000"), bytes.fromhex("01 92 00 07"))


def test_bytes_of_a_committed_offset() -> None:
    offset = Offset(300, 2, Utf8(b"m"), 9, order=7)
    stored = offset_entry(KEY, "t", 5, offset).value
    assert stored == bytes.fromhex("01 96 cd012c 02 a1 6d 09 c0 07")
    for before in ("01 94 cd012c 02 a1 6d 09", "01 95 cd012c 02 a1 6d 09 c0"):
        entry = Entry(offset_entry(KEY, "t", 5, None).key, bytes.fromhex(before))
        assert decode(entry) == decode(offset_entry(KEY, "t", 5, replace(offset, order=0)))


@pytest.mark.parametrize(
    "entry",
    [
        Entry(b"", b"\x01"),
        Entry(b"\x02\x01" + bytes(6), None),
        Entry(b"\x01\x01\x00\x02v", None),
        Entry(b"\x01\x01\x00\x02zz" + bytes(4), None),
        Entry(b"\x01\x02" + bytes.fromhex("0002 7631 0001 67 0000 0001 74 0000"), None),
        Entry(group_entry(KEY, None).key, b"\x02\x90"),
        Entry(group_entry(KEY, None).key, b"\x01\x90"),
        Entry(group_entry(KEY, None).key, b""),
        Entry(b"\x01\x01\x00\x01\xff" + bytes(4), None),
    ],
)
def test_what_cannot_be_read_is_refused(entry: Entry) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(entry)


def test_a_kind_of_a_later_version_is_passed_over() -> None:
    store = GroupStore()
    store.apply(Entry(b"\x01\x09" + bytes(6), b"\x01\x90"))
    assert not store.groups


@given(st.binary(max_size=40), st.none() | st.binary(max_size=40))
def test_hostile_records(key: bytes, value: bytes | None) -> None:
    with suppress(RemoteProtocolError):
        GroupStore().apply(Entry(key, value))


def test_groups_are_spread_over_the_partitions() -> None:
    keys = [GroupKey(Family.KAFKA, f"group-{number}") for number in range(1600)]
    counts = Counter(partition_of(key, 16) for key in keys)
    assert len(counts) == 16
    assert max(counts.values()) < 200


def test_families_of_one_name_are_apart_and_consult_has_one_place() -> None:
    assert partition_of(GroupKey(Family.COORDINATOR, "anything"), 16) == 0
    keys = [GroupKey(family, "name") for family in (Family.V1, Family.CURSUS, Family.KAFKA)]
    assert len({partition_of(key, 16) for key in keys}) > 1


@pytest.mark.parametrize(
    ("key", "partition"),
    [(GroupKey(Family.V1, "team"), 1), (GroupKey(Family.KAFKA, "team"), 0)],
)
def test_the_place_of_a_group_never_changes(key: GroupKey, partition: int) -> None:
    """These numbers are on disk: a version that moves a group loses it."""
    assert partition_of(key, 16) == partition
