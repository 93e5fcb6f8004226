"""A member of the workload's consumer group, and the one who asks what the group has committed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import trio

from paceline.client import Client, ConsumedBatch, GroupConsumer, GroupSettings, RebalanceListener
from paceline.errors import PacelineError
from paceline.types import TopicPartition
from paceline_cluster.checker import events
from paceline_cluster.checker.events import Event

GROUP = "auditors"
_PAUSE_S = 0.05
_COMMIT = 0.3
"""How likely a member commits after a batch."""
_ASK_S = 0.5
_MEMBERSHIP = GroupSettings(auto_commit_s=None, session_timeout_s=6.0)

NoteBatch = Callable[[str, ConsumedBatch], None]
"""(reader, batch): a reader was given a batch."""


class Teller(Protocol):
    """Whoever writes the history: of real processes, or of simulated ones."""

    @property
    def t(self) -> float:
        """Seconds since the history began."""

    def say(self, event: Event) -> None:
        """Append an event."""

    def next_op(self) -> int:
        """A number for a question to a group."""


class Member(RebalanceListener):
    """Reads what its group assigns to it, and commits now and then, each partition by itself.

    ``membership`` must leave committing to the program. ``beside``: further topics, which nobody
    writes to."""

    def __init__(
        self,
        name: str,
        topic: str,
        client: Client,
        recorder: Teller,
        rng: random.Random,
        note: NoteBatch,
        *,
        membership: GroupSettings = _MEMBERSHIP,
        beside: Sequence[str] = (),
    ) -> None:
        self._name = name
        self._topic = topic
        self._beside = beside
        self._client = client
        self._recorder = recorder
        self._rng = rng
        self._note = note
        self._membership = membership
        self._consumer: GroupConsumer | None = None
        self._join = -1

    async def run(self) -> None:
        """Be a member until cancelled, which is a crash: nothing more is committed."""
        while True:
            try:
                async with self._client.consumer(
                    [self._topic, *self._beside],
                    group=GROUP,
                    membership=self._membership,
                    listener=self,
                ) as consumer:
                    self._consumer = consumer
                    self._ask_to_join()
                    async for batch in consumer.batches():
                        self._note(self._name, batch)
                        if self._rng.random() < _COMMIT:
                            await self._commit(consumer, batch)
                        await self._work()
            except PacelineError:
                # Whatever failed, the next member goes on where the group is.
                await trio.sleep(_PAUSE_S)

    async def _work(self) -> None:
        """What the program does with a batch."""

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Note the generation, and where the group lets this member begin."""
        await trio.lowlevel.checkpoint()
        consumer, recorder = self._consumer, self._recorder
        assert consumer is not None, "nothing is assigned before the member exists"
        recorder.say(events.Joined(recorder.t, self._join, consumer.generation))
        self._ask_to_join()
        for at in [each for each in partitions if each.topic == self._topic]:
            recorder.say(events.Seek(recorder.t, self._name, str(at), consumer.position(at)))

    def _ask_to_join(self) -> None:
        """From here on the next generation may be told."""
        self._join = self._recorder.next_op()
        self._recorder.say(events.Join(self._recorder.t, self._join, GROUP, self._name))

    async def _commit(self, consumer: GroupConsumer, batch: ConsumedBatch) -> None:
        recorder = self._recorder
        op = recorder.next_op()
        generation = consumer.generation
        recorder.say(
            events.Commit(recorder.t, op, GROUP, str(batch.at), batch.end_offset, generation)
        )
        try:
            await consumer.commit({batch.at: batch.end_offset})
        except PacelineError as error:
            # The client may have asked more than once, so that even a refusal leaves it open.
            recorder.say(events.CommitUnknown(recorder.t, op, repr(error)))
        else:
            recorder.say(events.CommitOk(recorder.t, op))


class Asking(NamedTuple):
    """Whose committed offsets are asked for, and what the history says of that."""

    group: str
    asked: Callable[[float, int, str, str], Event]
    told: Callable[[float, int, int], Event]


AUDITORS = Asking(GROUP, events.AskOffset, events.OffsetTold)


async def ask_offsets(
    client: Client, topic: str, partitions: int, recorder: Teller, asking: Asking = AUDITORS
) -> None:
    """Ask once what the group has committed. Raises PacelineError."""
    asked = [recorder.next_op() for _ in range(partitions)]
    for partition, op in enumerate(asked):
        recorder.say(asking.asked(recorder.t, op, asking.group, f"{topic}/{partition}"))
    found = await client.admin.groups.offsets(asking.group)
    for partition, op in enumerate(asked):
        committed = found.get(TopicPartition(topic, partition))
        offset = -1 if committed is None else committed.offset
        recorder.say(asking.told(recorder.t, op, offset))


async def keep_asking(
    client: Client, topic: str, partitions: int, recorder: Teller, asking: Asking = AUDITORS
) -> None:
    """Ask again and again, until cancelled."""
    while True:
        try:
            await ask_offsets(client, topic, partitions, recorder, asking)
        except PacelineError:
            # No coordinator at the moment: nothing was told.
            await trio.sleep(_PAUSE_S)
        await trio.sleep(_ASK_S)
