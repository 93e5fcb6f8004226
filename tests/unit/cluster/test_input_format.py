"""Lines of ``produce --format``."""

from __future__ import annotations

import pytest

from paceline.client import ConsumedRecord
from paceline_cluster.cli.input_format import compile_input
from paceline_cluster.cli.record_text import BadLine, InputRecord, compile_format


@pytest.mark.parametrize(
    ("format_", "line", "expected"),
    [
        ("%s", b"a\tb", InputRecord(None, b"a\tb")),
        ("%k:%s", b"k:v:w", InputRecord(b"k", b"v:w")),
        ("%k:%s", b":v", InputRecord(None, b"v")),
        (r"%k\t%s\n", b"k\tv", InputRecord(b"k", b"v")),
        (r"%s\\n", rb"v\n", InputRecord(None, b"v")),
        (r"%T\t%k\t%s", b"99\tk\t", InputRecord(b"k", b"", timestamp_ms=99)),
        ("[%p%%] %s;", b"[3%] v;", InputRecord(None, b"v", partition=3)),
        ("%h|%s", b"a=1,b=|v", InputRecord(None, b"v", (("a", b"1"), ("b", b"")))),
        ("%h|%s", b"|v", InputRecord(None, b"v")),
        ("%t/%p/%o %s", b"orders/1/7 \xff", InputRecord(None, b"\xff", partition=1)),
    ],
)
def test_a_line_is_taken_apart(format_: str, line: bytes, expected: InputRecord) -> None:
    assert compile_input(format_)(line) == expected


def test_it_reads_what_consume_prints() -> None:
    text = r"%p\t%T\t%h\t%k\t%s"
    record = ConsumedRecord("orders", 2, 5, 99, b"k", b"v\t\xff", (("a", b"1"),))
    read = compile_input(text)(compile_format(text)(record))
    assert read == InputRecord(b"k", b"v\t\xff", (("a", b"1"),), 2, 99)


@pytest.mark.parametrize(
    ("format_", "line", "reason"),
    [
        ("%k:%s", b"no delimiter", "no ':' behind the key"),
        ("%p %s", b"x v", "the partition is no whole number: 'x'"),
        ("%T %s", b"-1 v", "the timestamp is no whole number"),
        ("<%s>", b"<v", "does not begin and end"),
        ("<%s<", b"<", "does not begin and end"),
        ("%h %s", b"a v", "headers are no NAME=VALUE"),
    ],
)
def test_a_line_that_does_not_fit_is_refused(format_: str, line: bytes, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        compile_input(format_)(line)


@pytest.mark.parametrize(
    ("format_", "reason"),
    [
        ("%k", "has no value"),
        ("%k%s", "nothing in format '%k%s' separates '%s'"),
        ("%s %s", "twice"),
        ("%z%s", "unknown '%z'"),
        (r"%k\n%s", "unknown"),
        (r"%s\n\n", "unknown"),
        ("%s%", "unknown '%'"),
    ],
)
def test_a_format_that_no_line_can_have_is_refused(format_: str, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        compile_input(format_)
