"""Transaction commands of Cursus, at the transaction coordinator (DESIGN 5.5).

What a client publishes is staged at the coordinator and reaches a log only when the transaction is
committed, so that readers of uncommitted records never see one that was aborted, and no open
transaction keeps readers of committed ones waiting. A client is told that it is committed once all
of it can be read. Its epoch counts INITs, and one epoch may have many transactions, one after the
other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import TypeVar

import trio

from paceline.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    GroupNotFound,
    IllegalGeneration,
    InvalidTransactionState,
    NotEnoughReplicas,
    NotLeader,
    PartitionNotOwned,
    ProducerFenced,
    TransactionNotFound,
    TransactionTooLarge,
    UnknownMember,
)
from paceline.wire.cursus import replies, requests
from paceline.wire.cursus.batch import CursusRecord
from paceline.wire.cursus.errors import CursusError, invalid, partition_not_found, quoted
from paceline.wire.cursus_record_mapping import record_of
from paceline_node.bare_errors import bare
from paceline_node.detailed_errors import SequenceReused
from paceline_node.env import Env
from paceline_node.listeners.cursus.coordinators import ANSWER_S, Coordinators, told_where
from paceline_node.listeners.cursus.groups import CursusGroupCommands
from paceline_node.listeners.cursus.produce import CursusProduce
from paceline_node.listeners.cursus.session import CursusCall, Outcome, Reply, text
from paceline_node.listeners.cursus.topic_lookup import LISTENER, TopicLookup
from paceline_node.security.principals import Operation
from paceline_node.services.groups.open_group import OpenGroup
from paceline_node.services.records.produce import ProduceService
from paceline_node.services.topics.cluster_view import TopicView
from paceline_node.services.transactions.transaction_service import TransactionService
from paceline_node.services.transactions.transaction_values import RecordToStage, StagedInfo
from paceline_node.transaction_names import Family, TransactionKey

R = TypeVar("R")
_PAUSE_S = 0.02
_SHOWN = {
    "ongoing": "open",
    "prepare_commit": "committing",
    "complete_commit": "committed",
}
"""What clients are told of a state; all others are aborted."""


def producer_name(transactional_id: str) -> str:
    """What the producer of a transactional id is called."""
    return f"txn-{sha256(transactional_id.encode()).hexdigest()[:16]}"


def key_of(transactional_id: str) -> TransactionKey:
    """The key of a transactional id of Cursus."""
    return TransactionKey(Family.CURSUS, transactional_id)


class CursusTransactions:
    """Answers INIT_PRODUCER_ID, BEGIN_TXN, TXN_PUBLISH, SEND_OFFSETS_TO_TXN, END_TXN, TXN_STATUS,
    and FIND_COORDINATOR of a transactional id."""

    def __init__(
        self,
        env: Env,
        transactions: TransactionService,
        topics: ProduceService,
        places: TopicLookup,
        produce: CursusProduce,
        groups: CursusGroupCommands,
        coordinators: Coordinators,
        *,
        timeout_ms: int,
    ) -> None:
        self._env = env
        self._transactions = transactions
        self._topics = topics
        self._places = places
        self._produce = produce
        self._groups = groups
        self._coordinators = coordinators
        self._timeout_ms = timeout_ms

    async def find_coordinator(self, request: requests.FindCoordinator, call: CursusCall) -> Reply:
        """The address of a transactional id's coordinator, or of a group's."""
        if request.transactional_id is None:
            return await self._groups.find_coordinator(request, call)
        name, until = request.transactional_id, self._coordinators.until(call)
        while True:
            try:
                broker = self._transactions.coordinator(
                    call.principal, Operation.TRANSACT, name, LISTENER
                )
                return told_where(broker, "transaction")
            except CoordinatorNotAvailable:
                if self._env.now() + _PAUSE_S > until:
                    raise _no_coordinator(name) from None
            await trio.sleep(_PAUSE_S)

    async def init(self, request: requests.InitProducerId, call: CursusCall) -> Reply:
        """A new epoch, which fences whoever has an older one; aborts what is open."""
        name = request.transactional_id

        async def here() -> Reply:
            try:
                told = await self._ended_before(
                    lambda: self._transactions.init(call.principal, key_of(name), self._timeout_ms),
                    call,
                )
            except ConcurrentTransactions as error:
                reason = quoted(str(error))
                raise CursusError("init_producer_failed", f"reason={reason}") from None
            fields = {"producerId": producer_name(name), "epoch": told.wire_epoch}
            return text(replies.ok(transactional_id=name, **fields))

        return await self._at_coordinator(name, call, here)

    async def begin(self, request: requests.BeginTransaction, call: CursusCall) -> Reply:
        """Open a transaction. Repeated before anything was staged, it is the same one."""
        fence = request.fence

        async def here() -> Reply:
            opened = await self._ended_before(
                lambda: self._transactions.begin_staged(
                    call.principal,
                    key_of(fence.transactional_id),
                    fence.epoch,
                    acted=call.session.acted,
                ),
                call,
            )
            if opened.staged or opened.offsets:
                detail = f"transactional_id={fence.transactional_id} epoch={fence.epoch}"
                raise CursusError("producer_reinitialization_required", detail)
            fields = {"state": "open", "producerId": fence.producer_id, "epoch": fence.epoch}
            return text(replies.ok(transactional_id=fence.transactional_id, **fields))

        return await self._fenced(fence, call, here)

    async def publish(
        self, published: Sequence[requests.TransactionPublish], call: CursusCall
    ) -> list[Outcome]:
        """Stage records for one topic in one transaction, by one write; those whose numbers are
        staged already are passed over. One whose partition does not exist, or whose number is
        another record's, is refused alone, for all else all are. The answers say how many are
        staged by now, not how many were when it was one's turn."""
        fence, name = published[0].fence, published[0].topic
        opened = self._topics.open(call.principal, name)
        topic = await self._places.topic(name)
        misplaced = {
            place: refusal
            for place, each in enumerate(published)
            if (refusal := _misplaced(each, topic)) is not None
        }
        records = {
            place: self._staged(each, topic)
            for place, each in enumerate(published)
            if place not in misplaced
        }
        reused: dict[int, CursusError] = {}

        async def here() -> Reply:
            reused.clear()
            while left := [place for place in records if place not in reused]:
                try:
                    grown = await self._transactions.stage(
                        call.principal,
                        key_of(fence.transactional_id),
                        fence.epoch,
                        opened,
                        [records[place] for place in left],
                        chosen={at for at, n in enumerate(left) if published[n].partition is None},
                        acted=call.session.acted,
                    )
                except SequenceReused as error:
                    reused.update({left[at]: _reused(published[left[at]]) for at in error.places})
                    continue
                fields = {"staged_messages": grown.staged, "topic": name}
                return [
                    replies.ok(
                        transactional_id=fence.transactional_id,
                        **fields,
                        partition=records[place].partition,
                    ).encode()
                    for place in left
                ]
            return ()

        answers = iter(await self._fenced(fence, call, here) if records else ())
        refused = misplaced | reused
        return [refused.get(place) or (next(answers),) for place in range(len(published))]

    def _staged(self, request: requests.TransactionPublish, topic: TopicView) -> RecordToStage:
        key = request.key.encode()
        partition = request.partition
        if partition is None:
            partition = self._produce.choose(topic, key)
        record = record_of(
            CursusRecord(
                0,
                request.sequence,
                request.fence.producer_id.encode(),
                key,
                request.fence.epoch,
                request.message.encode(),
            )
        )
        return RecordToStage(partition, request.sequence, record)

    async def send_offsets(self, request: requests.SendOffsets, call: CursusCall) -> Reply:
        """Stage offsets that the group commits with the transaction."""
        fence = request.fence
        who = requests.SyncGroup(request.topic, request.group, request.member, request.generation)

        async def here() -> Reply:
            key = key_of(fence.transactional_id)
            before = await self._transactions.known(call.principal, key)
            own = (who.group, who.topic, who.member, who.generation)
            for each in before.offsets:
                if (each.group.group, each.topic, each.member, each.generation) != own:
                    reason = quoted("a transaction has one topic, group, member and generation")
                    raise CursusError("transaction_offsets_failed", f"reason={reason}")
            opened = self._groups.open_to_commit(who.group, who.topic, call)
            await self._groups.check_owner(who, [number for number, _ in request.offsets], call)
            grown = await self._transactions.stage_offsets(
                call.principal,
                key,
                fence.epoch,
                opened,
                request.offsets,
                member=who.member,
                generation=who.generation,
                acted=call.session.acted,
            )
            return text(
                replies.ok(
                    transactional_id=fence.transactional_id, staged_offsets=len(grown.offsets)
                )
            )

        return await self._fenced(fence, call, here)

    async def end(self, request: requests.EndTransaction, call: CursusCall) -> Reply:
        """Commit or abort; a repeated one is answered as before. Answered once readers everywhere
        can see it, else ``transaction_commit_failed``: then it is decided, and to be repeated."""
        fence, commits = request.fence, request.commit
        name = fence.transactional_id

        async def here() -> Reply:
            found = await self._known(name, call)
            if found.state == "empty" and not commits and found.wire_epoch == fence.epoch:
                return text(replies.ok(transactional_id=name, state="aborted"))
            named = sorted({each.group for each in found.offsets}) if commits else []
            groups = [self._groups.open_to_commit(each.group, each.subject, call) for each in named]
            if not await self._ended(fence, found, groups, call, commits=commits):
                reason = quoted("it is decided, not everybody has been told; ask again")
                raise CursusError("transaction_commit_failed", f"reason={reason}")
            if not commits:
                return text(replies.ok(transactional_id=name, state="aborted"))
            # As it is complete, unless its client has begun another one meanwhile.
            done = await self._known(name, call)
            return _shown(name, done if done.serial == found.serial else found, "committed")

        return await self._fenced(fence, call, here, ends=commits)

    async def status(self, request: requests.TransactionStatus, call: CursusCall) -> Reply:
        """The state of the last transaction, and what is in it."""
        name = request.transactional_id

        async def here() -> Reply:
            found = await self._known(name, call)
            return _shown(name, found, _SHOWN.get(found.state, "aborted"))

        return await self._at_coordinator(name, call, here)

    # --- parts ------------------------------------------------------------------------------------

    async def _known(self, name: str, call: CursusCall) -> StagedInfo:
        """The transactional id as it stands. Raises TransactionNotFound."""
        return await self._transactions.known(call.principal, key_of(name))

    async def _ended(
        self,
        fence: requests.TransactionFence,
        found: StagedInfo,
        groups: Sequence[OpenGroup],
        call: CursusCall,
        *,
        commits: bool,
    ) -> bool:
        """End the transaction, as :meth:`TransactionService.end_staged`; whether all can be read.
        Raises as
        :meth:`CursusGroupCommands.check_owner` where the group refuses ``found``'s offsets."""
        key, wait_s = key_of(fence.transactional_id), self._coordinators.left_s(call)
        try:
            ended = await self._transactions.end_staged(
                call.principal,
                key,
                fence.epoch,
                groups,
                commits=commits,
                wait_s=wait_s,
                acted=call.session.acted,
            )
            return ended.complete
        except (GroupNotFound, UnknownMember, IllegalGeneration, PartitionNotOwned) as error:
            reason = quoted(str(error))
        if found.offsets:
            first = found.offsets[0]
            who = requests.SyncGroup(first.topic, first.group.group, first.member, first.generation)
            numbers = [each.partition for each in found.offsets]
            await self._groups.check_owner(who, numbers, call)  # says it in Cursus's words
        raise CursusError("transaction_sync_failed", f"reason={reason}")

    async def _ended_before(self, command: Callable[[], Awaitable[R]], call: CursusCall) -> R:
        """What ``command`` says once the transaction before has been ended everywhere. Raises
        ConcurrentTransactions when that takes longer than the call has."""
        until = call.deadline - ANSWER_S
        while True:
            try:
                return await command()
            except ConcurrentTransactions:
                if self._env.now() + _PAUSE_S > until:
                    raise
            await trio.sleep(_PAUSE_S)

    async def _fenced(
        self,
        fence: requests.TransactionFence,
        call: CursusCall,
        here: Callable[[], Awaitable[Reply]],
        *,
        ends: bool | None = None,
    ) -> Reply:
        """As :meth:`_at_coordinator`, for one who says who it is. ``ends``: whether a refused END
        was to commit."""
        name = fence.transactional_id

        async def judged() -> Reply:
            try:
                if fence.producer_id != producer_name(name):
                    raise ProducerFenced(f"{name}: producer {fence.producer_id}")
                return await here()
            except (ProducerFenced, InvalidTransactionState) as error:
                refused = bare(error)
            except ConcurrentTransactions as error:
                raise CursusError(
                    "transaction_sync_failed", f"reason={quoted(str(error))}"
                ) from None
            except TransactionTooLarge as error:
                reason = quoted(str(error))
                raise CursusError("transaction_publish_failed", f"reason={reason}") from None
            known = await self._known(name, call)
            if isinstance(refused, InvalidTransactionState):
                raise _wrong_state(name, known, ends=ends) from refused
            detail = f"current_epoch={known.wire_epoch} requested_epoch={fence.epoch}"
            if known.wire_epoch == fence.epoch:
                detail += f" reason={quoted(str(refused))}"
            raise CursusError("producer_fenced", f"transactional_id={name} {detail}") from refused

        return await self._at_coordinator(name, call, judged)

    async def _at_coordinator(
        self, name: str, call: CursusCall, here: Callable[[], Awaitable[Reply]]
    ) -> Reply:
        until = self._coordinators.until(call)
        try:
            return await self._coordinators.serve(
                *self._transactions.place,
                call,
                here,
                lambda node: self._coordinators.forward(node, call),
                until=until,
            )
        except TransactionNotFound as error:
            raise CursusError("transaction_not_found", f"reason={quoted(str(error))}") from None
        except (NotLeader, NotEnoughReplicas):
            raise _no_coordinator(name) from None


def _shown(name: str, found: StagedInfo, state: str) -> Reply:
    """What is in a transaction. What of it was stored nowhere, because its topic was deleted, is
    known once everybody has been told, and is a field of its own where there is any."""
    if state == "aborted":
        return text(replies.ok(transactional_id=name, state=state, messages=0, offsets=0))
    fields = {"messages": found.staged - found.dropped, "offsets": found.offset_count}
    if found.dropped:
        fields["dropped"] = found.dropped
    return text(replies.ok(transactional_id=name, state=state, **fields))


def _misplaced(request: requests.TransactionPublish, topic: TopicView) -> CursusError | None:
    partition = request.partition
    if partition is None or partition in topic.partitions:
        return None
    return partition_not_found(partition)


def _reused(request: requests.TransactionPublish) -> CursusError:
    reason = f"seqNum {request.sequence} is that of another record of the transaction"
    return invalid("seq_num", "TXN_PUBLISH", reason)


def _no_coordinator(name: str) -> CursusError:
    return CursusError("coordinator_not_available", f"transactional_id={name}")


def _wrong_state(name: str, found: StagedInfo, *, ends: bool | None) -> CursusError:
    """Why a command cannot be carried out in the state that the transaction is in."""
    if found.state == "prepare_commit" and ends is False:
        detail = f"transactional_id={name} state=committing"
        return CursusError("transaction_not_abortable", detail)
    word = "transaction_already_committed" if found.commits else "transaction_aborted"
    return CursusError(word, f"transactional_id={name}")
