"""Reading topics together with others, each partition by one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import trio

from paceline.client.consumed import ConsumedBatch
from paceline.client.coordinator import Coordinator
from paceline.client.fetcher import OutOfRange
from paceline.client.group_settings import GroupSettings, RebalanceListener
from paceline.client.membership import Membership
from paceline.client.metadata import Metadata
from paceline.client.new_partitions import NewPartitions
from paceline.client.pool import ConnectionPool
from paceline.client.position import Position
from paceline.client.progress import Offsets
from paceline.client.retry import Backoff
from paceline.client.settings import ClientSettings, ConsumerSettings
from paceline.client.shared_consumer import SharedConsumer
from paceline.client.single_error_nursery import open_scope
from paceline.client.start_offsets import Specs
from paceline.client.uncommitted_records import GroupMember, UncommittedRecords
from paceline.errors import (
    ErrorCode,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    PacelineError,
    error_for,
)
from paceline.types import Isolation, TopicPartition
from paceline.wire.native.api import NativeApi
from paceline.wire.native.groups import (
    CommitOffsets,
    OffsetResults,
    OffsetToCommit,
)

START_S = 1.0
"""How long callbacks and reading wait for partitions whose beginning is asked for."""
HAND_BACK_S = 1.0
"""How long giving up partitions waits for the record in hand, to be committed with the others."""
CLOSE_S = 5.0
"""How long closing may take, callbacks and the last commit included."""
_NO_NOTES: Mapping[TopicPartition, str] = {}


class GroupConsumer(SharedConsumer):
    """Made by :meth:`Client.consumer` with a ``group``; one task at a time may read from it.

    As a :class:`Consumer` whose partitions the group assigns: they come and go while it runs. A
    partition begins at the group's committed offset, or where ``out_of_range`` says when it has
    none. Delivery is at least once: what is committed by itself (``GroupSettings.auto_commit_s``,
    and whenever partitions are given up) is what was handed out before the record in hand.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        client: ClientSettings,
        pool: ConnectionPool,
        metadata: Metadata,
        backoff: Backoff,
        *,
        group: str,
        topics: Sequence[str],
        membership: GroupSettings,
        listener: RebalanceListener,
        isolation: Isolation,
        out_of_range: OutOfRange,
    ) -> None:
        super().__init__(
            settings,
            pool,
            metadata,
            backoff,
            Coordinator(pool, metadata, backoff, group),
            isolation=isolation,
            out_of_range=out_of_range,
            timeout_s=membership.rebalance_timeout_s,
            operation_s=client.operation_timeout_s,
            max_poll_interval_s=membership.max_poll_interval_s,
        )
        self._client = client
        self._settings = membership
        self._listener = listener
        self._taken_as: GroupMember | None = None
        self._hands = UncommittedRecords()
        self._topics = tuple(topics)
        self._newcomers = NewPartitions(
            self._coordinator, metadata, timeout_s=membership.rebalance_timeout_s
        )
        self._begun: dict[TopicPartition, int] = {}
        """Where partitions began of which nothing was committed, if not at their start."""
        self._membership = Membership(
            self._coordinator,
            metadata,
            backoff,
            membership,
            self,
            topics,
            client_id=client.client_id,
        )
        # Two commits at a time could arrive in the other order, and set an offset back.
        self._committing = trio.Lock()

    @property
    def member_id(self) -> str:
        """The id the coordinator gave; empty before the first answer."""
        return self._membership.member_id

    @property
    def generation(self) -> int:
        """The generation it is a member of; -1 while it is none."""
        return self._membership.generation

    # --- committing -------------------------------------------------------------------------------

    async def _store(self, offsets: Offsets) -> None:
        await super()._store(offsets)
        self._hands.sent(offsets)

    @property
    def member(self) -> GroupMember:
        """Who this member was when it was given what it has in hand, for offsets that a transaction
        commits (:meth:`TransactionalProducer.send_offsets`); turn ``GroupSettings.auto_commit_s``
        off then. The group may have moved on since, and others may read the same: then the
        offsets are refused, also when only the first of many records was taken before."""
        return self._now() if self._taken_as is None else self._taken_as

    def _now(self) -> GroupMember:
        return GroupMember(
            self.group, self.generation, self.member_id, self._settings.instance_id, self
        )

    def check_held(self, offsets: Offsets) -> None:
        stale = self._hands.stale(offsets, self.moves)
        lost = {at for at in offsets if at not in self._readers}
        if stale or lost:
            named = ", ".join(map(str, sorted(lost.union(stale))))
            raise IllegalGeneration(
                f"{named}: given up since records were taken; abort, and drop or rewind what is "
                f"in hand"
            )

    def offsets_sent(self, offsets: Offsets) -> None:
        self._hands.sent(offsets)
        self._claims.keep(offsets)

    def offsets_refused(self, offsets: Offsets) -> None:
        self._hands.refused(offsets)

    def note(self, at: TopicPartition, end: int, moves: int) -> None:
        super().note(at, end, moves)
        self._hands.take(at, moves)

    async def rewind(self) -> None:
        """Go back to what the group has committed, as after a transaction that was aborted: what
        was taken and not committed is read again. A partition of which nothing is committed goes
        back to where it began. One whose place nobody can tell now, for want of a leader, of its
        topic, or of the end of an open transaction, keeps no other waiting, and begins when it can.

        Raises what asking the group's coordinator raises, and OffsetOutOfRange; nothing has changed
        then, nor when it is cancelled before it has the answer: offsets are refused as before.
        """
        moves = self.moves
        committed = await self._ask_committed(self.assignment)
        if self.moves == moves:
            self._go_back(committed)
            await self._starts.settled(START_S)
        else:
            self._let_go()  # whatever is assigned now begins there anyway

    def _let_go(self) -> None:
        """The program drops all that it has in hand."""
        self._hands.drop_all()
        self._claims.let_go_of_all()

    def _go_back(self, committed: Mapping[TopicPartition, int | None]) -> None:
        places = {
            at: self._begun.get(at) if offset is None else offset
            for at, offset in committed.items()
            if at in self._readers
        }
        self._check_begin(places)
        unstable = [at for at in self._readers if at not in committed]
        self._let_go()
        for at, place in places.items():
            if place is not None:
                self._readers[at].seek(place)
                self._moved(at, place)
        anew: list[TopicPartition] = [at for at, place in places.items() if place is None]
        self._unread([*anew, *unstable])
        self._begin_known(dict.fromkeys(anew))
        if unstable:
            self._begin_later(unstable)
        self._fetcher.wake()

    def _take(self) -> ConsumedBatch | None:
        batch = super()._take()
        if batch is not None:
            self._taken_as = self._now()
            self._hands.take(batch.at, self.moves)
        return batch

    def _put_off(self, at: TopicPartition) -> None:
        self._hands.lose(at)
        self._newcomers.forget(at.topic)
        super()._put_off(at)

    def _unread(self, partitions: Iterable[TopicPartition]) -> None:
        super()._unread(partitions)
        for at in partitions:
            self._begun.pop(at, None)

    def _begin_where(self, at: TopicPartition, offset: int) -> None:
        super()._begin_where(at, offset)
        self._begun[at] = offset

    async def _specs(self, partitions: Sequence[TopicPartition]) -> Specs:
        if self._reset is OutOfRange.LATEST:
            return await self._newcomers.specs(partitions)
        return await super()._specs(partitions)

    async def _keep(self, offsets: Offsets, moves: int) -> list[TopicPartition]:
        notes = {at: self._newcomers.note(at) for at in offsets}
        try:
            return await self._commit(offsets, moves, notes=notes)
        except OffsetMetadataTooLarge:  # the cluster wants no notes
            return await self._commit(offsets, moves)

    async def _commit(
        self,
        offsets: Offsets,
        moves: int | None = None,
        *,
        notes: Mapping[TopicPartition, str] = _NO_NOTES,
    ) -> list[TopicPartition]:
        """Those of ``offsets`` for which the coordinator knows no partition; the others are
        committed. All were reached after so many ``moves``, by default as many as now."""
        moves = self.moves if moves is None else moves
        async with self._committing:
            if not offsets:
                return []
            if self.moves != moves:
                raise IllegalGeneration(f"group {self.group}: given up before it was committed")
            membership = self._membership
            request = CommitOffsets(
                self.group,
                membership.generation,
                membership.member_id,
                tuple(
                    OffsetToCommit(at.topic, at.partition, offset, metadata=notes.get(at, ""))
                    for at, offset in offsets.items()
                ),
                self._settings.instance_id,
            )
            try:
                results = await self._coordinator.call(
                    NativeApi.COMMIT_OFFSETS,
                    request,
                    OffsetResults,
                    timeout_s=self._settings.rebalance_timeout_s,
                )
            except PacelineError as error:
                membership.lost_by(error)
                raise
            unknown = []
            refusal: PacelineError | None = None
            for result in results.partitions:
                at = TopicPartition(result.topic, result.partition)
                if result.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    unknown.append(at)
                elif result.error:
                    refusal = refusal or error_for(result.error, f"committing {at}")
                else:
                    self._kept(at, offsets[at])
            if refusal is not None:
                raise refusal
            return unknown

    async def _commit_done(self) -> None:
        """Commit by itself; what a member no more cannot commit, others read again."""
        self._pass_over()
        try:
            await self._commit(self._progress.uncommitted())
        except PacelineError as error:
            if not self._goes_on_after(error):
                raise

    def _goes_on_after(self, error: PacelineError) -> bool:
        return error.retriable or self._membership.lost_by(error)

    async def _commit_now_and_then(self, pause_s: float) -> None:
        while True:
            await trio.sleep(pause_s)
            if not self._moving:
                await self._commit_done()

    # --- what the group says (membership.Owner) ---------------------------------------------------

    def owned(self) -> Sequence[TopicPartition]:
        return self.assignment

    async def tell(self, topics: Sequence[str]) -> bytes | None:
        return await self._newcomers.tell(topics) if self._reset is OutOfRange.LATEST else None

    def hear(self, told: bytes | None) -> None:
        self._newcomers.hear(told)

    async def take(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin to read at the committed offsets. A partition whose beginning nobody can tell now
        begins later, and keeps none of the others waiting."""
        await self._begin_reading(partitions)
        await self._starts.settled(START_S)
        await self._listener.assigned(partitions)
        self._resume()

    async def _begin_reading(self, partitions: Sequence[TopicPartition]) -> None:
        """Those of which an open transaction may yet commit offsets are asked for again."""
        committed = await self._ask_committed(partitions)
        self._begin_known(committed)
        unstable = [at for at in partitions if at not in committed]
        if unstable:
            self._begin_later(unstable)

    async def seek(self, at: TopicPartition, to: Position) -> None:
        self._hands.drop(at)
        await super().seek(at, to)

    async def give_up(self, *, lost: bool) -> None:
        """Stop handing out, tell the program, commit what is done, and forget the partitions."""
        self._moving = True
        partitions = self.assignment
        if partitions and lost:
            await self._listener.lost(partitions)
        elif partitions:
            await self._await_hand_back(HAND_BACK_S)
            await self._listener.revoked(partitions)
            if self._settings.auto_commit_s is not None:
                await self._commit_done()
        self._begun.clear()
        self._end()

    # --- tasks ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Be a member and read ahead until cancelled."""
        async with open_scope() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._fetcher.run)
            if self._settings.auto_commit_s is not None:
                nursery.start_soon(self._commit_now_and_then, self._settings.auto_commit_s)
            if self._reset is OutOfRange.LATEST:
                await self._look()
            await self._membership.run()

    async def _look(self) -> None:
        """See what there is before being a member, however long no node answers."""
        failures = 0
        while True:
            try:
                await self._newcomers.look(self._topics)
            except PacelineError as error:
                if not error.retriable:
                    raise
                await trio.sleep(self._backoff.pause_s(failures))
                failures += 1
            else:
                return

    async def close(self, *, finished: bool) -> None:
        """Give up the partitions and leave, once :meth:`run` has ended. ``finished``: the program
        is done with the record in hand. Cancelling leaves it to the session to end."""
        if finished:
            self._progress.finish()
        else:
            self._progress.drop()
        await self.give_up(lost=not self._membership.is_member)
        await self._membership.leave()
