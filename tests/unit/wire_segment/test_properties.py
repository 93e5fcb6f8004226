"""Every message comes back, any bytes end well, cut connections lose and repeat nothing."""

from __future__ import annotations

import os
import random
from dataclasses import fields
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import LocalProtocolError
from paceline.wire.segment import messages as m
from paceline.wire.segment.client import ReplyReader
from paceline.wire.segment.errors import SegmentProtocolError
from paceline.wire.segment.events import event_data, frame_events
from paceline.wire.segment.fields import TableKey
from paceline.wire.segment.framing import Direction, MessageTable
from paceline.wire.segment.names import place_of
from paceline.wire.segment.partials import cut
from paceline.wire.segment.server import ServerConnection, ServerLimits
from paceline.wire.segment.text import decode_text, encode_text
from tests.unit.wire_segment.store import Served, Store, blocks

_I64 = st.integers(-(2**63), 2**63 - 1)
_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
_BLOB = st.binary(max_size=60)
_KEY = st.builds(TableKey, _BLOB, _I64)
_BY_TYPE = {
    "Byte": st.integers(0, 255),
    "Int": st.integers(-(2**31), 2**31 - 1),
    "Long": _I64,
    "Java": _TEXT,
    "Text": _TEXT,
    "Bool": st.booleans(),
    "Data": _BLOB,
    "Blob": _BLOB,
    "Id": st.uuids(),
    "Flags": st.sampled_from([m.ReadFlags.NONE, m.ReadFlags.TAIL, m.ReadFlags.END]),
    "Longs": st.lists(_I64, max_size=3).map(tuple),
    "Keys": st.lists(_KEY, max_size=3).map(tuple),
    "Entries": st.lists(st.tuples(_KEY, _BLOB), max_size=3).map(tuple),
}


@st.composite
def messages(draw: st.DrawFn, table: MessageTable = m.MESSAGES) -> m.SegmentMessage:
    cls = draw(st.sampled_from(sorted(table.values(), key=lambda each: each.TYPE)))
    return cls(*(draw(_BY_TYPE[str(field.type)]) for field in fields(cls)))


@given(messages())
def test_every_message_comes_back(message: m.SegmentMessage) -> None:
    data = m.encode(message)
    kind, length = m.HEADER.unpack_from(data)
    assert len(data) == m.HEADER_BYTES + length
    sender = Direction.CLIENT if Direction.CLIENT in message.FROM else Direction.SERVER
    cls = m.check_header(kind, length, sender)
    assert m.decode_payload(cls, data[8:]) == message
    if not any(field.type == "Data" for field in fields(message)):
        # Fields that later versions added are stepped over.
        assert m.decode_payload(cls, data[8:] + b"later") == message


@given(st.lists(messages(), max_size=5), st.randoms(use_true_random=False))
def test_replies_come_whole_or_in_pieces(sent: list[m.SegmentMessage], rng: random.Random) -> None:
    replies = [
        each
        for each in sent
        if Direction.SERVER in each.FROM and not isinstance(each, m.Padding | m.PartialMessage)
    ]
    stream = bytearray()
    for reply in replies:
        data = m.encode(reply)
        stream += b"".join(cut(data, rng.randint(1, 30))) if rng.random() < 0.5 else data
    reader = ReplyReader()
    received = []
    at = 0
    while at < len(stream):
        step = rng.randint(1, 40)
        received += reader.receive(stream[at : at + step])
        at += step
    assert received == replies


@given(_TEXT)
def test_text_comes_back(text: str) -> None:
    assert decode_text(encode_text(text)) == text


@given(st.binary(max_size=12))
def test_bytes_that_decode_are_canonical(data: bytes) -> None:
    try:
        text = decode_text(data)
    except SegmentProtocolError:
        return
    assert encode_text(text) == data


@given(st.lists(st.binary(max_size=30)))
def test_events_come_back(events: list[bytes]) -> None:
    assert event_data(frame_events(events)) == events


def test_lone_surrogates_and_long_texts_are_refused() -> None:
    for text in ("\ud800", "x" * 65536):
        with pytest.raises(LocalProtocolError):
            encode_text(text)


def test_places() -> None:
    place = place_of("sc.ope/st-ream/7")
    assert place is not None
    assert (place.topic, place.partition) == ("sc.ope_st-ream", 7)
    assert place_of("sc.ope/st-ream/7.#epoch.0") == place
    assert place_of("") is None
    assert place_of("x" * 513) is None
    others = ["a/b", "a/b/07", "a/b/65536", "a/b/1.#epoch.1", "a_b/c/0", "é", "x" * 512]
    topics = [each.topic for name in others if (each := place_of(name)) is not None]
    assert len(set(topics)) == len(others)
    assert all(topic.startswith("seg-") and len(topic) == 30 for topic in topics)


# --- cut connections -------------------------------------------------------------------------


class _Writer:
    """Resumes wherever its connection was cut, in one of the two legal ways."""

    def __init__(self, rng: random.Random, segment: str, count: int) -> None:
        self.rng = rng
        self.id = UUID(int=rng.getrandbits(128))
        self.segment = segment
        self.events = [rng.randbytes(rng.choice((0, 1, 5, 40))) for _ in range(count)]
        self.bounds = [0]
        for event in self.events:
            self.bounds.append(self.bounds[-1] + 8 + len(event))

    def stream(self, level: int) -> bytes:
        """What it sends from a level on, or from an earlier boundary that it still holds."""
        first = self.bounds.index(level)
        first = self.rng.randint(max(0, first - 3), first)
        rest = self.events[first:]
        return b"".join(blocks(self.rng, self.id, self.bounds[first], rest))


def test_random_cuts_lose_and_repeat_nothing() -> None:
    """Over 1,000 cuts, blocks of all shapes, writers that share a
    connection and a segment, resends that overlap."""
    seed = int(os.environ.get("PACELINE_SEED", "0"))
    cuts = 0
    for run in range(90):
        rng = random.Random((seed << 20) + run)
        names = ["a/b/0", "a/b/1"]
        writers = [_Writer(rng, rng.choice(names), rng.randint(1, 25)) for _ in range(3)]
        store = Store(*names)
        for _ in range(12):
            cuts += 1
            _converse(rng, store, writers, cut_short=True)
        _converse(rng, store, writers, cut_short=False)
        for writer in writers:
            assert store.ends[writer.segment, writer.id] == writer.bounds[-1], (seed, run)
        _check_content(store, writers, names)
    assert cuts >= 1000


def _converse(rng: random.Random, store: Store, writers: list[_Writer], *, cut_short: bool) -> None:
    served = Served(store)
    streams = []
    for writer in writers:
        (reply,) = served.feed(m.encode(m.SetupAppend(writer.id, writer.segment)))
        assert isinstance(reply, m.AppendSetup)
        streams.append(writer.stream(reply.level))
    rng.shuffle(streams)
    data = b"".join(streams)
    if cut_short:
        data = data[: rng.randint(0, len(data))]
    while data:
        size = rng.choice((1, 3, 17, 64, 4096))
        served.feed(data[:size])
        data = data[size:]
    assert served.violation is None


def _check_content(store: Store, writers: list[_Writer], names: list[str]) -> None:
    for name in names:
        expected = sorted(
            event for writer in writers if writer.segment == name for event in writer.events
        )
        assert sorted(event_data(store.segments[name])) == expected
        for writer in writers:
            if writer.segment == name and len({w.segment for w in writers}) == len(writers):
                assert event_data(store.segments[name]) == writer.events


# --- hostile bytes ---------------------------------------------------------------------------

_TYPES = [*m.MESSAGES, 77, -3]


def _hostile(rng: random.Random) -> bytes:
    """A message that is nearly right, or garbage."""
    choice = rng.random()
    if choice < 0.1:
        return rng.randbytes(rng.randint(1, 20))
    if choice < 0.4:
        kind = rng.choice(_TYPES)
        payload = rng.randbytes(rng.choice((0, 1, 16, 28, 30)))
        length = len(payload) if rng.random() < 0.9 else rng.randint(0, 1 << 26)
        return m.HEADER.pack(kind, length) + payload
    writer = UUID(int=rng.randint(0, 2))
    return rng.choice(
        (
            m.encode(m.SetupAppend(writer, rng.choice(("a/b/0", "nowhere")))),
            m.encode(m.BeginAppendBlock(writer, rng.choice((0, 0, 9, 18)), rng.choice((9, 99)))),
            m.encode(m.Event(b"x")),
            m.encode(m.Event(bytes(rng.randint(0, 40)))),
            m.encode(m.EndAppendBlock(writer, 9, 9)),
            m.encode(m.PartialMessage(rng.randint(0, 2), m.encode(m.Event(b"xyz")))),
            m.encode(m.KeepAlive()),
        )
    )


def test_any_bytes_end_well() -> None:
    """Quick by default; ``PACELINE_EXAMPLES`` makes it long. Never an exception, never half an
    Event, never more kept than one message."""
    for run in range(int(os.environ.get("PACELINE_EXAMPLES", "3000"))):
        rng = random.Random(run)
        store = Store("a/b/0")
        served = Served(store, ServerLimits(max_event_bytes=32, max_appenders=2))
        for _ in range(rng.randint(1, 30)):
            served.feed(_hostile(rng))
        event_data(store.segments["a/b/0"])
        assert served.machine.buffered_bytes < 1 << 12


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_any_reply_bytes_end_well(data: bytes) -> None:
    for machine in (ReplyReader(), ServerConnection()):
        try:
            machine.receive(data)
        except SegmentProtocolError:
            assert isinstance(machine, ReplyReader)
