"""One partition's batches at a producer: order, window, retries, sequences. Pure: no I/O, no clock.

States of a batch: waiting (the last one may still be open), in flight, resolved. What holds:

* Batches are sent in order, and a batch is never sent while an earlier one waits.
* The window counts from the oldest batch in flight, not how many are: a leader recognises only the
  last five batches, so no more may lie between the oldest that may yet be repeated and the newest.
* Idempotent: a sequence number is given at the first sending and kept over retries, so that a
  leader recognises a repetition (DESIGN 1.2).
* A leader takes any first sequence of a producer id that it does not know. So until a batch of it
  is acknowledged, which puts it into the log for every leader to come, batches go one at a time:
  otherwise one refused, or on its way to a former leader, could be overtaken by those behind it.
  The same after a long silence, for leaders forget who writes nothing (``log.producer_ttl_ms``).
* A batch given up after it had a sequence leaves a *hole*. Nothing more is sent until all that is
  in flight is answered; then the partition goes on with the next producer epoch and sequence 0,
  which also locks out stray copies of what was given up. Only batches that are surely not in the
  log may take a new sequence; those of unknown outcome are given up with the one that left the
  hole, because stamping them anew could store them twice.
* In a transaction a hole is the end: the next epoch is the next transaction's, so nothing more
  is sent until the whole producer goes on with it (:meth:`PartitionQueue.identify`).
* OUT_OF_ORDER_SEQUENCE is the leader's word for a lost predecessor. While a predecessor is
  unresolved it only means "not yet" and the batch waits its turn; otherwise the leader has lost
  acknowledged records, and the batch fails loudly.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from typing import Protocol

from paceline.client.batching import NO_IDENTITY, Batch, Identity, sequence_after
from paceline.client.retry import outcome_of
from paceline.client.settings import ProducerSettings
from paceline.errors import (
    ConnectionLost,
    DuplicateSequence,
    InvalidProducerEpoch,
    LeaderNotAvailable,
    Outcome,
    OutOfOrderSequence,
    PacelineError,
    RequestTimedOut,
)
from paceline.types import TopicPartition

MAX_PRODUCER_EPOCH = 2**15 - 1
KNOWN_FOR_S = 600.0
"""Silence after which a leader may have forgotten a producer: far less than it takes by default."""


class Pauses(Protocol):
    """How long to wait after failures in a row."""

    def pause_s(self, attempt: int) -> float: ...


class PartitionQueue:
    """See the module. ``on_done`` is called for every batch that leaves, after it is resolved or,
    if it expired in flight, when it can no longer be stored by an answer to come."""

    def __init__(
        self,
        at: TopicPartition,
        settings: ProducerSettings,
        backoff: Pauses,
        on_done: Callable[[Batch], None],
        *,
        is_transactional: bool = False,
    ) -> None:
        self.at = at
        self._is_transactional = is_transactional
        self.retry_at = 0.0
        self._settings = settings
        self._backoff = backoff
        self._on_done = on_done
        self._waiting: list[Batch] = []
        self._in_flight: list[Batch] = []
        self.retired_producer_id = -1
        self._identity = NO_IDENTITY
        self._known_producer_id = -1  # acknowledged here, so every leader knows it
        self._sent_at = 0.0
        self._sequence = 0
        self._next_place = 0
        self._hole = False
        self._failures = 0

    # --- what is here -----------------------------------------------------------------------------

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._in_flight

    @property
    def needs_identity(self) -> bool:
        """Whether :meth:`take` waits for :meth:`identify`."""
        return self._settings.is_idempotent and self._identity is NO_IDENTITY

    @property
    def identity(self) -> Identity:
        return self._identity

    def batches(self) -> Iterator[Batch]:
        """All batches that are not resolved, in order."""
        yield from self._in_flight
        yield from self._waiting

    def open_batch(self) -> Batch | None:
        """The batch that takes more records, if any."""
        if self._waiting and not self._waiting[-1].is_closed:
            return self._waiting[-1]
        return None

    def add(self, batch: Batch) -> None:
        """Queue a batch newer than all before; the one before is closed."""
        if self._waiting:
            self._waiting[-1].is_closed = True
        self._waiting.append(batch)

    def due_at(self) -> float | None:
        """When the first waiting batch may be sent; None while only an answer can change that."""
        if not self._waiting or self._hole:
            return None
        if self._in_flight and not self._is_known:
            return None
        first = self._waiting[0]
        place = first.place if first.place >= 0 else self._next_place
        if self._in_flight and place - self._oldest_place() >= self._settings.window:
            return None
        due_at = 0.0 if first.is_closed else first.due_at
        return max(due_at, self.retry_at)

    def next_deadline(self) -> float | None:
        """When the oldest batch is to be given up."""
        return min((batch.deadline for batch in self.batches() if not batch.is_done), default=None)

    # --- sending ----------------------------------------------------------------------------------

    def identify(self, identity: Identity) -> None:
        """Go on under a new producer id or epoch; sequences begin at 0."""
        self._identity = identity
        self._sequence = 0
        self._hole = False

    def first_due(self, now: float) -> Batch | None:
        """The batch that may be sent now, still to be encoded perhaps; it is closed by this."""
        due_at = self.due_at()
        if due_at is None or due_at > now or self.needs_identity:
            return None
        if not self._in_flight and now - self._sent_at > KNOWN_FOR_S:
            self._known_producer_id = -1
        self._sent_at = now
        first = self._waiting[0]
        first.is_closed = True
        return first

    def take(self) -> Batch:
        """Move the first waiting batch, which :meth:`first_due` gave, into flight."""
        batch = self._waiting.pop(0)
        if self._settings.is_idempotent and batch.sequence < 0:
            batch.identity = self._identity
            batch.sequence = self._sequence
            self._sequence = sequence_after(self._sequence, batch.count)
        if batch.place < 0:
            batch.place = self._next_place
            self._next_place += 1
        batch.contested = bool(self._in_flight)
        batch.attempts += 1
        self._in_flight.append(batch)
        return batch

    # --- answers ----------------------------------------------------------------------------------

    def succeeded(
        self, batch: Batch, base_offset: int, leader_epoch: int, *, duplicate: bool
    ) -> None:
        """The batch in flight is stored as acks asked."""
        if not self._landed(batch):
            return
        self._failures = 0
        self._known_producer_id = batch.identity.producer_id
        if not batch.is_done:
            batch.succeed(base_offset, leader_epoch, duplicate=duplicate)
        self._on_done(batch)
        self._close_hole()

    def failed(self, batch: Batch, error: PacelineError, now: float) -> None:
        """The batch in flight was refused or its outcome is unknown: retry or give up."""
        if not self._landed(batch):
            return
        if outcome_of(error) is Outcome.UNKNOWN:
            batch.unknown = True
        if batch.is_done:
            self._on_done(batch)
        elif not self._may_repeat(batch, error):
            self._give_up(batch, error)
        elif batch.deadline <= now:
            batch.last_error = error
            self._give_up(batch, _expired(batch))
        else:
            self._requeue(batch, error, now)
        self._close_hole()

    def pause(self, now: float, error: PacelineError) -> None:
        """An attempt failed, perhaps before anything was sent: wait a growing while."""
        if self._waiting:
            self._waiting[0].last_error = error
        if self.retry_at <= now:
            # Batches that fail together are one failure.
            self.retry_at = now + self._backoff.pause_s(self._failures)
            self._failures += 1

    def resume(self) -> None:
        """What the pause was for has changed: go on at once."""
        self.retry_at = 0.0

    def expire(self, now: float) -> None:
        """Give up every batch whose deadline has passed."""
        for batch in list(self._waiting):
            if batch.deadline <= now and not batch.is_done:
                self._waiting.remove(batch)
                self._give_up(batch, _expired(batch))
        for batch in self._in_flight:
            if batch.deadline <= now and not batch.is_done:
                batch.unknown = True
                self._abandon(batch, _expired(batch))
        self._close_hole()

    def refuse(self, batch: Batch, error: PacelineError) -> None:
        """The waiting batch cannot be sent at all."""
        if batch in self._waiting:
            self._waiting.remove(batch)
            self._give_up(batch, error)
            self._close_hole()

    def give_up_all(self, error: PacelineError) -> None:
        """Resolve everything: with ``error`` what was never sent, as unknown what was."""
        for batch in (*self._in_flight, *self._waiting):
            if not batch.is_done:
                batch.fail(
                    RequestTimedOut(f"{self.at}: outcome unknown: {error}")
                    if batch.attempts
                    else error
                )
            self._on_done(batch)
        self._in_flight, self._waiting = [], []

    # --- inside -----------------------------------------------------------------------------------

    @property
    def _is_known(self) -> bool:
        """Whether a leader would notice that one of our batches overtakes another."""
        return (
            not self._settings.is_idempotent
            or self._identity.producer_id == self._known_producer_id
        )

    def _oldest_place(self) -> int:
        return min(batch.place for batch in self._in_flight)

    def _landed(self, batch: Batch) -> bool:
        """Take the batch out of flight; False when everything was given up in the meantime."""
        if batch not in self._in_flight:
            return False
        self._in_flight.remove(batch)
        return True

    def _may_repeat(self, batch: Batch, error: PacelineError) -> bool:
        if self._hole and batch.unknown:
            return False
        if isinstance(error, OutOfOrderSequence):
            return batch.contested
        if not error.retriable:
            return False
        return (
            outcome_of(error) is Outcome.DEFINITE
            or self._settings.is_idempotent
            or self._settings.repeat_unknown
        )

    def _requeue(self, batch: Batch, error: PacelineError, now: float) -> None:
        insort(self._waiting, batch, key=lambda each: each.order)
        batch.last_error = error
        if not isinstance(error, OutOfOrderSequence):
            # A batch behind another one's failure waits for that one's pause, not for its own.
            self.pause(now, error)

    def _give_up(self, batch: Batch, error: PacelineError) -> None:
        if isinstance(error, InvalidProducerEpoch | DuplicateSequence):
            self._retire_identity()
        if batch.unknown and outcome_of(error) is Outcome.DEFINITE:
            # This attempt was refused, but an earlier one may have been carried out.
            refusal = error
            error = RequestTimedOut(f"{self.at}: outcome unknown; last: {refusal}")
            error.__cause__ = refusal
        self._abandon(batch, error)
        self._on_done(batch)

    def _abandon(self, batch: Batch, error: PacelineError) -> None:
        """Resolve ``batch`` with ``error``, and with it those that it makes hopeless."""
        batch.fail(error)
        if batch.sequence < 0:
            return
        self._hole = True
        for other in [each for each in self._waiting if each.unknown or self._is_transactional]:
            self._waiting.remove(other)
            other.fail(
                RequestTimedOut(
                    f"{self.at}: outcome unknown, and an earlier batch was given up: {error}"
                )
            )
            self._on_done(other)

    def _close_hole(self) -> None:
        if not self._hole or self._in_flight or self._is_transactional:
            return
        self._hole = False
        for batch in self._waiting:
            batch.sequence = batch.place = -1
        self._sequence = 0
        producer_id, epoch = self._identity
        if epoch >= MAX_PRODUCER_EPOCH:
            self._retire_identity()
        elif producer_id >= 0:
            self._identity = Identity(producer_id, epoch + 1)

    def _retire_identity(self) -> None:
        """The producer id is of no further use here; the sender provides another."""
        if self._identity is not NO_IDENTITY:
            self.retired_producer_id = self._identity.producer_id
            self._identity = NO_IDENTITY


def _expired(batch: Batch) -> PacelineError:
    """What a batch fails with at its deadline: the last refusal if surely nothing was stored."""
    last = batch.last_error
    if batch.unknown:
        return RequestTimedOut(
            f"{batch.at}: not acknowledged in time after {batch.attempts} attempts, "
            f"outcome unknown; last: {last}"
        )
    if last is None or outcome_of(last) is Outcome.UNKNOWN or isinstance(last, ConnectionLost):
        why = "" if last is None else f"; last: {last}"
        became = "stored" if batch.attempts else "sent"
        return LeaderNotAvailable(
            f"{batch.at}: no leader reached in time, nothing was {became}{why}"
        )
    return last
