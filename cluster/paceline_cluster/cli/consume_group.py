"""``consume --group``: shares the partitions of a topic with other members of the group."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from paceline.client import (
    Client,
    ConsumedBatch,
    GroupConsumer,
    GroupSettings,
    OutOfRange,
    Position,
    RebalanceListener,
)
from paceline.types import TopicPartition
from paceline_cluster.cli.output import Printer

AUTO_COMMIT_S = 1.0
REBALANCE_TIMEOUT_S = 60.0
Show = Callable[[ConsumedBatch, int | None], int]
"""Prints a batch's first records (None: all of them); how many these are."""


@dataclass(frozen=True, slots=True)
class GroupReading:
    """One call of ``consume --group``."""

    topic: str
    group: str
    out_of_range: OutOfRange
    session_timeout_s: float
    count: int | None
    show: Show


class _Teller(RebalanceListener):
    """Tells the person what this member reads."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        named = ", ".join(str(at) for at in partitions) or "nothing"
        self._printer.say(f"reads {named}")

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        self._printer.say("lost its partitions: the group has not heard of it in time")


async def read_group(client: Client, reading: GroupReading, printer: Printer) -> None:
    """Print records until the count is reached, or SIGINT or SIGTERM comes; then commit what was
    printed and leave the group."""
    async with (
        client.consumer(
            reading.topic,
            group=reading.group,
            membership=GroupSettings(
                session_timeout_s=reading.session_timeout_s,
                rebalance_timeout_s=max(REBALANCE_TIMEOUT_S, reading.session_timeout_s),
                auto_commit_s=AUTO_COMMIT_S,
            ),
            listener=_Teller(printer),
            out_of_range=reading.out_of_range,
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(_watch_signals, nursery.cancel_scope)
        await _show(consumer, reading)
        nursery.cancel_scope.cancel()


async def _show(consumer: GroupConsumer, reading: GroupReading) -> None:
    left = reading.count
    while (batch := await consumer.next_batch()) is not None:
        shown = reading.show(batch, left)
        if left is None:
            continue
        left -= shown
        if left == 0:
            # The rest of the batch was not printed: it is for whoever comes next.
            last = batch.records()[shown - 1].offset if shown else batch.first_offset - 1
            await consumer.seek(batch.at, Position.at(last + 1))
            return


async def _watch_signals(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()
            return
