"""Targets: what comes over a network."""

from __future__ import annotations

import contextlib
import random
from uuid import UUID

from paceline.errors import PacelineError
from paceline.types import Acks, Compression
from paceline.wire import consumer_protocol
from paceline.wire.batch import build_batch, validate_client_batches
from paceline.wire.batch_header import iter_batches, read_head, seal, verify
from paceline.wire.compacted_batch import open_payload, record_spans
from paceline.wire.compression import compress
from paceline.wire.coordinator import codec as coordinator
from paceline.wire.coordinator import messages as coordinator_messages
from paceline.wire.cursus.batch import CursusBatch, CursusRecord, Dialect, encode_batch
from paceline.wire.cursus.commands import COMMANDS, parse_command
from paceline.wire.cursus.frames import FrameReader as CursusFrames
from paceline.wire.cursus.frames import framed
from paceline.wire.cursus.inbound import CommandText, read_frame
from paceline.wire.cursus_record_mapping import cursus_of
from paceline.wire.frame import Frame, FrameReader, encode_head
from paceline.wire.framebuffer import FrameBuffer
from paceline.wire.kafka import apis
from paceline.wire.kafka.apis import APIS, RequestHeader
from paceline.wire.kafka.message_set import read_message_set, write_message_set
from paceline.wire.message import Message
from paceline.wire.native import admin, data, groups
from paceline.wire.peer import control, cursus, hello, join, replica, v1_line
from paceline.wire.records import Record, decode_records
from paceline.wire.segment import events, messages
from paceline.wire.segment.client import ReplyReader
from paceline.wire.segment.server import ServerConnection
from paceline.wire.v1.client import parse_messages, parse_reply
from paceline.wire.v1.commands import USAGE, parse_request
from paceline.wire.v1.envelope import parse_envelope
from paceline.wire.v1.lines import LineReader
from tests.fuzz.engine import MIB, Target, pieces
from tests.fuzz.samples import each, sample
from tests.unit.wire_kafka.values import Values

_NATIVE = list(each((data, admin, groups)))
_PEER = list(each((control, cursus, hello, join, replica, v1_line)))
_LIMIT = MIB
_OUTPUT = 2 * MIB
"""Decompressed bytes that a target allows: the real limits only make the same test slower."""


def _records(rng: random.Random) -> list[Record]:
    def some() -> bytes | None:
        return rng.choice((None, b"", b"k", rng.randbytes(rng.randrange(200))))

    return [
        Record(
            key=some(),
            value=some(),
            headers=(("h", some()),) if rng.random() < 0.3 else (),
            timestamp_ms=1000 + number,
        )
        for number in range(rng.choice((1, 1, 2, 9)))
    ]


# --- V1 -------------------------------------------------------------------------------------------

_WORDS = ("orders", "k:v", "0", "1", "-1", "99999999999999999999", "acks=all", "enc=pct", "max=1")


def _v1_lines(rng: random.Random) -> bytes:
    lines = []
    for _ in range(rng.randrange(1, 4)):
        words = " ".join(rng.choices(_WORDS, k=rng.randrange(6)))
        lines.append(f"V1|{rng.randrange(99)}|{rng.choice(sorted(USAGE))}|{words}\n".encode())
    return b"".join(lines)


def _feed_v1(given: bytes, rng: random.Random) -> None:
    whole, split = LineReader(), LineReader()
    assert _v1_drain(whole, [given]) == _v1_drain(split, list(pieces(given, rng)))
    for line in given.split(b"\n"):
        try:
            envelope = parse_envelope(line)
            parse_request(envelope.command, envelope.args)
        except PacelineError:
            pass


def _v1_drain(reader: LineReader, parts: list[bytes]) -> list[object]:
    found: list[object] = []
    try:
        for part in parts:
            reader.feed(part)
            while (line := reader.next_line()) is not None:
                found.append(line)
        found.append(reader.finish())
    except PacelineError as error:
        found.append(type(error))
    return found


def _v1_reply(rng: random.Random) -> bytes:
    return rng.choice(
        (
            b"V1|7|OK|messages=0:a,1:b%2c hw=1",
            b"V1|7|ERR|NOT_LEADER|partition leader unavailable on this broker",
            b"V1|0|OK|",
            b"V1|12|OK|partition=0 offset=12 hw=12",
        )
    )


def _feed_v1_reply(given: bytes, rng: random.Random) -> None:
    reply = parse_reply(given)
    parse_messages(reply.result(), with_keys=rng.random() < 0.5)


# --- Cursus ---------------------------------------------------------------------------------------


def _cursus_body(rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        words = rng.choices(
            ("topic=orders", "partition=0", "group=g", "message=m", "0", "=", "orders"), k=4
        )
        return f"{rng.choice(sorted(COMMANDS))} {' '.join(words)}".encode()
    record = CursusRecord(0, rng.randrange(9), b"p", b"k", 1, rng.randbytes(rng.randrange(50)))
    whole = CursusBatch(
        rng.choice(list(Dialect)),
        "orders",
        rng.randrange(-1, 5),
        rng.choice(list(Acks)),
        rng.random() < 0.5,
        [record] * rng.randrange(1, 4),
    )
    packed = encode_batch(whole)
    return packed if rng.random() < 0.7 else compress(rng.choice(list(Compression)), packed)


def _cursus_stream(rng: random.Random) -> bytes:
    return b"".join(framed(_cursus_body(rng)) for _ in range(rng.randrange(1, 4)))


def _feed_cursus(given: bytes, rng: random.Random) -> None:
    whole, split = CursusFrames(), CursusFrames()
    bodies = _cursus_drain(whole, [given])
    assert bodies == _cursus_drain(split, list(pieces(given, rng)))
    for body in bodies:
        if isinstance(body, bytes) and body:
            _cursus_one(body)


def _cursus_drain(reader: CursusFrames, parts: list[bytes]) -> list[object]:
    found: list[object] = []
    try:
        for part in parts:
            reader.feed(part)
            while (body := reader.next_frame()) is not None:
                found.append(body)
    except PacelineError as error:
        found.append(type(error))
    return found


def _cursus_one(body: bytes) -> None:
    try:
        said = read_frame(body, frozenset(COMMANDS))
        if isinstance(said, CommandText):
            parse_command(said)
    except PacelineError:
        pass


def _feed_cursus_body(given: bytes, rng: random.Random) -> None:
    if given:
        said = read_frame(given, frozenset(COMMANDS))
        if isinstance(said, CommandText):
            parse_command(said)


# --- native and peers -----------------------------------------------------------------------------


def _frames(kinds: list[type[Message]], rng: random.Random) -> bytes:
    parts = []
    for number in range(rng.randrange(1, 4)):
        body = sample(rng.choice(kinds), rng).pack()
        payload = rng.randbytes(rng.choice((0, 10)))
        parts.append(encode_head(rng.randrange(4), rng.randrange(70), number, body, len(payload)))
        parts.append(payload)
    return b"".join(parts)


def _feed_frames(kinds: list[type[Message]], given: bytes, rng: random.Random) -> None:
    reader = FrameReader(max_frame_bytes=_LIMIT)
    frames = _frame_drain(reader, [given])
    assert frames == _frame_drain(FrameReader(max_frame_bytes=_LIMIT), list(pieces(given, rng)))
    assert frames == _buffer_drain(list(pieces(given, rng)))
    reader = FrameReader(max_frame_bytes=_LIMIT)
    reader.feed(given)
    while (frame := reader.next_frame()) is not None:
        message = rng.choice(kinds).unpack(frame.body)
        assert repr(type(message).unpack(message.pack())) == repr(message)


def _shown(frame: Frame) -> tuple[object, ...]:
    # As text: what is no number is not equal to itself.
    return frame.kind, frame.api, frame.correlation, repr(frame.body), bytes(frame.payload)


def _frame_drain(reader: FrameReader, parts: list[bytes]) -> list[object]:
    found: list[object] = []
    try:
        for part in parts:
            reader.feed(part)
            while (frame := reader.next_frame()) is not None:
                found.append(_shown(frame))
    except PacelineError as error:
        found.append(type(error))
    return found


def _buffer_drain(parts: list[bytes]) -> list[object]:
    buffer = FrameBuffer(max_frame_bytes=_LIMIT)
    found: list[object] = []
    try:
        for part in parts:
            rest = memoryview(part)
            while len(rest):
                count = 0
                for room in buffer.targets():
                    size = min(len(room), len(rest) - count)
                    room[:size] = rest[count : count + size]
                    count += size
                buffer.received(count)
                rest = rest[count:]
                while (frame := buffer.next_frame()) is not None:
                    found.append(_shown(frame))
    except PacelineError as error:
        found.append(type(error))
    return found


# --- batches and message sets ---------------------------------------------------------------------


def _batch(rng: random.Random) -> bytes:
    codec = rng.choice(list(Compression))
    return b"".join(
        bytes(build_batch(_records(rng), compression=codec)) for _ in range(rng.randrange(1, 3))
    )


def _feed_batch(given: bytes, rng: random.Random) -> None:
    """As it came, then with a checksum that holds, so that what lies behind it is read too."""
    with contextlib.suppress(PacelineError):
        _read_batches(given)
    sealed = bytearray(given)
    if len(sealed) >= 61:
        seal(sealed)
    _read_batches(bytes(sealed))


def _read_batches(given: bytes) -> None:
    with contextlib.suppress(PacelineError):
        validate_client_batches(given)
    for position, header in iter_batches(given):
        verify(given, position)
        read_head(given, position)
        records = decode_records(given, position, max_bytes=_OUTPUT)
        for record in records:
            with contextlib.suppress(PacelineError):
                cursus_of(record)
        record_spans(header, open_payload(header, given, position))


def _message_set(rng: random.Random) -> bytes:
    magic = rng.choice((0, 1))
    inner = write_message_set(_records(rng), magic=magic, max_bytes=MIB)
    if rng.random() < 0.5:
        return inner
    codec = rng.choice((Compression.GZIP, Compression.SNAPPY, Compression.LZ4))
    return _compressed_set(inner, codec, magic)


def _compressed_set(inner: bytes, codec: Compression, magic: int) -> bytes:
    """A message whose value is a set; its checksum is set right by the caller's target."""
    whole = bytearray(
        write_message_set([Record(value=compress(codec, inner))], magic=magic, max_bytes=MIB)
    )
    whole[17] |= int(codec)
    return bytes(_resealed_set(whole))


def _resealed_set(data: bytearray) -> bytearray:
    """The first message's checksum made to hold."""
    import zlib

    size = int.from_bytes(data[8:12], "big")
    if len(data) >= 16 and size >= 4:
        data[12:16] = zlib.crc32(data[16 : 12 + size]).to_bytes(4, "big")
    return data


def _feed_message_set(given: bytes, rng: random.Random) -> None:
    with contextlib.suppress(PacelineError):
        read_message_set(memoryview(given), max_bytes=_OUTPUT)
    read_message_set(memoryview(_resealed_set(bytearray(given))), max_bytes=_OUTPUT)


# --- Kafka and coordinator ------------------------------------------------------------------------


def _kafka_request(rng: random.Random) -> bytes:
    api = rng.choice(list(APIS.values()))
    version = rng.randrange(api.first, api.last + 1)
    values = Values(rng, errors=(0, 1), longest_ms=1 << 31)
    header = RequestHeader(api.key, version, rng.randrange(99), rng.choice((None, "", "client")))
    return bytes(apis.request_frame(header, values.message(api.request, version)))[4:]


def _feed_kafka(given: bytes, rng: random.Random) -> None:
    frame = memoryview(given)
    header, start = apis.read_header(frame)
    api = apis.require_api(header)
    apis.read_request(frame, start, api, header.version)


def _kafka_response(rng: random.Random) -> bytes:
    api = rng.choice(list(APIS.values()))
    version = rng.randrange(api.first, api.last + 1)
    values = Values(rng, errors=(0, 1), longest_ms=1 << 31)
    message = values.message(api.response, version)
    frame = bytes(apis.response_frame(api, version, 7, message))
    return bytes((api.key, version)) + frame[8:]


def _feed_kafka_response(given: bytes, rng: random.Random) -> None:
    api = APIS.get(given[0]) if len(given) > 2 else None
    if api is not None and api.serves(given[1]):
        apis.read_response(memoryview(given)[2:], 0, api, given[1])


_COORDINATOR = (
    (coordinator.Ask.CONSULT, coordinator_messages.ConsultRequest()),
    (
        coordinator.Ask.REGISTER,
        coordinator_messages.RegisterRequest(
            group_id="g", consumer_id="g_h-1", auto_commit=1, auto_offset_rest="smallest"
        ),
    ),
    (coordinator.Ask.PING, coordinator_messages.PingRequest()),
    (coordinator.Ask.STOP, coordinator_messages.StopRequest()),
    (
        coordinator.Ask.START,
        coordinator_messages.StartRequest(
            partitions=(coordinator_messages.Assigned(topic="t", partition=0, offset=43),)
        ),
    ),
)


def _coordinator_request(rng: random.Random) -> bytes:
    ask, body = rng.choice(_COORDINATOR)
    seventh = rng.random() < 0.5
    header = (
        coordinator.Header(ask, is_layout_7=True)
        if seventh
        else coordinator.Header(ask, False, 0, 7, "c1")
    )
    return bytes(coordinator.request_frame(header, body))[4:]


def _feed_coordinator(given: bytes, rng: random.Random) -> None:
    frame = memoryview(given)
    header, start = coordinator.read_header(frame)
    coordinator.read_request(header, frame, start)
    coordinator.read_response(header, frame)


def _subscription(rng: random.Random) -> bytes:
    topics = tuple(rng.sample(("orders", "clicks", "ключ"), k=2))
    if rng.random() < 0.5:
        return consumer_protocol.Subscription(topics).to_bytes()
    return consumer_protocol.Assignment(dict.fromkeys(topics, (0, 3))).to_bytes()


def _feed_subscription(given: bytes, rng: random.Random) -> None:
    with contextlib.suppress(PacelineError):
        consumer_protocol.Subscription.from_bytes(given)
    consumer_protocol.Assignment.from_bytes(given)


# --- segment --------------------------------------------------------------------------------------

_WRITER = UUID(int=7)


def _segment_talk(rng: random.Random) -> bytes:
    block = events.frame_events([rng.randbytes(rng.randrange(60)) for _ in range(3)])
    said: list[bytes] = [
        messages.encode(messages.Hello(1, 1)),
        messages.encode(messages.SetupAppend(_WRITER, "scope/stream/0")),
        messages.encode(messages.BeginAppendBlock(_WRITER, 0, len(block))) + block
        + messages.encode(messages.EndAppendBlock(_WRITER, len(block), len(block))),
        messages.encode(messages.GetStreamSegmentInfo("scope/stream/0")),
        messages.encode(messages.CreateSegment("scope/stream/0")),
        messages.encode(messages.KeepAlive(b"x")),
    ]  # fmt: skip
    return b"".join(said[: rng.randrange(2, 4)]) + b"".join(rng.choices(said, k=2))


def _feed_segment(given: bytes, rng: random.Random) -> None:
    whole, split = ServerConnection(), ServerConnection()
    steps = [type(step) for step in whole.receive(given)]
    others = [type(step) for part in pieces(given, rng) for step in split.receive(part)]
    assert whole.buffered_bytes <= len(given)
    # How Events are gathered into runs depends on how they arrive; what is asked for does not.
    kinds = {"Append"}
    assert [s for s in steps if s.__name__ not in kinds] == [
        s for s in others if s.__name__ not in kinds
    ]


def _segment_replies(rng: random.Random) -> bytes:
    said = (
        messages.SegmentCreated("scope/stream/0"),
        messages.AppendSetup("scope/stream/0", _WRITER, 7),
        messages.DataAppended(_WRITER, 12),
        messages.SegmentRead("scope/stream/0", 0, messages.ReadFlags(0), b"abc"),
        messages.ErrorMessage(_WRITER, "scope/stream/0", "no", 3),
        messages.WrongHost("scope/stream/0", "host:1"),
    )
    return b"".join(messages.encode(rng.choice(said)) for _ in range(3))


def _feed_segment_replies(given: bytes, rng: random.Random) -> None:
    replies = ReplyReader().receive(given)
    split = ReplyReader()
    assert replies == [r for part in pieces(given, rng) for r in split.receive(part)]


def _feed_events(given: bytes, rng: random.Random) -> None:
    assert events.frame_events(events.event_data(given)) == given


def _framed_events(rng: random.Random) -> bytes:
    return events.frame_events([rng.randbytes(rng.randrange(40)) for _ in range(3)])


TARGETS = (
    Target("v1", _v1_lines, _feed_v1),
    Target("v1-reply", _v1_reply, _feed_v1_reply),
    Target("cursus", _cursus_stream, _feed_cursus, most_bytes=80 * MIB),
    Target("cursus-body", _cursus_body, _feed_cursus_body, most_bytes=80 * MIB),
    Target(
        "native",
        lambda rng: _frames(_NATIVE, rng),
        lambda given, rng: _feed_frames(_NATIVE, given, rng),
    ),
    Target(
        "peer", lambda rng: _frames(_PEER, rng), lambda given, rng: _feed_frames(_PEER, given, rng)
    ),
    Target("batch", _batch, _feed_batch, most_bytes=80 * MIB),
    Target("message-set", _message_set, _feed_message_set, most_bytes=16 * MIB),
    Target("kafka", _kafka_request, _feed_kafka),
    Target("kafka-response", _kafka_response, _feed_kafka_response),
    Target("coordinator", _coordinator_request, _feed_coordinator),
    Target("consumer-protocol", _subscription, _feed_subscription),
    Target("segment", _segment_talk, _feed_segment),
    Target("segment-reply", _segment_replies, _feed_segment_replies),
    Target("segment-events", _framed_events, _feed_events),
)
