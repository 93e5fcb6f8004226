"""What all commands share: state, journal, time-outs, and whoever must hear of an ending."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from paceline.errors import (
    InvalidRequest,
    InvalidTransactionTimeout,
    Throttled,
    TransactionTooLarge,
)
from paceline_node.state_machines.alarms import Alarms
from paceline_node.state_machines.leading import Leading
from paceline_node.state_machines.machine import EVERYTHING, Entry, Journal
from paceline_node.transaction_names import Family, TransactionKey
from paceline_node.transactions.id_shares import UNKNOWN, IdShares
from paceline_node.transactions.limits import TransactionLimits
from paceline_node.transactions.records import State, Transaction, floor_entry, transaction_entry
from paceline_node.transactions.store import TransactionStore, named_count
from paceline_node.transactions.transactional_id_eviction import evicted, given

_FULL_S = 1.0
_SPARE = 512
"""One id in so many goes when one has to."""
_WATCHED_AT_ONCE = 500
_WIRE_EPOCHS = 2**20
"""More than one id is initialised between two losses."""
_NAME_BYTES_MAX = 1024
_PIECE_BYTES = 1024 * 1024
"""More than this is not written as one batch, where it need not be."""
_RECORD_BYTES_MAX = 8 * 1024 * 1024
"""Of an open transaction, so that its decision, which is a little larger, fits in a batch."""


class TransactionContext(Leading):
    """``endings_changed`` is called when a transaction was prepared or completed. All writes are of
    one scope: an answer waits until whatever was decided before it is committed, whichever
    transaction that was about, as one record may decide many.
    """

    def __init__(self, limits: TransactionLimits, endings_changed: Callable[[], None]) -> None:
        super().__init__()
        self.limits = limits
        self.store = TransactionStore()
        self.shares = IdShares(self.store)
        self.alarms: Alarms[TransactionKey] = Alarms()
        self._active_at: dict[TransactionKey, float] = {}
        self._unwatched: list[TransactionKey] = []
        self._endings_changed = endings_changed
        self._full_until: dict[Family, float] = {}
        """Until when nobody looks again for ids that nobody uses."""

    # --- leading ----------------------------------------------------------------------------------

    def begin(self, journal: Journal) -> None:
        """Decide from now on. What is left of each time-out is judged by the wall clock, which is
        this node's, while the begin was told by another's: at least half of it is left, or one
        clock that is ahead would abort everything. Task attempts of sinks, which are kept alive by
        touches, get a whole one. What was open when the topic was set back is over."""
        self._journal = journal
        self._unwatched = list(self.store.ongoing)
        self.watch_some()
        self._endings_changed()

    @property
    def has_unwatched(self) -> bool:
        """Whether there are time-outs that do not run yet: :meth:`watch_some` is to be called."""
        return bool(self._unwatched)

    def watch_some(self) -> None:
        """Let the time-outs of some of those run that were open when this node began to lead. They
        may be 100,000, so it is done in steps."""
        wall_ms, now = self.journal.wall_ms(), self.journal.now()
        for key in self._unwatched[-_WATCHED_AT_ONCE:]:
            found = self.store.transactions.get(key)
            if found is None or found.state is not State.ONGOING or key in self._active_at:
                continue
            if self.was_set_back(found):
                self.active(key, -math.inf)
                continue
            spent_s = 0.0 if found.sink else max(0, wall_ms - found.began_ms) / 1000
            self.active(key, now - min(spent_s, found.timeout_ms / 2000))
        del self._unwatched[-_WATCHED_AT_ONCE:]

    def end(self) -> None:
        """Decide nothing any more."""
        self._journal = None
        self._unwatched.clear()
        self._full_until.clear()
        self.shares.clear()
        self.alarms.clear()
        self._active_at.clear()

    # --- state ------------------------------------------------------------------------------------

    def find(self, key: TransactionKey) -> Transaction | None:
        """The transactional id as it stands."""
        return self.store.transactions.get(key)

    def write(self, *entries: Entry) -> None:
        """Change state by these records, all or none; nothing changed when this raises."""
        self.journal.write(EVERYTHING, entries)
        if self.store.prepared:
            self._endings_changed()

    def write_known(self) -> None:
        """Write what is known already: whoever leads no more, and has not heard of what was written
        since, cannot commit that, so nobody is told anything. Nothing is written again that the
        order of the records tells something of. Raises what writing raises."""
        self.write(floor_entry(Family.CURSUS, self.store.floors.get(Family.CURSUS, 0)))

    def write_pieces(self, entries: Iterable[Entry]) -> None:
        """As :meth:`write`, but for any number of records, in as many batches as that takes: some
        may be written when this raises."""
        piece: list[Entry] = []
        size = 0
        for entry in entries:
            if piece and size + size_of(entry) > _PIECE_BYTES:
                self.write(*piece)
                piece, size = [], 0
            piece.append(entry)
            size += size_of(entry)
        if piece:
            self.write(*piece)

    def put(self, key: TransactionKey, value: Transaction) -> None:
        """Store a transactional id's new state. Raises TransactionTooLarge for too much of it in
        one that is open, Throttled for too much in all, and what writing raises."""
        before = self.find(key)
        check_step(key, before, value)
        self._check_open(key, named_count(value) - named_count(before))
        entry = transaction_entry(key, value)
        if value.state is State.ONGOING and size_of(entry) > _RECORD_BYTES_MAX:
            raise TransactionTooLarge(
                f"{key}: its partitions, groups and offsets are {size_of(entry)} bytes, at most "
                f"{_RECORD_BYTES_MAX}"
            )
        self.write(entry)
        if value.state is State.ONGOING and (before is None or before.state is not State.ONGOING):
            self.active(key, self.now())

    def completed(self) -> None:
        """A transaction is complete: whoever waits for that may look."""
        self._endings_changed()

    # --- time-outs --------------------------------------------------------------------------------

    def active(self, key: TransactionKey, at: float) -> None:
        """The transaction's time-out runs from ``at`` on."""
        self._active_at[key] = at
        self.alarms.ask(key, self.deadline(key))

    def inactive(self, key: TransactionKey) -> None:
        """The transaction is open no longer."""
        self._active_at.pop(key, None)

    def deadline(self, key: TransactionKey) -> float:
        """When an ongoing transaction is to be aborted."""
        return self._active_at[key] + self.store.transactions[key].timeout_ms / 1000

    # --- losses -----------------------------------------------------------------------------------

    @property
    def losses(self) -> int:
        """How often this topic may have been set back."""
        return self.journal.losses

    def was_set_back(self, found: Transaction) -> bool:
        """Whether the topic may have been set back since the id was initialised. Then what became
        of it is not known: epochs were perhaps given out, and transactions decided, that logs and
        clients remember. So nobody goes on under its identity, or is told how its transactions
        ended; the next INIT gives a producer id, and an epoch on the wire, that nobody ever had."""
        return found.losses < self.losses

    def first_wire_epoch(self, family: Family) -> int:
        """Above those of all ids that were forgotten, by rule or by loss."""
        return max(self.store.floors.get(family, 0), self.losses * _WIRE_EPOCHS)

    # --- limits -----------------------------------------------------------------------------------

    def check_timeout(self, timeout_ms: int) -> None:
        """Raise InvalidTransactionTimeout outside the bounds."""
        low, high = self.limits.timeout_min_s * 1000, self.limits.timeout_max_s * 1000
        if not low <= timeout_ms <= high:
            raise InvalidTransactionTimeout(
                f"transaction time-out of {timeout_ms} ms, expected {low:.0f} to {high:.0f} "
                "(transactions.timeout_max_ms)"
            )

    def check_new_id(self, key: TransactionKey, client: str = UNKNOWN) -> None:
        """Raise InvalidRequest for an impossible name, TransactionTooLarge when there are too
        many ids of its family already, all of which are in use: none uses up those of another.
        What nobody uses makes room (``transactional_id_eviction.py``)."""
        try:
            size = len(key.name.encode())
        except UnicodeEncodeError:
            size = 0
        if not 1 <= size <= _NAME_BYTES_MAX:
            raise InvalidRequest(
                f"transactional id: expected 1 to {_NAME_BYTES_MAX} bytes of UTF-8"
            )
        own, share = self.shares.count(key.family, client), max(1, self.limits.ids_max // 2)
        if client != UNKNOWN and own >= share:
            gone = self._own(key.family, client)
            if not gone:
                raise TransactionTooLarge(
                    f"{client} has {own} transactional ids of family {key.family.value}, one "
                    f"client at most {share}, half of transactions.ids_max, and all are in use"
                )
            self.write(*gone)
        full = self.store.counts[key.family] >= self.limits.ids_max
        if full and not self._make_room(key.family, client):
            raise TransactionTooLarge(
                f"{self.limits.ids_max} transactional ids of family {key.family.value} already "
                "(transactions.ids_max)"
            )

    def _check_open(self, key: TransactionKey, growth: int) -> None:
        """Raise Throttled where open transactions, or those of the id's client, name too much for
        ``growth`` more. That passes, as transactions end: so clients are to ask again."""
        most, count = self.limits.open_partitions_max, self.store.open_count
        share = max(1, most // 2)
        if growth <= 0 or count + growth <= share:
            return
        client = self.shares.owner(key)
        own = self.shares.named(client)
        if count + growth > most or (client != UNKNOWN and own + growth > share):
            raise Throttled(
                f"{key}: open transactions name {count} partitions, groups and offsets, at most "
                f"{most}, and those of its client {own}, at most half of that "
                "(transactions.open_partitions_max)"
            )

    def _own(self, family: Family, client: str) -> list[Entry]:
        """Records that forget ids of the client that are idle for a while."""
        keys = self.shares.longest_ago(family, client)
        before_ms = self.wall_ms() - self.limits.unused_ids_kept_s * 1000
        return given(self.store, family, keys, self._at_once, before_ms)

    @property
    def _at_once(self) -> int:
        return max(1, self.limits.ids_max // _SPARE)

    def _make_room(self, family: Family, client: str) -> bool:
        """Forget ids of whoever has most, of the client, or that nobody uses; whether there were
        any."""
        own = self.shares.count(family, client)
        givers = self.shares.givers(family, own + 1)
        entries = given(self.store, family, givers, self._at_once, math.inf)
        entries = entries or self._own(family, client)
        if entries:
            self.write(*entries)
            return True
        now = self.now()
        if now < self._full_until.get(family, now):
            return False
        entries = evicted(self.store, family, self.wall_ms(), self.limits)
        if entries:
            self.write(*entries)
        else:
            self._full_until[family] = now + _FULL_S
        return bool(entries)


def size_of(entry: Entry) -> int:
    """About what a record takes in a batch."""
    return len(entry.key) + len(entry.value or b"") + 32


def fits_at_once(entries: Iterable[Entry]) -> bool:
    """Whether these may be written as one batch; otherwise in pieces."""
    return sum(map(size_of, entries)) <= _PIECE_BYTES


_COMPLETE = {State.COMPLETE_COMMIT, State.COMPLETE_ABORT}
_STEPS = {
    State.EMPTY: {State.EMPTY, State.ONGOING, *_COMPLETE},
    State.ONGOING: {State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT},
    State.PREPARE_COMMIT: {State.PREPARE_COMMIT, State.COMPLETE_COMMIT},
    State.PREPARE_ABORT: {State.PREPARE_ABORT, State.COMPLETE_ABORT},
    State.COMPLETE_COMMIT: {State.EMPTY, State.ONGOING, *_COMPLETE},
    State.COMPLETE_ABORT: {State.EMPTY, State.ONGOING, *_COMPLETE},
}
"""To a complete state without a prepared one: the end of a transaction with nothing in it."""


def check_step(key: TransactionKey, before: Transaction | None, after: Transaction) -> None:
    """Invariants: no step but those of the table in DESIGN 1.1, and no identity used twice."""
    if before is None:
        assert after.state in (State.EMPTY, State.ONGOING), (key, after)
        return
    assert after.state in _STEPS[before.state], (key, before, after)
    assert (
        after.producer_id != before.producer_id or after.producer_epoch >= before.producer_epoch
    ), (key, before, after)
    assert after.serial >= before.serial, (key, before, after)
