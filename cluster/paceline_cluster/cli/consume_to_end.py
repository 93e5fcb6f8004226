"""Where ``consume --group --exit-at-end`` ends: at what was there when the group dealt it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from paceline.client import ConsumedBatch
from paceline.client.shared_consumer import SharedConsumer
from paceline.client.single_error_nursery import open_scope
from paceline.errors import PacelineError
from paceline.types import TopicPartition

LOOK_S = 0.1


class GroupEnds:
    """The ends of the partitions that a member reads, each as it was when it was first given it: so
    the reading ends, however often the group deals out anew, and whatever is written meanwhile.

    ``say`` is told once of an end that nobody can tell, for want of a leader: that is waited for.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.consumer: SharedConsumer | None = None
        """Set before it is told what to read."""
        self._say = say
        self._is_told = False
        self._ends: dict[TopicPartition, int] = {}
        self._asked: set[TopicPartition] = set()
        self._dealt: tuple[TopicPartition, ...] | None = None
        """None: the group has yet to deal out."""

    def dealt(self, partitions: Sequence[TopicPartition]) -> None:
        """These are to be read from now on: each when its end is known."""
        self._dealt = tuple(partitions)
        if self.consumer is not None:
            self.consumer.pause(*(at for at in partitions if at not in self._ends))

    def taken(self) -> None:
        """They are taken away again."""
        self._dealt = None

    async def look(self, consumer: SharedConsumer) -> None:
        """Ask for the ends of what is dealt out, until cancelled; no partition waits for another's
        leader."""
        async with open_scope() as nursery:
            while True:
                for at in self._dealt or ():
                    if at not in self._ends and at not in self._asked:
                        self._asked.add(at)
                        nursery.start_soon(self._ask, consumer, at)
                await trio.sleep(LOOK_S)

    async def _ask(self, consumer: SharedConsumer, at: TopicPartition) -> None:
        try:
            self._ends.update(await consumer.end_offsets([at]))
        except PacelineError as error:
            if not error.retriable:
                raise
            if not self._is_told:
                self._is_told = True
                self._say(f"waiting for the end of {at} ({error})")
        else:
            if at in consumer.assignment:
                consumer.resume(at)
        finally:
            self._asked.discard(at)

    def before_end(self, batch: ConsumedBatch) -> int | None:
        """How many of its records lie before the end; None: all, or it is not known yet."""
        end = self._ends.get(batch.at)
        if end is None or batch.end_offset <= end:
            return None
        return sum(record.offset < end for record in batch.records())

    def end_of(self, at: TopicPartition) -> int:
        """The end, which is known."""
        return self._ends[at]

    def is_reached(self, consumer: SharedConsumer) -> bool:
        """Whether all is read; what is at its end takes no more."""
        if self._dealt is None:
            return False
        positions = consumer.positions()
        done = [
            at
            for at in self._dealt
            if at in self._ends and at in positions and positions[at] >= self._ends[at]
        ]
        consumer.pause(*done)
        return len(done) == len(self._dealt)

    async def next_batch(self, consumer: SharedConsumer) -> ConsumedBatch | None:
        """What is read next; None once the ends are reached. What was handed out before is done."""
        while not self.is_reached(consumer):
            # No deadline: the consumer would take it for the time in which to print a batch.
            async with open_scope() as nursery:
                nursery.start_soon(self._end, consumer, nursery.cancel_scope)
                return await consumer.next_batch()
        return None

    async def _end(self, consumer: SharedConsumer, waiting: trio.CancelScope) -> None:
        # Nothing tells when what is hidden, as control records are, has been passed over.
        while not self.is_reached(consumer):  # noqa: ASYNC110
            await trio.sleep(LOOK_S)
        # The last batch may be on its way out, and will end this; behind it nothing is taken.
        await trio.sleep(LOOK_S)
        waiting.cancel()
