"""The page that documents the native protocol says what the code does, byte for byte."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from uuid import UUID

import pytest
from fastcrc import crc32

from paceline.errors import RemoteProtocolError
from paceline.types import Acks, NodeId, TopicId
from paceline.wire import frame
from paceline.wire.message import Message
from paceline.wire.native import acls, admin, data, groups, load, quotas, transactions, users
from paceline.wire.native.api import NativeApi

README = Path(__file__).parents[3] / "paceline" / "wire" / "native" / "README.md"
TEXT = README.read_text(encoding="utf-8")
HEX_BLOCKS = re.findall(r"```hex (\w+) (\d) (\w+)\n(.*?)```", TEXT, re.S)


def message_classes() -> dict[str, type[Message]]:
    found = {}
    for module in (data, load, admin, acls, quotas, users, groups, transactions):
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                found[name] = value
    return found


CLASSES = message_classes()


def describe(cls: type[Message]) -> str:
    """One row of the field table: ``name type``, ``=`` behind a field that may be missing."""
    parts = []
    for field in fields(cls):  # type: ignore[arg-type]
        optional = field.default is not MISSING or field.default_factory is not MISSING
        parts.append(f"{field.name} {field.type}{' =' if optional else ''}")
    return " · ".join(parts).replace("|", "or") or "(none)"


def table_rows(section: str) -> list[list[str]]:
    body = TEXT.split(f"## {section}\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_field_table_is_every_message_as_it_is() -> None:
    documented = {row[0]: row[1] for row in table_rows("Fields")}
    assert documented == {name: describe(cls) for name, cls in CLASSES.items()}


def test_request_table_is_every_api_number() -> None:
    rows = table_rows("Requests")
    assert {row[0]: int(row[1]) for row in rows} == {api.name: int(api) for api in NativeApi}
    for row in rows:
        for cell in row[2:]:
            assert cell.removesuffix(" + batches") in CLASSES


@pytest.mark.parametrize("block", HEX_BLOCKS, ids=lambda block: f"{block[0]}-{block[2]}")
def test_hex_example_decodes_and_encodes_back(block: tuple[str, str, str, str]) -> None:
    api, kind, name, text = block
    wire = bytes.fromhex(text)
    assert int.from_bytes(wire[:4], "big") == len(wire) - 4
    decoded = frame.decode(wire[4:])
    assert decoded.api == NativeApi[api]
    if name == "error":
        assert decoded.kind == frame.Kind.ERROR
        body = decoded.body
    else:
        assert decoded.kind == int(kind)
        message = CLASSES[name].unpack(decoded.body)
        body = message.pack()
    head = frame.encode_head(
        decoded.kind, decoded.api, decoded.correlation, body, len(decoded.payload)
    )
    assert head + decoded.payload == wire


def test_all_example_kinds_are_there() -> None:
    assert [block[2] for block in HEX_BLOCKS] == ["Hello", "Produce", "ProduceReply", "error"]


def test_produce_example_carries_one_whole_batch() -> None:
    wire = bytes.fromhex(HEX_BLOCKS[1][3])
    decoded = frame.decode(wire[4:])
    request = data.Produce.unpack(decoded.body)
    assert request.acks is Acks.ALL
    assert request.partitions[0].records_bytes == len(decoded.payload)
    batch = decoded.payload
    assert int.from_bytes(batch[8:12], "big") == len(batch) - 12
    assert batch[16] == 2
    assert crc32.iscsi(bytes(batch[21:])) == int.from_bytes(batch[17:21], "big")
    assert bytes(batch[-3:-1]) == b"hi"


def test_settings_of_a_topic_travel_only_where_they_are_asked_for() -> None:
    """So that nodes and clients of before are sent what they were."""
    assert data.DescribeTopic("orders").pack() == ["orders", [], False]
    assert data.DescribeTopic("orders", settings=True).pack() == ["orders", [], False, True]
    plain = data.TopicDescription("orders", TopicId(UUID(int=1)), ())
    assert len(plain.pack()) == 5
    assert data.TopicDescription.unpack(plain.pack()) == plain


def test_what_an_operator_has_a_node_do_travels_only_where_there_is_something() -> None:
    plain = data.BrokerInfo(NodeId(1), ())
    assert plain.pack() == [1, [], "", False]
    assert data.BrokerInfo.unpack(plain.pack()) == plain
    drained = data.BrokerInfo(NodeId(1), (), drained=True)
    assert drained.pack() == [1, [], "", False, True]
    assert data.BrokerInfo.unpack(drained.pack()) == drained


def test_how_long_somebody_is_throttled_travels_only_where_somebody_is() -> None:
    for cls in (data.ProduceReply, data.FetchReply):
        assert cls(()).pack() == [[]]
        told = cls((), 20).pack()
        assert told == [[], 20]
        assert cls.unpack(told).throttle_ms == quotas.throttle_of(told) == 20
        assert quotas.throttle_of([[]]) == 0
        assert quotas.with_throttle(cls(()), 0) == cls(())
        assert quotas.with_throttle(cls(()), 7).pack() == [[], 7]
    for wrong in ("soon", -1, True):
        with pytest.raises(RemoteProtocolError):
            quotas.throttle_of([[], wrong])
