"""The Pravega dialect on a node: what real clients are answered (wire/segment/DESIGN 6)."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from uuid import UUID, uuid4

import pytest
import trio

from paceline.wire.segment import pravega_messages as w
from paceline.wire.segment.events import frame_events
from paceline.wire.segment.fields import TableKey
from paceline.wire.segment.framing import (
    HEADER,
    HEADER_BYTES,
    Direction,
    SegmentMessage,
    check_in,
    decode_payload,
    encode,
)
from paceline.wire.segment.requests import RequestReader
from tests.integration.node.machines import connect as connect_client
from tests.integration.node.machines import open_stream
from tests.integration.node.nodes import RunningNode, lone_node

pytestmark = pytest.mark.virtual_time

M = TypeVar("M", bound=SegmentMessage)
NAME = "sc/st/0.#epoch.0"
TABLE = "sc/rg_kvtable/0.#epoch.0"
HANG_S = 30.0
FLAGS = {
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
    "segment.read_wait_ms": "100",
    "segment.append_timeout_ms": "2000",
    "segment.max_event_bytes": "1000000",
}


class Raw:
    """One connection; request ids count up, and every reply must repeat its request's."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self._buffer = bytearray()
        self._replies: deque[SegmentMessage] = deque()

    async def send(self, *messages: SegmentMessage) -> None:
        await self.stream.send_all(b"".join(map(encode, messages)))

    async def reply(self) -> SegmentMessage | None:
        """The next reply; None when the server has closed."""
        with trio.fail_after(HANG_S):
            while not self._replies:
                data = await self.stream.receive_some()
                if not data:
                    return None
                self._buffer += data
                while len(self._buffer) >= HEADER_BYTES:
                    kind, length = HEADER.unpack_from(self._buffer)
                    if len(self._buffer) < HEADER_BYTES + length:
                        break
                    cls = check_in(w.MESSAGES, kind, length, Direction.SERVER)
                    payload = bytes(self._buffer[HEADER_BYTES : HEADER_BYTES + length])
                    self._replies.append(decode_payload(cls, payload))
                    del self._buffer[: HEADER_BYTES + length]
            return self._replies.popleft()

    async def ask(self, request: SegmentMessage, kind: type[M]) -> M:
        await self.send(request)
        reply = await self.reply()
        assert isinstance(reply, kind), reply
        if hasattr(request, "request_id"):
            assert reply.request_id == request.request_id
        return reply

    async def set_up(self, writer: UUID, name: str = NAME) -> int:
        return (await self.ask(w.SetupAppend(1, writer, name, ""), w.AppendSetup)).last_event

    async def content(self, name: str = NAME) -> bytes:
        data = b""
        while True:
            part = await self.ask(w.ReadSegment(name, len(data), 1 << 20, "", 9), w.SegmentRead)
            assert part.offset == len(data)
            data += part.data
            if part.at_tail:
                return data


def block(writer: UUID, last: int, *events: bytes) -> w.AppendBlockEnd:
    run = frame_events(events)
    return w.AppendBlockEnd(writer, len(run), run, len(events), last, 100 + last)


@asynccontextmanager
async def connected(node: RunningNode) -> AsyncIterator[Raw]:
    stream = await open_stream(node.addresses["segment"])
    async with stream:
        raw = Raw(stream)
        hello = await raw.ask(w.Hello(15, 5), w.Hello)
        assert hello == w.Hello(17, 5)
        yield raw


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with lone_node(tmp_path, FLAGS) as running:
        yield running


@pytest.fixture
async def raw(node: RunningNode) -> AsyncIterator[Raw]:
    async with connected(node) as connection:
        await connection.ask(w.CreateSegment(1, NAME, 0, 0, ""), w.SegmentCreated)
        yield connection


async def test_a_writer_goes_on_where_it_was(node: RunningNode, raw: Raw) -> None:
    writer = uuid4()
    assert await raw.set_up(writer) == w.NO_EVENT
    first = await raw.ask(block(writer, 0, b"zero"), w.DataAppended)
    assert (first.last_event, first.previous_event, first.length) == (0, w.NO_EVENT, 12)
    second = await raw.ask(block(writer, 5, b"a", b"", b"b"), w.DataAppended)
    assert (second.last_event, second.previous_event, second.length) == (5, 0, 12 + 26)
    async with connected(node) as later:
        assert await later.set_up(writer) == 5
        # What the older connection still has on the way is not stored, nor answered.
        await raw.send(block(writer, 6, b"late"))
        await later.ask(block(writer, 6, b"c"), w.DataAppended)
        # A number that was stored: the client is told, and must set up again.
        refused = await later.ask(block(writer, 6, b"c"), w.InvalidEventNumber)
        assert (refused.writer, refused.event) == (writer, 6)
        assert await later.reply() is None
    assert await raw.content() == frame_events([b"zero", b"a", b"", b"b", b"c"])


async def test_appends_on_a_condition(raw: Raw) -> None:
    writer = uuid4()
    await raw.set_up(writer)
    failed = await raw.ask(
        w.ConditionalBlockEnd(writer, 1, 7, b"bytes", 2), w.ConditionalCheckFailed
    )
    assert (failed.writer, failed.event) == (writer, 1)
    await raw.ask(w.ConditionalBlockEnd(writer, 2, 0, b"by", 3), w.DataAppended)
    done = await raw.ask(w.ConditionalBlockEnd(writer, 3, 2, b"tes", 4), w.DataAppended)
    assert (done.previous_event, done.length) == (2, 5)
    await raw.ask(w.ConditionalAppend(writer, 4, 5, 0, b"event", 5), w.DataAppended)
    assert await raw.content() == b"bytes" + frame_events([b"event"])


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (frame_events([b"whole"])[:-1], 1),
        (frame_events([b"whole"]) + b"half", 1),
        (frame_events([b"a", b"b"]), 1),
        (b"", 0),
        (frame_events([bytes(1_000_001)]), 1),
    ],
)
async def test_half_events_are_never_stored(raw: Raw, data: bytes, count: int) -> None:
    writer = uuid4()
    await raw.set_up(writer)
    await raw.send(block(writer, 1, b"fine"))
    assert isinstance(await raw.reply(), w.DataAppended)
    await raw.send(w.AppendBlockEnd(writer, len(data), data, count, 2, 9))
    assert isinstance(await raw.reply(), w.ErrorMessage)
    assert await raw.reply() is None


async def test_a_large_event_is_merged_once(node: RunningNode, raw: Raw) -> None:
    writer = uuid4()
    event = frame_events([b"x" * 900_000])

    async def write(connection: Raw) -> None:
        made = await connection.ask(w.CreateTransientSegment(2, writer, NAME, ""), w.SegmentCreated)
        assert made.segment.startswith(f"{NAME}#transient.{writer.hex}.")
        assert await connection.set_up(writer, made.segment) == w.NO_EVENT
        for number, at in enumerate(range(0, len(event), 500_000)):
            piece = w.ConditionalBlockEnd(writer, number, at, event[at : at + 500_000], 3)
            await connection.ask(piece, w.DataAppended)
        merge = w.MergeSegments(4, NAME, made.segment, "")
        merged = await connection.ask(merge, w.SegmentsMerged)
        assert merged.length == len(event)
        # The place for the pieces is gone with them.
        await connection.ask(merge, w.NoSuchSegment)

    await write(raw)
    async with connected(node) as again:  # as a client does that did not hear the answer
        await write(again)
        assert await again.content() == event
    async with connected(node) as other:
        made = await other.ask(w.CreateTransientSegment(2, writer, NAME, ""), w.SegmentCreated)
        await other.ask(w.ConditionalBlockEnd(writer, 0, 0, bytes(900_000), 3), w.DataAppended)
        full = w.ConditionalBlockEnd(writer, 1, 900_000, bytes(200_000), 4)
        await other.ask(full, w.SegmentIsSealed)
        assert await other.ask(
            w.ConditionalBlockEnd(writer, 1, 5, b"x", 4), w.ConditionalCheckFailed
        )
        assert made.segment != NAME


async def test_reading(raw: Raw) -> None:
    writer = uuid4()
    await raw.set_up(writer)
    await raw.ask(block(writer, 1, b"abc"), w.DataAppended)
    part = await raw.ask(w.ReadSegment(NAME, 3, 20, "", 2), w.SegmentRead)
    assert (part.data, part.at_tail, part.at_end) == (frame_events([b"abc"])[3:], True, False)
    waited = await raw.ask(w.ReadSegment(NAME, 11, 20, "", 2), w.SegmentRead)
    assert (waited.data, waited.at_tail, waited.at_end) == (b"", True, False)
    await raw.ask(w.ReadSegment(NAME, 12, 20, "", 2), w.ErrorMessage)
    await raw.ask(w.ReadSegment("sc/none/0", 0, 20, "", 2), w.NoSuchSegment)
    await raw.ask(w.TruncateSegment(3, NAME, 11, ""), w.SegmentTruncated)
    cut = await raw.ask(w.ReadSegment(NAME, 3, 20, "", 2), w.SegmentIsTruncated)
    assert (cut.start_offset, cut.offset) == (11, 3)
    await raw.ask(w.SealSegment(4, NAME, ""), w.SegmentSealed)
    end = await raw.ask(w.ReadSegment(NAME, 11, 20, "", 2), w.SegmentRead)
    assert (end.data, end.at_end) == (b"", True)
    info = await raw.ask(w.GetStreamSegmentInfo(5, NAME, ""), w.StreamSegmentInfo)
    assert (info.exists, info.is_sealed, info.length, info.start_offset) == (True, True, 11, 11)
    await raw.send(block(writer, 2, b"too late"))
    assert isinstance(await raw.reply(), w.SegmentIsSealed)
    assert await raw.set_up(writer) == 1
    await raw.ask(w.DeleteSegment(6, NAME, ""), w.SegmentDeleted)
    await raw.ask(w.SetupAppend(7, writer, NAME, ""), w.NoSuchSegment)


async def test_tables(raw: Raw) -> None:
    def update(version: int, value: bytes) -> w.UpdateTableEntries:
        entries = ((TableKey(b"k", version), value),)
        return w.UpdateTableEntries(2, TABLE, "", entries, w.ANY_POSITION)

    await raw.ask(update(w.NOT_THERE, b"1"), w.NoSuchSegment)
    await raw.ask(w.CreateTableSegment(1, TABLE, ""), w.SegmentCreated)
    await raw.ask(w.CreateTableSegment(1, TABLE, ""), w.SegmentAlreadyExists)
    [version] = (await raw.ask(update(w.NOT_THERE, b"1"), w.TableEntriesUpdated)).versions
    await raw.ask(update(w.NOT_THERE, b"2"), w.TableKeyBadVersion)
    [newer] = (await raw.ask(update(version, b"2"), w.TableEntriesUpdated)).versions
    delta = await raw.ask(w.ReadTableEntriesDelta(3, TABLE, "", 0, 10), w.TableEntriesDeltaRead)
    assert delta.entries == ((TableKey(b"k", newer), b"2"),)
    assert (delta.reached_end, delta.last_position) == (True, newer)
    more = w.ReadTableEntriesDelta(3, TABLE, "", newer, 10)
    assert (await raw.ask(more, w.TableEntriesDeltaRead)).entries == ()
    keys = (TableKey(b"k", w.ANY_VERSION), TableKey(b"x", w.ANY_VERSION))
    read = await raw.ask(w.ReadTable(4, TABLE, "", keys), w.TableRead)
    assert [key.version for key, _ in read.entries] == [newer, w.NOT_THERE]
    listed = await raw.ask(w.ReadTableKeys(5, TABLE, "", 10, b""), w.TableKeysRead)
    assert (listed.keys, listed.after) == ((TableKey(b"k", newer),), b"k")
    rest = await raw.ask(w.ReadTableEntries(5, TABLE, "", 10, b"k"), w.TableEntriesRead)
    assert rest.entries == ()
    await raw.ask(w.DeleteTableSegment(6, TABLE, True, ""), w.TableSegmentNotEmpty)
    gone = w.RemoveTableKeys(7, TABLE, "", (TableKey(b"x", newer),), w.ANY_POSITION)
    await raw.ask(gone, w.TableKeyDoesNotExist)
    there = w.RemoveTableKeys(7, TABLE, "", (TableKey(b"k", newer),), w.ANY_POSITION)
    await raw.ask(there, w.TableKeysRemoved)
    await raw.ask(w.DeleteTableSegment(6, TABLE, True, ""), w.SegmentDeleted)


async def test_what_is_not_served_and_not_allowed(raw: Raw) -> None:
    await raw.ask(w.KeepAlive(), w.KeepAlive)
    attribute = HEADER.pack(34, 8) + (7).to_bytes(8, "big")
    await raw.stream.send_all(attribute)
    assert await raw.reply() == w.OperationUnsupported(7, "getSegmentAttribute")
    assert RequestReader().receive(attribute)
    await raw.send(block(uuid4(), 1, b"without set-up"))
    assert isinstance(await raw.reply(), w.ErrorMessage)
    assert await raw.reply() is None


async def test_other_protocols_see_each_event(node: RunningNode, raw: Raw) -> None:
    """wire/DESIGN 2.2: Events of the Pravega dialect are records too; raw bytes are one record."""
    writer = uuid4()
    await raw.set_up(writer)
    await raw.ask(block(writer, 2, b"one", b"two"), w.DataAppended)
    await raw.ask(w.ConditionalBlockEnd(writer, 3, 22, b"raw", 4), w.DataAppended)
    async with connect_client(node.native) as client, client.consumer("sc_st") as consumer:
        values = [(await consumer.__anext__()).value for _ in range(3)]
    assert values == [b"one", b"two", b"raw"]
