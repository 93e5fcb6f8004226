"""Whatever bytes a stranger sends where a header belongs: an array, or one typed error."""

from __future__ import annotations

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import RemoteProtocolError
from paceline.types import LeaderEpoch
from paceline.wire.frame import decode
from paceline.wire.message import Packed, unpack_array
from paceline.wire.native.data import (
    ProducedPartition,
    ProducePartition,
    ProduceReply,
    pack_produced,
)

UNHASHABLE_KEY = b"\x81\x80\x00"  # {{}: 0}, which Python's maps cannot hold
ARRAY_KEY = b"\x81\x90\x00"
NESTED = b"\x91" * 5000


def outcome(data: bytes) -> object:
    try:
        return type(unpack_array(data))
    except RemoteProtocolError:
        return RemoteProtocolError


@pytest.mark.parametrize(
    "data", [b"", b"\xc1", b"\x80", UNHASHABLE_KEY, ARRAY_KEY, b"\x81\x01\x02", NESTED, b"\x90\x90"]
)
def test_what_is_no_array_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        unpack_array(data)


@pytest.mark.parametrize("key", [UNHASHABLE_KEY, ARRAY_KEY, b"\x81\x01\x02"])
def test_keys_that_are_no_text_are_refused_inside_an_array(key: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        unpack_array(b"\x91" + key)


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    assert outcome(data) in (list, RemoteProtocolError)
    assert outcome(b"\x94" + data) in (list, RemoteProtocolError)


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner),
    max_leaves=8,
)


@given(_values, st.binary(max_size=20))
def test_any_header_of_a_frame(value: object, rest: bytes) -> None:
    header = msgpack.packb([0, 1, 2, value])
    frame = len(header).to_bytes(4, "big") + header + rest
    if isinstance(value, list | tuple):
        assert bytes(decode(frame).payload) == rest
    else:
        with pytest.raises(RemoteProtocolError):
            decode(frame)


def test_a_produced_partition_packed_by_hand_is_the_message() -> None:
    at = ProducePartition("orders", 3, 170)
    by_hand = pack_produced(at, 10, 14, 7, 15, 2, duplicate=True)
    message = ProducedPartition("orders", 3, 0, "", 10, 14, LeaderEpoch(7), 15, 2, duplicate=True)
    assert by_hand == message.pack()
    assert ProduceReply.unpack(Packed([[by_hand]]).pack()) == ProduceReply((message,))


def test_messages_of_ever_new_types_are_checked_each_time() -> None:
    kinds = [None, "topic", b"x", 1.5, True, [], {}, 7, -1]
    for first in kinds:
        for second in kinds:
            if (type(first), type(second)) == (str, int):
                continue
            with pytest.raises(RemoteProtocolError, match=r"ProducePartition\.\w+: expected"):
                ProducePartition.unpack([first, second, 0])
    assert ProducePartition.unpack(["topic", 7, 0, 1, "newer", 5]).partition == 7
