"""What a coordinator and one consumer say to each other: pings, stops and starts, and their times.

At most one request is under way on a channel, so a Stop or Start that is wanted while a ping is
unanswered waits for the answer (DESIGN 6.2). Times, with ``i`` the heartbeat
interval and ``r`` the retries::

    ping               2/3 i after the last answer, so that each comes within i of the one before
    consumer's fence   i (r + 1) without a request: it stops by itself
    our patience       i (r + 1) + 1/3 i without an answer: it is failed; at least 1 s for a Stop

The consumer's fence counts from a request that it received, our patience from one that was sent
later or is the same, so it has stopped before its partitions go to others; in all a consumer is
failed at most (r + 2) i after it was last heard of (DESIGN 6.3).
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.wire.coordinator.codec import Ask
from paceline.wire.coordinator.messages import (
    REBALANCE,
    PingRequest,
    PositionsResponse,
    Question,
    StartRequest,
    StopRequest,
)
from paceline_node.groups.context import GroupContext
from paceline_node.groups.driven_state import Consumer, DrivenGroup

_PING_PART = 2 / 3
_STORE_EVERY_S = 1.0
_LEAST_PATIENCE_S = 1.0
_QUESTIONS = {PingRequest: Ask.PING, StopRequest: Ask.STOP, StartRequest: Ask.START}
_CONSUMERS_AT_ONCE = 100


class Dialogue:
    """Asks consumers, and notes what they answer. ``failed`` is told of those that do not."""

    def __init__(
        self, context: GroupContext, failed: Callable[[DrivenGroup, Consumer], None]
    ) -> None:
        self._context = context
        self._failed = failed

    # --- asking -----------------------------------------------------------------------------------

    def rest(self, driven: DrivenGroup, consumer: Consumer) -> None:
        """Ping it when that is due."""
        consumer.due_at = self._context.now() + consumer.interval_s * _PING_PART
        driven.alarms.ask(consumer.id, consumer.due_at)

    def ping(self, driven: DrivenGroup, consumer: Consumer) -> None:
        """Ask whether it is there."""
        question = PingRequest(
            coordinator_epoch=self._context.epoch, generation=consumer.generation
        )
        self._ask(driven, consumer, question)

    def stop(self, driven: DrivenGroup, consumer: Consumer) -> None:
        """Have it stop reading, as soon as it has answered a ping. One that was not told yet what
        to read has nothing to stop."""
        if isinstance(consumer.next, StartRequest):
            consumer.next = None
            consumer.own(set())
            return
        self._ask_next(
            driven,
            consumer,
            StopRequest(
                coordinator_epoch=self._context.epoch,
                generation=consumer.generation,
                reason=REBALANCE,
            ),
        )

    def start(self, driven: DrivenGroup, consumer: Consumer, request: StartRequest) -> None:
        """Tell it what to read, as soon as it has answered a ping."""
        self._ask_next(driven, consumer, request)

    def dismiss(self, driven: DrivenGroup, consumer: Consumer, reason: int) -> None:
        """Close its channel, telling it why if it can be told."""
        if consumer.is_versioned and consumer.asked is None:
            consumer.channel.ask(
                StopRequest(
                    coordinator_epoch=self._context.epoch,
                    generation=consumer.generation,
                    reason=reason,
                )
            )
        consumer.channel.end()

    def _ask_next(
        self, driven: DrivenGroup, consumer: Consumer, question: StopRequest | StartRequest
    ) -> None:
        if consumer.asked is None:
            self._ask(driven, consumer, question)
        else:
            consumer.next = question

    def _ask(self, driven: DrivenGroup, consumer: Consumer, question: Question) -> None:
        consumer.asked = _QUESTIONS[type(question)]
        patience_s = consumer.patience_s
        if consumer.asked is not Ask.PING:
            patience_s = max(patience_s, _LEAST_PATIENCE_S)
        consumer.due_at = self._context.now() + patience_s
        driven.alarms.ask(consumer.id, consumer.due_at)
        consumer.channel.ask(question)

    # --- answers ----------------------------------------------------------------------------------

    def answered(
        self, driven: DrivenGroup, consumer: Consumer, body: PositionsResponse | None
    ) -> None:
        """It answered; ask what waits, or let it rest."""
        self._context.heard(driven.key, consumer.id)
        if body is not None and consumer.wants.auto_commit:
            self._note(driven, consumer, body)
        consumer.asked = None
        if consumer.next is None:
            self.rest(driven, consumer)
        else:
            question, consumer.next = consumer.next, None
            self._ask(driven, consumer, question)

    def _note(self, driven: DrivenGroup, consumer: Consumer, body: PositionsResponse) -> None:
        """Positions move forward within a generation, and only those of what it owns count."""
        if consumer.is_versioned and body.generation != consumer.generation:
            return
        for each in body.positions:
            at = (each.topic, each.partition)
            if at in consumer.owned and each.offset > driven.positions.get(at, -1):
                driven.positions[at] = each.offset
                driven.unstored[at] = None
                driven.store_at = min(driven.store_at, self._context.now() + _STORE_EVERY_S)

    # --- time -------------------------------------------------------------------------------------

    def on_alarm(self, driven: DrivenGroup) -> None:
        """Ping some of those who are due, and fail those who did not answer."""
        now = self._context.now()
        for _ in range(_CONSUMERS_AT_ONCE):
            name = driven.alarms.pop_due(now)
            if name is None:
                return
            consumer = driven.consumers.get(name)
            if consumer is None:
                continue
            if consumer.due_at > now:
                driven.alarms.ask(name, consumer.due_at)
            elif consumer.asked is None:
                self.ping(driven, consumer)
            else:
                self._failed(driven, consumer)
