"""What consumers of all kinds of groups have in common: partitions that come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import trio

from paceline.client.consumed import ConsumedBatch, ConsumedRecord
from paceline.client.consumer import Consumer, Subscription
from paceline.client.coordinator import Coordinator
from paceline.client.fetcher import OutOfRange
from paceline.client.metadata import Metadata
from paceline.client.pool import ConnectionPool
from paceline.client.position import Position
from paceline.client.progress import Progress
from paceline.client.retry import Backoff, retrying
from paceline.client.settings import ConsumerSettings
from paceline.errors import ErrorCode, InvalidRequest, UnstableOffsetCommit, error_for
from paceline.types import Isolation, TopicPartition
from paceline.wire.native.api import NativeApi
from paceline.wire.native.groups import FetchOffsets, OffsetsFetched, TopicPartitions


class SharedConsumer(Consumer):
    """A :class:`Consumer` whose partitions a group assigns; while they move nothing is handed out.

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
        self.asks = 0
        """How often the program asked for more, those who hand out records themselves included."""
        self._reset = out_of_range
        self._coordinator = coordinator
        self._backoff = backoff
        self._timeout_s = timeout_s
        self._progress = Progress()
        self._moving = True
        self._handed_back = trio.Event()

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
        while self._moving:
            self._arrival = trio.Event()
            await self._arrival.wait()
        try:
            record = await super().__anext__()
        except BaseException:
            self._progress.drop()
            raise
        self._progress.hand_out(TopicPartition(record.topic, record.partition), record.offset + 1)
        return record

    async def next_batch(self) -> ConsumedBatch | None:
        """The next batch; the one before, or the last record, counts as done."""
        self._hand_back()
        batch = await super().next_batch()
        if batch is not None:
            self._progress.hand_out(batch.at, batch.end_offset)
        return batch

    def _take(self) -> ConsumedBatch | None:
        batch = None if self._moving else super()._take()
        if batch is not None:  # at once: others commit what is done while this is on its way
            self._progress.hand_out(batch.at, batch.end_offset)
        return batch

    def _pass_over(self) -> None:
        """What is hidden (control records, aborted ones) behind what was read is done, too."""
        for at, reader in self._readers.items():
            self._progress.pass_over(at, reader.position)

    def _hand_back(self) -> None:
        self._progress.hand_back()
        self._handed_back.set()

    async def seek(self, at: TopicPartition, to: Position) -> None:
        """As :meth:`Consumer.seek`; what is committed next follows."""
        await super().seek(at, to)
        self._progress.move(at, self.position(at))

    # --- partitions come and go -------------------------------------------------------------------

    def _begin_at(
        self, starts: Mapping[TopicPartition, int], *, are_committed: bool = True
    ) -> None:
        """These, none of which is assigned, are read from now on."""
        self._progress.begin(starts, are_committed=are_committed)
        self._read_from(starts, {})

    def _end(self, partitions: Sequence[TopicPartition]) -> None:
        """These are read no longer."""
        self.moves += 1
        self._progress.end(partitions)
        super().unassign(partitions)

    def _resume(self) -> None:
        """Partitions have stopped moving."""
        self._moving = False
        self._arrived()

    async def _first_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        position = Position.LATEST if self._reset is OutOfRange.LATEST else Position.EARLIEST
        return await self._finder.resolve(dict.fromkeys(partitions, position), self.isolation)

    async def _await_hand_back(self, at_most_s: float) -> None:
        """Return when the program has asked for more than it has in hand, or soon."""
        self._handed_back = trio.Event()
        if self._progress.holds:
            with trio.move_on_after(at_most_s):
                await self._handed_back.wait()

    # --- offsets ----------------------------------------------------------------------------------

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
