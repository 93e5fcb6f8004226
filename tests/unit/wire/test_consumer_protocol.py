"""What group members say of themselves: Kafka's bytes, whoever wrote them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import RemoteProtocolError
from paceline.wire.consumer_protocol import Assignment, Subscription, says_the_same

TOPICS = st.text(st.characters(codec="utf-8"), max_size=20)
PARTITIONS = st.dictionaries(
    TOPICS, st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple), max_size=4
)
USER_DATA = st.none() | st.binary(max_size=20)


@given(st.lists(TOPICS).map(tuple), USER_DATA, PARTITIONS, st.integers(-1, 2**31 - 1))
def test_subscription_round_trip(
    topics: tuple[str, ...], data: bytes | None, owned: dict[str, tuple[int, ...]], generation: int
) -> None:
    subscription = Subscription(topics, data, owned, generation)
    assert Subscription.from_bytes(subscription.to_bytes()) == subscription


@given(PARTITIONS, USER_DATA)
def test_assignment_round_trip(partitions: dict[str, tuple[int, ...]], data: bytes | None) -> None:
    assignment = Assignment(partitions, data)
    assert Assignment.from_bytes(assignment.to_bytes()) == assignment


def test_subscription_of_the_first_version() -> None:
    found = Subscription.from_bytes(bytes.fromhex("0000 00000001 0002 7430 ffffffff"))
    assert found == Subscription(("t0",))


def test_subscription_of_a_later_version_with_a_rack() -> None:
    wire = bytes.fromhex(
        "0003 00000001 0002 7430 00000000 00000001 0002 7430 00000001 00000002 00000005 0001 61"
    )
    assert Subscription.from_bytes(wire) == Subscription(("t0",), b"", {"t0": (2,)}, 5)


def test_assignment_bytes() -> None:
    wire = bytes.fromhex("0000 00000001 0002 7430 00000002 00000000 00000001 ffffffff")
    assert Assignment({"t0": (0, 1)}).to_bytes() == wire
    assert Assignment.from_bytes(wire) == Assignment({"t0": (0, 1)})


def test_no_bytes_are_no_assignment() -> None:
    assert Assignment.from_bytes(b"") == Assignment({})


@given(st.binary(max_size=60))
def test_hostile_bytes_are_refused_or_read(data: bytes) -> None:
    for kind in (Subscription, Assignment):
        try:
            kind.from_bytes(data)
        except RemoteProtocolError:
            continue


@pytest.mark.parametrize("size", range(1, 21))
def test_a_cut_assignment_is_refused(size: int) -> None:
    wire = Assignment({"t0": (0, 1)}).to_bytes()
    with pytest.raises(RemoteProtocolError):
        Assignment.from_bytes(wire[:size])


def test_what_a_member_owned_is_not_what_it_asks_for() -> None:
    asked = Subscription(("orders",), b"data").to_bytes()
    owning = Subscription(("orders",), b"data", {"orders": (0, 1)}, 7).to_bytes()
    assert says_the_same(asked, owning)
    # Version 3 ends with the member's rack; version 0 knows of nothing owned.
    assert says_the_same(asked + b"\x00\x01a", owning + b"\x00\x01a")
    assert not says_the_same(asked + b"\x00\x01a", owning + b"\x00\x01b")
    assert not says_the_same(asked, Subscription(("orders",), b"other").to_bytes())
    assert not says_the_same(asked, b"\x00\x00")
    assert says_the_same(b"junk", b"junk")
    assert not says_the_same(b"junk", b"junk2")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_what_newer_versions_append_may_be_missing(version: int) -> None:
    """Some clients name a version and end where an older one does."""
    older = Subscription(("orders",), b"said").to_bytes()[:-8]
    said = Subscription.from_bytes(version.to_bytes(2, "big") + older[2:])
    assert said == Subscription(("orders",), b"said")
    owned = Subscription(("orders",), None, {"orders": (1,)}).to_bytes()[:-4]
    said = Subscription.from_bytes(version.to_bytes(2, "big") + owned[2:])
    assert said.owned == {"orders": (1,)}
