"""Segments on three nodes: redirects, failovers, restarts, isolation."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest
import trio

from paceline.client import BlockShape, Client, Segments, SegmentWriterSettings
from paceline.errors import (
    InvalidProducerEpoch,
    OffsetOutOfRange,
    SegmentSealed,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from paceline.wire.segment import messages as m
from paceline.wire.segment.client import closed_block
from paceline.wire.segment.errors import ReplyCode
from paceline.wire.segment.events import MAX_SENT_EVENT_BYTES, event_data, frame_events
from tests.integration.node.machines import connect
from tests.integration.node.nodes import Cluster, cluster
from tests.integration.segment.client import connect as connect_raw
from tests.integration.segment.client import leading, writer_id

pytestmark = [pytest.mark.virtual_time, pytest.mark.timeout(120)]

NAME = "sc/st/0"
FLAGS = {"segment.read_wait_ms": "100", "segment.append_timeout_ms": "3000"}


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path, flags=FLAGS) as up:
        yield up


@pytest.fixture
async def client(nodes: Cluster) -> AsyncIterator[Client]:
    async with connect(nodes.bootstrap_native) as made:
        yield made


@pytest.fixture
async def segments(client: Client) -> AsyncIterator[Segments]:
    async with client.segments() as found:
        await found.create(NAME)
        yield found


async def everything(segments: Segments, name: str) -> bytes:
    reader = segments.reader(name)
    content = b""
    while data := await reader.read():
        content += data
    return content


def listeners(nodes: Cluster) -> list[tuple[str, int]]:
    return [up.addresses["segment"] for _, up in sorted(nodes.up.items())]


async def test_any_node_names_the_right_one(nodes: Cluster, segments: Segments) -> None:
    leader = await nodes.leader("sc_st", 0)
    host, port = nodes.up[leader].addresses["segment"]
    expected = m.WrongHost(NAME, f"{host}:{port}")
    for number in set(nodes.up) - {leader}:
        async with connect_raw(nodes.up[number].addresses["segment"]) as raw:
            for request in (
                m.SetupAppend(writer_id(), NAME),
                m.ReadSegment(NAME, 0, 1),
                m.SealSegment(NAME),
                m.TruncateSegment(NAME, 0),
                m.GetStreamSegmentInfo(NAME),
            ):
                assert await raw.ask(request, m.WrongHost) == expected
            await raw.create(f"any/node/{number}")


async def test_the_client_writes_and_reads(segments: Segments) -> None:
    events = [b"x" * size for size in (0, 1, 100, 70_000, MAX_SENT_EVENT_BYTES)]
    async with segments.writer(NAME) as writer:
        for event in events:
            await writer.append(event)
        await writer.flush()
        assert writer.level == writer.position == len(frame_events(events))
    reader = segments.reader(NAME)
    found: list[bytes] = []
    while len(found) < len(events):
        found += await reader.events()
    assert found == events
    info = await segments.info(NAME)
    assert info is not None
    assert (info.start, info.length, info.is_sealed) == (0, writer.level, False)
    with pytest.raises(TopicAlreadyExists):
        await segments.create(NAME)
    await segments.truncate(NAME, 8)
    with pytest.raises(OffsetOutOfRange):
        await segments.reader(NAME).read()
    await segments.seal(NAME)
    assert [event async for event in segments.reader(NAME, 8)] == events[1:]
    with pytest.raises(SegmentSealed):
        async with segments.writer(NAME) as late:
            await late.append(b"late")
    await segments.delete(NAME)
    assert await segments.info(NAME) is None
    with pytest.raises(UnknownTopicOrPartition):
        async with segments.writer(NAME):
            pass


async def test_a_writer_of_a_former_process_goes_on(segments: Segments) -> None:
    identity = uuid4()
    for number in range(2):
        async with segments.writer(NAME, writer=identity) as writer:
            assert await writer.ready() == number * 11
            await writer.append(b"abc")
    async with segments.writer(NAME, writer=identity) as older:
        async with segments.writer(NAME, writer=identity) as newer:
            await newer.append(b"new")
            await newer.flush()

        async def write_on() -> None:
            await older.append(b"old")
            await older.flush()

        with pytest.raises(InvalidProducerEpoch):
            await write_on()
    assert event_data(await everything(segments, NAME)) == [b"abc", b"abc", b"new"]


@pytest.mark.parametrize(
    "shape", [pytest.param(BlockShape.BURST, marks=pytest.mark.slow), BlockShape.STREAM]
)
async def test_nothing_is_lost_or_repeated_when_leaders_die(
    nodes: Cluster, segments: Segments, shape: BlockShape
) -> None:
    """Cases 9, 11 and 19: leaders crash in the middle of blocks, a reader follows at the tail."""
    rng = random.Random(shape.value)
    events = [rng.randbytes(rng.choice((10, 100, 2000))) for _ in range(1500)]
    seen = bytearray()
    acked_at_kills = []

    async def follow() -> None:
        reader = segments.reader(NAME)
        while len(seen) < len(frame_events(events)):
            seen.extend(await reader.read())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        async with segments.writer(NAME, settings=SegmentWriterSettings(shape=shape)) as writer:
            for number, event in enumerate(events):
                await writer.append(event)
                if number == 200:
                    await writer.flush()  # leaders may die before anything else is acknowledged
                if number % 500 == 250:
                    leader = await nodes.leader("sc_st", 0)
                    acked_at_kills.append(writer.level)
                    await nodes.crash(leader)
                    await nodes.start(leader)
    assert bytes(seen) == frame_events(events)
    assert await everything(segments, NAME) == frame_events(events)
    assert acked_at_kills == sorted(acked_at_kills)
    assert 0 < acked_at_kills[-1] < len(frame_events(events))
    epochs = (await nodes.describe("sc_st", 0)).leader_epoch
    assert epochs >= 2, "no kill fell on a leader"


async def test_levels_survive_a_restart_of_all_nodes(nodes: Cluster, segments: Segments) -> None:
    """Case 12."""
    identity = uuid4()
    async with segments.writer(NAME, writer=identity) as writer:
        await writer.append_all([b"before"] * 100)
    await nodes.crash(*sorted(nodes.up))
    await nodes.start_all(range(3))
    async with segments.writer(NAME, writer=identity) as writer:
        assert await writer.ready() == 1400
        await writer.append(b"after")
    assert event_data(await everything(segments, NAME)) == [b"before"] * 100 + [b"after"]


async def test_too_few_replicas_are_told_and_recovered_from(
    nodes: Cluster, segments: Segments
) -> None:
    """Case 16, and 10 in part: a leader alone acknowledges nothing."""
    identity = writer_id()
    async with leading(listeners(nodes), NAME) as raw:
        await raw.set_up(identity, NAME)
        await raw.append(identity, 0, b"safe")
        leader = await nodes.leader("sc_st", 0)
        others = sorted(set(nodes.up) - {leader})
        await nodes.crash(*others)
        await raw.send(closed_block(identity, 12, [b"in doubt"]))
        reply = await raw.reply()
        # Alone it has neither replicas nor, after a session, the right to lead.
        assert isinstance(reply, m.ErrorMessage | m.WrongHost), reply
        if isinstance(reply, m.ErrorMessage):
            assert reply.error_code == ReplyCode.NOT_ENOUGH_REPLICAS
    await nodes.start_all(others)
    await nodes.in_sync("sc_st", 0, 0, 1, 2)
    async with leading(listeners(nodes), NAME) as raw:
        level = await raw.set_up(identity, NAME)
        assert level in (12, 28)
        await raw.append(identity, 12, b"in doubt", b"more")
        assert event_data(await raw.content(NAME)) == [b"safe", b"in doubt", b"more"]


async def test_set_up_waits_for_what_is_under_way(nodes: Cluster, segments: Segments) -> None:
    """Case 8: the level includes everything that was on its way."""
    identity = writer_id()
    events = [b"y" * 1000] * 300
    async with leading(listeners(nodes), NAME) as old:
        await old.set_up(identity, NAME)
        await old.send(closed_block(identity, 0, events))
        async with leading(listeners(nodes), NAME) as new:
            level = await new.set_up(identity, NAME)
            assert level % 1008 == 0
            await new.send(closed_block(identity, level, events[level // 1008 :]))
            await new.acked(identity, len(frame_events(events)))
            assert await new.content(NAME) == frame_events(events)


async def test_a_moved_leader_fails_its_appenders_and_stays_exact(
    nodes: Cluster, segments: Segments
) -> None:
    """Cases 10 and 17 with an orderly move: bytes of the old leader's tail are not told as
    stored, and the appender ends on the new one."""
    identity = writer_id()
    leader = await nodes.leader("sc_st", 0)
    async with connect_raw(nodes.up[leader].addresses["segment"]) as raw:
        await raw.set_up(identity, NAME)
        await raw.append(identity, 0, b"one")
        await nodes.stop(leader)
        new_leader = await nodes.leader("sc_st", 0)
        assert new_leader != leader
    async with leading(listeners(nodes), NAME) as raw:
        assert await raw.set_up(identity, NAME) == 11
        await raw.append(identity, 11, b"two")
        assert event_data(await raw.content(NAME)) == [b"one", b"two"]


async def test_an_isolated_leader_acknowledges_nothing(nodes: Cluster, segments: Segments) -> None:
    """Case 10: it still talks to its client; after healing its tail is cut."""
    networks = {number: await nodes.restart_on_stalling_network(number) for number in range(3)}
    await nodes.in_sync("sc_st", 0, 0, 1, 2)
    identity = writer_id()
    old = await nodes.leader("sc_st", 0)
    others = sorted(set(range(3)) - {old})
    async with connect_raw(nodes.up[old].addresses["segment"]) as raw:
        await raw.set_up(identity, NAME)
        await raw.append(identity, 0, b"safe")
        networks[old].stall(*(nodes.ports(number)["peer"] for number in others))
        for number in others:
            networks[number].stall(nodes.ports(old)["peer"])
        await raw.send(closed_block(identity, 12, [b"never committed"]))
        refused = await raw.reply()
        assert isinstance(refused, m.ErrorMessage | m.WrongHost), refused
        await raw.send(m.ReadSegment(NAME, 0, 1000))
        seen = await raw.reply()
        if isinstance(seen, m.SegmentRead):  # its session may not be over yet
            assert seen.data == frame_events([b"safe"])
        else:
            assert isinstance(seen, m.WrongHost), seen
    reachable = [nodes.up[number].addresses["segment"] for number in others]
    async with leading(reachable, NAME, hops=1) as raw:
        assert await raw.set_up(identity, NAME) == 12
        await raw.append(identity, 12, b"elsewhere")
        for network in networks.values():
            network.stall()
        await nodes.in_sync("sc_st", 0, 0, 1, 2)
        assert event_data(await raw.content(NAME)) == [b"safe", b"elsewhere"]
    async with connect_raw(nodes.up[old].addresses["segment"]) as raw:
        assert isinstance(await raw.ask(m.ReadSegment(NAME, 0, 10), m.WrongHost), m.WrongHost)
