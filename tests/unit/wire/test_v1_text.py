"""Go's whitespace and integers, names, escapes, plain-safe values, the key hash."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline.wire.v1.errors import V1Error
from paceline.wire.v1.partitioner import fnv1a_32, partition_for
from paceline.wire.v1.text import (
    TOKEN,
    WHITESPACE,
    is_plain_safe,
    parse_host,
    parse_integer,
    parse_name,
    parse_topic,
    percent_decode,
    percent_encode,
)

GO_WHITESPACE = {
    *range(0x09, 0x0E),
    0x20,
    0x85,
    0xA0,
    0x1680,
    *range(0x2000, 0x200B),
    0x2028,
    0x2029,
    0x202F,
    0x205F,
    0x3000,
}


def test_whitespace_is_exactly_gos() -> None:
    assert {ord(character) for character in WHITESPACE} == GO_WHITESPACE
    for code in (0x1C, 0x1D, 0x1E, 0x1F, 0xFEFF, 0x200B, 0x180E):
        assert TOKEN.findall(f"a{chr(code)}b") == [f"a{chr(code)}b"]
    for code in GO_WHITESPACE:
        assert TOKEN.findall(f"a{chr(code)}b") == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("-1", -1),
        ("+7", 7),
        ("-0", 0),
        ("007", 7),
        ("0" * 5000 + "7", 7),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_integers(text: str, number: int) -> None:
    assert parse_integer(text, "offset") == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1_0",
        " 1",
        "1 ",
        "1\n",
        "--1",
        "+-1",
        "+",
        "1.0",
        "0x1",
        "\u0663",
        "\u00b2",
        "9223372036854775808",
        "-9223372036854775809",
        "9" * 10_000,
        "0" * 100_000 + "x",
    ],
)
def test_not_integers(text: str) -> None:
    with pytest.raises(V1Error, match=r"BAD_REQUEST\|invalid offset"):
        parse_integer(text, "offset")


@pytest.mark.parametrize("name", ["orders", "A-b_c.9", "x" * 249, "...", "_x"])
def test_topics(name: str) -> None:
    assert parse_topic(name) == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "role=x", "a]", "a b", "\u0434", "a\n", "__groups"]
)
def test_not_topics(name: str) -> None:
    with pytest.raises(V1Error, match=r"BAD_REQUEST\|invalid topic"):
        parse_topic(name)


@pytest.mark.parametrize("name", ["g", "a=b]", "\u0434" * 127, "x" * 255, "a|b"])
def test_names(name: str) -> None:
    assert parse_name(name, "group") == name


@pytest.mark.parametrize("name", ["x" * 256, "\u0434" * 128, "a\x00", "a\x7f", "\udcff", "\x9f"])
def test_not_names(name: str) -> None:
    with pytest.raises(V1Error, match=r"BAD_REQUEST\|invalid group"):
        parse_name(name, "group")


def test_hosts_cannot_be_taken_for_fields() -> None:
    for host in ("127.0.0.1", "broker-0.example", "[::1]", "fe80::1"):
        assert parse_host(host) == host
    for host in ("xport=1", "", "a,b", "a b", "x" * 256):
        with pytest.raises(V1Error, match="invalid host"):
            parse_host(host)


@pytest.mark.parametrize(
    "value",
    [b"", b"v", b" leading", b"a b", b"a:b|c=d", b"hw=1", b"a\thw=", b"messages", b"\r.", b"%2C"],
)
def test_plain_safe(value: bytes) -> None:
    assert is_plain_safe(value)


@pytest.mark.parametrize(
    "value",
    [b",", b"a,", b"a,7:x", b"a\nb", b"xmessages=", b"a hw=2", b"\xff", b"a\xc3", b"\xed\xa0\x80"]
    + [
        ("v" + chr(code)).encode()
        for code in sorted(GO_WHITESPACE | {0x1C, 0x1D, 0x1E, 0x1F, 0xFEFF})
    ],
)
def test_not_plain_safe(value: bytes) -> None:
    assert not is_plain_safe(value)


@given(st.binary())
@example(bytes(range(256)))
def test_percent_round_trip(data: bytes) -> None:
    encoded = percent_encode(data)
    assert set(encoded.encode()) <= set(
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~%"
    )
    assert percent_decode(encoded.encode()) == data


def test_percent_vectors() -> None:
    assert percent_encode(b"a,b c-._~\x00\xff/") == "a%2Cb%20c-._~%00%FF%2F"
    assert percent_decode(b"a%2Cb%2cc%fF+ /") == b"a,b,c\xff+ /"
    assert percent_decode(b"%25" * 3) == b"%%%"


@pytest.mark.parametrize("data", [b"%", b"a%2", b"%G0", b"%0G", b"%%41", b"%+1", b"% 1", b"%41%"])
def test_malformed_escapes(data: bytes) -> None:
    with pytest.raises(V1Error, match=r"BAD_REQUEST\|malformed percent escape"):
        percent_decode(data)


@pytest.mark.parametrize(
    ("key", "value", "mod3", "mod5", "mod12"),
    [
        ("", 0x811C9DC5, 1, 1, 1),
        ("user1", 0xA07D2CF9, 2, 3, 5),
        ("user2", 0x9D7D2840, 2, 1, 8),
        ("user9", 0xA87D3991, 0, 0, 9),
        ("user-role", 0x1A18DD01, 2, 2, 5),
        ("user-x", 0x2E53D32F, 0, 2, 3),
        ("\u043a\u043b\u044e\u0447", 0x95C4E9E1, 2, 3, 5),
    ],
)
def test_key_hash_vectors(key: str, value: int, mod3: int, mod5: int, mod12: int) -> None:
    raw = key.encode()
    assert fnv1a_32(raw) == value
    assert [partition_for(raw, count) for count in (3, 5, 12)] == [mod3, mod5, mod12]
