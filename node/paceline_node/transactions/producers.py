"""Transactions of producers with a transactional id: begun by their first write, then ended.

The rules are Kafka's, with two more: a producer that asks for it gets a new epoch
with every end (``bumps``), and the partition's leader asks here before the first append
(:meth:`ProducerTransactions.verify`), so a late write can open nothing that nobody would end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from paceline.errors import (
    ConcurrentTransactions,
    InvalidProducerEpoch,
    InvalidProducerMapping,
    InvalidTransactionState,
    ProducerFenced,
    TransactionTooLarge,
)
from paceline.wire.peer.names import GroupName, PartitionName
from paceline_node.transaction_names import Family, ProducerIdentity, TransactionKey
from paceline_node.transactions.context import TransactionContext
from paceline_node.transactions.endings import (
    NOBODY,
    completed,
    completion,
    decided_by_sink,
    dropped_staging,
    prepared,
)
from paceline_node.transactions.id_shares import UNKNOWN
from paceline_node.transactions.keys import LAST_EPOCH
from paceline_node.transactions.records import KnownTopic, Marked, State, Transaction, marked_entry

SET_BACK = "an unclean election set the transaction log back"


class Ended(NamedTuple):
    """The transaction is decided. ``identity`` is to be used from now on; ``complete``: readers
    have been told everywhere."""

    identity: ProducerIdentity
    complete: bool


class ProducerTransactions:
    """Commands of producers. ``spare`` is a producer id that nobody uses: a command that needs one
    and has none returns None, having done nothing."""

    def __init__(self, context: TransactionContext) -> None:
        self._context = context

    # --- producers --------------------------------------------------------------------------------

    def init(
        self,
        key: TransactionKey,
        timeout_ms: int,
        *,
        expected: ProducerIdentity | None = None,
        spare: int | None = None,
        client: str = UNKNOWN,
    ) -> ProducerIdentity | None:
        """Take over ``key``: the identity to write under, which fences every one before.

        An ongoing transaction is aborted first: ConcurrentTransactions until that is complete.
        ``expected``: only if the caller is still who it believes to be, or nobody is, the id having
        been forgotten; else ProducerFenced. Asked again, it gets the same answer. Raises
        InvalidTransactionTimeout, InvalidRequest, TransactionTooLarge too.
        """
        self._context.check_timeout(timeout_ms)
        found = self._context.find(key)
        if found is None:
            self._context.check_new_id(key, client)
            if spare is None:
                return None
            now_ms = self._context.wall_ms()
            before = NOBODY if expected is None else expected
            found = Transaction(
                spare,
                0,
                State.EMPTY,
                timeout_ms,
                changed_ms=now_ms,
                wire_epoch=self._context.first_wire_epoch(key.family),
                losses=self._context.losses,
                ended_producer_id=before.producer_id,
                ended_producer_epoch=before.epoch,
            )
            self._context.put(key, found)
            self._context.shares.use(key, client)
            return found.identity
        is_new = self._context.was_set_back(found)
        if expected is not None and expected != found.next_identity:
            if found.state is State.EMPTY and expected == found.ended_identity and not is_new:
                return found.identity  # asked again
            raise ProducerFenced(f"{key}: {expected} is not {found.next_identity}")
        if found.state is State.ONGOING:
            self.abort(key, "fenced by a new producer")
            found = self._context.store.transactions[key]
        if found.state.is_prepared:
            raise ConcurrentTransactions(f"{key}: the transaction before is still being ended")
        identity = _after(found.identity, spare, is_new=is_new)
        if identity is None:
            return None
        before = NOBODY if expected is None else expected
        renewed = replace(
            found,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            ended_producer_id=before.producer_id,
            ended_producer_epoch=before.epoch,
            state=State.EMPTY,
            timeout_ms=timeout_ms,
            changed_ms=self._context.wall_ms(),
            wire_epoch=max(found.wire_epoch + 1, self._context.first_wire_epoch(key.family)),
            losses=self._context.losses,
            staged=0,
            dropped=0,
            offset_count=0,
            reason="",
        )
        self._context.put(key, renewed)
        self._context.shares.use(key, client)
        return identity

    # --- members ----------------------------------------------------------------------------------

    def add_partitions(
        self,
        key: TransactionKey,
        who: ProducerIdentity,
        partitions: Sequence[PartitionName],
        metadata_offset: int = 0,
        topics: Sequence[KnownTopic] = (),
    ) -> None:
        """Let the transaction write to ``partitions``, which metadata of that offset show, in
        these ``topics``; begins one if none is open. Raises ProducerFenced,
        InvalidProducerMapping, InvalidProducerEpoch, ConcurrentTransactions, TransactionTooLarge,
        and InvalidTransactionState, of a sink also for a topic that was made anew meanwhile."""
        found = self._writable(key, who)
        wanted = {*found.partitions, *partitions}
        if len(wanted) > self._context.limits.partitions_max:
            raise TransactionTooLarge(f"{key}: {len(wanted)} partitions in one transaction")
        if key.family is Family.SINK:
            check_one_topic(str(key), (*found.topics, *topics))
        known = known_topics(found.topics, topics)
        is_new = len(wanted) > len(found.partitions) or known != found.topics
        if found.state is not State.ONGOING or is_new:
            seen = max(found.metadata_offset, metadata_offset)
            self._context.put(
                key,
                replace(
                    found, partitions=tuple(sorted(wanted)), metadata_offset=seen, topics=known
                ),
            )

    def add_group(self, key: TransactionKey, who: ProducerIdentity, group: GroupName) -> None:
        """Let the transaction commit offsets of ``group``. Raises as :meth:`add_partitions`."""
        found = self._writable(key, who)
        wanted = {*found.groups, group}
        if len(wanted) > self._context.limits.groups_max:
            raise TransactionTooLarge(f"{key}: {len(wanted)} groups in one transaction")
        if found.state is not State.ONGOING or len(wanted) > len(found.groups):
            self._context.put(key, replace(found, groups=tuple(sorted(wanted))))

    def _writable(self, key: TransactionKey, who: ProducerIdentity) -> Transaction:
        """The id in an open transaction, begun (in memory) if there is none."""
        found = self.identified(key, who)
        if found.state is State.ONGOING:
            return found
        if key.family is Family.SINK:
            raise InvalidTransactionState(f"{key}: the task attempt has ended")
        return begun(found, self._context.wall_ms())

    def identified(self, key: TransactionKey, who: ProducerIdentity) -> Transaction:
        """The id, if ``who`` may use it now. Raises as :meth:`add_partitions`."""
        found = self._context.find(key)
        if found is None:
            if key.family is Family.SINK:
                raise InvalidTransactionState(f"{key}: no such task attempt is open")
            raise InvalidProducerMapping(f"{key}: no producer is known")
        self._check_known(key, found)
        if found.state.is_prepared and who in (found.identity, found.next_identity):
            raise ConcurrentTransactions(f"{key}: the transaction before is still being ended")
        check_identity(key, found.next_identity, who)
        if key.family is Family.SINK and decided_by_sink(self._context.store, key) is not None:
            raise InvalidTransactionState(f"{key}: the task attempt is decided")
        return found

    def _check_known(self, key: TransactionKey, found: Transaction) -> None:
        """Raise InvalidProducerMapping, InvalidTransactionState for a task attempt, where it is not
        known any more what became of the id."""
        if self._context.was_set_back(found):
            kind = InvalidTransactionState if key.family is Family.SINK else InvalidProducerMapping
            raise kind(f"{key}: {SET_BACK}, initialise the producer anew")

    def verify(
        self, key: TransactionKey, who: ProducerIdentity, member: PartitionName | GroupName
    ) -> int:
        """Raise unless ``member`` belongs to the open transaction of ``who``: what a partition's
        leader, and a group's coordinator, ask before they take the first write of it. Returns the
        transaction's serial."""
        found = self.identified(key, who)
        if found.state is not State.ONGOING:
            raise InvalidTransactionState(f"{key}: no transaction is open")
        if member not in found.partitions and member not in found.groups:
            raise InvalidTransactionState(f"{key}: {member} is not part of the transaction")
        return found.serial

    # --- the end ----------------------------------------------------------------------------------

    def end(
        self,
        key: TransactionKey,
        who: ProducerIdentity,
        *,
        commits: bool,
        bumps: bool,
        spare: int | None = None,
    ) -> Ended | None:
        """Decide the transaction. The answer holds once this is committed, whatever fails then.

        Repeated with the same result: the same answer. InvalidTransactionState when it ended
        otherwise, or nothing was begun under an identity that is not renewed by every end (there an
        empty end is an error, DESIGN 2.5). With ``bumps`` the next transaction has a new epoch.
        Raises as :meth:`add_partitions`.
        """
        found = self._context.find(key)
        if found is None:
            raise InvalidProducerMapping(f"{key}: no producer is known")
        decided = found.state.is_prepared or found.state.is_complete
        if decided and who == found.ended_identity:
            if found.commits != commits:
                raise InvalidTransactionState(f"{key}: it ended as {found.state.name}")
            if not bumps:
                self._check_known(key, found)  # it may mean a later one, under the same identity
                self._context.write_known()
        else:
            found = self.identified(key, who)
            is_open = found.state is State.ONGOING
            if not (is_open or bumps):
                raise InvalidTransactionState(f"{key}: no transaction is open")
            following = _after(found.identity, spare) if bumps else NOBODY
            if following is None:
                return None
            if is_open:
                self._decide(key, found, commits=commits, following=following)
            else:
                self._end_empty(key, found, commits=commits, following=following)
        now = self._context.store.transactions[key]
        return Ended(now.next_identity, not now.state.is_prepared)

    def _end_empty(
        self, key: TransactionKey, found: Transaction, *, commits: bool, following: ProducerIdentity
    ) -> None:
        """Nothing was begun, as far as is known here, so nobody has to be told; it counts all the
        same. It is written, for whoever leads no more, and has not heard of what was begun where it
        is led now, must not say that it ended. And it has a new epoch follow: a write that was
        given up and comes late would be taken into the next transaction."""
        now_ms = self._context.wall_ms()
        decided = prepared(
            begun(found, now_ms), commits=commits, wall_ms=now_ms, next_identity=following
        )
        self._context.put(key, completed(decided, now_ms))

    def _decide(
        self,
        key: TransactionKey,
        found: Transaction,
        *,
        commits: bool,
        following: ProducerIdentity = NOBODY,
        fences: bool = False,
        reason: str = "",
    ) -> None:
        self._context.put(
            key,
            prepared(
                found,
                commits=commits,
                wall_ms=self._context.wall_ms(),
                next_identity=following,
                fences=fences,
                reason=reason,
            ),
        )

    def abort(self, key: TransactionKey, reason: str) -> None:
        """End an ongoing transaction on the coordinator's own account; who writes in it is fenced.
        One that its sink has decided ends as that says. Raises what writing raises."""
        found = self._context.store.transactions[key]
        if decided_by_sink(self._context.store, key):
            self._decide(key, found, commits=True)
            return
        self._decide(key, found, commits=False, fences=True, reason=reason)

    def note_marked(
        self, key: TransactionKey, who: ProducerIdentity, partitions: Iterable[PartitionName]
    ) -> None:
        """All that was staged for ``partitions`` in the decided transaction of ``who``, and its
        marker, is committed there: whoever coordinates next has nothing to store in them. Nothing
        is written when that is known, or the transaction complete. Raises what writing raises."""
        found = self._context.find(key)
        if found is None or not found.state.is_prepared or found.identity != who:
            return
        known = self._context.store.marked_in(key)
        wanted = known.union(partitions)
        if len(wanted) > len(known):
            self._context.write(marked_entry(key, Marked(*who, tuple(sorted(wanted)))))

    def complete(
        self, key: TransactionKey, serial: int, *, overtaken: bool = False, dropped: int = 0
    ) -> None:
        """Everybody has been told how transaction ``serial`` ends. ``overtaken``: a log knows a
        higher epoch of the producer than was ever given out, as far as is known here, so the next
        INIT is to give another producer id. ``dropped``: how many staged records were stored
        nowhere. Idempotent. Raises what writing raises."""
        found = self._context.find(key)
        if found is None or found.serial != serial or not found.state.is_prepared:
            return
        wall_ms = self._context.wall_ms()
        self._context.write(completion(key, found, wall_ms, overtaken=overtaken, dropped=dropped))
        self._context.completed()
        self._context.write_pieces(dropped_staging(self._context.store, key))


def begun(found: Transaction, wall_ms: int) -> Transaction:
    """``found`` with a new transaction open."""
    return replace(
        found,
        state=State.ONGOING,
        serial=found.serial + 1,
        began_ms=wall_ms,
        changed_ms=wall_ms,
        ended_producer_id=-1,
        ended_producer_epoch=-1,
        partitions=(),
        groups=(),
        offsets=(),
        topics=(),
        staged=0,
        dropped=0,
        offset_count=0,
        reason="",
    )


def known_topics(before: Sequence[KnownTopic], now: Sequence[KnownTopic]) -> tuple[KnownTopic, ...]:
    """Both; a topic that was made anew replaces the one before, of which nothing is left."""
    merged = {each.name: each for each in (*before, *now)}
    return tuple(merged[name] for name in sorted(merged))


def check_one_topic(what: str, topics: Iterable[KnownTopic]) -> None:
    """Raise InvalidTransactionState where a name means two topics: what was written to the former
    is gone, and the rest must not be committed as if it were all (DESIGN 5.5)."""
    ids: dict[str, UUID] = {}
    for each in topics:
        first = ids.setdefault(each.name, each.topic_id)
        if first != each.topic_id:
            raise InvalidTransactionState(
                f"{what}: {each.name} was deleted and made anew while it was written to (id "
                f"{first.hex}, and {each.topic_id.hex}): do the whole batch again"
            )


def check_identity(key: TransactionKey, known: ProducerIdentity, who: ProducerIdentity) -> None:
    """Raise ProducerFenced, InvalidProducerMapping or InvalidProducerEpoch unless they are one."""
    if who == known:
        return
    text = f"{key}: {who}, expected {known}"
    if who.producer_id != known.producer_id:
        raise InvalidProducerMapping(text)
    raise (ProducerFenced if who.epoch < known.epoch else InvalidProducerEpoch)(text)


def _after(
    identity: ProducerIdentity, spare: int | None, *, is_new: bool = False
) -> ProducerIdentity | None:
    """The identity behind ``identity``, of another producer with ``is_new``; None when that takes
    a spare producer id."""
    if identity.epoch + 1 < LAST_EPOCH and not is_new:
        return ProducerIdentity(identity.producer_id, identity.epoch + 1)
    return None if spare is None else ProducerIdentity(spare, 0)
