"""A partition that asks a transaction coordinator which was deposed and does not know yet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
import trio.testing

from paceline.errors import CoordinatorNotAvailable, NotCoordinator, NotLeader
from paceline.types import Acks, LeaderEpoch
from paceline.wire.batch import build_batch
from paceline.wire.batch_header import TRANSACTIONAL, BatchHeader, verify
from paceline.wire.frame import Frame, Kind
from paceline.wire.peer.transactions import TransactionVerified
from paceline.wire.records import Record
from paceline_node.replication.partition import Partition, ProduceResult
from paceline_node.replication.transaction_gate import MarkerOrder
from paceline_node.services.future import Future
from paceline_node.services.transactions.transaction_rpc import TransactionRpc
from paceline_node.services.transactions.transactional_produce import TransactionalProduce
from paceline_node.transaction_names import Family, TransactionKey
from tests.sim.replication.memory_cluster import RECORDS, memory_cluster
from tests.unit.services.test_transaction_rpc import HERE, metadata

KEY = TransactionKey(Family.KAFKA, "payments")
SERIAL, OLD, NEW = 4, 2, 3
MOVES = 2


class Coordinator:
    """Confirms whatever it is asked, as the leader of ``epoch``."""

    def __init__(self) -> None:
        self.epoch = LeaderEpoch(OLD)
        self.asked = 0
        self.meanwhile: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

    async def call(self, node: int, api: int, *words: object, **options: object) -> Frame:
        self.asked += 1
        await trio.sleep(1.0)
        await self.meanwhile()
        body = TransactionVerified(SERIAL, self.epoch).pack()
        return Frame(Kind.RESPONSE, api, 1, body, memoryview(b""))


def written(sequence: int) -> tuple[bytearray, list[BatchHeader]]:
    data = build_batch(
        [Record(value=b"v")],
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
        timestamp_ms=1,
        flags=TRANSACTIONAL,
    )
    return data, [verify(memoryview(data), 0)]


async def write(produces: TransactionalProduce, partition: Partition, sequence: int) -> int:
    answer: Future[ProduceResult] = Future()
    data, headers = written(sequence)
    produces.produce(
        partition,
        KEY,
        data,
        headers,
        adds=False,
        acks=Acks.ALL,
        timeout_s=10.0,
        done=answer.deliver,
    )
    return (await answer.wait()).last_offset


async def end(partition: Partition, coordinator_epoch: int) -> int:
    answer: Future[ProduceResult] = Future()
    order = MarkerOrder(7, 0, SERIAL, False, coordinator_epoch)
    partition.end_transaction(order, timeout_s=10.0, done=answer.deliver)
    return (await answer.wait()).last_offset


def produces_by(coordinator: Coordinator) -> TransactionalProduce:
    nothing = cast("Any", None)
    return TransactionalProduce(
        TransactionRpc(
            nothing, HERE, metadata(), cast("Any", coordinator), nothing, nothing, nothing
        )
    )


async def test_its_word_opens_nothing_that_its_successor_has_ended(autojump_clock: object) -> None:
    """A batch that was late in the network would begin what nobody will ever end."""
    async with memory_cluster(1) as cluster, trio.open_nursery() as nursery:
        partition = await cluster.written(RECORDS[:1], replicas=1)
        coordinator = Coordinator()
        produces = produces_by(coordinator)
        await nursery.start(produces.run)
        await write(produces, partition, 0)
        marker = await end(partition, NEW)
        with pytest.raises(NotCoordinator, match="coordinator epoch 2"):
            await write(produces, partition, 1)
        assert partition.last_stable_offset == partition.log_end_offset == marker + 1
        coordinator.epoch = LeaderEpoch(NEW)
        assert await write(produces, partition, 1) == marker + 1
        nursery.cancel_scope.cancel()


async def test_a_write_is_held_up_while_its_leader_gets_a_new_epoch(autojump_clock: object) -> None:
    """The coordinator's answer came in the epoch before. The transaction is open all the same, so
    the coordinator is asked again."""
    async with memory_cluster(2) as cluster, trio.open_nursery() as nursery:
        partition = await cluster.written(RECORDS[:1], replicas=2)
        leader, epoch = partition.leader, partition.leader_epoch
        coordinator = Coordinator()

        async def move_and_return() -> None:
            if coordinator.asked <= MOVES:
                for node in (cluster.follower().node_id, leader):
                    cluster.elect("t", node)
                    await cluster.wait(lambda: cluster.leader("t") is not None)

        coordinator.meanwhile = move_and_return
        produces = produces_by(coordinator)
        await nursery.start(produces.run)
        nursery.start_soon(write, produces, partition, 0)
        await trio.testing.wait_all_tasks_blocked()
        assert await write(produces, partition, 1) == 2, "in order"
        assert partition.leader_epoch == epoch + 2 * MOVES
        assert coordinator.asked == MOVES + 1
        nursery.cancel_scope.cancel()


async def test_a_write_that_its_leadership_lost_is_sent_to_the_next(autojump_clock: object) -> None:
    async with memory_cluster(2) as cluster, trio.open_nursery() as nursery:
        partition = await cluster.written(RECORDS[:1], replicas=2)
        coordinator = Coordinator()

        async def move() -> None:
            cluster.elect("t", cluster.follower().node_id)
            await cluster.wait(lambda: not partition.is_leader)

        coordinator.meanwhile = move
        produces = produces_by(coordinator)
        await nursery.start(produces.run)
        with pytest.raises(NotLeader):
            await write(produces, partition, 0)
        assert coordinator.asked == 1
        nursery.cancel_scope.cancel()


async def test_nobody_is_asked_once_the_node_stops(autojump_clock: object) -> None:
    """A connection that ends last may still bring a batch: it is refused, for others to take."""
    async with memory_cluster(1) as cluster, trio.open_nursery() as nursery:
        partition = await cluster.written(RECORDS[:1], replicas=1)
        produces = produces_by(Coordinator())
        await nursery.start(produces.run)
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(CoordinatorNotAvailable, match="this node stops"):
                await write(produces, partition, 0)
    assert partition.log_end_offset == len(RECORDS[:1])
