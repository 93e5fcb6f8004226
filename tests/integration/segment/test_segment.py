"""The segment listener on one node: every request, every error that keeps the connection."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest
import trio
import trio.testing

from paceline.errors import ErrorCode
from paceline.wire.batch import build_value_batch
from paceline.wire.segment import messages as m
from paceline.wire.segment.client import UNBOUNDED, closed_block
from paceline.wire.segment.errors import ReplyCode
from paceline.wire.segment.events import frame_events
from tests.integration.node.machines import connect as connect_client
from tests.integration.node.machines import open_stream
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import RunningNode, lone_node
from tests.integration.segment.client import HANG_S, Raw, connect, writer_id

pytestmark = pytest.mark.virtual_time

NAME = "sc/st/0"
FLAGS = {
    "topics.replication_factor": "1",
    "topics.min_insync_replicas": "1",
    "segment.read_wait_ms": "150",
    "segment.append_timeout_ms": "2000",
}


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[RunningNode]:
    async with lone_node(tmp_path, FLAGS) as up:
        yield up


@pytest.fixture
async def raw(node: RunningNode) -> AsyncIterator[Raw]:
    async with connect(node.addresses["segment"]) as connection:
        await connection.create(NAME)
        yield connection


async def test_the_published_exchange(raw: Raw) -> None:
    """Vectors 1 to 8 of the protocol on a real node."""
    writer = UUID("00112233-4455-6677-8899-aabbccddeeff")
    assert await raw.set_up(writer, NAME) == 0
    assert await raw.append(writer, 0, b"hello", b"") == 21
    assert await raw.read(NAME, 0, 1024) == (frame_events([b"hello", b""]), m.ReadFlags.TAIL)
    whole = m.encode(m.Event(b"0123456789"))
    await raw.send(
        m.BeginAppendBlock(writer, 21, 32),
        m.Event(b"abc"),
        m.PartialMessage(0, whole[:12]),
        m.EndAppendBlock(writer, 50, 29),
    )
    await raw.acked(writer, 32)
    await raw.send(m.PartialMessage(2, whole[12:]))
    await raw.acked(writer, 50)
    content = frame_events([b"hello", b"", b"abc", b"0123456789"])
    assert await raw.content(NAME) == content
    await raw.ask(m.SealSegment(NAME), m.SegmentSealed)
    assert await raw.read(NAME, 50, 100) == (b"", m.ReadFlags.END)
    assert await raw.read(NAME, 3, 5) == (content[3:11], m.ReadFlags.NONE)  # 1 to 7 mean 8
    assert await raw.read(NAME, 3, 20) == (content[3:23], m.ReadFlags.NONE)


async def test_administration(raw: Raw) -> None:
    info = await raw.ask(m.GetStreamSegmentInfo(NAME), m.StreamSegmentInfo)
    assert info == m.StreamSegmentInfo(NAME, True, False, False, 0, 0, 0)
    assert await raw.ask(m.CreateSegment(NAME), m.SegmentAlreadyExists)
    same = "sc/st/0.#epoch.0"
    assert await raw.ask(m.CreateSegment(same), m.SegmentAlreadyExists)
    writer = writer_id()
    await raw.set_up(writer, same)
    await raw.append(writer, 0, b"x" * 92)
    info = await raw.ask(m.GetStreamSegmentInfo(NAME), m.StreamSegmentInfo)
    assert (info.length, info.start_offset, info.is_sealed) == (100, 0, False)
    assert info.last_modified_ms > 0
    for offset in (40, 10):  # only forward; a lower offset has no effect
        await raw.ask(m.TruncateSegment(NAME, offset), m.SegmentTruncated)
        info = await raw.ask(m.GetStreamSegmentInfo(NAME), m.StreamSegmentInfo)
        assert (info.length, info.start_offset) == (100, 40)
    error = await raw.ask(m.TruncateSegment(NAME, 101), m.ErrorMessage)
    assert error.error_code == ReplyCode.OFFSET_OUT_OF_RANGE
    assert await raw.ask(m.ReadSegment(NAME, 39, 10), m.SegmentIsTruncated) == (
        m.SegmentIsTruncated(NAME, 40)
    )
    assert (await raw.read(NAME, 40, 1000))[0] == b"x" * 60
    for _ in range(2):  # idempotent
        await raw.ask(m.SealSegment(NAME), m.SegmentSealed)
    info = await raw.ask(m.GetStreamSegmentInfo(NAME), m.StreamSegmentInfo)
    assert info.is_sealed
    await raw.ask(m.DeleteSegment(NAME), m.SegmentDeleted)
    info = await raw.ask(m.GetStreamSegmentInfo(NAME), m.StreamSegmentInfo)
    assert info == m.StreamSegmentInfo(NAME, False, True, True, 0, 0, 0)
    for request in (
        m.SealSegment(NAME),
        m.DeleteSegment(NAME),
        m.TruncateSegment(NAME, 0),
        m.ReadSegment(NAME, 0, 1),
        m.SetupAppend(writer, NAME),
    ):
        assert await raw.ask(request, m.NoSuchSegment) == m.NoSuchSegment(NAME)
    await raw.create(NAME)
    assert await raw.content(NAME) == b""
    assert await raw.set_up(writer, NAME) == 0


async def test_names_of_any_form(raw: Raw) -> None:
    name = "s/é\U0001f600/0"
    assert await raw.ask(m.SetupAppend(writer_id(), name), m.NoSuchSegment) == m.NoSuchSegment(name)
    await raw.create(name)
    writer = writer_id()
    await raw.set_up(writer, name)
    await raw.append(writer, 0, b"data")
    assert await raw.content(name) == frame_events([b"data"])
    error = await raw.ask(m.CreateSegment("x" * 600), m.ErrorMessage)
    assert error.error_code == ReplyCode.INVALID_NAME
    assert await raw.ask(m.SealSegment("x" * 600), m.NoSuchSegment)


async def test_requests_that_are_answered_as_they_are(raw: Raw) -> None:
    assert await raw.ask(m.KeepAlive(b"\xde\xad"), m.KeepAlive) == m.KeepAlive(b"\xde\xad")
    assert await raw.ask(m.Hello(0, 0), m.Hello) == m.Hello(0, 0)
    assert await raw.ask(m.Hello(15, 5), m.Hello) == m.Hello(0, 0)  # changes nothing by now
    unsupported = await raw.ask(m.CreateBatch(), m.OperationUnsupported)
    assert unsupported.operation == "createBatch"
    unsupported = await raw.ask(m.MergeBatch(), m.OperationUnsupported)
    assert unsupported.operation == "mergeBatch"
    await raw.create("still/alive/0")


async def test_reads_wait_at_the_tail_and_in_order(tmp_path: Path) -> None:
    flags = {**FLAGS, "segment.read_wait_ms": "20000"}
    async with lone_node(tmp_path, flags) as node, connect(node.addresses["segment"]) as raw:
        await raw.create(NAME)
        writer = writer_id()
        await raw.set_up(writer, NAME)
        assert await raw.read(NAME, 0, 0) == (b"", m.ReadFlags.TAIL)  # 0 bytes: at once
        await raw.send(m.ReadSegment(NAME, 0, 100), m.ReadSegment(NAME, 0, 8))
        await raw.send(closed_block(writer, 0, [b"now"]))
        first = await raw.expect(m.SegmentRead)
        second = await raw.expect(m.SegmentRead)
        assert (first.data, first.flags) == (frame_events([b"now"]), m.ReadFlags.TAIL)
        assert (second.data, second.flags) == (frame_events([b"now"])[:8], m.ReadFlags.NONE)


async def test_reads_that_find_nothing(raw: Raw) -> None:
    writer = writer_id()
    await raw.set_up(writer, NAME)
    assert await raw.read(NAME, 0, 10) == (b"", m.ReadFlags.TAIL)  # after read_wait
    await raw.append(writer, 0, b"now")
    error = await raw.ask(m.ReadSegment(NAME, 12, 10), m.ErrorMessage)
    assert error.error_code == ReplyCode.OFFSET_OUT_OF_RANGE
    for bad in (m.ReadSegment(NAME, 0, -1), m.ReadSegment(NAME, -1, 1)):
        error = await raw.ask(bad, m.ErrorMessage)
        assert error.error_code == ReplyCode.ILLEGAL_ARGUMENT


async def test_large_events_are_read_in_several_replies(raw: Raw) -> None:
    """Case 24: many small Events in one unbounded block, then a large one, acks meanwhile."""
    writer = writer_id()
    await raw.set_up(writer, NAME)
    small = frame_events([b"."] * 10_000)
    large = frame_events([bytes(range(256)) * 32768])  # 8 MiB
    await raw.send(m.BeginAppendBlock(writer, 0, UNBOUNDED), small)
    await raw.acked(writer, len(small))
    await raw.send(large)
    await raw.acked(writer, len(small) + len(large))
    total = len(small) + len(large)
    await raw.send(m.EndAppendBlock(writer, total, total))
    await raw.acked(writer, total)
    assert await raw.content(NAME) == small + large
    await raw.send(m.ReadSegment(NAME, len(small), len(large)))
    sizes = []
    while sum(sizes) < len(large):
        reply = await raw.expect(m.SegmentRead)
        sizes.append(len(reply.data))
    assert max(sizes) <= 2 << 20
    assert len(sizes) >= 4


async def test_a_gap_fails_one_appender_alone(raw: Raw) -> None:
    """Cases 5 and 6."""
    await raw.create("sc/st/1")
    one, two = writer_id(), writer_id()
    await raw.set_up(one, NAME)
    await raw.set_up(two, "sc/st/1")
    await raw.append(one, 0, b"first")
    gap = await raw.ask(m.BeginAppendBlock(one, 99, UNBOUNDED), m.InvalidConnectionOffset)
    assert gap == m.InvalidConnectionOffset(one, 13)
    await raw.send(m.Event(b"lost"), m.EndAppendBlock(one, 111, 12))
    await raw.append(two, 0, b"fine")
    assert await raw.set_up(one, NAME) == 13
    await raw.send(closed_block(one, 0, [b"other cut"]))
    error = await raw.expect(m.ErrorMessage)
    assert error.error_code == ReplyCode.ILLEGAL_ARGUMENT
    assert error.connection_id == one
    assert await raw.content(NAME) == frame_events([b"first"])


async def test_resent_events_are_stored_once(node: RunningNode, raw: Raw) -> None:
    """Cases 2, 3 and 4: cut before the ack, in a partial, resumed from an earlier boundary."""
    writer = writer_id()
    await raw.set_up(writer, NAME)
    whole = m.encode(m.Event(b"in pieces"))
    await raw.send(
        m.BeginAppendBlock(writer, 0, UNBOUNDED),
        frame_events([b"a", b"b"]),
        m.PartialMessage(0, whole[:5]),
    )
    await raw.acked(writer, 18)
    await trio.aclose_forcefully(raw.stream)
    async with connect(node.addresses["segment"]) as again:
        assert await again.set_up(writer, NAME) == 18
        await again.append(writer, 9, b"b", b"in pieces")
        assert await again.content(NAME) == frame_events([b"a", b"b", b"in pieces"])
        # Nothing but duplicates: the level is told at once.
        assert await again.set_up(writer, NAME) == 35
        assert await again.append(writer, 0, b"a") == 35


async def test_the_newer_connection_fences_the_older(node: RunningNode, raw: Raw) -> None:
    """Case 7."""
    writer = writer_id()
    await raw.set_up(writer, NAME)
    await raw.append(writer, 0, b"old")
    async with connect(node.addresses["segment"]) as newer:
        assert await newer.set_up(writer, NAME) == 11
        fenced = await raw.expect(m.ErrorMessage)
        assert (fenced.error_code, fenced.connection_id) == (ReplyCode.FENCED, writer)
        await raw.send(closed_block(writer, 11, [b"too late"]))
        assert await raw.ask(m.KeepAlive(), m.KeepAlive)  # drained, not refused
        await newer.append(writer, 11, b"new")
        assert await newer.content(NAME) == frame_events([b"old", b"new"])


async def test_sealed_and_deleted_segments_fail_their_appenders_only(raw: Raw) -> None:
    """Cases 17 and 18 on one node: three appenders, one sealed, one deleted, one fine."""
    names = [NAME, "sc/st/1", "sc/st/2"]
    writers = [writer_id() for _ in names]
    for name in names[1:]:
        await raw.create(name)
    for name, writer in zip(names, writers, strict=True):
        await raw.set_up(writer, name)
        await raw.append(writer, 0, b"before")
    await raw.ask(m.SealSegment(names[0]), m.SegmentSealed)
    await raw.ask(m.DeleteSegment(names[1]), m.SegmentDeleted)
    for index, expected in ((0, m.SegmentIsSealed(names[0])), (1, m.NoSuchSegment(names[1]))):
        await raw.send(closed_block(writers[index], 14, [b"after"]))
        assert await raw.expect(type(expected)) == expected
    assert await raw.append(writers[2], 14, b"after") == 27
    assert await raw.content(names[0]) == frame_events([b"before"])
    # A sealed segment still tells its level, and acknowledges what it has.
    assert await raw.set_up(writers[0], names[0]) == 14
    assert await raw.append(writers[0], 0, b"before") == 14


async def test_limits_of_a_connection(tmp_path: Path) -> None:
    flags = {**FLAGS, "segment.appenders_per_connection": "1", "segment.max_event_bytes": "100"}
    async with lone_node(tmp_path, flags) as node, connect(node.addresses["segment"]) as raw:
        await raw.create(NAME)
        one, two = writer_id(), writer_id()
        await raw.set_up(one, NAME)
        error = await raw.ask(m.SetupAppend(two, NAME), m.ErrorMessage)
        assert (error.error_code, error.connection_id) == (ReplyCode.LIMIT_EXCEEDED, two)
        zero = await raw.ask(m.SetupAppend(m.NO_ID, NAME), m.ErrorMessage)
        assert zero.error_code == ReplyCode.LIMIT_EXCEEDED
        await raw.send(closed_block(one, 0, [b"fits", bytes(101), b"lost"]))
        error = await raw.expect(m.ErrorMessage)
        assert (error.error_code, error.connection_id) == (ReplyCode.LIMIT_EXCEEDED, one)
        assert await raw.content(NAME) == frame_events([b"fits"])


async def test_replies_in_pieces(tmp_path: Path) -> None:
    flags = {**FLAGS, "segment.force_partial_replies": "7"}
    async with lone_node(tmp_path, flags) as node, connect(node.addresses["segment"]) as raw:
        await raw.create(NAME)
        writer = writer_id()
        await raw.set_up(writer, NAME)
        await raw.append(writer, 0, b"cut", b"to pieces")
        assert await raw.content(NAME) == frame_events([b"cut", b"to pieces"])


async def test_a_fast_writer_is_slowed_down(tmp_path: Path) -> None:
    """Case 21: what is received and not committed stays bounded; nothing is lost."""
    flags = {**FLAGS, "segment.inflight_bytes": "65536", "segment.inflight_node_bytes": "65536"}
    async with lone_node(tmp_path, flags) as node, connect(node.addresses["segment"]) as raw:
        await raw.create(NAME)
        writer = writer_id()
        await raw.set_up(writer, NAME)
        events = [bytes([number % 251]) * 1000 for number in range(4000)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(raw.send, closed_block(writer, 0, events))
            await raw.acked(writer, len(frame_events(events)))
        assert await raw.content(NAME) == frame_events(events)


async def test_strangers_are_told_and_let_go(node: RunningNode) -> None:
    """Case 23, and versions of the Pravega dialect that nobody speaks."""
    for garbage in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00\x00\x00\x00\x01\x00\x00\x00"):
        async with connect(node.addresses["segment"]) as raw:
            await raw.send(garbage)
            error = await raw.expect(m.ErrorMessage)
            assert error.error_code == ReplyCode.PROTOCOL_ERROR
            assert await raw.reply() is None
    async with connect(node.addresses["segment"]) as raw:
        assert await raw.ask(m.Hello(99, 18), m.Hello) == m.Hello(17, 5)
        assert await raw.reply() is None


async def test_idle_connections_are_closed(tmp_path: Path) -> None:
    flags = {**FLAGS, "segment.idle_timeout_ms": "100"}
    async with lone_node(tmp_path, flags) as node, connect(node.addresses["segment"]) as raw:
        assert await raw.reply() is None


async def test_a_client_that_is_done_still_hears_its_acknowledgements(raw: Raw) -> None:
    writer = writer_id()
    await raw.set_up(writer, NAME)
    await raw.send(closed_block(writer, 0, [b"last words"]))
    await raw.stream.send_eof()
    await raw.acked(writer, 18)
    assert await raw.reply() is None


async def test_other_protocols_read_segments_and_do_not_write_them(
    node: RunningNode, raw: Raw
) -> None:
    """wire/DESIGN 2.2: each Event one message, in order."""
    writer = writer_id()
    await raw.set_up(writer, NAME)
    await raw.append(writer, 0, b"one", b"two")
    await raw.append(writer, 22, b"three")
    await raw.ask(m.SealSegment(NAME), m.SegmentSealed)
    async with NativeConnection(node.addresses["native"]) as native:
        refused = await native.produce("sc_st", 0, build_value_batch([b"x"], timestamp_ms=1))
        assert refused.error == ErrorCode.POLICY_VIOLATION
        assert "kind segment" in refused.message
    async with connect_client(node.native) as client, client.consumer("sc_st") as consumer:
        values = [(await consumer.__anext__()).value for _ in range(3)]
        assert values == [b"one", b"two", b"three"]
    async with await open_stream(node.v1) as stream:
        await stream.send_all(b"V1|1|PRODUCE|sc_st k:v acks=1\n")
        assert (await stream.receive_some()).startswith(b"V1|1|ERR|")
        await stream.send_all(b"V1|2|CONSUME|sc_st 0 0\n")
        assert await stream.receive_some() == b"V1|2|OK|messages=0:one,1:two,2:three hw=3\n"


async def test_silent_writers_are_forgotten_by_a_record(tmp_path: Path) -> None:
    """A client that has written and is told 0 stops instead of guessing. So one
    that is idle on an open connection stays known."""
    flags = {**FLAGS, "segment.writer_ttl_ms": "2000", "segment.writer_check_ms": "100"}
    silent, idle = writer_id(), writer_id()
    async with lone_node(tmp_path, flags) as node, connect(node.addresses["segment"]) as raw:

        async def told(writer: UUID) -> int:
            """What one is told that comes back, and goes again."""
            async with connect(node.addresses["segment"]) as other:
                return await other.set_up(writer, NAME)

        await raw.create(NAME)
        await raw.set_up(idle, NAME)
        async with connect(node.addresses["segment"]) as other:
            await other.set_up(silent, NAME)
            await other.append(silent, 0, b"last seen")
        # The record that forgets names one time: it spares who wrote in the idle one's millisecond.
        seen_ms = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 == seen_ms:  # noqa: ASYNC110  a clock tells nobody
            await trio.sleep(0.001)
        level = await raw.append(idle, 0, b"before the pause")
        with trio.fail_after(HANG_S):
            while await told(silent):  # noqa: ASYNC110  nothing but asking tells
                await trio.sleep(0.3)
        level = await raw.append(idle, level, b"after it")
        assert await raw.set_up(idle, NAME) == level
        assert await raw.set_up(silent, NAME) == 0
        late = await raw.ask(m.BeginAppendBlock(silent, 17, 100), m.InvalidConnectionOffset)
        assert late == m.InvalidConnectionOffset(silent, 0)


async def test_a_writer_is_known_when_all_it_wrote_is_gone(tmp_path: Path) -> None:
    """Case 14: retention removes every batch of a writer; its level stays."""
    flags = {
        **FLAGS,
        "log.segment_bytes": "1024",
        "log.retention_bytes": "2048",
        "log.retention_check_ms": "100",
    }
    old, busy = writer_id(), writer_id()
    async with lone_node(tmp_path, flags) as node, connect(node.addresses["segment"]) as raw:
        await raw.create(NAME)
        await raw.set_up(old, NAME)
        level = await raw.append(old, 0, b"long ago")
        await raw.set_up(busy, NAME)
        end = 0
        with trio.fail_after(HANG_S):
            while True:
                end = await raw.append(busy, end, b"x" * 500)
                info = await raw.ask(m.GetStreamSegmentInfo(NAME), m.StreamSegmentInfo)
                if info.start_offset >= level:
                    break
        assert await raw.set_up(old, NAME) == level
        # Resent from the start: what is gone counts as stored all the same.
        await raw.send(closed_block(old, 0, [b"long ago", b"new"]))
        assert await raw.acked(old, level + 11) == level + 11
        data, _ = await raw.read(NAME, info.length, 1000)
        assert data == frame_events([b"new"])


@pytest.mark.virtual_time(False)  # the system holds what is on the way
async def test_a_slow_reader_costs_little_memory(tmp_path: Path) -> None:
    """Case 20, in small: replies that nobody takes are bounded, however much was asked for."""
    mib = 1 << 20
    flags = {**FLAGS, "segment.reply_queue_bytes": str(mib)}
    async with lone_node(tmp_path, flags) as node, connect(node.addresses["segment"]) as raw:
        await raw.create(NAME)
        writer = writer_id()
        await raw.set_up(writer, NAME)
        end = 0
        for _ in range(10):
            end = await raw.append(writer, end, *[b"x" * (mib - 8)] * 4)
        tracemalloc.start()
        try:
            async with connect(node.addresses["segment"]) as slow:
                await slow.send(*[m.ReadSegment(NAME, 0, end)] * 3)
                for _ in range(20):
                    await slow.stream.receive_some(64 * 1024)
                    await trio.testing.wait_all_tasks_blocked(0.01)
                _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Three replies of 2 MiB being made, the queue, the kernel's shares; not 40 MiB or 120.
        assert peak < 16 * mib, peak
        assert await raw.content(NAME) == frame_events([b"x" * (mib - 8)] * 40)
