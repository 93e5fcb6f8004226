"""Reading from the partitions of a request, with long poll: one way for all protocols.

Partition by partition: who may read the topic (asked once for parts of one topic in a row), whether
this node leads, in the epoch that the client means, then the slice. A fetch that cannot be answered
yet is parked as callbacks on its partitions and one deadline of a shared timer; it costs no task.
What is found are ranges of segment files, which nobody has read yet.

Protocols that show decoded records, one after the other, open the topic, and scan a replica by what
they are given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import trio

from paceline.errors import CorruptMessage, PacelineError
from paceline.types import NO_EPOCH, Isolation, LeaderEpoch, TopicId
from paceline.values import dataclass
from paceline.wire.native.quotas import QuotaLimit
from paceline_node.env import Env
from paceline_node.loop_turns import Turns
from paceline_node.net.deadlines import Deadline, Deadlines
from paceline_node.replication.older_tier_reads import read_older
from paceline_node.replication.partition import Partition, ReadResult
from paceline_node.security.principals import Operation, Principal
from paceline_node.security.quotas import ClientQuotas
from paceline_node.services.partitions.partition_access import PartitionAccess, Refused
from paceline_node.services.partitions.readable_topic import ReadableTopic
from paceline_node.sliced_work import Work, at_once
from paceline_node.storage.tiered_storage import InOlderTier

__all__ = [
    "FetchLimits",
    "FetchService",
    "InOlderTier",
    "Outcome",
    "ParkedFetch",
    "ReadResult",
    "Wanted",
    "Wish",
]

_Ends = dict[Partition, int]
_LOOK_AGAIN_S = 0.02
_WAKING_UNITS = 200
_NEXT_SLICE_S = 0.001


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Caps on what a client may ask for."""

    max_bytes: int = 50 * 1024 * 1024
    max_wait_s: float = 30.0


class Wanted(NamedTuple):
    """From where to read a partition, about ``max_bytes``. ``current_leader_epoch`` and
    ``topic_id``: as the client thinks, -1 and None unchecked."""

    topic: str
    partition: int
    offset: int
    max_bytes: int
    current_leader_epoch: LeaderEpoch = NO_EPOCH
    topic_id: TopicId | None = None


class Wish(NamedTuple):
    """A request: it is answered once there are ``min_bytes`` to read, or an error to tell, or after
    ``wait_s``. ``max_bytes`` bounds all slices together, except for a first batch that is larger.
    With ``from_follower`` replicas answer, too."""

    principal: Principal
    parts: Sequence[Wanted]
    isolation: Isolation
    min_bytes: int
    max_bytes: int
    wait_s: float
    from_follower: bool = False


Outcome = ReadResult | Refused
"""What became of a part. A slice that found no room in the answer is None."""
Answer = Callable[[list[Outcome]], None]
_Read = tuple[list[Outcome], bool]
"""What can be answered now, and whether that is enough to answer at once."""


class FetchService:
    """Reads from the partitions that this node leads."""

    def __init__(
        self,
        env: Env,
        records: PartitionAccess,
        deadlines: Deadlines,
        limits: FetchLimits,
        turns: Turns,
        quotas: ClientQuotas,
    ) -> None:
        self._quotas = quotas
        self._env = env
        self._records = records
        self._deadlines = deadlines
        self._limits = limits
        self._turns = turns
        self._spent = 0
        self._late: deque[tuple[int, Callable[[], None]]] = deque()

    def open(self, principal: Principal, topic: str) -> ReadableTopic:
        """A topic, which need not exist, to read decoded records of. Raises AuthorizationFailed."""
        ask = partial(self._records.permit, principal, Operation.CONSUME, topic)
        ask()
        return ReadableTopic(topic, self._env, self._records, ask)

    def fetch(self, wish: Wish, answer: Answer) -> ParkedFetch | None:
        """Answer now, with one outcome for each part, in order; or return the fetch as parked: it
        answers by itself later, unless :meth:`ParkedFetch.abandon` is called because nobody waits
        for it any more. Raises InOlderTier for what :meth:`fetch_in_turns` alone can find."""
        outcomes, ready = at_once(self._reading(wish, raises_older=True))
        if ready or wish.wait_s <= 0:
            self._count(wish, outcomes)
            answer(outcomes)
            return None
        wait_s = min(wish.wait_s, self._limits.max_wait_s)
        return ParkedFetch(self, wish, outcomes, answer, self._deadlines, wait_s)

    async def fetch_in_turns(self, wish: Wish) -> list[Outcome]:
        """The answer to a request of many parts, whose reading takes turns with others' work.
        Cancelled, it has done nothing."""
        until = trio.current_time() + max(0.0, min(wish.wait_s, self._limits.max_wait_s))
        while True:
            ends: _Ends = {}
            outcomes, ready = await self._turns.run(self._reading(wish, ends))
            if ready or trio.current_time() >= until:
                await self._read_older(wish, outcomes)
                self._count(wish, outcomes)
                return outcomes
            await self._anything_new(ends, wish.isolation, until)

    def behind(self, wish: Wish, wanted: Wanted, offset: int, max_bytes: int) -> ReadResult:
        """What there is from ``offset`` on, at once: for one who was answered ``wanted`` and has
        found nothing there that its client may see. Raises as :meth:`PartitionAccess.leader` and
        :meth:`Partition.read`."""
        partition = self._records.leader(
            wanted.topic,
            wanted.partition,
            current_leader_epoch=wanted.current_leader_epoch,
            topic_id=wanted.topic_id,
        )
        further = wanted._replace(offset=offset, max_bytes=max_bytes)
        return _read(partition, further, wish, max_bytes)

    def corrupt(self, wanted: Wanted, found: ReadResult, error: CorruptMessage) -> PacelineError:
        """Somebody has read a slice that was found, and it does not hold: what to tell of it."""
        partition = self._records.hosted(wanted.topic, wanted.partition)
        if partition is None or found.slice is None:
            return error
        return partition.refuse(found.slice.next_offset - 1, error)

    async def _anything_new(self, ends: _Ends, isolation: Isolation, until: float) -> None:
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

    def _read_now(self, wish: Wish) -> _Read:
        return at_once(self._reading(wish))

    def _reading(
        self, wish: Wish, ends: _Ends | None = None, *, raises_older: bool = False
    ) -> Work[_Read]:
        """``ends`` is told beyond which offset there would be more."""
        budget = min(wish.max_bytes, self._limits.max_bytes)
        outcomes: list[Outcome] = []
        ready = False
        total = 0
        permitted = None
        for wanted in wish.parts:
            yield 1
            try:
                if ends is not None:
                    self._note_end(ends, wanted, wish.isolation)
                if wanted.topic != permitted:
                    self._records.permit(wish.principal, Operation.CONSUME, wanted.topic)
                    permitted = wanted.topic
                partition = self._records.leader(
                    wanted.topic,
                    wanted.partition,
                    current_leader_epoch=wanted.current_leader_epoch,
                    topic_id=wanted.topic_id,
                )
                read = _read(partition, wanted, wish, budget - total)
            except PacelineError as error:
                if raises_older and isinstance(error, InOlderTier):
                    raise
                outcomes.append(self._records.refusal(error, wanted.topic, wanted.partition))
                ready = True
                continue
            found = read.slice
            if found is not None:
                # A batch larger than what is left travels alone, as the first (DESIGN 2.2).
                if total and found.size > budget - total:
                    read = read._replace(slice=None)
                else:
                    total += found.size
            outcomes.append(read)
        return outcomes, ready or total >= max(1, wish.min_bytes)

    async def _read_older(self, wish: Wish, outcomes: list[Outcome]) -> None:
        """Wait for what was refused because an older tier has it, as far as there is room."""
        left = min(wish.max_bytes, self._limits.max_bytes) - sum(map(size_of, outcomes))
        for at, (wanted, outcome) in enumerate(zip(wish.parts, outcomes, strict=True)):
            if not isinstance(outcome, Refused) or not isinstance(outcome.error, InOlderTier):
                continue
            partition = self._records.hosted(wanted.topic, wanted.partition)
            if partition is None:
                continue
            most = min(wanted.max_bytes, max(left, 1))
            try:
                read = await read_older(partition, wanted.offset, most, wish.isolation)
            except PacelineError as error:
                outcomes[at] = self._records.refusal(error, wanted.topic, wanted.partition)
                continue
            outcomes[at] = read
            left -= size_of(read)

    def _note_end(self, ends: _Ends, wanted: Wanted, isolation: Isolation) -> None:
        """Beyond what is there already: less than ``min_bytes`` does not wake a fetch again. A
        partition that is named twice is watched once."""
        partition = self._records.hosted(wanted.topic, wanted.partition)
        if partition is not None:
            end = max(wanted.offset, partition.readable_end(isolation))
            ends[partition] = min(end, ends.get(partition, end))

    def _count(self, wish: Wish, outcomes: Sequence[Outcome]) -> None:
        self._quotas.spend(wish.principal, QuotaLimit.FETCH, sum(map(size_of, outcomes)))
        for wanted, outcome in zip(wish.parts, outcomes, strict=True):
            if isinstance(outcome, Refused) or outcome.slice is None:
                continue
            partition = self._records.hosted(wanted.topic, wanted.partition)
            if partition is not None:
                # From the offset asked for: what its batch holds before it is not for the client.
                count = outcome.slice.next_offset - wanted.offset
                partition.traffic.fetched(count, outcome.slice.size)

    # --- waking -----------------------------------------------------------------------------------

    def _wake(self, units: int, again: Callable[[], None]) -> None:
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


def aborted_in(read: ReadResult) -> Sequence[tuple[int, int]]:
    """Whose records in the slice readers of committed data must drop, as (first offset, producer
    id), in the order of the log."""
    if not read.aborted or read.slice is None:
        return ()
    return sorted([(each.first_offset, each.producer_id) for each in read.aborted])


class ParkedFetch:
    """A long poll: woken by any of its partitions or by its deadline.

    A wake that is maybe not enough looks only at the partitions that woke it. All are read again
    for the answer alone, which tells of all as they are then.
    """

    __slots__ = (
        "_answer",
        "_at",
        "_deadline",
        "_is_awake",
        "_is_enough",
        "_service",
        "_sizes",
        "_tokens",
        "_wish",
        "_woken",
    )

    def __init__(
        self,
        service: FetchService,
        wish: Wish,
        outcomes: Sequence[Outcome],
        answer: Answer,
        deadlines: Deadlines,
        wait_s: float,
    ) -> None:
        """``outcomes``: what there is by now, which is not enough."""
        self._service = service
        self._wish = wish
        self._answer = answer
        self._tokens: dict[Partition, object] = {}
        self._at: dict[Partition, list[int]] = {}
        self._sizes: list[int] = []
        self._woken: list[Partition] = []
        self._is_awake = False
        self._is_enough = wish.min_bytes <= 1 or len(wish.parts) == 1
        """Any wake is worth reading all for."""
        self._deadline: Deadline | None = deadlines.after(wait_s, self._expired)
        self._park(outcomes)

    def _park(self, outcomes: Sequence[Outcome]) -> None:
        self._is_awake = False
        self._woken.clear()
        self._at.clear()
        self._sizes = [size_of(outcome) for outcome in outcomes]
        for index, wanted in enumerate(self._wish.parts):
            partition = self._service._records.hosted(wanted.topic, wanted.partition)
            if partition is not None:
                self._at.setdefault(partition, []).append(index)
        for partition in self._at:
            self._watch(partition)

    def _watch(self, partition: Partition) -> None:
        """Beyond what is there already: less than ``min_bytes`` does not wake a fetch again. A
        partition that is named twice is watched once."""
        isolation, parts = self._wish.isolation, self._wish.parts
        first = min([parts[index].offset for index in self._at[partition]])
        end = max(first, partition.readable_end(isolation))
        woken = partial(self._wake, partition)
        self._tokens[partition] = partition.when_readable(end, woken, isolation)

    def _wake(self, partition: Partition) -> None:
        if self._deadline is None:
            return
        self._woken.append(partition)
        if self._is_awake:
            return
        self._is_awake = True
        if self._is_enough:
            self._service._wake(len(self._wish.parts), self._read_all)
        else:
            self._service._wake(1, self._look)

    def _look(self) -> None:
        if self._deadline is None:
            return
        woken, self._woken = self._woken, []
        # The first one is counted; others may have come since, and may be named more than once.
        self._service._spend(sum([len(self._at[partition]) for partition in woken]) - 1)
        if self._may_answer(woken):
            self._service._wake(len(self._wish.parts), self._read_all)
            return
        self._is_awake = False
        for partition in woken:
            self._watch(partition)

    def _may_answer(self, woken: Sequence[Partition]) -> bool:
        wish = self._wish
        for partition in woken:
            for index in self._at[partition]:
                try:
                    read = _read(partition, wish.parts[index], wish, wish.max_bytes)
                except PacelineError:
                    return True  # to be told
                self._sizes[index] = size_of(read)
        return sum(self._sizes) >= wish.min_bytes

    def _read_all(self) -> None:
        if self._deadline is None:
            return
        self._release_tokens()
        outcomes, ready = self._service._read_now(self._wish)
        if ready:
            self._finish(outcomes)
        else:
            self._park(outcomes)

    def _expired(self) -> None:
        self._service._wake(len(self._wish.parts), self._give_up)

    def _give_up(self) -> None:
        if self._deadline is not None:
            self._finish(self._service._read_now(self._wish)[0])

    def _finish(self, outcomes: list[Outcome]) -> None:
        self.abandon()
        self._service._count(self._wish, outcomes)
        self._answer(outcomes)

    def abandon(self) -> None:
        """Forget it without an answer; idempotent."""
        self._release_tokens()
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _release_tokens(self) -> None:
        for partition, token in self._tokens.items():
            partition.cancel(token)
        self._tokens.clear()


def _read(partition: Partition, wanted: Wanted, wish: Wish, budget: int) -> ReadResult:
    return partition.read(
        wanted.offset,
        min(wanted.max_bytes, max(budget, 1)),
        wish.isolation,
        from_follower=wish.from_follower,
    )


def size_of(outcome: Outcome) -> int:
    """The bytes that were found."""
    return 0 if isinstance(outcome, Refused) or outcome.slice is None else outcome.slice.size
