"""What a native PRODUCE leaves behind while it waits for its followers."""

from __future__ import annotations

from typing import Any, cast

import trio

from paceline.errors import RequestTimedOut, UnknownTopicOrPartition
from paceline.types import Acks
from paceline.wire.batch import build_batch
from paceline.wire.frame import Kind, decode, encode_head
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import Produce, ProducePartition
from paceline.wire.records import Record
from paceline_node.listeners.native.listener import NativeLimits, _Session
from paceline_node.listeners.native.produce import ProduceHandler
from paceline_node.listeners.serving import Client
from paceline_node.loop_turns import Turns
from paceline_node.replication.partition import Done
from paceline_node.security.quotas import no_quotas
from paceline_node.services.partitions.partition_access import PartitionAccess
from paceline_node.services.records.produce import ProduceService
from paceline_node.settings.topic_config import TopicConfig


class Surroundings:
    """The service, its meters, a partition whose followers take their time, and the stream."""

    limits = NativeLimits()

    def __init__(self) -> None:
        self.meters = self
        self.authenticator = cast(Any, None)
        self.turns = Turns()
        self.requests: dict[int, object] = {}
        self.produce_done: list[Done] = []
        self.answers: list[tuple[int, int]] = []
        none, parts = cast(Any, None), cast(Any, self.Parts(self))
        records = PartitionAccess(parts, parts, parts)
        self.produce = ProduceHandler(
            ProduceService(parts, records, none, none, none, lambda *_: None, no_quotas())
        )

    class Parts:
        def __init__(self, around: Surroundings) -> None:
            self._around = around

        def topic(self, *_: object) -> None:
            pass

        def find(self, _topic: str) -> None:
            pass

        def partition(self, topic: str, _number: int) -> None:
            raise UnknownTopicOrPartition(topic)

        def get(self, *_: object) -> Surroundings.Parts:
            return self

        def check_epoch(self, _epoch: int) -> None:
            pass

        def stamp_ms(self) -> int:
            return 10

        @property
        def config(self) -> TopicConfig:
            return TopicConfig.of({})

        def produce(self, *_: object, done: Done, **__: object) -> None:
            self._around.produce_done.append(done)

    def __getitem__(self, _api: int) -> Surroundings:
        return self

    def done(self, *_: object) -> None:
        pass

    last_frame_bytes = 100

    def send_frame(self, _kind: int, api: int, correlation: int, *_: object) -> None:
        self.answers.append((api, correlation))


async def test_a_request_that_waits_keeps_nothing_of_its_payload() -> None:
    around = Surroundings()
    session = _Session(cast(Any, around), cast(Any, around), Client("test", is_loopback=True))
    batch = bytes(build_batch([Record(-1, 1, None, b"v")]))
    bad = batch[:-1] + b"?"
    parts = tuple(ProducePartition("t", number, len(batch)) for number in range(2))
    body = Produce(1000, Acks.ALL, parts)
    sent = encode_head(Kind.REQUEST, NativeApi.PRODUCE, 7, body.pack(), 2 * len(batch))
    sent += bad + batch
    received = bytearray(sent[4:])
    await session._take(decode(received), 0.0, cast(trio.Nursery, None), 0)
    await trio.lowlevel.checkpoint()
    received.clear()  # which Python refuses while anybody can still look into it
    assert around.answers == []
    [done] = around.produce_done
    done(RequestTimedOut("too late"))
    assert around.answers == [(NativeApi.PRODUCE, 7)]
