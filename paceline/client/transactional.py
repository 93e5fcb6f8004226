"""Writing in transactions: all of it becomes visible, or none.

::

    READY --begin--> OPEN --commit--> COMMITTING --> READY     (OPEN --abort--> READY)
                      |                   | outcome unknown: commit again, or abort
                      | a record failed,  | (nothing can be written any more)
                      v  or abort cut off v
                    FAILED --abort--> READY
    any --ProducerFenced--> FENCED                (somebody has taken over: nothing leads on)
"""

from __future__ import annotations

import enum
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

import trio

from paceline.client.batching import Identity
from paceline.client.coordinator import Coordinator, TransactionCoordinator
from paceline.client.metadata import Metadata
from paceline.client.pool import ConnectionPool
from paceline.client.producer import Producer
from paceline.client.retry import Backoff
from paceline.client.sender import Sender
from paceline.client.settings import ClientSettings, TransactionalSettings
from paceline.client.uncommitted_records import GroupMember
from paceline.errors import (
    Closed,
    InvalidProducerEpoch,
    InvalidProducerMapping,
    InvalidTransactionState,
    PacelineError,
    ProducerFenced,
    error_for,
)
from paceline.types import TopicPartition
from paceline.wire.native.api import NativeApi
from paceline.wire.native.data import InitProducer, ProducerIdentity
from paceline.wire.native.groups import OffsetResults, OffsetToCommit
from paceline.wire.native.transactions import (
    CommitTransactionOffsets,
    EndTransaction,
    TransactionEnded,
)

_FENCING = (ProducerFenced, InvalidProducerEpoch)


class _State(enum.Enum):
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    COMMITTING = "the transaction is being committed, or may have been"
    FAILED = "the transaction has failed and has to be aborted"
    FENCED = "another producer has taken over"


class TransactionalProducer(Producer):
    """Made by :meth:`Client.transactional_producer`; one transaction at a time.

    As a :class:`Producer` whose records are written within :meth:`transaction` (or between
    :meth:`begin` and :meth:`commit` or :meth:`abort`). Consumers with isolation READ_COMMITTED,
    the default, see all records and offsets of a transaction once it is committed, and nothing of
    it otherwise.
    """

    def __init__(
        self,
        transactional_id: str,
        transactional: TransactionalSettings,
        client: ClientSettings,
        pool: ConnectionPool,
        metadata: Metadata,
        backoff: Backoff,
        rng: random.Random,
        wall_ms: Callable[[], int],
    ) -> None:
        settings = transactional.producer
        sender = Sender(settings, pool, metadata, backoff, rng, transactional_id=transactional_id)
        super().__init__(settings, sender, metadata, wall_ms)
        self.transactional_id = transactional_id
        self._transactional = transactional
        self._client = client
        self._pool = pool
        self._backoff = backoff
        self._coordinator = TransactionCoordinator(pool, metadata, backoff, transactional_id)
        self._identity = Identity(-1, -1)
        self._state = _State.READY
        self._is_ending = False
        self._may_be_committed = False

    # --- life -------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Send until cancelled."""
        await self._sender.run()

    async def init(self) -> None:
        """Take the id over: whoever had it is fenced, what it left open is aborted first. Later on
        only what this producer had itself: ProducerFenced where another has it. Raises
        InvalidTransactionTimeout, AuthorizationFailed; the last error after the operation timeout.
        """
        timeout_ms = int(self._transactional.transaction_timeout_s * 1000)
        reply = await self._coordinator.call(
            NativeApi.INIT_PRODUCER,
            InitProducer(self.transactional_id, timeout_ms, *self._identity),
            ProducerIdentity,
            timeout_s=self._client.operation_timeout_s,
        )
        self._identity = Identity(reply.producer_id, reply.producer_epoch)

    async def leave(self) -> None:
        """Abort what is open, as far as that can be done, and close."""
        try:
            if self.in_transaction:
                await self.abort()
        except PacelineError:
            return  # its time-out ends the transaction; the error that counts is another one
        finally:
            self.close()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, be it a failed one."""
        return self._state in (_State.OPEN, _State.COMMITTING, _State.FAILED)

    # --- a transaction ----------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Everything written in the block is committed at its end, or aborted when it is left by
        an error or cancellation. A commit whose outcome was unknown, and that turns out to have
        happened, is one: then no error is raised. One that could not be aborted, for want of its
        coordinator, is ended by the next; raises as :meth:`abort` while it cannot be."""
        if self._state is _State.FAILED:
            await self._end_failed()
        await self.begin()
        has_ended = is_committed = False
        failure: PacelineError | None = None
        try:
            yield
            has_ended = True
            await self.commit()
        except PacelineError as error:
            failure = error
        finally:
            if self.in_transaction:
                with trio.move_on_after(self._client.request_timeout_s, shield=True):
                    is_committed = await self._abandon()
        if failure is not None and not (has_ended and is_committed):
            raise failure

    async def _end_failed(self) -> None:
        """Abort it, unless a commit of unknown outcome has happened."""
        try:
            await self.abort()
        except InvalidTransactionState:
            if self._state is not _State.READY:
                raise

    async def _abandon(self) -> bool:
        """Abort behind an error, which must not be hidden by another; whether it turned out to be
        committed."""
        try:
            await self.abort()
        except InvalidTransactionState:
            return self._state is _State.READY
        except PacelineError:
            pass
        return False

    async def begin(self) -> None:
        """Open a transaction. Raises InvalidTransactionState when one is open, or has failed and is
        not aborted yet, and ProducerFenced."""
        await trio.lowlevel.checkpoint()
        if self._closed:
            raise Closed("the producer is closed")
        self._require(_State.READY)
        self._sender.begin(self._identity)
        self._may_be_committed = False
        self._state = _State.OPEN

    async def commit(self) -> None:
        """Commit: when this returns, it is decided and durable, and readers see it (or will, after
        ``visible_s``).

        Raises what a record failed with, also when that was told before, and then only
        :meth:`abort` leads on; ProducerFenced (the coordinator has aborted it, for it was open too
        long, or another producer took over);
        RequestTimedOut, ConnectionLost: the outcome is unknown, call it again. From its beginning
        on nothing can be written before the next :meth:`begin`.
        """
        self._require(_State.OPEN, _State.COMMITTING)
        if self._is_ending:
            raise InvalidTransactionState(f"{self.transactional_id}: {_State.COMMITTING.value}")
        self._state = _State.COMMITTING
        self._is_ending = True
        try:
            try:
                await self.flush()
                if self._accumulator.first_failure is not None:
                    raise self._accumulator.first_failure.with_traceback(None)
            except PacelineError as error:
                self._fail(error)
                raise
            could_be, self._may_be_committed = self._may_be_committed, True
            try:
                await self._end(commits=True)
            except InvalidProducerMapping:
                self._may_be_committed = could_be
                raise
        finally:
            self._is_ending = False

    async def abort(self) -> None:
        """Take everything back. Raises as :meth:`commit`; InvalidTransactionState when a commit of
        unknown outcome has happened after all: then it stays, and the next may :meth:`begin`;
        InvalidProducerMapping when nobody knows that any more, and the next may, too. One
        that raised anything else, or was cancelled, has to be called again: nothing can be written
        or committed before."""
        self._require(_State.OPEN, _State.COMMITTING, _State.FAILED)
        self._state = _State.FAILED  # from here on, however far this gets, only an abort leads on
        self._drop_all()
        refused: PacelineError | None = None
        try:
            await self._end(commits=False)
        except (InvalidTransactionState, InvalidProducerMapping) as error:
            refused = error
        if isinstance(refused, InvalidTransactionState):
            # It is committed, so saying that again changes nothing and tells who writes next.
            await self._end(commits=True)
            raise refused
        if refused is not None:
            await self._begin_anew()
            if self._may_be_committed:
                raise refused

    async def _begin_anew(self) -> None:
        """The id has been forgotten, for nothing was written under it for days: no transaction is
        open. Unless another has it by now."""
        try:
            await self.init()
        except _FENCING as error:
            self._fail(error)
            raise
        self._state = _State.READY

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, int], group: str | GroupMember
    ) -> None:
        """Commit consumed offsets (the next to read) with the transaction. ``group``: a
        ``GroupConsumer.member``, whose generation fences it, or the name of a group that has none.

        Raises IllegalGeneration, UnknownMember, RebalanceInProgress: others may read by now what
        the transaction is made from, or the consumer reads it again. Abort and begin anew.
        """
        self._require(_State.OPEN)
        member = GroupMember(group) if isinstance(group, str) else group
        holder = member.holder
        try:
            if holder is not None:
                holder.check_held(offsets)
            await self._send_offsets(offsets, member)
            if holder is not None:  # nothing has moved while it was on its way
                holder.check_held(offsets)
        except PacelineError as error:
            self._fail(error)
            if holder is not None:
                holder.offsets_refused(offsets)
            raise
        if holder is not None:
            holder.offsets_sent(offsets)

    async def _send_offsets(
        self, offsets: Mapping[TopicPartition, int], member: GroupMember
    ) -> None:
        coordinator = Coordinator(self._pool, self._metadata, self._backoff, member.group)
        request = CommitTransactionOffsets(
            self.transactional_id,
            *self._identity,
            member.group,
            member.generation,
            member.member_id,
            tuple(OffsetToCommit(at.topic, at.partition, offset) for at, offset in offsets.items()),
            member.instance_id,
        )
        results = await coordinator.call(
            NativeApi.COMMIT_TRANSACTION_OFFSETS,
            request,
            OffsetResults,
            timeout_s=self._client.operation_timeout_s,
        )
        for each in results.partitions:
            if each.error:
                raise error_for(each.error, f"{each.topic}/{each.partition}")

    # --- inside -----------------------------------------------------------------------------------

    def _check_open(self) -> None:
        super()._check_open()
        self._require(_State.OPEN)

    def _require(self, *states: _State) -> None:
        if self._state in states:
            return
        if self._state is _State.FENCED:
            raise ProducerFenced(f"{self.transactional_id}: {_State.FENCED.value}")
        raise InvalidTransactionState(f"{self.transactional_id}: {self._state.value}")

    def _fail(self, error: PacelineError) -> None:
        self._state = _State.FENCED if isinstance(error, _FENCING) else _State.FAILED
        self._drop_all()

    def _drop_all(self) -> None:
        """Nothing more of the transaction goes out; what is on its way is refused or aborted."""
        self._accumulator.give_up_all(Closed("the transaction was aborted"))

    async def _end(self, *, commits: bool) -> None:
        visible_s = self._transactional.visible_s
        request = EndTransaction(
            self.transactional_id, *self._identity, commits, int(visible_s * 1000)
        )
        try:
            ended = await self._coordinator.call(
                NativeApi.END_TRANSACTION,
                request,
                TransactionEnded,
                timeout_s=self._client.operation_timeout_s,
                wait_s=visible_s,
            )
        except (*_FENCING, InvalidProducerMapping) as error:
            self._fail(error)
            raise
        self._identity = Identity(ended.producer_id, ended.producer_epoch)
        self._state = _State.READY
