"""Requests between nodes that are about transactions: to one that never answers, which end when it
leads no more, and to a coordinator whose metadata are older than the asking node's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast
from uuid import UUID

import msgpack
import pytest
import trio
import trio.testing

from paceline.errors import (
    CoordinatorNotAvailable,
    InvalidTransactionState,
    LeaderChangedAfterAppend,
    PacelineError,
)
from paceline.types import LeaderEpoch, NodeId, PartitionEpoch, TopicId
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.peer import transactions as wire
from paceline.wire.peer.api import PeerApi
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
from paceline_node.transactions.sinks import SinkTransaction
from tests.unit.transactions.desk import Desk
from tests.unit.transactions.test_sinks import begin, commit, key_of

HERE, SILENT, NEXT = NodeId(0), NodeId(1), NodeId(2)
NAMES = ("orders", TRANSACTIONS_TOPIC, GROUPS_TOPIC)
WHO = ProducerIdentity(7, 0)


class Silence:
    """Links over which nobody answers."""

    async def call(self, *words: object, **options: object) -> None:
        await trio.sleep_forever()


def topic_id(name: str) -> TopicId:
    return TopicId(UUID(int=1 + NAMES.index(name)))


def led_by(leader: NodeId, epoch: int, name: str, topic: TopicId | None = None) -> bytes:
    replicas = (SILENT, NEXT)
    return encode_record(
        PartitionRegistration(
            topic or topic_id(name),
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


class Coordinator:
    """A node that coordinates transactions, over links that carry what they are given."""

    def __init__(self, store: MetadataStore) -> None:
        self.desk = Desk()
        self.led_epoch = 3
        nothing = cast("Any", None)
        here = cast("Any", self)
        self._handlers: dict[PeerApi, Any] = {}
        TransactionRpc(nothing, SILENT, store, nothing, nothing, here, nothing).register(here)

    def register(self, api: PeerApi, handler: object) -> None:
        self._handlers[api] = handler

    async def call(self, node: NodeId, api: PeerApi, body: Message, *_: object, **__: Any) -> Frame:
        return Frame(0, api, 0, await self.ask(api, body.pack()), memoryview(b""))

    async def ask(self, api: PeerApi, body: list[Any]) -> list[Any]:
        sent = Frame(0, api, 0, msgpack.unpackb(msgpack.packb(body)), memoryview(b""))
        answer, _payload = await self._handlers[api](None, sent)
        found: list[Any] = answer.pack()
        return found

    async def perform(self, _number: int, _scope: object, command: Any, *, commit_s: float) -> Any:
        return command(self.desk.engine)

    def replica(self, _number: int) -> Coordinator:
        return self


async def test_the_leader_says_which_topic_it_writes_to() -> None:
    """The coordinator knew of the new topic later, and half a batch was committed."""
    store = metadata()
    coordinator = Coordinator(metadata())
    desk = coordinator.desk
    nothing = cast("Any", None)
    rpc = TransactionRpc(nothing, HERE, store, cast("Any", coordinator), nothing, nothing, nothing)
    attempts = [begin(desk, partition=number) for number in range(2)]
    new = TopicId(UUID(int=77))
    where = PartitionName("orders", 0)

    async def write(attempt: SinkTransaction, wanted: TopicId) -> None:
        key = key_of(attempt)
        await rpc.verify(key, attempt.identity, where, adds=True, topic_id=wanted)
        assert desk.engine.store.transactions[key].metadata_offset == store.image.offset

    await write(attempts[0], topic_id("orders"))
    made = (RemoveTopic(topic_id("orders")), Topic(new, "orders", 2))
    store.apply(3, 1, [*map(encode_record, made), led_by(HERE, 0, "orders", new)])
    await write(attempts[1], new)
    with pytest.raises(InvalidTransactionState, match="orders was deleted and made anew"):
        commit(desk, *attempts)


async def test_a_leader_of_an_older_version_says_no_topic() -> None:
    store = metadata()
    coordinator = Coordinator(store)
    desk = coordinator.desk
    attempt = begin(desk)
    old = wire.VerifyTransaction(
        *("sink", attempt.name, attempt.identity.producer_id, attempt.identity.epoch),
        *("orders", 0, None, True),
    ).pack()[:8]
    assert await coordinator.ask(PeerApi.VERIFY_TRANSACTION, old)
    [known] = desk.engine.store.transactions[key_of(attempt)].topics
    assert known.topic_id == topic_id("orders")
