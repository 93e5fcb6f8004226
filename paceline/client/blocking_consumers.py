"""Blocking consumers; programs import them from ``paceline.client.blocking``."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import trio

from paceline.client import consumer as trio_consumer
from paceline.client import coordinated_consumer as trio_coordinated
from paceline.client import group_consumer as trio_group
from paceline.client import group_settings
from paceline.client.blocking_facade import Open, blocking_twin
from paceline.client.consumed import ConsumedBatch, ConsumedRecord
from paceline.client.loop_thread import Held, LoopThread
from paceline.client.position import Position
from paceline.client.shared_consumer import SharedConsumer
from paceline.client.uncommitted_records import GroupMember
from paceline.errors import CorruptMessage, UnsupportedCompression
from paceline.types import TopicPartition


class Consumer(Open[trio_consumer.Consumer]):
    """As :class:`paceline.client.Consumer`, for one thread at a time. The loop is entered once a
    batch, not once a record."""

    assign = blocking_twin(trio_consumer.Consumer.assign)
    end_offsets = blocking_twin(trio_consumer.Consumer.end_offsets)

    def __init__(self, loop: LoopThread, held: Held[trio_consumer.Consumer]) -> None:
        super().__init__(loop, held)
        self._batch: ConsumedBatch | None = None
        self._records: Iterator[ConsumedRecord] = iter(())
        self._next_offset = 0

    def __iter__(self) -> Iterator[ConsumedRecord]:
        return self

    def __next__(self) -> ConsumedRecord:
        """The next record; StopIteration when every partition has reached its stop."""
        while True:
            record = next(self._records, None)
            if record is not None:
                self._next_offset = record.offset + 1
                return record
            self._batch = None
            batch = self._take_next()
            if batch is None:
                raise StopIteration
            self._begin(batch)

    def _begin(self, batch: ConsumedBatch) -> None:
        try:
            records = batch.consumed()
        except (CorruptMessage, UnsupportedCompression):
            # Stay in front of what cannot be read, so that it is not passed over in silence.
            self.seek(batch.at, Position.at(batch.first_offset))
            raise
        self._records = iter(records)
        self._batch = batch
        self._next_offset = batch.first_offset

    def batches(self) -> Iterator[ConsumedBatch]:
        """As :meth:`paceline.client.Consumer.batches`."""
        while (batch := self.next_batch()) is not None:
            yield batch

    def next_batch(self, timeout_s: float | None = None) -> ConsumedBatch | None:
        """The next batch, or what iterating has left of one; None when every partition has reached
        its stop.

        Raises TimeoutError after ``timeout_s`` without one; nothing is lost by that.
        """
        rest = self._rest()
        return self._take_next(timeout_s) if rest is None else rest

    def _rest(self) -> ConsumedBatch | None:
        batch, record = self._batch, next(self._records, None)
        self._let_go()
        return None if batch is None or record is None else batch.behind(record.offset)

    def _take_next(self, timeout_s: float | None = None) -> ConsumedBatch | None:

        async def take() -> ConsumedBatch | None:
            if timeout_s is None:
                return await self._take_batch()
            with trio.move_on_after(timeout_s):
                return await self._take_batch()
            raise TimeoutError(f"no batch within {timeout_s} s")

        return self._loop.call(take)

    async def _take_batch(self) -> ConsumedBatch | None:
        return await self._inner.next_batch()

    @property
    def assignment(self) -> list[TopicPartition]:
        """The assigned partitions, sorted."""
        return self._call(lambda inner: inner.assignment)

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        """As :meth:`paceline.client.Consumer.unassign`."""
        gone = list(partitions)
        self._drop(gone)
        self._call(lambda inner: inner.unassign(gone))

    def position(self, at: TopicPartition) -> int:
        """The next offset that will be handed out."""
        if self._batch is not None and self._batch.at == at:
            return self._next_offset
        return self._call(lambda inner: inner.position(at))

    def positions(self) -> dict[TopicPartition, int]:
        """:meth:`position` of every assigned partition that has begun."""
        return self._call(self._positions)

    def _positions(self, inner: trio_consumer.Consumer) -> dict[TopicPartition, int]:
        """As :meth:`positions`, in the loop: nothing moves while it is asked."""
        found = inner.positions()
        if self._batch is not None and self._batch.at in found:
            found[self._batch.at] = self._next_offset
        return found

    def seek(self, at: TopicPartition, to: Position) -> None:
        """As :meth:`paceline.client.Consumer.seek`."""
        self._loop.call(functools.partial(self._inner.seek, at, to))
        self._drop([at])

    def pause(self, *partitions: TopicPartition) -> None:
        """As :meth:`paceline.client.Consumer.pause`."""
        self._call(lambda inner: self._pause(inner, partitions))

    def _pause(self, inner: trio_consumer.Consumer, partitions: Sequence[TopicPartition]) -> None:
        inner.pause(*partitions)
        if self._batch is not None and self._batch.at in partitions:
            inner.put_back(self._batch.at, self._next_offset)
            self._let_go()

    def resume(self, *partitions: TopicPartition) -> None:
        """As :meth:`paceline.client.Consumer.resume`."""
        self._call(lambda inner: inner.resume(*partitions))

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        if self._batch is not None and self._batch.at in partitions:
            self._let_go()

    def _let_go(self) -> None:
        """Hand out nothing more of the batch."""
        self._batch = None
        self._records = iter(())


class RebalanceListener:
    """As :class:`paceline.client.RebalanceListener`, called in a thread of its own; the consumer
    may be used from there."""

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """These are read from now on."""

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """These will be given up; their offsets may still be committed here."""

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """These are gone; others may read them already."""


class Relay(group_settings.RebalanceListener):
    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await trio.to_thread.run_sync(self._listener.assigned, partitions)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await trio.to_thread.run_sync(self._listener.revoked, partitions)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        await trio.to_thread.run_sync(self._listener.lost, partitions)


class _SharedConsumer(Consumer):
    """A consumer whose partitions a group assigns. What is left of a batch is not handed out any
    more when partitions have moved meanwhile: others may read them already."""

    def __init__(self, loop: LoopThread, held: Held[trio_consumer.Consumer]) -> None:
        super().__init__(loop, held)
        assert isinstance(held.value, SharedConsumer)
        self._shared = held.value
        self._moves = self._shared.moves

    def __next__(self) -> ConsumedRecord:
        self._drop_moved()
        self._shared.asking.count += 1
        record = super().__next__()
        at = TopicPartition(record.topic, record.partition)
        self._shared.give(at, record.offset + 1, self._moves)
        return record

    def _rest(self) -> ConsumedBatch | None:
        self._drop_moved()
        rest = super()._rest()
        if rest is not None:
            self._shared.asking.count += 1
            self._shared.give(rest.at, rest.end_offset, self._moves)
        return rest

    async def _take_batch(self) -> ConsumedBatch | None:
        batch = await super()._take_batch()
        self._moves = self._shared.taken_after
        return batch

    def _drop_moved(self) -> None:
        # A number that only grows: it may be read without entering the loop for every record.
        if self._moves != self._shared.moves:
            self._moves = self._shared.moves
            self._let_go()

    def position(self, at: TopicPartition) -> int:
        """The next offset that will be handed out."""
        self._drop_moved()
        return super().position(at)

    def _positions(self, inner: trio_consumer.Consumer) -> dict[TopicPartition, int]:
        self._drop_moved()
        return super()._positions(inner)

    def _pause(self, inner: trio_consumer.Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._drop_moved()
        super()._pause(inner, partitions)

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Have the group keep how far this consumer is: everything handed out, the record in hand
        included, or ``offsets`` (the next ones to read) of assigned partitions. What it raises, as
        :meth:`paceline.client.GroupConsumer.commit`: IllegalGeneration, UnknownMember or
        RebalanceInProgress when the partitions are being moved; they are read again then."""

        async def commit() -> None:
            reached = self._positions(self._shared)
            if offsets is None:
                await self._shared.commit_reached(reached, reached)
            else:
                await self._shared.commit_named(offsets, reached)

        self._loop.call(commit)

    def committed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, int | None]:
        """What the group has committed of these, or of the assigned partitions; None: nothing."""
        return self._loop.call(functools.partial(self._shared.committed, partitions))


class GroupConsumer(_SharedConsumer):
    """As :class:`paceline.client.GroupConsumer`."""

    def __init__(self, loop: LoopThread, held: Held[trio_consumer.Consumer]) -> None:
        super().__init__(loop, held)
        assert isinstance(held.value, trio_group.GroupConsumer)
        self._member = held.value

    @property
    def member_id(self) -> str:
        return self._member.member_id

    @property
    def generation(self) -> int:
        return self._member.generation

    @property
    def member(self) -> GroupMember:
        """As :attr:`paceline.client.GroupConsumer.member`."""
        return self._member.member

    def rewind(self) -> None:
        """As :meth:`paceline.client.GroupConsumer.rewind`."""
        self._loop.call(self._member.rewind)
        self._let_go()


class CoordinatedConsumer(_SharedConsumer):
    """As :class:`paceline.client.CoordinatedConsumer`."""

    def __init__(self, loop: LoopThread, held: Held[trio_consumer.Consumer]) -> None:
        super().__init__(loop, held)
        assert isinstance(held.value, trio_coordinated.CoordinatedConsumer)
        self._driven = held.value

    @property
    def consumer_id(self) -> str:
        return self._driven.consumer_id

    @property
    def generation(self) -> int:
        return self._driven.generation
