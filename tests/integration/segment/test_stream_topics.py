"""A stream's topic that is deleted as a topic: the stream goes with it, whoever asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import uuid4

import pytest

from paceline.errors import UnknownTopicOrPartition
from paceline.wire.kafka import topics
from paceline.wire.native.admin import DeleteTopic, Done
from paceline.wire.native.api import NativeApi
from paceline.wire.pravega import controller as c
from paceline.wire.segment import pravega_messages as w
from tests.integration.node.cursus_client import CursusClient
from tests.integration.node.kafka_client import KafkaClient
from tests.integration.node.native import NativeConnection
from tests.integration.node.nodes import RunningNode, lone_node
from tests.integration.segment.controller_client import CallRefused, ControllerClient
from tests.integration.segment.test_pravega import FLAGS, block, connected
from tests.integration.segment.test_streams import SCOPE, Shop

pytestmark = pytest.mark.virtual_time

TOPIC = "shop_orders"


async def by_native(node: RunningNode) -> None:
    async with NativeConnection(node.addresses["native"]) as native:
        await native.call(NativeApi.DELETE_TOPIC, DeleteTopic(TOPIC), Done)
        with pytest.raises(UnknownTopicOrPartition):
            await native.call(NativeApi.DELETE_TOPIC, DeleteTopic(TOPIC), Done)


async def by_kafka(node: RunningNode) -> None:
    async with KafkaClient(node.addresses["kafka"]) as client:
        request = topics.DeleteTopicsRequest(topic_names=(TOPIC,), timeout_ms=60_000)
        [deleted] = (await client.ask(request, 5)).responses
        assert deleted.error_code == 0, deleted.error_message


async def by_cursus(node: RunningNode) -> None:
    async with CursusClient(node.addresses["cursus"]) as client:
        await client.ok(f"DELETE topic={TOPIC}")


WAYS = {"native": by_native, "kafka": by_kafka, "cursus": by_cursus}


async def streams(controller: ControllerClient) -> list[str]:
    found = await controller.call("listStreamsInScope", c.StreamsRequest(SCOPE), c.StreamsResponse)
    return [each.stream for each in found.streams]


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("delete", WAYS.values(), ids=WAYS)
async def test_a_stream_goes_with_its_topic(
    tmp_path: Path, delete: Callable[[RunningNode], Awaitable[None]], is_sealed: bool
) -> None:
    """It was listed as before, without segments: the Python client panics when it reads one."""
    async with (
        lone_node(tmp_path, FLAGS) as node,
        ControllerClient(node.addresses["pravega"]) as controller,
        connected(node) as segments,
    ):
        here = Shop(controller, segments)
        assert await here.call("createScope", SCOPE) == 0
        await here.make("orders", 2)
        await here.make("visits")
        writer, old = uuid4(), "shop/orders/0.#epoch.0"
        await segments.set_up(writer, old)
        await segments.ask(block(writer, 0, b"old"), w.DataAppended)
        # What a client of the other dialect has made of that name goes as well.
        await segments.ask(w.CreateSegment(1, "shop/orders/7", 0, 0, ""), w.SegmentCreated)
        if is_sealed:
            assert await here.call("sealStream", c.StreamInfo("shop", "orders")) == 0

        await delete(node)

        assert await streams(controller) == ["visits"]
        with pytest.raises(CallRefused):
            await here.numbers("orders")
        for name in (old, "shop/orders/7"):
            await segments.ask(w.ReadSegment(name, 0, 100, "", 9), w.NoSuchSegment)
        assert await here.numbers("visits") == [0]
        await here.make("orders", 2)
        assert min(await here.numbers("orders")) >= 2, "positions of the old stream are of the new"


async def test_segments_without_a_stream_go_with_their_topic(tmp_path: Path) -> None:
    """And nothing is made to find out that they have none."""
    async with lone_node(tmp_path, FLAGS) as node, connected(node) as segments:
        for number in range(40):
            name = f"shop/orders/{number}"
            await segments.ask(w.CreateSegment(1, name, 0, 0, ""), w.SegmentCreated)
        await by_native(node)
        async with NativeConnection(node.addresses["native"]) as native:
            names = {each.name for each in (await native.metadata(None)).topics}
        assert TOPIC not in names
        assert "__tables" not in names
