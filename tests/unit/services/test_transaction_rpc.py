"""Requests to a node that never answers: they end when it leads no more, whatever they ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import UUID

import pytest
import trio
import trio.testing

from paceline.errors import CoordinatorNotAvailable, LeaderChangedAfterAppend, PacelineError
from paceline.types import LeaderEpoch, NodeId, PartitionEpoch, TopicId
from paceline.wire.peer import transactions as wire
from paceline.wire.peer.names import GroupName, PartitionName
from paceline_node.controller.image import Image
from paceline_node.controller.metadata_records import (
    PartitionRegistration,
    RemoveTopic,
    Topic,
    encode_record,
)
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.groups.keys import GROUPS_TOPIC
from paceline_node.services.transactions.transaction_rpc import TransactionRpc
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.keys import TRANSACTIONS_TOPIC

HERE, SILENT, NEXT = NodeId(0), NodeId(1), NodeId(2)
NAMES = ("orders", TRANSACTIONS_TOPIC, GROUPS_TOPIC)
WHO = ProducerIdentity(7, 0)


class Silence:
    """Links over which nobody answers."""

    async def call(self, *words: object, **options: object) -> None:
        await trio.sleep_forever()


def topic_id(name: str) -> TopicId:
    return TopicId(UUID(int=1 + NAMES.index(name)))


def led_by(leader: NodeId, epoch: int, name: str) -> bytes:
    replicas = (SILENT, NEXT)
    return encode_record(
        PartitionRegistration(
            topic_id(name),
            0,
            *(replicas, replicas, (), (), leader),
            LeaderEpoch(epoch),
            PartitionEpoch(epoch),
            min_isr=1,
            slots=2,
        )
    )


def metadata() -> MetadataStore:
    store = MetadataStore(UUID(int=9))
    store.install(Image.bootstrap(UUID(int=9)).to_snapshot(), 1)
    topics = [encode_record(Topic(topic_id(name), name, 2)) for name in NAMES]
    store.apply(2, 1, [*topics, *(led_by(SILENT, 0, name) for name in NAMES)])
    return store


async def mark(rpc: TransactionRpc) -> object:
    there = (wire.MarkedPartition("orders", 0, LeaderEpoch(0)),)
    return await rpc.write_markers(SILENT, wire.WriteMarkers(7, 0, 1, True, 3, 10_000, there))


async def append(rpc: TransactionRpc) -> object:
    order = wire.AppendStaged("orders", 0, LeaderEpoch(0), LeaderEpoch(0), 10_000)
    await rpc.append_staged(SILENT, order, bytearray(b"batches"))
    return None


async def settle(rpc: TransactionRpc) -> object:
    await rpc.settle_offsets(wire.SettleOffsets(GroupName("v1", "g"), 7, 1, True, ()))
    return None


async def verify(rpc: TransactionRpc) -> object:
    key = TransactionKey(Family.KAFKA, "t")
    return await rpc.verify(key, WHO, PartitionName("orders", 0), adds=True)


ASKING = pytest.mark.parametrize(
    ("ask", "name", "kind"),
    [
        (mark, "orders", LeaderChangedAfterAppend),
        (append, "orders", LeaderChangedAfterAppend),
        (settle, GROUPS_TOPIC, LeaderChangedAfterAppend),
        (verify, TRANSACTIONS_TOPIC, CoordinatorNotAvailable),
    ],
    ids=["mark", "append", "settle", "verify"],
)
Ask = Callable[[TransactionRpc], Awaitable[object]]


@ASKING
@pytest.mark.parametrize("is_deleted", [False, True], ids=["led by another", "deleted"])
async def test_it_ends_when_the_asked_node_leads_no_more(
    ask: Ask, name: str, kind: type[PacelineError], is_deleted: bool
) -> None:
    store = metadata()
    nothing = cast("Any", None)
    rpc = TransactionRpc(nothing, HERE, store, cast("Any", Silence()), nothing, nothing, nothing)
    raised: list[PacelineError] = []

    async def run() -> None:
        try:
            await ask(rpc)
        except PacelineError as error:
            raised.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.testing.wait_all_tasks_blocked()
        other = next(each for each in NAMES if each != name)
        store.apply(3, 1, [led_by(NEXT, 1, other)])
        await trio.testing.wait_all_tasks_blocked()
        assert not raised, "another partition's leader is nothing to it"
        gone = encode_record(RemoveTopic(topic_id(name))) if is_deleted else led_by(NEXT, 1, name)
        store.apply(4, 1, [gone])
        await trio.testing.wait_all_tasks_blocked()
        assert [type(each) for each in raised] == [kind]
        nursery.cancel_scope.cancel()
