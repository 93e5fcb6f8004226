"""The tasks that end transactions: how they are found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import trio
import trio.testing

from paceline.errors import DuplicateSequence, NotEnoughReplicas, OutOfOrderSequence
from paceline.types import LeaderEpoch
from paceline.wire.batch_header import read_header
from paceline.wire.peer.names import GroupName, PartitionName
from paceline.wire.peer.transactions import (
    AppendStaged,
    MarkersWritten,
    SettleOffsets,
    WriteMarkers,
)
from paceline_node.services.transactions.ending_signal import EndingSignal
from paceline_node.services.transactions.transaction_endings import TransactionEndings
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.endings import Ending
from paceline_node.transactions.engine import TransactionEngine
from paceline_node.transactions.records import Staged, StagedOffset
from tests.unit.transactions.desk import P0, P1, Desk


def coordinating_env() -> Any:
    """The world of a coordinator to which nothing happens."""
    return SimpleNamespace(host=SimpleNamespace(buggify=lambda _: False), cluster_ms=lambda: 0)


class Stuck:
    """The machines, of which one leads, and nothing that is asked of it is ever committed."""

    def __init__(self, engine: TransactionEngine) -> None:
        self._engine = engine
        self.asked = 0

    def machines(self) -> Iterator[tuple[int, int, TransactionEngine]]:
        yield 0, 0, self._engine

    def replica(self, number: int) -> Any:
        return SimpleNamespace(led_epoch=1)

    async def perform(self, *_: object, **__: object) -> None:
        self.asked += 1
        await trio.sleep_forever()


def prepare(desk: Desk, name: str) -> None:
    key = TransactionKey(Family.KAFKA, name)
    who = desk.init(key)
    desk.engine.producers.add_partitions(key, who, [P0])
    desk.engine.producers.end(key, who, commits=True, bumps=True)


async def test_transactions_under_way_are_not_looked_through_at_each_write() -> None:
    desk, walks = Desk(), 0
    found = desk.engine.endings

    def endings() -> list[TransactionKey]:
        nonlocal walks
        walks += 1
        return found()

    desk.engine.endings = endings  # type: ignore[method-assign]
    stuck = Stuck(desk.engine)
    news = EndingSignal()
    ends = TransactionEndings(
        cast(Any, None), cast(Any, None), cast(Any, stuck), cast(Any, None), news
    )
    for number in range(100):
        prepare(desk, f"early-{number}")
    async with trio.open_nursery() as nursery:
        await nursery.start(ends.run)
        await trio.testing.wait_all_tasks_blocked()
        assert (stuck.asked, walks) == (100, 1)
        for _ in range(50):  # other ids write
            desk.init()
            news.tell()
            await trio.testing.wait_all_tasks_blocked()
        assert (stuck.asked, walks) == (100, 1)
        prepare(desk, "late")
        news.tell()
        await trio.testing.wait_all_tasks_blocked()
        assert (stuck.asked, walks) == (101, 2)
        nursery.cancel_scope.cancel()


class Nodes:
    """A cluster in which P1 has a leader that refuses to append behind its first batch, until it is
    told otherwise. ``sent``: the first sequences of all batches that were sent, by partition."""

    def __init__(self) -> None:
        self.sent: dict[int, list[int]] = {0: [], 1: []}
        self.marked: list[PartitionName] = []
        self.refuses = True
        self.image = self
        self.leader, self.leader_epoch = 1, LeaderEpoch(3)

    def partition(self, topic: str, number: int) -> Nodes:
        return self

    def find_topic(self, topic: str) -> Any:
        return SimpleNamespace(topic_id=UUID(int=1), partitions={0: self, 1: self})

    async def wait_offset(self, offset: int, timeout_s: float) -> Nodes:
        return self

    async def append_staged(self, node: int, order: AppendStaged, batch: bytearray) -> None:
        await trio.lowlevel.checkpoint()
        sequence = read_header(batch).base_sequence
        self.sent[order.partition].append(sequence)
        if order.partition == 1 and sequence > 0 and self.refuses:
            raise NotEnoughReplicas("one in-sync replica, 2 required")

    async def write_markers(self, node: int, order: WriteMarkers) -> MarkersWritten:
        await trio.lowlevel.checkpoint()
        self.marked += [PartitionName(each.topic, each.partition) for each in order.partitions]
        count = len(order.partitions)
        return MarkersWritten((0,) * count, ("",) * count)


class Agreeing:
    """The machines; what is asked of them is so."""

    def replica(self, number: int) -> Any:
        return SimpleNamespace(led_epoch=1)

    async def perform(self, *_: object, **__: object) -> None:
        await trio.lowlevel.checkpoint()


class Deciding(Agreeing):
    """The machines of a coordinator that has decided ``ending``."""

    def __init__(self, ending: Ending) -> None:
        self._ending = ending

    def machines(self) -> Iterator[tuple[int, int, TransactionEngine]]:
        yield 0, 0, Desk().engine

    async def perform(self, *_: object, **__: object) -> Any:  # type: ignore[override]
        await trio.lowlevel.checkpoint()
        return self._ending


async def test_what_is_stored_is_not_sent_again_behind_a_partition_that_takes_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """But for the one batch that is refused there, once a second."""
    nodes = Nodes()
    env = coordinating_env()
    ends = TransactionEndings(
        env, cast(Any, nodes), cast(Any, Agreeing()), cast(Any, nodes), EndingSignal()
    )
    staged = tuple(
        Staged(where.topic, where.partition, -1, 5, None, bytes(500_000))
        for where in (P0, P1)
        for _ in range(4)
    )
    key = TransactionKey(Family.CURSUS, "t")
    ending = Ending(key, 1, ProducerIdentity(7, 0), True, staged, (P0, P1), (), (), 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends._mark, ending, (P0, P1), LeaderEpoch(1))
        await trio.sleep(60)
        assert nodes.sent[0] == [0, 1, 2, 3]
        assert nodes.marked == [P0]
        first, *again = nodes.sent[1]
        assert (first, set(again)) == (0, {1})
        assert 50 < len(again) < 80
        nodes.refuses = False
    assert nodes.sent[0] == [0, 1, 2, 3]
    assert nodes.sent[1][-3:] == [1, 2, 3]
    assert nodes.marked == [P0, P1]


async def test_what_an_unclean_election_took_is_stored_again(autojump_clock: object) -> None:
    """The coordinator went on at the batch that it had come to, which the log refused for ever."""
    nodes = Nodes()
    log: list[int] = []

    async def append_staged(node: int, order: AppendStaged, batch: bytearray) -> None:
        await trio.lowlevel.checkpoint()
        sequence = read_header(batch).base_sequence
        if sequence == 2 and nodes.refuses:
            nodes.refuses = False
            log.clear()
            raise NotEnoughReplicas("the leader died")
        if sequence < len(log):
            raise DuplicateSequence("stored already")
        if sequence > len(log):
            raise OutOfOrderSequence(f"sequence {sequence}, expected {len(log)}")
        log.append(sequence)

    nodes.append_staged = append_staged  # type: ignore[method-assign]
    env = coordinating_env()
    ends = TransactionEndings(
        env, cast(Any, nodes), cast(Any, Agreeing()), cast(Any, nodes), EndingSignal()
    )
    staged = tuple(Staged(P1.topic, P1.partition, -1, 5, None, bytes(500_000)) for _ in range(4))
    key = TransactionKey(Family.CURSUS, "t")
    ending = Ending(key, 1, ProducerIdentity(7, 0), True, staged, (P1,), (), (), 0)
    with trio.fail_after(60):
        await ends._mark(ending, (P1,), LeaderEpoch(1))
    assert log == [0, 1, 2, 3]
    assert nodes.marked == [P1]


class Leading:
    """The machines of a coordinator; all that is asked of them is committed at once."""

    def __init__(self, engine: TransactionEngine) -> None:
        self._engine = engine
        self.led_epoch = 1

    def machines(self) -> Iterator[tuple[int, int, TransactionEngine]]:
        yield 0, 0, self._engine

    def replica(self, number: int) -> Any:
        return self

    async def perform(
        self, number: int, scope: object, command: Callable[[TransactionEngine], Any], **_: object
    ) -> Any:
        await trio.lowlevel.checkpoint()
        return command(self._engine)


async def test_what_was_committed_first_is_stored_first(autojump_clock: object) -> None:
    """Though it waits longer for its next try than what was committed since."""
    await check_order(coordinates_anew=False)


async def test_who_coordinates_anew_keeps_the_order(autojump_clock: object) -> None:
    """The leadership went away and came back while all were waiting."""
    await check_order(coordinates_anew=True)


async def check_order(*, coordinates_anew: bool) -> None:
    nodes, desk = Nodes(), Desk()
    order: list[int] = []

    async def append_staged(node: int, there: AppendStaged, batch: bytearray) -> None:
        await trio.lowlevel.checkpoint()
        if nodes.refuses:
            raise NotEnoughReplicas("one in-sync replica, 2 required")
        order.append(read_header(batch).producer_id)

    nodes.append_staged = append_staged  # type: ignore[method-assign]
    env = coordinating_env()
    leading = Leading(desk.engine)
    news = EndingSignal()
    ends = TransactionEndings(env, cast(Any, nodes), cast(Any, leading), cast(Any, nodes), news)
    decided: list[int] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(ends.run)
        for number in range(6):
            key = TransactionKey(Family.CURSUS, f"t{number}")
            decided.append(desk.init(key).producer_id)
            desk.engine.staging.begin(key, 0)
            desk.engine.staging.stage(key, 0, [Staged(P1.topic, P1.partition, 1, 5, None, b"v")])
            desk.engine.staging.end(key, 0, commits=True)
            news.tell()
            await trio.sleep(0.7)
        await trio.sleep(0.08)  # the first one has just tried again
        if coordinates_anew:
            leading.led_epoch = 3
            news.tell()
            await trio.testing.wait_all_tasks_blocked()
        nodes.refuses = False
        await trio.sleep(3)
        nursery.cancel_scope.cancel()
    assert order == decided
    assert not desk.engine.store.prepared


async def test_offsets_wait_for_no_partition(autojump_clock: object) -> None:
    """A group has the offsets of a transaction though one of its partitions has no leader."""
    nodes = Nodes()
    nodes.leader = -1
    settled: list[str] = []

    async def settle_offsets(order: SettleOffsets) -> None:
        await trio.lowlevel.checkpoint()
        settled.append(order.group.group)

    nodes.settle_offsets = settle_offsets  # type: ignore[attr-defined]
    env = coordinating_env()
    where = GroupName("cursus", "readers", "in")
    offset = StagedOffset(where, "in", 0, 7)
    key = TransactionKey(Family.CURSUS, "t")
    ending = Ending(key, 1, ProducerIdentity(7, 0), True, (), (P0,), (), (offset,), 0)
    ends = TransactionEndings(
        env, cast(Any, nodes), cast(Any, Deciding(ending)), cast(Any, nodes), EndingSignal()
    )
    with trio.move_on_after(60):
        await ends._attempt(key)
    assert settled == ["readers"]
    assert nodes.marked == []
