"""Large Events of Pravega's clients, in pieces: whose bytes come to lie where."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar
from uuid import UUID

import trio.testing

from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.events import frame_events
from paceline.wire.segment.messages import SegmentMessage
from tests.unit.listeners.lone import PravegaClient
from tests.unit.listeners.world import world

M = TypeVar("M", bound=SegmentMessage)
SEGMENT = "sc/st/0"
WRITER, OTHER = UUID(int=1), UUID(int=2)


async def ask(client: PravegaClient, request: SegmentMessage, kind: type[M]) -> M:
    reply = await client.ask(request)
    assert isinstance(reply, kind), reply
    return reply


async def set_up(client: PravegaClient, segment: str) -> int:
    request = pravega.SetupAppend(1, WRITER, segment, "")
    return (await ask(client, request, pravega.AppendSetup)).last_event


async def append(client: PravegaClient, last: int, event: bytes) -> None:
    run = frame_events([event])
    block = pravega.AppendBlockEnd(WRITER, len(run), run, 1, last, 100 + last)
    await ask(client, block, pravega.DataAppended)


async def place_for_pieces(client: PravegaClient, writer: UUID) -> str:
    request = pravega.CreateTransientSegment(2, writer, SEGMENT, "")
    return (await ask(client, request, pravega.SegmentCreated)).segment


async def content(client: PravegaClient) -> bytes:
    request = pravega.ReadSegment(SEGMENT, 0, 1 << 20, "", 9)
    return (await ask(client, request, pravega.SegmentRead)).data


async def test_a_writer_appends_where_it_was_set_up_last(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """One writer of a segment has a place for pieces besides, on one connection: what it was told
    is stored in the segment went to the pieces, and away with them."""
    async with world(tmp_path) as node:
        client = await node.pravega()
        assert await set_up(client, SEGMENT) == pravega.NO_EVENT
        pieces = await place_for_pieces(client, WRITER)
        await append(client, 0, b"one")
        assert await content(client) == frame_events([b"one"])
        assert await set_up(client, pieces) == pravega.NO_EVENT
        large = frame_events([b"large"])
        piece = pravega.ConditionalBlockEnd(WRITER, 0, 0, large, 3)
        await ask(client, piece, pravega.DataAppended)
        assert await content(client) == frame_events([b"one"])
        assert await set_up(client, SEGMENT) == 0
        await append(client, 1, b"two")
        assert await content(client) == frame_events([b"one", b"two"])
        merge = pravega.MergeSegments(4, SEGMENT, pieces, "")
        await ask(client, merge, pravega.SegmentsMerged)
        assert await content(client) == frame_events([b"one", b"two", b"large"])
        await append(client, 2, b"three")
        assert await content(client) == frame_events([b"one", b"two", b"large", b"three"])


async def test_equal_events_are_both_there(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Clients take a new id for each large Event, and keep it only to say the same again."""
    event = frame_events([b"the same"])
    async with world(tmp_path) as node:
        client = await node.pravega()
        for writer in (WRITER, OTHER, OTHER):
            pieces = await place_for_pieces(client, writer)
            piece = pravega.ConditionalBlockEnd(writer, 0, 0, event, 3)
            await ask(client, piece, pravega.DataAppended)
            merge = pravega.MergeSegments(4, SEGMENT, pieces, "")
            await ask(client, merge, pravega.SegmentsMerged)
        assert await content(client) == event * 2
