"""Large Events of Pravega's clients, in pieces: whose bytes come to lie where."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar
from uuid import UUID

import pytest
import trio.testing

from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.events import frame_events
from paceline.wire.segment.messages import SegmentMessage
from paceline_node.client_memory import ClientMemory, Holding
from paceline_node.listeners.segment.transient_budget import TransientBudget, TransientPart
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


def test_an_address_takes_no_more_than_it_leaves_to_others() -> None:
    budget, memory = TransientBudget(120), ClientMemory(1 << 30)
    holdings = [Holding(memory, "segment", f"192.0.2.{at}", print) for at in (1, 1, 2, 3)]
    greedy, its_other, second, third = (TransientPart(budget, each) for each in holdings)
    assert greedy.take(40)
    assert its_other.take(20)
    assert not greedy.take(1), "half"
    assert not its_other.take(1)
    assert second.take(30)
    assert not second.take(1)
    assert third.take(15)
    assert [each.held_bytes for each in holdings] == [40, 20, 30, 15]
    greedy.give_back(40)
    assert third.take(20)
    for part, size in ((its_other, 20), (second, 30), (third, 35)):
        part.give_back(size)
    assert (memory.held_bytes, budget.used_bytes, budget._by_address) == (0, 0, {})


async def test_who_merges_nothing_ends_alone(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline_node.listeners.segment.listener._TRANSIENT_NODE_BYTES", 400)
    async with world(tmp_path) as node:
        client = await node.pravega()
        for writer in (WRITER, OTHER):
            await place_for_pieces(client, writer)
        first = pravega.ConditionalBlockEnd(WRITER, 0, 0, bytes(150), 3)
        await ask(client, first, pravega.DataAppended)
        assert await client.is_ended_by(pravega.ConditionalBlockEnd(OTHER, 0, 0, bytes(100), 4))
        again = await node.pravega()
        await place_for_pieces(again, WRITER)
        await ask(again, first, pravega.DataAppended)
