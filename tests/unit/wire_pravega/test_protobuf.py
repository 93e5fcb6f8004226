"""Protocol buffers: published examples, every controller message, hostile bytes."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import RemoteProtocolError
from paceline.wire.pravega import controller as c
from paceline.wire.pravega.protobuf import DOUBLE, INT, STRING, Kind, ProtoMessage

KINDS = [
    each
    for each in vars(c).values()
    if isinstance(each, type) and issubclass(each, ProtoMessage) and is_dataclass(each)
]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        # The encoding guide's own examples: 150 in field 1, "testing" in field 2.
        (c.Status(150), "08 96 01"),
        (c.StreamInfo("", "testing"), "12 07 74657374696e67"),
        (c.ScalingPolicy(min_segments=-1), "20 ffffffffffffffffff01"),
        (c.SegmentRange(None, 0.0, 1.0), "19 000000000000f03f"),
        (c.SegmentId(c.StreamInfo("s", "t"), 1 << 32), "0a06 0a0173 120174 10 8080808010"),
        (c.ScopesResponse(("a", ""), c.Token()), "0a0161 0a00 1200"),
        (c.Exists(True), "08 01"),
        (c.Status(), ""),
    ],
)
def test_bytes(message: ProtoMessage, text: str) -> None:
    data = bytes.fromhex(text)
    assert message.encode() == data
    assert type(message).decode(data) == message


def test_unknown_fields_are_skipped() -> None:
    data = bytes.fromhex("2807 3103000000000000003a0178 4504000000 0801")
    assert c.Status.decode(data) == c.Status(1)


@pytest.mark.parametrize(
    "text",
    ["0a01", "08", "08 ffffffffffffffffffff01", "0b", "0f", "0a02c328", "0a7f61", "09 00", "0801"],
)
def test_what_is_no_message(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        c.ScopeInfo.decode(bytes.fromhex(text))


@st.composite
def _values(draw: st.DrawFn, kind: Kind, name: str, cls: type[ProtoMessage]) -> object:
    if kind.wire_type == INT.wire_type:
        if isinstance(cls.__dataclass_fields__[name].default, bool):
            return draw(st.booleans())
        return draw(st.integers(-(2**63), 2**63 - 1))
    if kind.wire_type == DOUBLE.wire_type:
        return draw(st.floats(allow_nan=False))
    if kind.write is STRING.write:
        return draw(st.text(st.characters(exclude_categories=["Cs"]), max_size=9))
    return draw(_messages(kind.read.__self__))  # type: ignore[attr-defined]


@st.composite
def _messages(draw: st.DrawFn, cls: type[ProtoMessage]) -> ProtoMessage:
    values = {}
    for field, (_, kind) in zip(fields(cls), cls.FIELDS, strict=True):
        one = _values(kind, field.name, cls)
        if kind.is_many:
            values[field.name] = draw(st.lists(one, max_size=3).map(tuple))
        elif draw(st.booleans()):
            values[field.name] = draw(one)
    return cls(**values)


@given(st.sampled_from(KINDS).flatmap(_messages))
def test_every_message_comes_back(message: ProtoMessage) -> None:
    assert type(message).decode(message.encode()) == message


@given(st.sampled_from(KINDS), st.binary(max_size=60))
def test_any_bytes_end_well(cls: type[ProtoMessage], data: bytes) -> None:
    try:
        cls.decode(data)
    except RemoteProtocolError:
        return


def test_a_message_has_so_many_fields() -> None:
    """Each was added to a copy of all before it: 64 KB took a second; and then they were read one
    by one, though one counts, in 0.3 s."""
    data = bytes.fromhex("0a0161")
    assert len(c.ScopesResponse.decode(data * 2000).scopes) == 2000
    for cls, more in ((c.ScopesResponse, data), (c.ScopeInfo, data), (c.Status, b"\x28\0")):
        with pytest.raises(RemoteProtocolError, match="2000 fields"):
            cls.decode(more * 2001)


def test_of_one_field_that_comes_again_only_the_last_is_looked_into() -> None:
    assert c.StreamConfig.decode(bytes.fromhex("0a01ff 0a030a0161")) == (
        c.StreamConfig(c.StreamInfo("a"))
    )
