"""What a PRODUCE leaves behind while it waits for its followers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import trio

from paceline.errors import RequestTimedOut, UnknownTopicOrPartition
from paceline.types import Acks
from paceline.wire.batch import build_batch
from paceline.wire.kafka import apis, records
from paceline.wire.kafka.apis import APIS, RequestHeader
from paceline.wire.records import Record
from paceline_node.client_memory import Portion, unlimited
from paceline_node.listeners.kafka.call import Call
from paceline_node.listeners.kafka.produce import KafkaProduce, Prepared
from paceline_node.loop_turns import Turns
from paceline_node.replication.partition import Done
from paceline_node.request_pace import Pace
from paceline_node.security.principals import ANONYMOUS
from paceline_node.security.quotas import no_quotas
from paceline_node.services.partitions.partition_access import PartitionAccess
from paceline_node.services.records.produce import ProduceService
from paceline_node.settings.topic_config import TopicConfig
from paceline_node.sliced_work import at_once


class Waiting:
    """The service, and a partition whose followers take their time."""

    def __init__(self) -> None:
        self.dones: list[Done] = []

    def topic(self, *_: object) -> None:
        pass

    def find(self, _topic: str) -> None:
        pass

    def partition(self, topic: str, _number: int) -> None:
        raise UnknownTopicOrPartition(topic)

    def get(self, *_: object) -> Waiting:
        return self

    def check_epoch(self, _epoch: int) -> None:
        pass

    def stamp_ms(self) -> int:
        return 10

    @property
    def config(self) -> TopicConfig:
        return TopicConfig.of({})

    def produce(self, _batch: memoryview, _headers: object, *, done: Done, **_: object) -> None:
        self.dones.append(done)


async def test_a_request_that_waits_keeps_nothing_of_its_frame() -> None:
    partition = Waiting()
    around, none = cast(Any, partition), cast(Any, None)
    service = ProduceService(
        around,
        PartitionAccess(around, around, around),
        none,
        none,
        none,
        lambda *_: None,
        no_quotas(),
    )
    produce = KafkaProduce(around, service)
    batch = bytes(build_batch([Record(-1, 1, None, b"v")]))
    parts = tuple(
        records.ProduceRequestTopicPartition(index=number, records=data)
        for number, data in ((4, batch), (5, batch[:-1] + b"?"), (7, batch))
    )
    request = records.ProduceRequest(
        acks=Acks.ALL,
        timeout_ms=1000,
        topic_data=(records.ProduceRequestTopic(name="t", partition_data=parts),),
    )
    frame = apis.request_frame(RequestHeader(0, 9, 1, None), request)
    answers: list[Callable[[], records.ProduceResponse] | None] = []

    def start(view: memoryview) -> None:
        read = apis.read_request(view, 14, APIS[0], 9)
        assert isinstance(read, records.ProduceRequest)
        room = Portion(unlimited())
        call = Call(9, ANONYMOUS, "", "", room, Pace(Turns(), room))

        def answer(make: Callable[[], records.ProduceResponse] | None, _partitions: int) -> None:
            answers.append(make)

        at_once(produce.starting(Prepared(read, {}), call, answer))

    start(memoryview(frame))
    await trio.lowlevel.checkpoint()
    frame.clear()  # which Python refuses while anybody can still look into it
    assert answers == []
    for done in partition.dones:
        done(RequestTimedOut("too late"))
    [make] = answers
    assert make is not None
    [entry] = make().responses
    assert entry.name == "t"
    found = [(each.index, each.error_code) for each in entry.partition_responses]
    assert found == [(4, 7), (5, 2), (7, 7)]
