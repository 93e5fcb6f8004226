"""A transaction engine over a log in memory, on a clock that the test moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from paceline.errors import CoordinatorNotAvailable, NotCoordinator
from paceline.types import MAX_RECORD_BYTES
from paceline.wire.peer.names import PartitionName
from paceline_node.state_machines.machine import Entry, Scope
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.endings import Ending
from paceline_node.transactions.engine import TransactionEngine
from paceline_node.transactions.limits import TransactionLimits

START_MS = 1_700_000_000_000
KEY = TransactionKey(Family.KAFKA, "payments")
P0, P1 = PartitionName("orders", 0), PartitionName("orders", 1)


class Desk:
    """``batches`` is everything committed; with ``refuses`` nothing can be written."""

    def __init__(self, limits: TransactionLimits | None = None) -> None:
        self.limits = limits or TransactionLimits()
        self.batches: list[tuple[Entry, ...]] = []
        self.time = 1000.0
        self.refuses = False
        self.ahead_ms = 0
        """How far the wall clock of the present coordinator is ahead."""
        self.writes_left = -1
        """How many writes are allowed yet, below 0: any number."""
        self.losses = 0
        self.spares = iter(range(5000, 10**9))
        self.news = 0
        self.engine = TransactionEngine(self.limits, self._endings_changed)
        self.engine.lead(self, log_is_empty=True)

    def _endings_changed(self) -> None:
        self.news += 1

    # --- the journal ------------------------------------------------------------------------------

    def write(self, scope: Scope, entries: Sequence[Entry]) -> None:
        if self.refuses or self.writes_left == 0:
            raise CoordinatorNotAvailable("the test allows no writes")
        self.writes_left -= 1
        if sum(len(each.key) + len(each.value or b"") for each in entries) > MAX_RECORD_BYTES:
            raise CoordinatorNotAvailable("larger than a batch may be")
        assert entries, "an empty batch"
        self.batches.append(tuple(entries))
        for entry in entries:
            self.engine.apply(entry)

    def now(self) -> float:
        return self.time

    def wall_ms(self) -> int:
        return START_MS + int(self.time * 1000) + self.ahead_ms

    # --- the world --------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass, with every alarm on its time."""
        end = self.time + seconds
        while (alarm := self.engine.next_alarm()) <= end:
            self.time = max(self.time, alarm)
            self.engine.on_alarm()
        self.time = end

    def fail_over(self) -> None:
        """Another coordinator takes over: it has the log and nothing else."""
        self.engine.resign(NotCoordinator("the test elects another"))
        self.engine = self.replayed()
        self.engine.lead(self, log_is_empty=False)

    def set_back(self, batches: int) -> None:
        """A coordinator takes over that has these first batches only, by an unclean election."""
        del self.batches[batches:]
        self.losses += 1
        self.fail_over()

    def replayed(self) -> TransactionEngine:
        """An engine that folded the log, and does not lead."""
        engine = TransactionEngine(self.limits, self._endings_changed)
        for batch in self.batches:
            for entry in batch:
                engine.apply(entry)
        return engine

    def check_fold(self) -> None:
        """The state is the fold of the log, and of the log compacted."""
        compacted = TransactionEngine(self.limits, self._endings_changed)
        last: dict[bytes, bytes | None] = {}
        for batch in self.batches:
            for entry in batch:
                last.pop(entry.key, None)
                last[entry.key] = entry.value
        for key, value in last.items():
            compacted.apply(Entry(key, value))
        for other in (self.replayed(), compacted):
            assert other.store.transactions == self.engine.store.transactions
            assert other.store.sinks == self.engine.store.sinks
            assert other.store.staged == self.engine.store.staged
            assert other.store.total_staged_bytes == self.engine.store.total_staged_bytes
            assert list(other.store.prepared) == list(self.engine.store.prepared)
            assert set(other.store.ongoing) == set(self.engine.store.ongoing)
            assert other.store.counts == self.engine.store.counts
            assert +other.store.states == +self.engine.store.states
            assert other.store.oldest_began_ms == self.engine.store.oldest_began_ms
            assert _sets(other.store.of_producer) == _sets(self.engine.store.of_producer)
            assert other.store.floors == self.engine.store.floors
            assert other.store.marked == self.engine.store.marked
            assert other.store.open_count == self.engine.store.open_count
            assert other.store.of_sink == self.engine.store.of_sink
            assert other.store.idle == self.engine.store.idle
            assert other.store.unused == self.engine.store.unused
            assert other.store.unused_sinks == self.engine.store.unused_sinks

        self._check_what_is_kept()

    def _check_what_is_kept(self) -> None:
        """What is kept of all ids is what looking through them gives."""
        store = self.engine.store
        assert +store.states == Counter(
            (key.family, found.state) for key, found in store.transactions.items()
        )
        began = [store.transactions[key].began_ms for key in store.ongoing]
        assert store.oldest_began_ms == min(began, default=None)
        writing: dict[int, set[TransactionKey]] = {}
        for key in (*store.ongoing, *store.prepared):
            each = store.transactions[key]
            for number in (each.producer_id, each.next_producer_id, each.ended_producer_id):
                if number >= 0:
                    writing.setdefault(number, set()).add(key)
        assert _sets(store.of_producer) == writing

    # --- shorthand --------------------------------------------------------------------------------

    def init(
        self,
        key: TransactionKey = KEY,
        timeout_ms: int = 60_000,
        expected: ProducerIdentity | None = None,
    ) -> ProducerIdentity:
        """INIT, with a spare id when one is asked for."""
        found = self.engine.producers.init(key, timeout_ms, expected=expected)
        if found is None:
            spare = next(self.spares)
            found = self.engine.producers.init(key, timeout_ms, expected=expected, spare=spare)
        assert found is not None
        return found

    def finish(self, key: TransactionKey = KEY) -> Ending:
        """Everybody was told: the transaction is complete."""
        ending = self.engine.ending(key)
        assert ending is not None
        self.engine.producers.complete(key, ending.serial)
        return ending


def _sets(found: Mapping[int, Sequence[TransactionKey]]) -> dict[int, set[TransactionKey]]:
    return {number: set(keys) for number, keys in found.items()}
