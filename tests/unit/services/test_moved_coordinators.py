"""A decided transaction goes through several coordinators, and partitions forget its producer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import trio

from paceline.errors import DuplicateSequence, NotEnoughReplicas, NotLeader
from paceline.types import LeaderEpoch
from paceline.wire.batch_header import read_header
from paceline.wire.end_marker import is_end_marker
from paceline.wire.peer.names import GroupName, PartitionName
from paceline.wire.peer.transactions import (
    AppendStaged,
    MarkersWritten,
    SettleOffsets,
    WriteMarkers,
)
from paceline.wire.records import decode_records
from paceline_node.replication.transaction_gate import MarkerOrder
from paceline_node.services.transactions.ending_signal import EndingSignal
from paceline_node.services.transactions.transaction_endings import TransactionEndings
from paceline_node.storage.producer_state import key_of_id
from paceline_node.transaction_names import Family, TransactionKey
from paceline_node.transactions.engine import TransactionEngine
from paceline_node.transactions.records import Staged, StagedOffset
from tests.sim.transactions.places import Place
from tests.unit.transactions.desk import P0, P1, Desk

KEY = TransactionKey(Family.CURSUS, "t")


class Cluster:
    """Two partitions with their real producer tables, of which P1 has no leader at first, and the
    coordinator's real engine. ``sent``: the partitions that were asked to store something;
    ``refuses``: those that have too few replicas."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.led_epoch = 1
        self.places = {P0: Place(0, ""), P1: Place(1, "")}
        self.leaders = {P0: 1, P1: -1}
        self.sent: list[PartitionName] = []
        self.began_ms: list[int] = []
        self.groups_answer = True
        self.refuses: set[PartitionName] = set()
        self.image = self

    # --- metadata ---------------------------------------------------------------------------------

    def partition(self, topic: str, number: int) -> Any:
        leader = self.leaders[PartitionName(topic, number)]
        return SimpleNamespace(leader=leader, leader_epoch=LeaderEpoch(0))

    def find_topic(self, topic: str) -> Any:
        return SimpleNamespace(topic_id=UUID(int=1), partitions={0: self, 1: self})

    async def wait_offset(self, offset: int, timeout_s: float) -> Cluster:
        return self

    # --- the coordinator --------------------------------------------------------------------------

    def machines(self) -> Sequence[tuple[int, int, TransactionEngine]]:
        return [(0, 0, self.desk.engine)]

    def replica(self, number: int) -> Any:
        return self

    async def perform(
        self, number: int, scope: object, command: Callable[[TransactionEngine], Any], **_: object
    ) -> Any:
        await trio.lowlevel.checkpoint()
        return command(self.desk.engine)

    def decide(self, *staged: Staged, offsets: Sequence[StagedOffset] = ()) -> None:
        engine = self.desk.engine
        self.desk.init(KEY)
        engine.staging.begin(KEY, 0)
        engine.staging.stage(KEY, 0, staged)
        if offsets:
            engine.staging.stage_offsets(KEY, 0, offsets)
        engine.staging.end(KEY, 0, commits=True, pending=engine.store.transactions[KEY])

    async def coordinate(self, seconds: float) -> None:
        """A coordinator that knows nothing but the log works for so long."""
        self.desk.fail_over()
        self.led_epoch += 2
        host = SimpleNamespace(buggify=lambda _: False)
        env = SimpleNamespace(host=host, cluster_ms=self.desk.wall_ms)
        me = cast(Any, self)
        ends = TransactionEndings(cast(Any, env), me, me, me, EndingSignal())
        with trio.move_on_after(seconds):
            await ends.run()

    # --- other nodes ------------------------------------------------------------------------------

    async def append_staged(self, node: int, order: AppendStaged, batch: bytearray) -> None:
        await trio.lowlevel.checkpoint()
        where = PartitionName(order.topic, order.partition)
        self.sent.append(where)
        self.began_ms.append(order.began_ms)
        if where in self.refuses:
            raise NotEnoughReplicas("one in-sync replica, 2 required")
        place, header = self.places[where], read_header(batch)
        if order.began_ms >= 0 and place.table.producer(header.producer_id) is None:
            for _, data in place.batches:
                if read_header(data).producer_id == header.producer_id:
                    raise DuplicateSequence("forgotten")
        ticket = place.gate.ticket(header.producer_id, header.producer_epoch, begins_at=0)
        ticket.confirm(order.coordinator_epoch)
        place.produce(batch, ticket)

    async def write_markers(self, node: int, order: WriteMarkers) -> MarkersWritten:
        await trio.lowlevel.checkpoint()
        for each in order.partitions:
            marker = MarkerOrder(
                order.producer_id,
                order.producer_epoch,
                order.serial,
                order.commits,
                order.coordinator_epoch,
            )
            where = PartitionName(each.topic, each.partition)
            self.places[where].end_transaction(marker, 0)
        count = len(order.partitions)
        return MarkersWritten((0,) * count, ("",) * count)

    async def settle_offsets(self, order: SettleOffsets) -> None:
        await trio.lowlevel.checkpoint()
        if not self.groups_answer:
            raise NotLeader("__groups/0 has no leader")

    def forget_producers(self, where: PartitionName) -> None:
        """As a quota, or ``log.producer_ttl_ms``, would have it, by a record in the log."""
        place = self.places[where]
        known = [key_of_id(number) for number in range(5000, 5010)]
        batch = place.table.eviction([key for key in known if place.table.state(key)], 1)
        place._append(batch)
        assert not any(place.table.state(key) for key in known)

    def values(self, where: PartitionName) -> list[bytes | None]:
        """What readers of committed records see."""
        place = self.places[where]
        assert not place.table.transactions.open
        return [
            record.value
            for _, data in place.batches
            if not is_end_marker(read_header(data)) and not read_header(data).is_extended
            for record in decode_records(data, 0)
        ]


def record(where: PartitionName, sequence: int) -> Staged:
    return Staged(where.topic, where.partition, sequence, 5, None, b"v%d" % sequence)


async def test_no_partition_stores_twice_what_another_one_holds_up(autojump_clock: object) -> None:
    """Each forgot the producer of what it had stored, while the other one had no leader; the next
    coordinator sent it again."""
    cluster = Cluster()
    cluster.decide(record(P0, 1), record(P1, 2), record(P0, 3))
    await cluster.coordinate(5)
    assert cluster.values(P0) == [b"v1", b"v3"]
    for _ in range(2):
        cluster.forget_producers(P0)
        await cluster.coordinate(5)
    cluster.leaders[P1] = 1
    cluster.forget_producers(P0)
    await cluster.coordinate(5)
    assert not cluster.desk.engine.store.prepared
    assert cluster.values(P0) == [b"v1", b"v3"]
    assert cluster.values(P1) == [b"v2"]
    assert cluster.sent == [P0, P1]
    cluster.desk.check_fold()
    assert not cluster.desk.engine.store.marked, "what is noted goes with the transaction"


async def test_nothing_is_stored_twice_that_a_group_holds_up(autojump_clock: object) -> None:
    cluster = Cluster()
    cluster.groups_answer, cluster.leaders[P1] = False, 1
    offset = StagedOffset(GroupName("cursus", "readers", "in"), "in", 0, 7)
    cluster.decide(record(P0, 1), record(P1, 2), offsets=[offset])
    await cluster.coordinate(5)
    for where in (P0, P1):
        cluster.forget_producers(where)
    cluster.groups_answer = True
    await cluster.coordinate(5)
    assert not cluster.desk.engine.store.prepared
    assert [cluster.values(where) for where in (P0, P1)] == [[b"v1"], [b"v2"]]


async def test_the_next_transaction_of_an_id_is_stored_where_the_last_one_was(
    autojump_clock: object,
) -> None:
    """Though nothing of what was noted of that had been forgotten."""
    cluster = Cluster()
    cluster.decide(record(P0, 1), record(P1, 2))
    await cluster.coordinate(5)
    noted = cluster.desk.batches[-1]
    cluster.leaders[P1] = 1
    await cluster.coordinate(5)
    cluster.desk.write((), noted)
    assert cluster.desk.engine.store.marked
    engine = cluster.desk.engine
    engine.staging.begin(KEY, 0)
    engine.staging.stage(KEY, 0, [record(P0, 3)])
    engine.staging.end(KEY, 0, commits=True)
    await cluster.coordinate(5)
    assert cluster.values(P0) == [b"v1", b"v3"]
    cluster.desk.check_fold()
    assert not cluster.desk.engine.store.marked


async def test_a_transaction_that_nothing_holds_up_is_not_noted(autojump_clock: object) -> None:
    cluster = Cluster()
    cluster.leaders[P1] = 1
    cluster.decide(record(P0, 1), record(P1, 2))
    before = len(cluster.desk.batches)
    await cluster.coordinate(5)
    completion, dropped = cluster.desk.batches[before:]
    assert (len(completion), len(dropped)) == (1, 2)


async def test_nothing_is_stored_twice_that_nobody_had_noted_yet(autojump_clock: object) -> None:
    """A coordinator was lost at once, and there was no other one for a long time."""
    cluster = Cluster()
    cluster.decide(record(P0, 1), record(P1, 2))
    await cluster.coordinate(0.5)
    assert not cluster.desk.engine.store.marked
    cluster.forget_producers(P0)
    cluster.desk.time += 60
    cluster.leaders[P1] = 1
    await cluster.coordinate(5)
    assert not cluster.desk.engine.store.prepared
    assert [cluster.values(where) for where in (P0, P1)] == [[b"v1"], [b"v2"]]


async def test_nothing_is_stored_twice_by_a_coordinator_that_is_refused_for_long(
    autojump_clock: object,
) -> None:
    """It took over at once, and asked no log for as long as it tried: what it goes by is the
    partition's memory at each try, not at its first one."""
    cluster = Cluster()
    cluster.decide(record(P0, 1), record(P1, 2))
    await cluster.coordinate(0.5)
    cluster.refuses.add(P0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.coordinate, 10)
        await trio.sleep(5)
        assert P0 in cluster.sent[2:]
        cluster.desk.time += 66
        cluster.forget_producers(P0)
        cluster.refuses.clear()
        cluster.leaders[P1] = 1
    assert not cluster.desk.engine.store.prepared
    assert [cluster.values(where) for where in (P0, P1)] == [[b"v1"], [b"v2"]]


async def test_a_log_is_asked_where_the_coordinator_was_set_back(autojump_clock: object) -> None:
    """Only there may everybody have been told so long ago that partitions have forgotten it."""
    cluster = Cluster()
    cluster.decide(record(P0, 1), record(P1, 2))
    began_ms = cluster.desk.engine.store.transactions[KEY].began_ms
    decided = len(cluster.desk.batches)
    cluster.leaders[P1] = 1
    await cluster.coordinate(5)
    cluster.desk.set_back(decided)
    await cluster.coordinate(5)
    assert cluster.began_ms == [-1, -1, began_ms, began_ms]
