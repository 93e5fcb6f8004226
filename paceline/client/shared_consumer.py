"""What consumers of all kinds of groups have in common: partitions that come and go."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import trio

from paceline.client.committable_offsets import CommittableOffsets
from paceline.client.consumed import ConsumedBatch, ConsumedRecord
from paceline.client.consumer import Consumer, Subscription
from paceline.client.coordinator import Coordinator
from paceline.client.fetcher import OutOfRange, PartitionReader
from paceline.client.hang_detection import Asking
from paceline.client.metadata import Metadata
from paceline.client.offsets import MISSING_PARTITION_S
from paceline.client.pool import ConnectionPool
from paceline.client.position import Position
from paceline.client.progress import Offsets, Progress
from paceline.client.retry import Backoff, retrying
from paceline.client.settings import ConsumerSettings
from paceline.client.start_offsets import Specs, StartOffsets
from paceline.errors import (
    ErrorCode,
    IllegalGeneration,
    InvalidRequest,
    OffsetOutOfRange,
    PacelineError,
    RebalanceInProgress,
    UnknownMember,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
    error_for,
)
from paceline.types import Isolation, OffsetSpec, TopicPartition
from paceline.wire.native.api import NativeApi
from paceline.wire.native.groups import FetchOffsets, OffsetsFetched, TopicPartitions


class SharedConsumer(Consumer):
    """A :class:`Consumer` whose partitions a group assigns; while they move nothing is handed out.
    Each partition begins by itself: one whose beginning nobody can tell now, for want of its leader
    or its topic, begins later, and keeps no other waiting.

    ``moves`` counts how often partitions were given up, so that whoever hands out a batch record by
    record sees that it is no longer his to hand out.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        pool: ConnectionPool,
        metadata: Metadata,
        backoff: Backoff,
        coordinator: Coordinator,
        *,
        isolation: Isolation,
        out_of_range: OutOfRange,
        timeout_s: float,
        operation_s: float,
        max_poll_interval_s: float | None,
    ) -> None:
        super().__init__(
            settings,
            pool,
            metadata,
            backoff,
            isolation=isolation,
            out_of_range=out_of_range,
            operation_s=operation_s,
        )
        self.group = coordinator.group
        self.moves = 0
        self.asking = Asking(max_poll_interval_s)
        self._reset = out_of_range
        self._coordinator = coordinator
        self._backoff = backoff
        self._timeout_s = timeout_s
        self._progress = Progress()
        self._claims = CommittableOffsets()
        self._due = math.inf
        """When the program's time for what it has in hand is over."""
        self.taken_after = 0
        """The moves before the last batch was taken."""
        self._moving = True
        self._handed_back = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._starts = StartOffsets(
            self._finder,
            backoff,
            isolation=isolation,
            specs=self._specs,
        )
        self._paused: set[TopicPartition] = set()
        self._unkept: dict[TopicPartition, int] = {}
        """Beginnings that the group has not committed yet, where some are at the end."""
        self._kept_for = -1
        """The moves for which a task commits them now."""

    async def assign(
        self,
        subscription: Subscription,
        *,
        start: Position = Position.EARLIEST,
        stop: Position | None = None,
    ) -> None:
        """Raises InvalidRequest: the group assigns."""
        raise InvalidRequest(f"group {self.group} assigns the partitions of this consumer")

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """Raises InvalidRequest: the group assigns."""
        raise InvalidRequest(f"group {self.group} assigns the partitions of this consumer")

    # --- reading ----------------------------------------------------------------------------------

    async def __anext__(self) -> ConsumedRecord:
        """The next record; the one before counts as done. Never ends."""
        self._hand_back()
        with self.asking:
            await self._settled()
            try:
                record = await super().__anext__()
            except BaseException:
                self._progress.drop()
                raise
        self._due = trio.current_effective_deadline()
        at, end = TopicPartition(record.topic, record.partition), record.offset + 1
        self._progress.hand_out(at, end)
        self.note(at, end, self.moves)
        return record

    async def _settled(self) -> None:
        """Partitions are not being given up: what lies here may be handed out."""
        while self._moving:
            self._arrival = trio.Event()
            await self._arrival.wait()

    async def next_batch(self) -> ConsumedBatch | None:
        """The next batch, or the rest of one; what was handed out before counts as done."""
        self._hand_back()
        with self.asking:
            await self._settled()
            batch = await self._rest_or_next()
        self._due = trio.current_effective_deadline()
        if batch is not None:
            self._progress.hand_out(batch.at, batch.end_offset)
            self.note(batch.at, batch.end_offset, self.taken_after)
        return batch

    def give(self, at: TopicPartition, end: int, moves: int) -> None:
        """A program in another thread takes a record of its batch, which ends before ``end``."""
        if moves == self.moves:
            self._progress.give(at, end)
        self.note(at, end, moves)

    def note(self, at: TopicPartition, end: int, moves: int) -> None:
        """The program is handed what ends before offset ``end``, and was taken after so many
        ``moves``."""
        if moves == self.moves:
            self._claims.take(at, end)
        else:
            self._claims.take_late(at, end)

    def _begin(self, batch: ConsumedBatch) -> None:
        has_moved = self.taken_after != self.moves  # before its first record was out
        if not has_moved and batch.at in self._readers:
            super()._begin(batch)

    def may_be_through(self) -> bool:
        """Whether the program, which leaves without an error, had time for what it has in hand. It
        may also leave because a time-out inside its block has cut that short."""
        return trio.current_time() < self._due

    def is_stuck(self) -> bool:
        """Whether the program has asked for nothing for too long."""
        return self.asking.is_stuck(excused=self._moving)

    async def asked_again(self) -> None:
        """Return when the program asks for more."""
        await self.asking.again()

    def _take(self) -> ConsumedBatch | None:
        for at in self._gone():
            self._put_off(at)
        batch = None if self._moving else super()._take()
        if batch is not None:  # at once: others commit what is done while this is on its way
            self.taken_after = self.moves
            self._progress.hand_out(batch.at, batch.end_offset)
        return batch

    def _pass_over(self) -> None:
        """What is hidden (control records, aborted ones) behind what was read is done, too."""
        for gone in self._gone():
            if self._moving:
                self._unread([gone])
            else:
                self._put_off(gone)
        for at, reader in self._readers.items():
            self._progress.pass_over(at, reader.position)

    def _hand_back(self) -> None:
        self._progress.hand_back()
        self._handed_back.set()

    async def seek(self, at: TopicPartition, to: Position) -> None:
        """As :meth:`Consumer.seek`; what is committed next follows."""
        if at in self._starts.waiting:
            topic_ids = self._topic_ids([at])
            offsets = await self._look_up({at: to})
            if self._starts.forget(at):
                self._claims.let_go([at])
                self._begin_where(at, offsets[at])
                self._readers[at].topic_id = topic_ids[at.topic]
                return
        await super().seek(at, to)
        self._moved(at, self.position(at))

    def _moved(self, at: TopicPartition, offset: int) -> None:
        """The program goes on at ``offset``, and lets go of what it has."""
        self._progress.move(at, offset)
        self._claims.let_go([at])
        self._claims.begin({at: offset})

    def pause(self, *partitions: TopicPartition) -> None:
        """As :meth:`Consumer.pause`, also of those that have not begun yet; until they move."""
        begun = [at for at in partitions if at not in self._starts.waiting]
        super().pause(*begun)
        self._paused.update(partitions)

    def put_back(self, at: TopicPartition, offset: int) -> None:
        """As :meth:`Consumer.put_back`; what was taken before it stays taken."""
        super().put_back(at, offset)
        self._progress.put_back(at, offset)
        self._claims.put_back(at, offset)

    def resume(self, *partitions: TopicPartition) -> None:
        """As :meth:`Consumer.resume`, also of those that have not begun yet."""
        self._paused.difference_update(partitions)
        super().resume(*[at for at in partitions if at not in self._starts.waiting])

    # --- partitions come and go -------------------------------------------------------------------

    @property
    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions, sorted; some may not have begun, for want of a leader."""
        return sorted([*self._readers, *self._starts.waiting])

    def _begin_at(
        self, starts: Mapping[TopicPartition, int], *, are_committed: bool = True
    ) -> None:
        """These, none of which is assigned, are read from now on."""
        self._progress.begin(starts, are_committed=are_committed)
        self._claims.begin(starts)
        self._read_from(starts, {}, self._topic_ids(starts))
        for at in self._paused.intersection(starts):
            super().pause(at)

    def _begin_where(self, at: TopicPartition, offset: int) -> None:
        """It begins here, which the group has not committed."""
        self._begin_at({at: offset}, are_committed=False)

    def _begin_known(self, committed: Mapping[TopicPartition, int | None]) -> None:
        """Begin at what is committed; of the rest the leaders are asked."""
        self._check_begin(committed)
        starts = {at: offset for at, offset in committed.items() if offset is not None}
        rest = [at for at, offset in committed.items() if offset is None]
        for at in starts:
            self._starts.forget(at)
        self._begin_at(starts)
        self._begin_by_leaders(rest)

    def _check_begin(self, committed: Mapping[TopicPartition, int | None]) -> None:
        rest = [str(at) for at, offset in committed.items() if offset is None]
        if rest and self._reset is OutOfRange.FAIL:
            raise OffsetOutOfRange(f"group {self.group} has committed nothing of {', '.join(rest)}")

    async def _specs(self, partitions: Sequence[TopicPartition]) -> Specs:
        """Where these begin, of which nothing is committed."""
        latest = self._reset is OutOfRange.LATEST
        return dict.fromkeys(partitions, OffsetSpec.LATEST if latest else OffsetSpec.EARLIEST)

    def _begin_by_leaders(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            assert self._nursery is not None
            self._starts.expect(partitions)
            self._nursery.start_soon(self._starts.run, partitions, self._started)

    def _started(self, at: TopicPartition, offset: int) -> None:
        if self._reset is not OutOfRange.LATEST:
            self._begin_at({at: offset})
            return
        self._starts.expect([at])
        self._unkept[at] = offset
        if self._kept_for != self.moves:
            assert self._nursery is not None
            self._kept_for = self.moves
            self._nursery.start_soon(self._keep_beginnings, self.moves)

    async def _keep_beginnings(self, moves: int) -> None:
        """Have the group keep where partitions begin that may begin at the end, before they do: a
        restart would pass over what is written until the program commits. Nothing that is committed
        later can be overtaken by that, as nothing has been read."""
        attempts = 0
        while self.moves == moves:
            offsets = {at: each for at, each in self._unkept.items() if at in self._starts.waiting}
            if not offsets:
                self._kept_for = -1
                return
            try:
                unknown = await self._keep(offsets, moves)
            except PacelineError as error:
                if self.moves != moves:
                    return
                if not self._goes_on_after(error):
                    raise
                await trio.sleep(self._backoff.pause_s(attempts))
                attempts += 1
            else:
                self._begin_kept(offsets, unknown, moves)

    async def _keep(self, offsets: Offsets, moves: int) -> list[TopicPartition]:
        """As :meth:`_commit`, of partitions that have yet to begin there."""
        return await self._commit(offsets, moves)

    def _begin_kept(self, offsets: Offsets, unknown: Sequence[TopicPartition], moves: int) -> None:
        if self.moves != moves:
            return
        for at, offset in offsets.items():
            self._unkept.pop(at, None)
            if at not in unknown and self._starts.forget(at):
                self._begin_where(at, offset)
                self._kept(at, offset)
        again = [at for at in unknown if at in self._starts.waiting]
        if again:
            self._begin_later(again)

    def _begin_later(self, partitions: Sequence[TopicPartition]) -> None:
        assert self._nursery is not None
        self._starts.expect(partitions)
        self._nursery.start_soon(self._begin_again, partitions, self.moves)

    async def _begin_again(self, partitions: Sequence[TopicPartition], moves: int) -> None:
        """Ask until the group can say where these begin: their transactions end, and a topic that
        was deleted may be made anew. Each begins as soon as that is known."""
        rest, attempts = list(partitions), 0
        while rest:
            await trio.sleep(self._backoff.pause_s(attempts))
            attempts += 1
            committed: Mapping[TopicPartition, int | None] = {}
            if self.moves == moves:
                try:
                    committed = await self._ask_committed(rest)
                except PacelineError as error:
                    if not self._goes_on_after(error):
                        raise
            # Meanwhile they may have moved, or the program may have said where to go on.
            rest = [at for at in rest if at in self._starts.waiting] if self.moves == moves else []
            self._begin_known({at: committed[at] for at in rest if at in committed})
            rest = [at for at in rest if at not in committed]

    def _goes_on_after(self, error: PacelineError) -> bool:
        """Whether what was refused to the consumer itself may be asked again, or hears of it."""
        return error.retriable

    def _gone(self) -> list[TopicPartition]:
        """What is read of topics that were deleted. Where another one has the name already, what
        was reached is no place in that."""
        return [
            reader.at
            for reader in self._turns
            if isinstance(reader.error, UnknownTopicOrPartition)
            or not self._fetcher.is_of_its_topic(reader)
        ]

    def _made_anew(self, reader: PartitionReader) -> None:
        self._arrived()  # the next look at what is here puts it off

    def _put_off(self, at: TopicPartition) -> None:
        """Its topic was deleted: no reason to end a reader of others."""
        self._unread([at])
        self._begin_later([at])

    def _unread(self, partitions: Iterable[TopicPartition]) -> None:
        """These have yet to begin again."""
        gone = list(partitions)
        self._claims.end({at: self.position(at) for at in gone})
        super().unassign(gone)
        self._progress.end(gone)

    def _end(self) -> None:
        """Nothing is read any longer."""
        self.moves += 1
        self._claims.give_up(self.positions())
        self._starts.clear()
        self._unkept.clear()
        self._paused.clear()
        self._unread(list(self._readers))

    def _resume(self) -> None:
        """Partitions have stopped moving."""
        self._moving = False
        self._arrived()

    async def _await_hand_back(self, at_most_s: float) -> None:
        """Return when the program has asked for more than it has in hand, or soon."""
        self._handed_back = trio.Event()
        if self._progress.holds:
            with trio.move_on_after(at_most_s):
                await self._handed_back.wait()

    # --- offsets ----------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Have the group keep how far this consumer is: everything handed out, the record in hand
        included, or ``offsets`` (the next ones to read) of assigned partitions.

        Raises IllegalGeneration, UnknownMember or RebalanceInProgress when the partitions are being
        moved: nothing is committed then, and they will be read again from the last commit.
        IllegalGeneration also where something was handed out, and its partition given up before it
        was committed; without ``offsets`` all else is committed then, until something is taken anew
        it is raised again. So it is for an offset in ``offsets`` that was reached before the
        partition was given up, though it has come back: nothing is committed then; the program may
        seek there and commit it on purpose. A coordinated consumer raises ConnectionLost without a
        coordinator. What was reached in a topic that is gone (for 10 s) counts for nothing.
        """
        if offsets is None:
            self._progress.hand_back()
            self._pass_over()
            await self.commit_reached(self._progress.uncommitted(), self.positions())
        else:
            await self.commit_named(offsets, self.positions())

    async def commit_reached(self, reached: Offsets, positions: Offsets) -> None:
        """:meth:`commit` without offsets: ``reached`` is all that can be committed, ``positions``
        are those of the next records."""
        owed = self._claims.owed(positions)
        self._progress.say(reached)
        await self._store(reached)
        self._refuse(owed, "given up before what was taken of it was committed")

    async def commit_named(self, offsets: Offsets, positions: Offsets) -> None:
        """:meth:`commit` with offsets; ``positions`` are those of the next records."""
        self._refuse(
            [at for at in offsets if at not in self._readers], "not assigned to this consumer"
        )
        stale = self._claims.stale(offsets, positions)
        self._refuse(stale, "given up since that was taken; seek there to commit it on purpose")
        self._progress.say(offsets)
        await self._store(offsets)

    def _refuse(self, partitions: Sequence[TopicPartition], why: str) -> None:
        if partitions:
            self._claims.tell(partitions)
            named = ", ".join(map(str, sorted(partitions)))
            raise IllegalGeneration(f"group {self.group}: {named}: {why}")

    async def _store(self, offsets: Offsets) -> None:
        """Commit what the program wants to be."""
        try:
            unknown = await self._commit(offsets)
            if unknown:
                await self._commit_known({at: offsets[at] for at in unknown})
        except (IllegalGeneration, UnknownMember, RebalanceInProgress):
            self._claims.tell(offsets)
            raise

    def _kept(self, at: TopicPartition, offset: int) -> None:
        """The group has it."""
        self._progress.committed({at: offset})
        self._claims.keep({at: offset})

    async def _commit(self, offsets: Offsets, moves: int | None = None) -> list[TopicPartition]:
        """Those of ``offsets`` for which the coordinator knows no partition; the others are
        committed. All were reached after so many ``moves``, by default as many as now."""
        raise NotImplementedError

    async def _commit_known(self, offsets: Offsets) -> None:
        """Commit what the coordinator said it knows no partition for. It may have heard of a topic
        late, so only a long absence counts. Raises as ``commit``."""
        moves, attempts = self.moves, 0
        late_at = trio.current_time() + MISSING_PARTITION_S
        while offsets and trio.current_time() < late_at:
            await trio.sleep(self._backoff.pause_s(attempts))
            attempts += 1
            unknown = await self._commit(offsets, moves)
            offsets = {at: offsets[at] for at in unknown}
        for at in offsets:
            if at in self._readers:
                self._put_off(at)

    async def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int | None]:
        """What the group has committed of these, or of the assigned partitions; None: nothing. With
        isolation READ_COMMITTED, the default, it waits for open transactions that may yet commit
        offsets of them; raises UnstableOffsetCommit when that takes long."""
        wanted = self.assignment if partitions is None else sorted(partitions)
        return await retrying(
            lambda: self._fetch_committed(wanted),
            timeout_s=self._timeout_s,
            backoff=self._backoff,
            may_retry=lambda error: isinstance(error, UnstableOffsetCommit),
        )

    async def _fetch_committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """As :meth:`committed`, without waiting."""
        found = await self._ask_committed(partitions)
        if len(found) < len(partitions):
            pending = ", ".join(str(at) for at in partitions if at not in found)
            raise UnstableOffsetCommit(f"offset of {pending}: a transaction is open")
        return found

    async def _ask_committed(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """What the group has committed, without those of which an open transaction may yet say."""
        by_topic: dict[str, list[int]] = {}
        for at in partitions:
            by_topic.setdefault(at.topic, []).append(at.partition)
        topics = tuple(TopicPartitions(topic, tuple(each)) for topic, each in by_topic.items())
        if not topics:
            return {}
        fetched = await self._coordinator.call(
            NativeApi.FETCH_OFFSETS,
            FetchOffsets(
                self.group,
                topics,
                require_stable=self.isolation == Isolation.READ_COMMITTED,
                family=self._coordinator.family,
            ),
            OffsetsFetched,
            timeout_s=self._timeout_s,
        )
        found: dict[TopicPartition, int | None] = dict.fromkeys(partitions)
        for each in fetched.partitions:
            at = TopicPartition(each.topic, each.partition)
            if each.error == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                del found[at]
            elif each.error:
                raise error_for(each.error, f"offset of {at}")
            elif each.offset >= 0:
                found[at] = each.offset
        return found
