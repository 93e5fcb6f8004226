"""Sinks: the transactions of many task attempts, committed by one record (DESIGN 5).

A sink numbers its batches. Each task attempt of a batch writes in a transaction of its own; the
driver then commits those it wants, all at once, and whatever else the sink has open for that
batch or an earlier one is aborted with it.

The record of the sink, which names what was committed, decides (``decided_by_sink``). The records
of the attempts follow it: in the same batch where they fit, otherwise in as many as it takes, and
whoever coordinates next goes on with them before it does anything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from paceline.errors import (
    AlreadyCommitted,
    InvalidRequest,
    InvalidTransactionState,
    SinkConflict,
    SinkFenced,
    SinkForgotten,
    TransactionTooLarge,
)
from paceline.values import dataclass
from paceline_node.state_machines.machine import Entry
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.context import TransactionContext, fits_at_once
from paceline_node.transactions.endings import prepared
from paceline_node.transactions.id_shares import UNKNOWN
from paceline_node.transactions.producers import check_one_topic
from paceline_node.transactions.records import (
    FencedRun,
    Sink,
    State,
    Transaction,
    sink_entry,
    transaction_entry,
)
from paceline_node.transactions.transactional_id_eviction import evicted_sinks

_NAME_BYTES_MAX = 512
_MARGIN = 10
"""A tenth of the time for which sinks are remembered is left to clocks that differ."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Who begins to write. ``query`` is empty for a write that is not a streaming query's;
    ``batch`` is from 0 on; ``partition`` and ``number`` (the attempt's) are for people to read.
    ``planned_ms``: when the batch was planned first, by the writer's clock; -1 if nobody knows."""

    sink: str
    query: str
    run: str
    batch: int
    partition: int
    number: int
    planned_ms: int = -1


class SinkTransaction(NamedTuple):
    """``name`` is the transactional id to produce and to commit under."""

    name: str
    identity: ProducerIdentity


class SinkTransactions:
    """Commands of sinks."""

    def __init__(self, context: TransactionContext) -> None:
        self._context = context

    def begin(
        self, attempt: Attempt, timeout_ms: int, spare: int, client: str = UNKNOWN
    ) -> SinkTransaction:
        """Open a transaction for a task attempt, written by producer ``spare``, which nobody else
        uses; it counts for ``client``.

        A run not seen before takes the sink over: what the former one has open is aborted. Raises
        AlreadyCommitted, SinkFenced, SinkConflict, SinkForgotten, InvalidTransactionTimeout,
        TransactionTooLarge, InvalidRequest.
        """
        self._context.check_timeout(timeout_ms)
        _check_names(attempt)
        self.settle(attempt.sink)
        before = self._context.store.sinks.get(attempt.sink)
        sink, entries = self._taken_over(before, attempt)
        name = f"{attempt.sink}/{attempt.batch}/{attempt.partition}.{attempt.number}/{spare}"
        key = TransactionKey(Family.SINK, name)
        self._context.check_new_id(key, client)
        wall_ms = self._context.wall_ms()
        opened = Transaction(
            spare,
            0,
            State.ONGOING,
            timeout_ms,
            serial=1,
            began_ms=wall_ms,
            changed_ms=wall_ms,
            sink=attempt.sink,
            batch=attempt.batch,
            run=attempt.run,
            losses=self._context.losses,
        )
        assert self._context.find(key) is None, f"{key}: producer id {spare} is in use"
        if not fits_at_once(entries):  # what the former run has open goes first then
            self._context.write_pieces(entries)
            entries = []
        if sink != before:
            entries.append(sink_entry(attempt.sink, sink))
        self._context.write(*entries, transaction_entry(key, opened))
        self._context.active(key, self._context.now())
        self._context.shares.use(key, client)
        return SinkTransaction(name, opened.identity)

    def _taken_over(self, sink: Sink | None, attempt: Attempt) -> tuple[Sink, list[Entry]]:
        wall_ms = self._context.wall_ms()
        if sink is None:
            self._check_remembered(attempt, wall_ms)
            if len(self._context.store.sinks) >= self._context.limits.ids_max:
                unused = evicted_sinks(self._context.store, wall_ms, self._context.limits)
                if not unused:
                    raise TransactionTooLarge(
                        f"{self._context.limits.ids_max} sinks already (transactions.ids_max)"
                    )
                self._context.write(*unused)
            new = Sink(
                attempt.query, attempt.run, changed_ms=wall_ms, planned_ms=attempt.planned_ms
            )
            return new, []
        if attempt.query and sink.query not in ("", attempt.query) and sink.last_batch >= 0:
            raise SinkConflict(
                f"sink state conflict: {attempt.sink} holds batch {sink.last_batch} of query "
                f"{sink.query}, not of {attempt.query}"
            )
        if attempt.batch <= sink.last_batch:
            _check_planned(sink, attempt)
            raise AlreadyCommitted(
                f"sink {attempt.sink}: batch {attempt.batch}, {sink.last_batch} is committed"
            )
        self._check_run(attempt.sink, sink, attempt.run)
        if attempt.run == sink.run:
            return replace(sink, planned_ms=attempt.planned_ms), []
        taken = replace(
            self._without_run(sink, wall_ms),
            query=attempt.query or sink.query,
            run=attempt.run,
            changed_ms=wall_ms,
            planned_ms=attempt.planned_ms,
        )
        open_now = self._open(attempt.sink)
        return taken, self._aborts(open_now, "another run took the sink over")

    def _without_run(self, sink: Sink, wall_ms: int) -> Sink:
        """The sink with its run fenced and no other yet."""
        keep_after_ms = wall_ms - int(self._context.limits.fenced_runs_kept_s * 1000)
        fenced = [each for each in sink.fenced if each.at_ms > keep_after_ms]
        if sink.run:
            fenced.append(FencedRun(sink.run, wall_ms))
        return replace(sink, run="", fenced=tuple(fenced))

    def _check_remembered(self, attempt: Attempt, wall_ms: int) -> None:
        """Raise SinkForgotten where this batch may have been committed, and that forgotten. A sink
        changes when it commits, so a batch younger than what is remembered was not."""
        kept_ms = int(self._context.limits.sinks_kept_s * 1000)
        age_ms = wall_ms - attempt.planned_ms
        if attempt.planned_ms >= 0 and age_ms >= kept_ms - kept_ms // _MARGIN:
            raise SinkForgotten(
                f"sink {attempt.sink} is not known, and batch {attempt.batch} was planned "
                f"{age_ms // 1000} s ago: it may have been committed then, and forgotten since "
                f"(transactions.sinks_kept_ms is {kept_ms})"
            )

    def touch(self, sink: str, run: str, batch: int) -> int:
        """Renew the time-out of all open transactions of that batch; how many there are. Raises
        SinkFenced."""
        known = self._context.store.sinks.get(sink)
        if known is not None:
            self._check_run(sink, known, run)
        now = self._context.now()
        touched = 0
        for key in self._open(sink):
            found = self._context.store.transactions[key]
            is_known = not self._context.was_set_back(found)
            if found.batch == batch and found.run == run and is_known:
                self._context.active(key, now)
                touched += 1
        return touched

    def commit(self, name: str, run: str, batch: int, transactions: Sequence[str]) -> None:
        """Commit these transactions of ``batch``, all or none, by one record; whatever else the
        sink has open up to that batch is aborted by the same record. When writing the attempts' own
        records fails after it, it is decided all the same, and told when it is repeated.

        Raises AlreadyCommitted (a repeated commit too: there is nothing left to do), SinkFenced,
        and InvalidTransactionState when one of them is not open, or has written to another topic
        of a name than the next: then nothing has changed.
        """
        sink = self._context.store.sinks.get(name)
        if sink is None:
            raise InvalidTransactionState(f"sink {name} has begun nothing")
        self.settle(name)
        open_up_to = [
            key for key in self._open(name) if self._context.store.transactions[key].batch <= batch
        ]
        if batch <= sink.last_batch:
            self._write(self._aborts(open_up_to, f"batch {sink.last_batch} is committed"))
            raise AlreadyCommitted(f"sink {name}: batch {sink.last_batch} is committed")
        self._check_run(name, sink, run)
        wanted = self._committable(name, run, batch, transactions)
        wall_ms = self._context.wall_ms()
        committed = replace(
            sink,
            last_batch=batch,
            last_transactions=tuple(sorted(transactions)),
            last_planned_ms=sink.planned_ms,
            changed_ms=wall_ms,
        )
        decision = sink_entry(name, committed)
        entries = [
            transaction_entry(
                key,
                prepared(self._context.store.transactions[key], commits=True, wall_ms=wall_ms),
            )
            for key in wanted
        ]
        others = [key for key in open_up_to if key not in wanted]
        entries += self._aborts(others, f"not part of the commit of batch {batch}")
        if fits_at_once((decision, *entries)):
            self._context.write(decision, *entries)
        else:
            self._context.write(decision)
            self._context.write_pieces(entries)

    def settle_all(self) -> None:
        """:meth:`settle` for every sink: a new coordinator's first act."""
        for name in list(self._context.store.of_sink):
            self.settle(name)

    def settle(self, name: str) -> None:
        """Write down what the sink's last commit has decided of attempts, where a failure, or the
        end of a leadership, came before that. Raises what writing raises."""
        store = self._context.store
        sink = store.sinks.get(name)
        if sink is None:
            return
        left = [key for key in self._open(name) if store.transactions[key].batch <= sink.last_batch]
        if not left:
            return
        named = set(sink.last_transactions)
        committed = {
            key: None
            for key in left
            if store.transactions[key].batch == sink.last_batch and key.name in named
        }
        wall_ms = self._context.wall_ms()
        self._context.write_pieces(
            transaction_entry(key, prepared(store.transactions[key], commits=True, wall_ms=wall_ms))
            for key in committed
        )
        others = [key for key in left if key not in committed]
        self._context.write_pieces(
            self._aborts(others, f"not part of the commit of batch {sink.last_batch}")
        )

    def _committable(
        self, name: str, run: str, batch: int, transactions: Sequence[str]
    ) -> dict[TransactionKey, None]:
        if len(transactions) > self._context.limits.group_commit_max:
            raise TransactionTooLarge(
                f"sink {name}: {len(transactions)} transactions in one commit, at most "
                f"{self._context.limits.group_commit_max}"
            )
        wanted: dict[TransactionKey, None] = {}
        for each in transactions:
            key = TransactionKey(Family.SINK, each)
            found = self._context.find(key)
            if (
                found is None
                or found.state is not State.ONGOING
                or self._context.was_set_back(found)
                or (found.sink, found.run, found.batch)
                != (
                    name,
                    run,
                    batch,
                )
            ):
                raise InvalidTransactionState(
                    f"sink {name}: transaction {each} is not open in batch {batch} of run {run}"
                )
            wanted[key] = None
        known = self._context.store.transactions
        topics = (each for key in wanted for each in known[key].topics)
        check_one_topic(f"sink {name}: batch {batch}", topics)
        return wanted

    def abort(self, name: str, batch: int, transactions: Sequence[str], run: str = "") -> None:
        """Abort those of ``transactions`` that are open, and all that ``run`` (unless it is empty)
        has open in ``batch``: a driver does not know those of tasks that failed. That run is
        fenced: a task of it may only now be about to begin, and nobody would end what it opens.
        Never an error but of writing."""
        known = self._context.store.of_sink.get(name, {})
        named = {TransactionKey(Family.SINK, each) for each in transactions} & known.keys()
        wanted = []
        for key in self._open(name):
            found = self._context.store.transactions[key]
            if found.batch == batch and (key in named or (run and found.run == run)):
                wanted.append(key)
        sink = self._context.store.sinks.get(name)
        if sink is not None and run and sink.run == run:
            self._context.write(sink_entry(name, self._without_run(sink, self._context.wall_ms())))
        self._write(self._aborts(wanted, "aborted by its driver"))

    def state(self, name: str) -> Sink | None:
        """The sink as it stands."""
        return self._context.store.sinks.get(name)

    # --- parts ------------------------------------------------------------------------------------

    def _open(self, sink: str) -> list[TransactionKey]:
        of_sink = self._context.store.of_sink.get(sink, {})
        ongoing = self._context.store.ongoing
        return sorted((key for key in of_sink if key in ongoing), key=str)

    def _aborts(self, keys: Iterable[TransactionKey], reason: str) -> list[Entry]:
        wall_ms = self._context.wall_ms()
        return [
            transaction_entry(
                key,
                prepared(
                    self._context.store.transactions[key],
                    commits=False,
                    wall_ms=wall_ms,
                    fences=True,
                    reason=reason,
                ),
            )
            for key in keys
        ]

    def _write(self, entries: Sequence[Entry]) -> None:
        self._context.write_pieces(entries)

    def _check_run(self, name: str, sink: Sink, run: str) -> None:
        if any(each.run == run for each in sink.fenced):
            by = sink.run or "its driver, which gave its batch up"
            raise SinkFenced(f"sink {name}: run {run} was fenced by {by}")


def _check_planned(sink: Sink, attempt: Attempt) -> None:
    """Raise SinkConflict where a batch of this number is committed that was planned at another
    time, or one behind it: a query repeats only the batch that it has planned last. What it would
    take for done may be other records. A task of a run that is fenced writes nothing anyway."""
    if any(each.run == attempt.run for each in sink.fenced):
        return
    if attempt.batch < sink.last_batch:
        is_another = bool(attempt.query) or attempt.planned_ms >= 0
    else:
        planned = attempt.planned_ms, sink.last_planned_ms
        is_another = min(planned) >= 0 and planned[0] != planned[1]
    if is_another:
        raise SinkConflict(
            f"sink state conflict: {attempt.sink} has committed batch {sink.last_batch}, and batch "
            f"{attempt.batch} was planned anew: its checkpoint is older than the sink (put back "
            "from a backup, or a copy that another query has gone on from)"
        )


def _check_names(attempt: Attempt) -> None:
    """Raise InvalidRequest for names that are too long: they are kept, for as long as the sink."""
    for what, name in (("sink", attempt.sink), ("query", attempt.query), ("run", attempt.run)):
        size = len(name.encode("utf-8", "replace"))
        if size > _NAME_BYTES_MAX:
            raise InvalidRequest(
                f"a {what} of {size} bytes, at most {_NAME_BYTES_MAX} bytes of UTF-8 are allowed"
            )
