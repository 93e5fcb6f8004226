"""Streams that are deleted and made again: no number of a segment means two segments."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from paceline.wire.pravega import controller as c
from paceline.wire.pravega.grpc import GrpcStatus
from paceline.wire.segment import pravega_messages as w
from tests.integration.node.nodes import lone_node
from tests.integration.segment.controller_client import CallRefused, ControllerClient
from tests.integration.segment.test_pravega import FLAGS, Raw, block, connected

pytestmark = pytest.mark.virtual_time

SCOPE = c.ScopeInfo("shop")


@dataclass
class Shop:
    """A scope of a lone node, over both its listeners."""

    controller: ControllerClient
    segments: Raw

    async def call(self, name: str, request: c.ProtoMessage) -> int:
        return (await self.controller.call(name, request, c.Status)).status

    async def make(self, stream: str, count: int = 1) -> None:
        config = c.StreamConfig(c.StreamInfo("shop", stream), c.ScalingPolicy(0, 0, 0, count))
        assert await self.call("createStream", config) == 0

    async def remove(self, stream: str) -> None:
        for step in ("sealStream", "deleteStream"):
            assert await self.call(step, c.StreamInfo("shop", stream)) == 0, step

    async def numbers(self, stream: str) -> Sequence[int]:
        info = c.StreamInfo("shop", stream)
        found = await self.controller.call("getCurrentSegments", info, c.SegmentRanges)
        heads = await self.controller.call(
            "getSegments", c.GetSegmentsRequest(info), c.SegmentsAtTime
        )
        numbers = [each.segment.number for each in found.ranges]
        assert [each.segment.number for each in heads.segments] == numbers
        return numbers


@asynccontextmanager
async def shop(tmp_path: Path, **flags: str) -> AsyncIterator[Shop]:
    async with (
        lone_node(tmp_path, {**FLAGS, **flags}) as node,
        ControllerClient(node.addresses["pravega"]) as controller,
        connected(node) as segments,
    ):
        made = Shop(controller, segments)
        assert await made.call("createScope", SCOPE) == 0
        yield made


async def test_positions_in_a_deleted_stream_name_none_of_the_next(tmp_path: Path) -> None:
    """Whoever came back with them read on in the middle of other records."""
    async with shop(tmp_path) as here:
        await here.make("orders", 2)
        assert await here.numbers("orders") == [0, 1]
        writer, old = uuid4(), "shop/orders/0.#epoch.0"
        await here.segments.set_up(writer, old)
        await here.segments.ask(block(writer, 0, b"old"), w.DataAppended)
        await here.remove("orders")
        await here.make("orders", 2)
        assert await here.numbers("orders") == [2, 3]
        new = "shop/orders/2.#epoch.0"
        await here.segments.set_up(writer, new)
        await here.segments.ask(block(writer, 0, b"new, and longer"), w.DataAppended)
        await here.segments.ask(w.ReadSegment(old, 11, 100, "", 9), w.NoSuchSegment)
        # Nor does it help that the scope was away meanwhile.
        await here.remove("orders")
        assert await here.call("deleteScope", SCOPE) == 0
        assert await here.call("createScope", SCOPE) == 0
        await here.make("orders")
        assert await here.numbers("orders") == [4]


async def test_a_segment_of_the_other_dialect_keeps_no_stream_from_being_made(
    tmp_path: Path,
) -> None:
    """Its topic outlives the stream, and gives none of the stream's numbers again."""
    async with shop(tmp_path) as here:
        await here.make("orders", 2)
        await here.segments.ask(w.CreateSegment(1, "shop/orders/2", 0, 0, ""), w.SegmentCreated)
        await here.segments.ask(w.CreateSegment(1, "shop/orders/6", 0, 0, ""), w.SegmentCreated)
        writer = uuid4()
        await here.segments.set_up(writer, "shop/orders/6")
        await here.segments.ask(block(writer, 0, b"theirs"), w.DataAppended)
        await here.segments.ask(w.SealSegment(1, "shop/orders/2", ""), w.SegmentSealed)
        await here.segments.ask(w.DeleteSegment(1, "shop/orders/2", ""), w.SegmentDeleted)
        await here.remove("orders")
        await here.make("orders", 2)
        assert await here.numbers("orders") == [7, 8]
        await here.remove("orders")
        assert (await here.segments.content("shop/orders/6")).endswith(b"theirs")


async def test_nothing_of_another_is_taken_or_deleted_for_a_stream_that_is_made_again(
    tmp_path: Path,
) -> None:
    """The numbers behind the deleted stream's: one is a client's, and one was."""
    async with shop(tmp_path) as here:
        await here.make("orders")
        theirs, writer = "shop/orders/1", uuid4()
        for name in (theirs, "shop/orders/2"):
            await here.segments.ask(w.CreateSegment(1, name, 0, 0, ""), w.SegmentCreated)
        await here.segments.ask(w.DeleteSegment(1, "shop/orders/2", ""), w.SegmentDeleted)
        await here.segments.set_up(writer, theirs)
        await here.segments.ask(block(writer, 0, b"theirs"), w.DataAppended)
        await here.remove("orders")
        await here.make("orders", 2)
        assert await here.numbers("orders") == [3, 4]
        await here.remove("orders")
        assert (await here.segments.content(theirs)).endswith(b"theirs")


@pytest.mark.parametrize("gone", [(1,), (0, 1)])
async def test_segments_that_were_deleted_alone_keep_no_stream_from_its_end(
    gone: Sequence[int], tmp_path: Path
) -> None:
    async with shop(tmp_path) as here:
        await here.make("orders", 2)
        for number in gone:
            name = f"shop/orders/{number}"
            await here.segments.ask(w.SealSegment(1, name, ""), w.SegmentSealed)
            await here.segments.ask(w.DeleteSegment(1, name, ""), w.SegmentDeleted)
        await here.remove("orders")
        await here.make("orders", 2)
        assert await here.numbers("orders") == [2, 3]


async def test_deleted_streams_fill_no_register(tmp_path: Path) -> None:
    """They are remembered as long as there is room; then all numbers begin above theirs."""
    async with shop(tmp_path, **{"limits.table_keys": "8"}) as here:
        for number in range(12):
            await here.make(f"s{number}", 2)
            await here.remove(f"s{number}")
        await here.make("s0")
        [reborn] = await here.numbers("s0")
        assert reborn >= 2
        names = await here.controller.call(
            "listStreamsInScope", c.StreamsRequest(SCOPE), c.StreamsResponse
        )
        assert [each.stream for each in names.streams] == ["s0"]


async def test_a_full_register_can_be_emptied(tmp_path: Path) -> None:
    async with shop(tmp_path, **{"limits.table_keys": "8"}) as here:
        for number in range(6):
            await here.make(f"s{number}")
        with pytest.raises(CallRefused) as caught:
            await here.make("more")
        assert caught.value.status == GrpcStatus.RESOURCE_EXHAUSTED
        await here.remove("s3")
        await here.make("more")


async def test_a_name_whose_numbers_are_used_up_is_no_streams(tmp_path: Path) -> None:
    async with shop(tmp_path) as here:
        await here.make("orders")
        ask, last = here.segments.ask, "shop/orders/65535"
        for name in ("shop/orders/1", last):
            await ask(w.CreateSegment(1, name, 0, 0, ""), w.SegmentCreated)
        await ask(w.DeleteSegment(1, "shop/orders/1", ""), w.SegmentDeleted)
        await here.remove("orders")
        with pytest.raises(CallRefused, match="numbers are not used again"):
            await here.make("orders")
        await ask(w.DeleteSegment(1, last, ""), w.SegmentDeleted)  # and the topic with it
        await here.make("orders")
        assert await here.numbers("orders") == [1]
