"""``consume --group``: shares the partitions of a topic with other members of the group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager

import trio

from paceline.client import (
    Client,
    ConsumedBatch,
    DrivenSettings,
    GroupSettings,
    OutOfRange,
    Position,
    RebalanceListener,
)
from paceline.client.shared_consumer import SharedConsumer
from paceline.client.single_error_nursery import open_scope
from paceline.types import TopicPartition
from paceline.values import dataclass
from paceline_cluster.cli.consume_to_end import GroupEnds
from paceline_cluster.cli.output import Printer
from paceline_cluster.cli.signals import on_signals
from paceline_cluster.cli.topic_names import TopicNames

AUTO_COMMIT_S = 1.0
COORDINATOR = "coordinator"
PROTOCOLS = ("kafka", COORDINATOR)
RETRIES = 3
REBALANCE_TIMEOUT_S = 60.0
Show = Callable[[ConsumedBatch, int | None], Awaitable[int]]
"""Prints a batch's first records (None: all of them); how many these are."""


@dataclass(frozen=True, slots=True)
class GroupReading:
    """One call of ``consume --group``."""

    topics: TopicNames
    group: str
    out_of_range: OutOfRange
    session_timeout_s: float
    protocol: str
    count: int | None
    show: Show
    to_end: bool = False


class _Teller(RebalanceListener):
    """Tells the person what this member reads."""

    def __init__(self, printer: Printer, ends: GroupEnds) -> None:
        self._printer = printer
        self._ends = ends

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._ends.dealt(partitions)
        named = ", ".join(str(at) for at in partitions) or "nothing"
        self._printer.say(f"reads {named}")

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._ends.taken()

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._ends.taken()
        self._printer.say(
            "lost its partitions: the group no longer has this member, as it had not been heard of "
            "in time, or was evicted; it joins again"
        )


async def read_group(client: Client, reading: GroupReading, printer: Printer) -> None:
    """Print records until the count or the end is reached, or SIGINT or SIGTERM comes; then commit
    what was printed and leave the group."""
    member = _driven if reading.protocol == COORDINATOR else _member
    topics = await reading.topics.expanded(client)
    ends = GroupEnds(printer.say)
    async with (
        member(client, reading, topics, _Teller(printer, ends)) as consumer,
        open_scope() as nursery,
    ):
        stop = nursery.cancel_scope.cancel
        nursery.start_soon(on_signals, stop, stop)
        if reading.to_end:
            ends.consumer = consumer
            nursery.start_soon(ends.look, consumer)
        await _show(consumer, reading, ends if reading.to_end else None)


def _member(
    client: Client, reading: GroupReading, topics: Sequence[str], listener: RebalanceListener
) -> AbstractAsyncContextManager[SharedConsumer]:
    return client.consumer(
        topics,
        group=reading.group,
        membership=GroupSettings(
            session_timeout_s=reading.session_timeout_s,
            rebalance_timeout_s=max(REBALANCE_TIMEOUT_S, reading.session_timeout_s),
            auto_commit_s=AUTO_COMMIT_S,
        ),
        listener=listener,
        out_of_range=reading.out_of_range,
    )


def _driven(
    client: Client, reading: GroupReading, topics: Sequence[str], listener: RebalanceListener
) -> AbstractAsyncContextManager[SharedConsumer]:
    """The session's time is the consumer's fence: an interval and its retries."""
    interval_ms = int(reading.session_timeout_s * 1000 / (RETRIES + 1))
    return client.coordinated_consumer(
        topics,
        group=reading.group,
        driven=DrivenSettings(
            heartbeat_interval_ms=interval_ms,
            max_heartbeat_retries=RETRIES,
        ),
        auto_offset_reset="largest" if reading.out_of_range is OutOfRange.LATEST else "smallest",
        listener=listener,
    )


async def _show(consumer: SharedConsumer, reading: GroupReading, ends: GroupEnds | None) -> None:
    left = reading.count
    while (batch := await _next(consumer, ends)) is not None:
        within = None if ends is None else ends.before_end(batch)
        most = left if within is None else within if left is None else min(left, within)
        try:
            shown = await reading.show(batch, most)
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await _leave(consumer, batch, batch.first_offset)  # it was not printed whole
            raise
        if ends is not None and within is not None and shown == within:
            await _leave(consumer, batch, ends.end_of(batch.at))
        if left is None:
            continue
        left -= shown
        if left == 0:
            last = batch.records()[shown - 1].offset if shown else batch.first_offset - 1
            await _leave(consumer, batch, last + 1)
            return


async def _next(consumer: SharedConsumer, ends: GroupEnds | None) -> ConsumedBatch | None:
    return await (consumer.next_batch() if ends is None else ends.next_batch(consumer))


async def _leave(consumer: SharedConsumer, batch: ConsumedBatch, offset: int) -> None:
    """What lies at ``offset`` and behind it is for whoever comes next. Where the partition was
    given up while the batch was printed, somebody has it already, or has read on."""
    is_held = consumer.moves == consumer.taken_after
    # It may be in a topic that was made anew, where the batch has no place.
    if is_held and consumer.positions().get(batch.at) == batch.end_offset:
        await consumer.seek(batch.at, Position.at(offset))
