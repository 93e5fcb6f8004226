"""A consumer in its coordinator's hands, word by word."""

from __future__ import annotations

import random
from collections.abc import Mapping

import trio
from trio.testing import memory_stream_pair

from paceline.client.driven_link import DrivenLink
from paceline.client.driven_membership import Driven, DrivenSettings
from paceline.client.endpoint import Endpoint
from paceline.client.retry import Backoff
from paceline.types import TopicPartition
from paceline.wire.coordinator.codec import (
    Ask,
    Header,
    read_header,
    read_request,
    request_frame,
    response_frame,
)
from paceline.wire.coordinator.messages import (
    Broker,
    ConsultRequest,
    ConsultResponse,
    RegisterRequest,
    RegisterResponse,
    StopRequest,
)

SETTINGS = DrivenSettings(heartbeat_interval_ms=1000, max_heartbeat_retries=3)


class Busy:
    """An owner whose program never returns what it has in hand."""

    def __init__(self) -> None:
        self.asked = trio.Event()
        self.lost = trio.Event()

    def done(self) -> Mapping[TopicPartition, int]:
        return {}

    async def take(self, starts: Mapping[TopicPartition, int]) -> None:
        raise AssertionError("nothing was started")

    async def hand_back(self, at_most_s: float) -> None:
        self.asked.set()
        await trio.sleep(at_most_s)

    async def give_up(self, *, lost: bool) -> Mapping[TopicPartition, int]:
        await trio.lowlevel.checkpoint()
        if lost:
            self.lost.set()
        return {}

    def is_stuck(self) -> bool:
        return False

    async def asked_again(self) -> None:
        raise AssertionError("it never hangs")


async def test_a_channel_that_ends_during_a_stop_is_loss_at_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The coordinator gives the partitions to others as soon as it sees the end."""
    channels, dialled = trio.open_memory_channel[trio.abc.Stream](4)

    async def dial(_: Endpoint) -> trio.abc.Stream:
        ours, theirs = memory_stream_pair()
        await channels.send(theirs)
        return ours

    where = Endpoint("10.0.0.1", 9192)
    owner = Busy()
    driven = Driven(
        SETTINGS,
        dial,
        Backoff(0.1, 1.0, random.Random(1)),
        owner,
        lambda: [where],
        group="g",
        topics=["orders"],
        consumer_id="c",
        client_id="test",
        from_smallest=True,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(driven.run)
        consulted = DrivenLink(await dialled.receive(), "coordinator")
        frame = await consulted.receive()
        header, start = read_header(frame)
        assert isinstance(read_request(header, frame, start), ConsultRequest)
        place = Broker(creator_id="1", id=1, host=where.host, port=where.port)
        await consulted.send(
            response_frame(header, 0, ConsultResponse(coordinator_id=1, brokers=(place,)))
        )
        channel = await dialled.receive()
        link = DrivenLink(channel, "coordinator")
        frame = await link.receive()
        header, start = read_header(frame)
        assert isinstance(read_request(header, frame, start), RegisterRequest)
        registered = RegisterResponse(
            coordinator_epoch=1,
            generation=1,
            consumer_id="c",
            heartbeat_interval_ms=1000,
            max_heartbeat_retries=3,
        )
        await link.send(response_frame(header, 0, registered))
        stop = StopRequest(coordinator_epoch=1, generation=1, reason=0)
        await link.send(request_frame(Header(Ask.STOP, False, 1, 1, ""), stop))
        await owner.asked.wait()
        before = trio.current_time()
        await channel.aclose()
        await owner.lost.wait()
        assert trio.current_time() == before, "not after the program has had its time"
        nursery.cancel_scope.cancel()
