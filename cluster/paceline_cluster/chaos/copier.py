"""Read, process, write, exactly once: members of one group copy a topic in transactions that commit
how far they have read (``send_offsets``). They abort, vanish and leave in the middle.

A copy says which record it is of, so in the end each record that the group has read for good was
copied once, in order, by whoever it was assigned to (:mod:`paceline_cluster.chaos.copies`).
"""

from __future__ import annotations

import math
import random

import trio

from paceline.client import (
    Client,
    ConsumedBatch,
    GroupConsumer,
    GroupSettings,
    OutOfRange,
    ProducerSettings,
    TransactionalProducer,
    TransactionalSettings,
)
from paceline.errors import PacelineError
from paceline.types import TopicPartition
from paceline_cluster.chaos.copies import Copying, copy_of

MEMBERSHIP = GroupSettings(auto_commit_s=None, session_timeout_s=6.0)
SETTINGS = TransactionalSettings(
    transaction_timeout_s=10.0, producer=ProducerSettings(delivery_timeout_s=8.0)
)
_AGAIN_S = 0.3


_BATCHES = 3
"""At most so many are copied in one transaction."""
_MORE_S = 0.1
"""How long a transaction waits for another batch."""


class _Anew(Exception):
    """What was read is to be read again, from where the group is, by whoever comes then."""


class _Aborted(Exception):
    """The same, by this member: it goes back, and on."""


class Copier:
    """Copies until told to stop. ``name`` is its transactional id, ``lives`` how many seconds it
    stays in the group, from and to; ``abort`` and ``vanish``: how likely a transaction ends so, and
    the membership with it. ``membership`` must leave committing to the program."""

    def __init__(
        self,
        name: str,
        copying: Copying,
        rng: random.Random,
        *,
        membership: GroupSettings = MEMBERSHIP,
        settings: TransactionalSettings = SETTINGS,
        lives: tuple[float, float] = (10.0, 60.0),
        abort: float = 0.02,
        vanish: float = 0.01,
    ) -> None:
        self.name = name
        self._copying = copying
        self._rng = rng
        self._membership = membership
        self._settings = settings
        self._lives = lives
        self._abort = abort
        self._vanish = vanish
        self.stopping = False

    async def copy(self, client: Client) -> None:
        """Copy until :attr:`stopping`, and then until nothing of it is open. To be cancelled is a
        crash."""
        is_clean = False
        while not (self.stopping and is_clean):
            try:
                # Whatever an earlier life has left open is aborted here.
                async with client.transactional_producer(self.name, self._settings) as producer:
                    is_clean = self.stopping
                    if not self.stopping:
                        await self._live(client, producer)
            except (PacelineError, _Anew):
                await trio.sleep(_AGAIN_S)

    async def _live(self, client: Client, producer: TransactionalProducer) -> None:
        async with client.consumer(
            self._copying.topic,
            group=self._copying.group,
            membership=self._membership,
            out_of_range=OutOfRange.EARLIEST,
        ) as consumer:
            with trio.move_on_after(self._rng.uniform(*self._lives)):
                while True:
                    try:
                        await self._copy_some(producer, consumer)
                    except _Aborted:
                        await consumer.rewind()
        raise _Anew

    async def _copy_some(self, producer: TransactionalProducer, consumer: GroupConsumer) -> None:
        await producer.begin()
        is_refused = False
        try:
            offsets: dict[TopicPartition, int] = {}
            for number in range(self._rng.randint(1, _BATCHES)):
                batch = None
                with trio.move_on_after(_MORE_S if number else math.inf):
                    batch = await consumer.next_batch()
                if batch is not None:
                    offsets[batch.at] = await self._copy(producer, batch)
            await producer.send_offsets(offsets, consumer.member)
        except PacelineError:
            if not producer.in_transaction:
                raise
            is_refused = True
        if is_refused or self._rng.random() < self._abort:
            await producer.abort()
            raise _Aborted
        if self._rng.random() < self._vanish or self.stopping:
            raise _Anew
        await producer.commit()

    async def _copy(self, producer: TransactionalProducer, batch: ConsumedBatch) -> int:
        """Where it ends."""
        to = self._copying.partition_of(batch.at.partition)
        read_to = batch.first_offset
        for record in batch.records():
            copy = copy_of(batch.at.partition, record.offset, record.value or b"")
            await producer.submit(self._copying.copies, copy, partition=to)
            read_to = record.offset + 1
        return read_to
