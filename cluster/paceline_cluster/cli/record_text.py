"""Records as text: JSON lines that round-trip any bytes, delimited lines, ``--format`` strings.

The JSON form of a record, the same in and out::

    {"topic": "orders", "partition": 0, "offset": 17, "timestamp": 1700000000000,
     "key": "user1", "value": "created", "headers": [["trace", "a1"]]}

``key``, ``value``, header names and values are a string when the bytes are UTF-8, null when there
are none, and ``{"base64": "..."}`` otherwise, so every record comes back byte for byte. When read,
only ``value`` must be there; ``topic`` and ``offset`` are ignored, other fields refused.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from paceline.client import ConsumedRecord
from paceline.documents.records import record_document
from paceline.values import dataclass
from paceline.wire.records import Record

FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
_KNOWN = ", ".join(FIELDS)
_AS_THEY_ARE = (
    "leave --json off to store lines as they are; how-to/shell of the documentation shows how a "
    "key comes out of a field"
)

Headers = Sequence[tuple[str, bytes | None]]


class BadLine(ValueError):
    """An input line that is no record; the text says what is wrong with it, ``hint`` what to do
    where that is known."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class InputRecord:
    """One record to write; ``partition`` and ``timestamp_ms`` None leave the choice to the
    producer."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def from_json_value(value: Any, name: str) -> bytes | None:
    """Inverse of :func:`paceline.documents.records.json_of`. Raises BadLine naming the field."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return value.encode("utf-8")
        except UnicodeEncodeError:
            raise BadLine(f"{name} holds half a surrogate pair; send bytes as base64") from None
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except binascii.Error as error:
            raise BadLine(f"{name} is not base64: {error}") from None
    raise BadLine(f'{name} must be a string, null or {{"base64": "..."}}')


def to_data(record: ConsumedRecord) -> dict[str, Any]:
    """One record as JSON can hold it."""
    plain = Record(
        record.offset, record.timestamp_ms, record.key, record.value, tuple(record.headers)
    )
    return record_document(record.topic, record.partition, plain)


def parse(line: bytes) -> InputRecord:
    """One JSON line as a record to write. Raises BadLine."""
    try:
        data = json.loads(line, object_pairs_hook=_object)
    except BadLine:
        raise
    except (ValueError, RecursionError) as error:
        raise BadLine(f"not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadLine("not a JSON object")
    for name in data:
        if name not in FIELDS:
            close = difflib.get_close_matches(name, FIELDS, n=1)
            suggestion = f', did you mean "{close[0]}"?' if close else f"; known: {_KNOWN}"
            raise BadLine(
                f"unknown field {json.dumps(name, ensure_ascii=False)}{suggestion}",
                hint="" if close else _AS_THEY_ARE,
            )
    if "value" not in data:
        raise BadLine('"value" is missing (null writes a tombstone)')
    return InputRecord(
        key=from_json_value(data.get("key"), "key"),
        value=from_json_value(data["value"], "value"),
        headers=_parse_headers(data.get("headers", [])),
        partition=_parse_count(data.get("partition"), "partition"),
        timestamp_ms=_parse_count(data.get("timestamp"), "timestamp"),
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of a name that is there twice one value would be lost."""
    data = dict(pairs)
    if len(data) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadLine(f"field {json.dumps(twice, ensure_ascii=False)} is there twice")
    return data


def _parse_count(value: Any, name: str) -> int | None:
    if value is None or (type(value) is int and value >= 0):
        return value
    raise BadLine(f"{name} must be a whole number, 0 or more")


def _parse_headers(value: Any) -> tuple[tuple[str, bytes | None], ...]:
    if not isinstance(value, list):
        raise BadLine("headers must be a list of [name, value]")
    headers = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or pair[0] is None:
            raise BadLine("headers must be a list of [name, value]")
        name = from_json_value(pair[0], "a header's name") or b""
        value = from_json_value(pair[1], f"header {pair[0]!r}")
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers)


def split_key(line: bytes, delimiter: bytes) -> tuple[bytes | None, bytes]:
    """Key and value of a line; a line without the delimiter is a value without a key."""
    key, found, value = line.partition(delimiter)
    return (key, value) if found else (None, line)


def parse_header_option(text: str) -> tuple[str, bytes]:
    """``name=value`` of a ``--header`` option. Raises BadLine."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BadLine(f"{text!r} is no NAME=VALUE")
    return name, os.fsencode(value)


Render = Callable[[ConsumedRecord], bytes]

FORMAT_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
Encode = Callable[[bytes], bytes]
ENCODINGS: dict[str, Encode] = {"none": bytes, "hex": binascii.hexlify, "base64": base64.b64encode}
"""How bytes of keys and values are printed where the bytes themselves are not wanted."""


def _fields(encode: Encode) -> dict[str, Render]:
    return {
        "t": lambda record: record.topic.encode(),
        "p": lambda record: str(record.partition).encode(),
        "o": lambda record: str(record.offset).encode(),
        "T": lambda record: str(record.timestamp_ms).encode(),
        "D": lambda record: _readable(record.timestamp_ms).encode(),
        "k": lambda record: encode(record.key or b""),
        "K": lambda record: str(-1 if record.key is None else len(record.key)).encode(),
        "s": lambda record: encode(record.value or b""),
        "S": lambda record: str(-1 if record.value is None else len(record.value)).encode(),
        "h": lambda record: _headers_text(record.headers, encode),
    }


def _readable(timestamp_ms: int) -> str:
    """A time in UTC; the number itself where it is no date of the years 1 to 9999."""
    try:
        when = _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return str(timestamp_ms)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{when.microsecond // 1000:03}Z"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _headers_text(headers: Headers, encode: Encode) -> bytes:
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + encode(value or b"")
        for name, value in headers
    )


def compile_format(text: str, encode: Encode = bytes) -> Render:
    """A ``--format`` string as a function of a record.

    ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%T`` timestamp in ms, ``%D`` as a date in UTC,
    ``%k`` key, ``%s`` value (``%K``, ``%S``: their length, -1 for none), ``%h`` headers, ``%%`` a
    per cent sign; ``\\n``, ``\\t``, ``\\r``, ``\\0`` and ``\\\\`` as usual. Keys and values, also
    of headers, as ``encode`` has them. Raises BadLine naming an unknown one.
    """
    known = _fields(encode)
    parts: list[Render] = []
    literal: list[str] = []

    def close_literal() -> None:
        if literal:
            parts.append(_constant(os.fsencode("".join(literal))))
            literal.clear()

    characters = iter(text)
    for character in characters:
        if character not in "%\\":
            literal.append(character)
            continue
        following = next(characters, "")
        if character == "%" and following in known:
            close_literal()
            parts.append(known[following])
        elif character == "%" and following == "%":
            literal.append("%")
        elif character == "\\" and following in FORMAT_ESCAPES:
            literal.append(FORMAT_ESCAPES[following])
        else:
            raise BadLine(f"unknown {character + following!r} in format {text!r}")
    close_literal()
    return lambda record: b"".join([part(record) for part in parts])


def _constant(data: bytes) -> Render:
    return lambda _record: data
