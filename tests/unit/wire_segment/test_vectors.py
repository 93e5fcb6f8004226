"""The published byte vectors, whole and split at every byte."""

from __future__ import annotations

from uuid import UUID

import pytest

from paceline.wire.segment import messages as m
from paceline.wire.segment.client import ReplyReader, closed_block
from paceline.wire.segment.errors import Fault
from paceline.wire.segment.partials import cut
from paceline.wire.segment.server import OtherDialect, Requested, ServerConnection
from paceline.wire.segment.text import decode_text, encode_text
from tests.unit.wire_segment.store import Served, Store

ID = "00112233445566778899aabbccddeeff"
SEG = "000773632f73742f30"
WRITER = UUID(ID)
NAME = "sc/st/0"


def h(*parts: str) -> bytes:
    return bytes.fromhex("".join(parts))


SETUP = h("00000001 00000019", ID, SEG)
APPEND_SETUP = h("00000002 00000021", SEG, ID, "0000000000000000")
BLOCK = h(
    "00000003 0000001c", ID, "0000000000000000 00000015",
    "00000000 00000005 68656c6c6f", "00000000 00000000",
    "00000004 0000001c", ID, "0000000000000015 00000015",
)  # fmt: skip
APPENDED = h("00000005 00000018", ID, "0000000000000015")
TAILED = h(
    "00000003 0000001c", ID, "0000000000000015 00000020",
    "00000000 00000003 616263",
    "fffffffe 0000000d 00 00000000 0000000a 30313233",
    "00000004 0000001c", ID, "0000000000000032 0000001d",
)  # fmt: skip
TAIL = h("fffffffe 00000007 02 343536373839")
CONTENT = h(
    "000000000000000568656c6c6f 0000000000000000 0000000000000003616263",
    "000000000000000a30313233343536373839",
)


def test_an_exchange_on_a_new_segment() -> None:
    """Vectors 1 to 6."""
    store = Store(NAME)
    served = Served(store)
    assert served.feed(SETUP) == [m.AppendSetup(NAME, WRITER, 0)]
    assert bytes(served.sent) == APPEND_SETUP
    assert served.feed(BLOCK) == [m.DataAppended(WRITER, 21)]
    assert bytes(served.sent) == APPEND_SETUP + APPENDED
    assert served.feed(TAILED) == []
    assert store.ends[NAME, WRITER] == 32  # where a drop before the tail would leave it
    assert served.feed(TAIL) == [m.DataAppended(WRITER, 50)]
    assert bytes(store.segments[NAME]) == CONTENT


def test_the_same_exchange_cut_everywhere() -> None:
    stream = SETUP + BLOCK + TAILED + TAIL
    # A block right behind its SetupAppend is legal only once the reply was sent.
    for at in range(len(SETUP), len(stream) + 1):
        store = Store(NAME)
        served = Served(store)
        served.feed(SETUP)
        served.feed(stream[len(SETUP) : at])
        served.feed(stream[at:])
        assert served.violation is None
        assert bytes(store.segments[NAME]) == CONTENT
    store = Store(NAME)
    served = Served(store)
    for byte in stream:
        served.feed(bytes((byte,)))
    assert bytes(store.segments[NAME]) == CONTENT


def test_an_unbounded_block_is_the_same() -> None:
    unbounded = bytearray(BLOCK)
    at = 8 + 16 + 8
    unbounded[at : at + 4] = h("7fffffff")
    store = Store(NAME)
    served = Served(store)
    served.feed(SETUP)
    assert served.feed(bytes(unbounded)) == [m.DataAppended(WRITER, 21)]


def test_our_own_blocks_are_exact() -> None:
    assert closed_block(WRITER, 0, [b"hello", b""]) == BLOCK


def test_a_read_and_its_pieces() -> None:
    """Vector 7."""
    whole = h("00000006 00000015", SEG, "0000000000000000 00000400")
    request = m.ReadSegment(NAME, 0, 1024)
    assert m.encode(request) == whole
    pieces = [
        h("fffffffe 0000000b 00 00000006 00000015 0007"),
        h("fffffffe 0000000b 01 73632f73742f30 000000"),
        h("fffffffe 0000000a 02 0000000000 00000400"),
    ]
    assert list(cut(whole, 10)) == pieces
    assert ServerConnection().receive(b"".join(pieces)) == [Requested(request)]


def test_replies_to_reads() -> None:
    """Vector 8."""
    data = h("000000000000000568656c6c6f0000000000000000")
    first = h("00000007 00000027", SEG, "0000000000000000 80") + data
    last = h("00000007 00000012", SEG, "0000000000000015 40")
    assert ReplyReader().receive(first + last) == [
        m.SegmentRead(NAME, 0, m.ReadFlags.TAIL, data),
        m.SegmentRead(NAME, 21, m.ReadFlags.END, b""),
    ]
    assert m.encode(m.SegmentRead(NAME, 0, m.ReadFlags.TAIL, data)) == first
    assert m.encode(m.SegmentRead(NAME, 21, m.ReadFlags.END, b"")) == last
    # The six other bits say nothing.
    noisy = first[: 8 + 9 + 8] + b"\xbf" + data
    assert ReplyReader().receive(noisy) == [m.SegmentRead(NAME, 0, m.ReadFlags.TAIL, data)]


def test_keep_alives_are_echoed() -> None:
    """Vector 9."""
    for line in (h("00000064 00000000"), h("00000064 00000002 dead")):
        served = Served(Store())
        served.feed(line)
        assert bytes(served.sent) == line


def test_modified_utf8() -> None:
    """Vector 10, and the four of section 2.3."""
    pairs = (("é", "c3a9"), ("中", "e4b8ad"), ("\0", "c080"), ("\U0001f600", "eda0bdedb880"))
    for text, encoded in pairs:
        assert encode_text(text) == h(encoded)
        assert decode_text(h(encoded)) == text
    name = "732fc3a9eda0bdedb8802f30"
    served = Served(Store())
    served.feed(h("00000001 0000001e", ID, "000c", name))
    assert bytes(served.sent) == h("00000035 0000000e 000c", name)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (m.CreateSegment(NAME), h("00000014 00000009", SEG)),
        (m.NoSuchSegment(NAME), h("00000035 00000009", SEG)),
        (
            m.WrongHost(NAME, "10.0.0.2:9092"),
            h("00000032 00000018", SEG, "000d 31302e302e302e323a39303932"),
        ),
    ],
)
def test_names(message: m.SegmentMessage, expected: bytes) -> None:
    """Vector 11."""
    assert m.encode(message) == expected
    assert m.decode_payload(type(message), expected[8:]) == message


def test_a_header_of_2_to_the_24() -> None:
    served = Served(Store())
    served.feed(h("00000000 01000000"))
    assert served.violation is not None
    assert served.violation.fault is Fault.E3


def test_the_pravega_dialect_announces_itself() -> None:
    """Vector 12: the first message of the PyPI client; nothing behind it is read as ours."""
    hello = h("ffffff81 00000008 0000000f 00000005")
    pravega = h("00000001 0000002c 0000000000000001 0e63a64e8d632cc7c60b8c8a5b8be74e")
    machine = ServerConnection()
    assert machine.receive(hello + pravega) == [OtherDialect(m.Hello(15, 5), pravega)]
    assert machine.receive(pravega) == []
    assert ServerConnection().receive(m.encode(m.Hello(0, 0))) == [Requested(m.Hello(0, 0))]
