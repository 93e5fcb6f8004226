"""Text forms of records: the JSON line round-trips bytes, delimited lines, format strings."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.client import ConsumedRecord
from paceline_cluster.cli import record_text
from paceline_cluster.cli.record_text import BadLine

DATA = st.none() | st.binary() | st.text().map(lambda text: text.encode("utf-8", "ignore"))
NAMES = st.binary().map(lambda name: name.decode("utf-8", "surrogateescape"))
HEADERS = st.lists(st.tuples(NAMES, DATA))


@given(DATA, DATA, HEADERS, st.integers(0, 2**62))
def test_what_consume_prints_produce_reads(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp_ms: int,
) -> None:
    line = json.dumps(
        record_text.to_data(ConsumedRecord("t", 3, 17, timestamp_ms, key, value, tuple(headers)))
    )
    assert "\n" not in line
    record = record_text.parse(line.encode())
    assert (record.key, record.value) == (key, value)
    assert list(record.headers) == headers
    assert (record.partition, record.timestamp_ms) == (3, timestamp_ms)


def test_text_stays_readable_and_bytes_are_base64() -> None:
    data = record_text.to_data(ConsumedRecord("t", 0, 1, 2, "é".encode(), b"\xff\x00", ()))
    assert (data["key"], data["value"]) == ("é", {"base64": "/wA="})


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", '"value" is missing'),
        (b'{"value": 3}', "value must be a string"),
        (b'{"value": {"base64": "*"}}', "value is not base64"),
        (b'{"value": {"base64": "", "x": 1}}', "value must be a string"),
        (b'{"value": "\\ud800"}', "surrogate"),
        (b'{"value": "v", "key": []}', "key must be a string"),
        (b'{"value": "v", "headers": {"a": "b"}}', "headers must be a list"),
        (b'{"value": "v", "headers": [["a"]]}', "headers must be a list"),
        (b'{"value": "v", "headers": [["a", 1]]}', "header 'a' must be"),
        (b'{"value": "v", "partition": -1}', "partition must be a whole number"),
        (b'{"value": "v", "partition": true}', "partition must be a whole number"),
        (b'{"value": "v", "timestamp": 1.5}', "timestamp must be a whole number"),
        (b'{"value": "v", "kye": "k"}', 'unknown field "kye", did you mean "key"'),
        (b'{"value": "v", "user": 7}', 'unknown field "user"; known: topic, partition, offset'),
        (b'{"value": "v", "value": "w"}', 'field "value" is there twice'),
        (b'{"value": {"base64": "", "base64": "AA=="}}', 'field "base64" is there twice'),
    ],
)
def test_bad_lines_say_what_is_wrong(line: bytes, problem: str) -> None:
    with pytest.raises(BadLine, match=problem):
        record_text.parse(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"k:v", (b"k", b"v")),
        (b"k:v:w", (b"k", b"v:w")),
        (b":v", (b"", b"v")),
        (b"k:", (b"k", b"")),
        (b"v", (None, b"v")),
    ],
)
def test_key_is_split_at_the_first_delimiter(
    line: bytes, expected: tuple[bytes | None, bytes]
) -> None:
    assert record_text.split_key(line, b":") == expected


def test_header_option() -> None:
    assert record_text.parse_header_option("a=b=c") == ("a", b"b=c")
    for text in ("a", "=b", ""):
        with pytest.raises(BadLine, match="NAME=VALUE"):
            record_text.parse_header_option(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t/%p@%o %T", b"orders/2@5 99"),
        ("%k=%s\\n", b"k=v\xff\n"),
        ("%K %S", b"1 2"),
        ("%h|100%%\\t\\\\", b"a=1,b=|100%\t\\"),
        ("", b""),
        ("plain", b"plain"),
    ],
)
def test_format_strings(text: str, expected: bytes) -> None:
    record = ConsumedRecord("orders", 2, 5, 99, b"k", b"v\xff", (("a", b"1"), ("b", None)))
    assert record_text.compile_format(text)(record) == expected


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [("hex", b"6b|76ff|a=31,b="), ("base64", b"aw==|dv8=|a=MQ==,b=")],
)
def test_bytes_of_a_format_encoded(encoding: str, expected: bytes) -> None:
    record = ConsumedRecord("orders", 2, 5, 99, b"k", b"v\xff", (("a", b"1"), ("b", None)))
    encode = record_text.ENCODINGS[encoding]
    assert record_text.compile_format("%k|%s|%h", encode)(record) == expected


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (1_700_000_000_123, b"2023-11-14T22:13:20.123Z"),
        (-1, b"1969-12-31T23:59:59.999Z"),
        (2**62, b"4611686018427387904"),
    ],
)
def test_a_time_that_people_read(timestamp_ms: int, expected: bytes) -> None:
    record = ConsumedRecord("orders", 2, 5, timestamp_ms, None, None, ())
    assert record_text.compile_format("%D")(record) == expected


def test_format_of_missing_key_and_value() -> None:
    record = ConsumedRecord("orders", 2, 5, 99, None, None, ())
    assert record_text.compile_format("[%k|%s|%K|%S|%h]")(record) == b"[||-1|-1|]"


@pytest.mark.parametrize("text", ["%z", "100%", "\\q", "a\\"])
def test_unknown_format_is_refused(text: str) -> None:
    with pytest.raises(BadLine, match="unknown"):
        record_text.compile_format(text)
