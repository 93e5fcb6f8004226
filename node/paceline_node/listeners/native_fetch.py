"""Native FETCH and LIST_OFFSETS: slices of committed batches, with long poll.

A fetch that cannot be answered yet is parked as callbacks on its partitions and one deadline of a
shared timer; it costs no task. The answer's payload is ranges of segment files, sent by the kernel
where the connection allows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from paceline.errors import PacelineError
from paceline.types import Isolation, LeaderEpoch, OffsetSpec
from paceline.wire.frame import Frame
from paceline.wire.native import data as wire
from paceline.wire.native.data import (
    Fetch,
    FetchedPartition,
    FetchPartition,
    FetchReply,
    ListOffsets,
    ListOffsetsReply,
    OffsetFound,
    OffsetQuery,
)
from paceline_node.peers.deadlines import Deadline, Deadlines
from paceline_node.peers.transport import FilePart
from paceline_node.replication import lookups
from paceline_node.replication.lookups import FoundOffset, TimesNotKnown
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.records import RecordService
from paceline_node.storage.transactions import AbortedTransaction
from paceline_node.stretches import Work, at_once
from paceline_node.turns import Turns

Answer = Callable[[FetchReply, list[FilePart]], None]
Ends = dict[Partition, int]
_LOOK_AGAIN_S = 0.02
_WAKING_UNITS = 200
_NEXT_SLICE_S = 0.001
_ASKED_EVERY_S = 0.05
_TIMES_ASKED = 100
"""How long a lookup waits for a time index, in rounds."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Caps on what a client may ask for, in bytes and ms."""

    max_bytes: int = 50 * 1024 * 1024
    max_wait_ms: int = 30_000


class FetchHandler:
    """Reads for native clients."""

    def __init__(
        self,
        records: RecordService,
        deadlines: Deadlines,
        limits: FetchLimits,
        turns: Turns,
    ) -> None:
        self._records = records
        self._deadlines = deadlines
        self._limits = limits
        self._turns = turns
        self._spent = 0
        self._late: deque[tuple[int, Callable[[], None]]] = deque()

    def handle(self, frame: Frame, principal: Principal, answer: Answer) -> ParkedFetch | None:
        """Answer now, or return the fetch as parked: it answers by itself later, unless
        :meth:`ParkedFetch.abandon` is called because its connection ended."""
        return self.fetch(Fetch.unpack(frame.body), principal, answer)

    def fetch(self, request: Fetch, principal: Principal, answer: Answer) -> ParkedFetch | None:
        """As :meth:`handle`."""
        reply, parts, ready = at_once(self._reading(request, principal))
        if ready or request.max_wait_ms <= 0:
            self._count(request, reply)
            answer(reply, parts)
            return None
        wait_s = min(request.max_wait_ms, self._limits.max_wait_ms) / 1000
        return ParkedFetch(self, request, principal, answer, self._deadlines, wait_s)

    async def fetch_in_turns(
        self, request: Fetch, principal: Principal
    ) -> tuple[FetchReply, list[FilePart]]:
        """The answer to a request of many partitions, whose reading takes turns with others' work.
        Cancelled, it has done nothing."""
        wait_s = max(0, min(request.max_wait_ms, self._limits.max_wait_ms)) / 1000
        until = trio.current_time() + wait_s
        while True:
            ends: Ends = {}
            reply, parts, ready = await self._turns.run(self._reading(request, principal, ends))
            if ready or trio.current_time() >= until:
                self._count(request, reply)
                return reply, parts
            await self._anything_new(ends, request.isolation, until)

    async def _anything_new(self, ends: Ends, isolation: Isolation, until: float) -> None:
        """Return once there is more to read than ``ends`` tell, or at ``until``; but not at once,
        for looking again costs as much as it did."""
        woken = trio.Event()
        tokens: list[tuple[Partition, object]] = []

        def watch() -> Work[None]:
            for partition, end in ends.items():
                tokens.append((partition, partition.when_readable(end, woken.set, isolation)))
                yield 1

        try:
            with trio.move_on_at(until):
                await trio.sleep(_LOOK_AGAIN_S)
                await self._turns.run(watch())
                await woken.wait()
        finally:
            for partition, token in tokens:
                partition.cancel(token)

    def _reading(
        self, request: Fetch, principal: Principal, ends: Ends | None = None
    ) -> Work[tuple[FetchReply, list[FilePart], bool]]:
        """What can be answered now, and whether that is enough to answer at once. ``ends`` is told
        beyond which offset there would be more."""
        budget = min(request.max_bytes, self._limits.max_bytes)
        results = []
        parts: list[FilePart] = []
        ready = False
        total = 0
        permitted = None
        for wanted in request.partitions:
            yield 1
            try:
                if ends is not None:
                    self._note_end(ends, wanted, request.isolation)
                if wanted.topic != permitted:
                    self._records.permit(principal, Operation.CONSUME, wanted.topic)
                    permitted = wanted.topic
                result, part = self._read_one(wanted, request, budget - total, total == 0)
            except PacelineError as error:
                result, part = self._refusal(wanted, error), None
                ready = True
            results.append(result)
            if part is not None:
                parts.append(part)
                total += part.size
        ready = ready or total >= max(1, request.min_bytes)
        return FetchReply(tuple(results)), parts, ready

    def _note_end(self, ends: Ends, wanted: FetchPartition, isolation: Isolation) -> None:
        """Beyond what is there already: less than ``min_bytes`` does not wake a fetch again. A
        partition that is named twice is watched once."""
        partition = self._records.hosted(wanted.topic, wanted.partition)
        if partition is not None:
            end = max(wanted.offset, partition.readable_end(isolation))
            ends[partition] = min(end, ends.get(partition, end))

    def _count(self, request: Fetch, reply: FetchReply) -> None:
        for wanted, result in zip(request.partitions, reply.partitions, strict=True):
            partition = self._records.hosted(wanted.topic, wanted.partition)
            if result.records_bytes and partition is not None:
                # From the offset asked for: what its batch holds before it is not for the client.
                count = result.next_offset - wanted.offset
                partition.traffic.fetched(count, result.records_bytes)

    def _read_one(
        self, wanted: FetchPartition, request: Fetch, budget: int, first: bool
    ) -> tuple[FetchedPartition, FilePart | None]:
        partition = self._records.leader(
            wanted.topic, wanted.partition, current_leader_epoch=wanted.current_leader_epoch
        )
        read = partition.read(
            wanted.offset,
            min(wanted.max_bytes, max(budget, 1)),
            request.isolation,
            from_follower=request.own_replica,
        )
        found = read.slice
        # A batch larger than what is left of the budget travels alone, as the first (3.3 rule 11).
        part = None
        if found is not None and (first or found.size <= budget):
            part = FilePart(found.file, found.position, found.size)
        return (
            FetchedPartition(
                wanted.topic,
                wanted.partition,
                0,
                "",
                LeaderEpoch(read.leader_epoch),
                read.high_watermark,
                read.last_stable_offset,
                read.log_start_offset,
                0 if part is None else part.size,
                aborted=() if part is None else _told(read.aborted),
                next_offset=-1 if part is None or found is None else found.next_offset,
            ),
            part,
        )

    # --- waking ----------------------------------------------------------------------------------

    def wake(self, units: int, again: Callable[[], None]) -> None:
        """Call ``again``, which looks at ``units`` partitions: now, unless much of that was done
        just before. One append may wake any number of long polls, and must not wait for all."""
        if self._spent >= _WAKING_UNITS:
            self._late.append((units, again))
            return
        self._spend(units)
        again()

    def _spend(self, units: int) -> None:
        before, self._spent = self._spent, self._spent + units
        if before < _WAKING_UNITS <= self._spent:
            self._deadlines.after(_NEXT_SLICE_S, self._go_on)

    def _go_on(self) -> None:
        self._spent = 0
        while self._late and self._spent < _WAKING_UNITS:
            units, again = self._late.popleft()
            self._spend(units)
            again()

    def _refusal(self, wanted: FetchPartition, error: PacelineError) -> FetchedPartition:
        leader, leader_epoch = self._records.leader_to_tell(error, wanted.topic, wanted.partition)
        return FetchedPartition(
            wanted.topic,
            wanted.partition,
            int(error.code),
            str(error),
            leader_epoch,
            -1,
            -1,
            -1,
            0,
            leader=leader,
        )

    def list_offsets(self, request: ListOffsets, principal: Principal) -> ListOffsetsReply | None:
        """Offsets by time or symbol, each partition with its own error; None while a time index is
        made anew, which :meth:`list_offsets_in_turns` waits for."""
        reply, is_known = at_once(self._finding(request, principal))
        return reply if is_known else None

    async def list_offsets_in_turns(
        self, request: ListOffsets, principal: Principal
    ) -> ListOffsetsReply:
        """As :meth:`list_offsets`, of many partitions, taking turns with others' work. Some clients
        do not ask again, so a time index that is made anew is waited for, a few seconds long."""
        for _ in range(_TIMES_ASKED):
            reply, is_known = await self._turns.run(self._finding(request, principal))
            if is_known:
                break
            await trio.sleep(_ASKED_EVERY_S)
        return reply

    def _finding(
        self, request: ListOffsets, principal: Principal
    ) -> Work[tuple[ListOffsetsReply, bool]]:
        found: list[OffsetFound] = []
        is_known = True
        for query in request.partitions:
            yield 1
            try:
                found.append(self._find(query, request.isolation, principal))
            except TimesNotKnown as error:
                is_known = False
                found.append(self._not_found(query, error))
        return ListOffsetsReply(tuple(found)), is_known

    def _find(self, query: OffsetQuery, isolation: Isolation, principal: Principal) -> OffsetFound:
        """Raises TimesNotKnown."""
        try:
            self._records.permit(principal, Operation.DESCRIBE, query.topic)
            partition = self._records.leader(
                query.topic, query.partition, current_leader_epoch=query.current_leader_epoch
            )
            offset, timestamp_ms, epoch = _find_offset(partition, query, isolation)
        except TimesNotKnown:
            raise
        except PacelineError as error:
            return self._not_found(query, error)
        return OffsetFound(
            query.topic, query.partition, 0, "", offset, timestamp_ms, LeaderEpoch(epoch)
        )

    def _not_found(self, query: OffsetQuery, error: PacelineError) -> OffsetFound:
        leader, leader_epoch = self._records.leader_to_tell(error, query.topic, query.partition)
        return OffsetFound(
            query.topic,
            query.partition,
            int(error.code),
            str(error),
            -1,
            -1,
            leader_epoch,
            leader,
        )


def _told(aborted: Sequence[AbortedTransaction]) -> tuple[wire.AbortedTransaction, ...]:
    """By first offset, as readers need them."""
    firsts = sorted((each.first_offset, each.producer_id) for each in aborted)
    return tuple(wire.AbortedTransaction(producer_id, first) for first, producer_id in firsts)


def _find_offset(partition: Partition, query: OffsetQuery, isolation: Isolation) -> FoundOffset:
    if query.spec == OffsetSpec.EPOCH_END:
        return lookups.epoch_end(partition, query.epoch)
    if query.spec == OffsetSpec.AHEAD:
        return lookups.ahead(partition, query.after_offset, query.ahead_bytes)
    return lookups.find_offset(partition, query.spec, isolation)


class ParkedFetch:
    """A long poll: woken by any of its partitions or by its deadline."""

    __slots__ = (
        "_answer",
        "_deadline",
        "_handler",
        "_is_woken",
        "_principal",
        "_request",
        "_tokens",
    )

    def __init__(
        self,
        handler: FetchHandler,
        request: Fetch,
        principal: Principal,
        answer: Answer,
        deadlines: Deadlines,
        wait_s: float,
    ) -> None:
        self._handler = handler
        self._request = request
        self._principal = principal
        self._answer = answer
        self._tokens: list[tuple[Partition, object]] = []
        self._is_woken = False
        self._deadline: Deadline | None = deadlines.after(wait_s, self._expired)
        self._park()

    def _park(self) -> None:
        isolation = self._request.isolation
        ends: Ends = {}
        for wanted in self._request.partitions:
            self._handler._note_end(ends, wanted, isolation)
        for partition, end in ends.items():
            token = partition.when_readable(end, self._woken, isolation)
            self._tokens.append((partition, token))

    def _woken(self) -> None:
        if self._is_woken or self._deadline is None:
            return
        self._is_woken = True
        self._handler.wake(len(self._request.partitions), self._look)

    def _look(self) -> None:
        self._is_woken = False
        if self._deadline is None:
            return
        self._release_tokens()
        reply, parts, ready = at_once(self._handler._reading(self._request, self._principal))
        if ready:
            self._finish(reply, parts)
        else:
            self._park()

    def _expired(self) -> None:
        self._handler.wake(len(self._request.partitions), self._give_up)

    def _give_up(self) -> None:
        if self._deadline is None:
            return
        reply, parts, _ = at_once(self._handler._reading(self._request, self._principal))
        self._finish(reply, parts)

    def _finish(self, reply: FetchReply, parts: list[FilePart]) -> None:
        self.abandon()
        self._handler._count(self._request, reply)
        self._answer(reply, parts)

    def abandon(self) -> None:
        """Forget it without an answer; idempotent."""
        self._release_tokens()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _release_tokens(self) -> None:
        for partition, token in self._tokens:
            partition.cancel(token)
        self._tokens.clear()
