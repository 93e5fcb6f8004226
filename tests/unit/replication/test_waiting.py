"""Waiters by offset, pending produce requests, sequences of one request."""

from __future__ import annotations

import math

import pytest
import trio
import trio.testing

from paceline.errors import DuplicateSequence, OutOfOrderSequence, PacelineError, RequestTimedOut
from paceline.types import LeaderEpoch, NodeId
from paceline.wire.batch import build_batch, validate_client_batches
from paceline.wire.batch_header import BatchHeader
from paceline.wire.records import Record
from paceline_node.net.deadlines import Deadlines
from paceline_node.replication.pending_produces import (
    PendingProduce,
    PendingProduces,
    ProduceResult,
)
from paceline_node.replication.sequences import NEW, SequenceFence, judge
from paceline_node.replication.waiters import AckWatchers, OffsetWaiters
from paceline_node.storage.producers import ProducerTable


def waiters() -> tuple[OffsetWaiters[str], list[str]]:
    return OffsetWaiters(), []


def test_waiters_are_called_by_offset_then_by_age_once() -> None:
    waiting, told = waiters()
    for offset, name in ((5, "five"), (3, "three"), (5, "five too"), (9, "nine")):
        waiting.add(offset, name, told.append)
    waiting.advance(3)
    assert told == []
    waiting.advance(6)
    assert told == ["three", "five", "five too"]
    waiting.advance(6)
    assert len(waiting) == 1


def test_cancelled_waiters_are_not_called() -> None:
    waiting, told = waiters()
    waiter = waiting.add(1, "gone", told.append)
    waiting.add(2, "here", told.append)
    waiting.cancel(waiter)
    waiting.cancel(waiter)
    waiting.advance(10)
    assert told == ["here"]
    waiting.cancel(waiter)


def test_a_callback_may_wait_again() -> None:
    waiting, told = waiters()

    def again(name: str) -> None:
        told.append(name)
        if len(told) < 3:
            waiting.add(len(told), name, again)

    waiting.add(0, "x", again)
    waiting.advance(3)
    assert told == ["x", "x", "x"]


def test_those_whose_deadline_has_passed_are_taken_out_untold() -> None:
    waiting, told = waiters()
    assert waiting.earliest_deadline() == math.inf
    waiting.add(1, "late", told.append, 9.0)
    waiting.add(2, "early", told.append, 4.0)
    waiting.add(3, "middle", told.append, 6.0)
    assert waiting.earliest_deadline() == 4.0
    assert waiting.expire(5.0) == ["early"]
    assert waiting.earliest_deadline() == 6.0
    waiting.advance(2)
    assert told == ["late"]
    assert waiting.drain() == ["middle"]
    assert waiting.expire(100.0) == []


async def test_pending_produces_end_each_in_one_way(
    autojump_clock: trio.testing.MockClock,
) -> None:
    deadlines = Deadlines()
    answers: dict[str, object] = {}

    def request(name: str, last_offset: int) -> PendingProduce:
        def done(answer: ProduceResult | PacelineError) -> None:
            assert name not in answers
            answers[name] = True if isinstance(answer, ProduceResult) else type(answer)

        return PendingProduce(0, last_offset, 2, done, is_duplicate=False)

    def succeed(request: PendingProduce) -> None:
        request.done(ProduceResult(0, request.last_offset, LeaderEpoch(1), 0, 0, duplicate=False))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        pending = PendingProduces("t/0", trio.current_time, deadlines, succeed)
        pending.wait_committed(request("committed", 4), 5.0)
        pending.wait_committed(request("too late", 9), 1.0)
        pending.wait_durable(request("durable", 4), 5.0)
        pending.wait_simulated(request("simulated", 4), 5.0)
        pending.wait_simulated(request("never", 9), 2.0)
        pending.committed(5)
        pending.settle_simulated(5, 1)
        assert answers == {"committed": True}
        pending.settle_simulated(5, 2)
        pending.durable(5)
        await trio.sleep(3.0)
        assert answers == {
            "committed": True,
            "simulated": True,
            "durable": True,
            "too late": RequestTimedOut,
            "never": RequestTimedOut,
        }
        assert len(pending) == 0
        nursery.cancel_scope.cancel()


async def test_pending_produces_cost_one_deadline_however_many_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Under load there is always somebody who waits, in each of the ways."""
    deadlines = Deadlines()
    timed_out: list[float] = []

    def request() -> PendingProduce:
        return PendingProduce(
            0, 9, 2, lambda _: timed_out.append(trio.current_time()), is_duplicate=False
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        pending = PendingProduces("t/0", trio.current_time, deadlines, lambda _: None)
        asked: list[float] = []
        for turn in range(60):
            wait = (pending.wait_committed, pending.wait_durable, pending.wait_simulated)[turn % 3]
            wait(request(), 1.0)
            asked.append(trio.current_time())
            assert len(deadlines) == 1
            await trio.sleep(0.1)
        await trio.sleep(2.0)
        assert timed_out == pytest.approx([at + 1.0 for at in asked])
        assert len(deadlines) == len(pending) == 0
        nursery.cancel_scope.cancel()


async def test_many_that_nobody_can_commit_are_told_in_few_rounds(
    autojump_clock: trio.testing.MockClock,
) -> None:
    deadlines = Deadlines()
    told: list[float] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(deadlines.run)
        pending = PendingProduces("t/0", trio.current_time, deadlines, lambda _: None)
        begun = trio.current_time()
        for number in range(1000):
            request = PendingProduce(
                0, 9, 2, lambda _: told.append(trio.current_time()), is_duplicate=False
            )
            pending.wait_committed(request, 1.0 + number / 1000)
        await trio.sleep(3.0)
        assert told == pytest.approx([begun + 1.0 + n / 1000 for n in range(1000)], abs=0.03)
        assert len(set(told)) < 100
        nursery.cancel_scope.cancel()


def heads(*sequences: tuple[int, int], producer: int = 7) -> list[BatchHeader]:
    """Headers of batches of ``count`` records from ``sequence`` on."""
    data = bytearray()
    for sequence, count in sequences:
        records = [Record(-1, 0, None, b"v") for _ in range(count)]
        data += build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=sequence)
    return list(validate_client_batches(data))


def fence(*clock: float) -> SequenceFence:
    """One that has seen nothing, by a clock that shows these times."""
    times = iter(clock)
    return SequenceFence(lambda: next(times, 0.0))


def arrive(
    table: ProducerTable, fence: SequenceFence, header: BatchHeader, *, refused: bool = False
) -> None:
    """What a leader does with a request; ``refused``: it takes nothing for the moment."""
    fence.seen(table, [header])
    if not refused:
        judge(table, [header], fence)
        table.update(header, 0)


def test_what_overtakes_a_refused_batch_waits_for_it() -> None:
    """Taken, it would make the refused one impossible to store for ever: the producer is unknown,
    so any sequence may be its first."""
    table, gate = ProducerTable(), fence()
    first, second, third = heads((4, 2), (6, 1), (7, 1))
    arrive(table, gate, second, refused=True)
    arrive(table, gate, first, refused=True)
    for later in (second, third):
        with pytest.raises(OutOfOrderSequence, match="4 was sent before"):
            arrive(table, gate, later)
    assert len(table) == 0
    for each in (first, second, third):
        arrive(table, gate, each)
    assert len(gate) == 0


def test_a_new_epoch_begins_anew_and_an_old_one_lowers_nothing() -> None:
    table, gate = ProducerTable(), fence()
    old, low = heads((5, 1), (3, 1))
    new = heads((4, 1))[0]._replace(producer_epoch=1)
    arrive(table, gate, old, refused=True)
    arrive(table, gate, new, refused=True)
    arrive(table, gate, low, refused=True)
    arrive(table, gate, new)


def test_other_producers_and_later_leaderships_are_not_held_up() -> None:
    table, gate = ProducerTable(), fence()
    low, high = heads((0, 1), (1, 1))
    arrive(table, gate, low, refused=True)
    arrive(table, gate, heads((9, 1), producer=8)[0])
    gate.clear()
    arrive(table, gate, high)


def test_a_producer_that_gave_its_batch_up_can_go_on() -> None:
    low, high = heads((0, 1), (1, 1))
    table, gate = ProducerTable(), fence(0.0, 299.0, 299.0, 301.0, 301.0)
    arrive(table, gate, low, refused=True)
    with pytest.raises(OutOfOrderSequence):
        arrive(table, gate, high)
    arrive(table, gate, high)


def test_a_fence_stays_small() -> None:
    table, gate = ProducerTable(), fence()
    for producer in range(5000):
        arrive(table, gate, heads((0, 1), producer=producer)[0], refused=True)
    assert len(gate) == 4096
    arrive(table, gate, heads((1, 1), producer=0)[0])  # forgotten: as if it had not been seen
    with pytest.raises(OutOfOrderSequence):
        arrive(table, gate, heads((1, 1), producer=4999)[0])


def test_requests_without_producer_are_new() -> None:
    plain = validate_client_batches(build_batch([Record(-1, 0, None, b"v")]))
    assert judge(ProducerTable(), plain, fence()) is NEW


def test_known_batches_at_the_front_are_skipped() -> None:
    table = ProducerTable()
    known, new = heads((0, 2), (2, 3))
    table.update(known, 40)
    judgement = judge(table, [known, new], fence())
    assert judgement.duplicates == ((40, 41),)
    assert judgement.skip_bytes == known.size_bytes
    table.update(new, 42)
    assert judge(table, [known, new], fence()).skip_bytes == known.size_bytes + new.size_bytes


def test_batches_of_one_request_must_follow_each_other() -> None:
    table = ProducerTable()
    first, gap = heads((0, 2), (5, 1))
    with pytest.raises(OutOfOrderSequence):
        judge(table, [first, gap], fence())
    with pytest.raises(OutOfOrderSequence):
        judge(table, [first, *heads((2, 1), producer=8)], fence())
    table.update(first, 0)
    with pytest.raises(DuplicateSequence):
        judge(table, heads((1, 1)), fence())


# --- watchers of one node's progress -------------------------------------------------------------


def test_watchers_are_called_once_when_their_node_is_there() -> None:
    ends = {1: 0, 2: 0}
    told: list[str] = []
    watchers = AckWatchers(lambda node: ends[node])
    watchers.add(NodeId(1), 5, lambda: told.append("one at five"))
    watchers.add(NodeId(2), 5, lambda: told.append("two at five"))
    gone = watchers.add(NodeId(1), 1, lambda: told.append("cancelled"))
    watchers.cancel(gone)
    watchers.cancel(gone)
    ends[1] = 4
    watchers.notify(role_changed=False)
    assert told == []
    ends[1] = 5
    for _ in range(2):
        watchers.notify(role_changed=False)
    assert told == ["one at five"]
    for _ in range(2):
        watchers.notify(role_changed=True)
    assert told == ["one at five", "two at five"]


def test_a_watcher_may_cancel_another() -> None:
    told: list[str] = []
    watchers = AckWatchers(lambda _: 9)
    tokens: list[object] = []
    watchers.add(NodeId(1), 1, lambda: (told.append("first"), watchers.cancel(tokens[0])))
    tokens.append(watchers.add(NodeId(1), 99, lambda: told.append("second")))
    watchers.notify(role_changed=False)
    watchers.notify(role_changed=True)
    assert told == ["first"]


def test_whoever_waits_again_wakes_nobody_within_its_callback() -> None:
    waiters: OffsetWaiters[int] = OffsetWaiters()
    depth = deepest = 0
    seen: list[int] = []

    def again(number: int) -> None:
        nonlocal depth, deepest
        depth += 1
        deepest = max(deepest, depth)
        seen.append(number)
        waiters.add(7, number, seen.append)
        waiters.advance(6)
        depth -= 1

    for number in range(1000):
        waiters.add(5, number, again)
    waiters.advance(6)
    assert (deepest, seen) == (1, list(range(1000)))
    waiters.advance(8)
    assert seen == [*range(1000), *range(1000)]


def test_cancelled_waiters_cost_no_search_and_leave_no_trace() -> None:
    waiters: OffsetWaiters[int] = OffsetWaiters()
    called: list[int] = []
    entries = [waiters.add(number, number, called.append, number) for number in range(1000)]
    for entry in entries[1:]:
        waiters.cancel(entry)
        waiters.cancel(entry)
    assert len(waiters) == 1
    assert len(waiters._heap) < 200, "cancelled ones are swept out"
    assert waiters.earliest_deadline() == 0
    assert waiters.drain() == [0]
    waiters.advance(2000)
    assert (called, len(waiters), waiters.earliest_deadline()) == ([], 0, math.inf)
