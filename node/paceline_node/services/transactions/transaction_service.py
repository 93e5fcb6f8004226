"""Transactions of all protocols: who coordinates, and every command where this node does.

``__transactions`` has one partition, so one node coordinates all; another raises NotCoordinator.
Every answer is committed when it comes. What holds for all methods that ask the coordinator:

NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable: nothing was done, ask again
(elsewhere). RequestTimedOut, LeaderChangedAfterAppend: it may have been; every command but
``begin_attempt`` may be repeated as it is. ConcurrentTransactions: the transaction before is still
being ended; ask again. Cancelling does not undo what was written.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeVar

from paceline.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerMapping,
    InvalidRequest,
    InvalidTransactionState,
    PolicyViolation,
    ProducerFenced,
    UnknownTopicOrPartition,
)
from paceline.types import is_internal_topic
from paceline.wire.peer import transactions as wire
from paceline.wire.peer.names import GroupName, PartitionName
from paceline_node.controller.image import Broker, Image
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.loop_turns import Turns
from paceline_node.security.principals import Operation, Principal, Resource, ResourceKind
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.groups.open_group import OpenGroup
from paceline_node.services.partitions.writable_topic import WritableTopic
from paceline_node.services.transactions.connection_transactions import ConnectionTransactions
from paceline_node.services.transactions.producer_ids import ProducerIdService
from paceline_node.services.transactions.transaction_endings import TransactionEndings
from paceline_node.services.transactions.transaction_rpc import topics_of
from paceline_node.services.transactions.transaction_values import (
    Initialised,
    RecordToStage,
    StagedInfo,
    TransactionInfo,
    info_of,
    staged_info,
    staged_record,
)
from paceline_node.settings.addresses import kind_of_endpoint
from paceline_node.sliced_work import Work
from paceline_node.state_machines.machine import EVERYTHING
from paceline_node.state_machines.topic import StateTopic
from paceline_node.transaction_names import ProducerIdentity, TransactionKey
from paceline_node.transactions.engine import TransactionEngine
from paceline_node.transactions.keys import PARTITION, TRANSACTIONS_TOPIC
from paceline_node.transactions.producers import Ended
from paceline_node.transactions.records import (
    Sink,
    StagedOffset,
    State,
    Transaction,
)
from paceline_node.transactions.sinks import Attempt, SinkTransaction

R = TypeVar("R")
_AT_A_TIME = 200
"""Ids in one command of a list."""
_MERGED_PER_UNIT = 4
_STATES = {state.name.lower(): state for state in State}


class TransactionService:
    """Runs commands on the coordinator's engine, where that is here."""

    def __init__(
        self,
        env: Env,
        store: MetadataStore,
        machines: StateTopic[TransactionEngine],
        endings: TransactionEndings,
        producer_ids: ProducerIdService,
        access: Authorizer,
        turns: Turns,
        *,
        commit_s: float,
    ) -> None:
        self._env = env
        self._store = store
        self._machines = machines
        self._endings = endings
        self._producer_ids = producer_ids
        self._access = access
        self._turns = turns
        self._commit_s = commit_s

    @property
    def place(self) -> tuple[str, int]:
        """The topic and the partition whose leader coordinates."""
        return TRANSACTIONS_TOPIC, PARTITION

    def permit(self, principal: Principal, operation: Operation, name: str) -> None:
        """Raise AuthorizationFailed unless ``principal`` may ``TRANSACT`` under, or ``DESCRIBE``, a
        transactional id or a sink; its name counts, whatever the family."""
        self._access.resource(principal, operation, Resource(ResourceKind.TRANSACTION, name))

    def coordinator(
        self, principal: Principal, operation: Operation, name: str, *listeners: str
    ) -> Broker:
        """The node that coordinates, as the metadata say, for ``principal`` to do this to ``name``.
        Raises AuthorizationFailed; CoordinatorNotAvailable where nobody coordinates, or who does
        has none of ``listeners`` (DESIGN 3.3)."""
        self.permit(principal, operation, name)
        image = self._store.image
        try:
            leader = image.partition(TRANSACTIONS_TOPIC, PARTITION).leader
        except UnknownTopicOrPartition as error:
            raise CoordinatorNotAvailable(f"{TRANSACTIONS_TOPIC} does not exist yet") from error
        broker = image.brokers.get(leader)
        if broker is None:
            raise CoordinatorNotAvailable(f"{TRANSACTIONS_TOPIC} has no leader")
        if all(broker.endpoint(each) is None for each in listeners):
            kinds = " or ".join(map(kind_of_endpoint, listeners))
            raise CoordinatorNotAvailable(f"node {leader} has no {kinds} listener")
        return broker

    # --- producers with a transactional id --------------------------------------------------------

    async def init(
        self,
        principal: Principal,
        key: TransactionKey,
        timeout_ms: int,
        *,
        expected: ProducerIdentity | None = None,
    ) -> Initialised:
        """See :meth:`ProducerTransactions.init`. Raises what
        :meth:`ProducerIdService.next_id` does too."""
        self.permit(principal, Operation.TRANSACT, key.owner)

        def command(engine: TransactionEngine, spare: int | None) -> Initialised | None:
            identity = engine.producers.init(
                key, timeout_ms, expected=expected, spare=spare, client=principal.account
            )
            if identity is None:
                return None
            return Initialised(identity, engine.store.transactions[key].wire_epoch)

        return await self._with_spare(command)

    async def add_partitions(
        self,
        principal: Principal,
        key: TransactionKey,
        who: ProducerIdentity,
        partitions: Sequence[tuple[WritableTopic, int]],
    ) -> None:
        """See :meth:`ProducerTransactions.add_partitions`. Raises UnknownTopicOrPartition and
        PolicyViolation (internal topics) too; then none was added. Each leader asks, too, whether
        the principal may write to the topic."""
        self.permit(principal, Operation.TRANSACT, key.owner)
        image = self._store.image
        members = [_member(image, topic.name, number) for topic, number in partitions]
        await self._perform(
            lambda engine: engine.producers.add_partitions(
                key,
                who,
                members,
                image.offset,
                topics_of(image, [topic.name for topic, _ in partitions]),
            )
        )

    async def add_group(
        self, principal: Principal, key: TransactionKey, who: ProducerIdentity, group: OpenGroup
    ) -> None:
        """See :meth:`ProducerTransactions.add_group`; the group was opened to commit offsets."""
        self.permit(principal, Operation.TRANSACT, key.owner)
        added = group.key.name
        await self._perform(lambda engine: engine.producers.add_group(key, who, added))

    async def end(
        self,
        principal: Principal,
        key: TransactionKey,
        who: ProducerIdentity,
        *,
        commits: bool,
        bumps: bool,
        wait_s: float = 0.0,
    ) -> Ended:
        """See :meth:`ProducerTransactions.end`. What this returns is decided and durable. With
        ``wait_s`` it returns later, when readers everywhere can see it, but no later than that:
        ``complete`` says which it was."""
        self.permit(principal, Operation.TRANSACT, key.owner)

        def command(engine: TransactionEngine, spare: int | None) -> Ended | None:
            ended = engine.producers.end(key, who, commits=commits, bumps=bumps, spare=spare)
            self._env.host.buggify("transaction.deciding")
            return ended

        ended = await self._with_spare(command)
        return await self._awaited(key, ended, wait_s)

    async def _awaited(self, key: TransactionKey, ended: Ended, wait_s: float) -> Ended:
        if ended.complete or not await self._endings.wait_complete(key, wait_s):
            return ended
        return Ended(ended.identity, complete=True)

    # --- staged transactions ----------------------------------------------------------------------

    async def begin_staged(
        self,
        principal: Principal,
        key: TransactionKey,
        wire_epoch: int,
        *,
        acted: ConnectionTransactions | None = None,
    ) -> Transaction:
        """See :meth:`StagedTransactions.begin`; the id exists once it was :meth:`init`."""
        self.permit(principal, Operation.TRANSACT, key.owner)
        return await self._with_spare(
            lambda engine, spare: engine.staging.begin(key, wire_epoch, spare=spare, acted=acted)
        )

    async def stage(
        self,
        principal: Principal,
        key: TransactionKey,
        wire_epoch: int,
        topic: WritableTopic,
        records: Sequence[RecordToStage],
        *,
        chosen: Collection[int] = (),
        acted: ConnectionTransactions | None = None,
    ) -> Transaction:
        """See :meth:`StagedTransactions.stage`; all records are for ``topic``. Raises
        UnknownTopicOrPartition and PolicyViolation too."""
        self.permit(principal, Operation.TRANSACT, key.owner)
        image = self._store.image
        for each in records:
            _member(image, topic.name, each.partition)
        now_ms = self._env.host.wall_ms()
        staged = [staged_record(topic.name, each, now_ms) for each in records]
        return await self._perform(
            lambda engine: engine.staging.stage(
                key,
                wire_epoch,
                staged,
                image.offset,
                topics_of(image, [topic.name] if records else []),
                chosen=chosen,
                acted=acted,
            )
        )

    async def stage_offsets(
        self,
        principal: Principal,
        key: TransactionKey,
        wire_epoch: int,
        group: OpenGroup,
        offsets: Sequence[tuple[int, int]],
        *,
        member: str,
        generation: int,
        acted: ConnectionTransactions | None = None,
    ) -> Transaction:
        """See :meth:`StagedTransactions.stage_offsets`; by partition of the topic of ``group``,
        which was opened to commit offsets. Whether the member may commit them is asked by the
        caller, of the group."""
        self.permit(principal, Operation.TRANSACT, key.owner)
        topic = group.key.subject
        topic_id = self._store.image.topic_ids.get(topic)
        staged = [
            StagedOffset(
                group.key.name,
                topic,
                partition,
                offset,
                member=member,
                generation=generation,
                topic_id=topic_id,
            )
            for partition, offset in offsets
        ]
        return await self._perform(
            lambda engine: engine.staging.stage_offsets(key, wire_epoch, staged, acted=acted)
        )

    async def end_staged(
        self,
        principal: Principal,
        key: TransactionKey,
        wire_epoch: int,
        groups: Sequence[OpenGroup],
        *,
        commits: bool,
        wait_s: float,
        acted: ConnectionTransactions | None = None,
    ) -> Ended:
        """See :meth:`StagedTransactions.end`, and :meth:`end` for ``wait_s``. Before a commit its
        offsets are made pending in their group: raises as
        :meth:`TransactionRpc.stage_offsets`, too, and then nothing was decided. ``groups``
        were opened to commit offsets: ConcurrentTransactions, with nothing decided, when there are
        offsets of another one by now."""
        self.permit(principal, Operation.TRANSACT, key.owner)
        until = self._env.now() + wait_s
        pending = await self._pending(key, wire_epoch, groups, acted) if commits else None

        def command(engine: TransactionEngine, spare: int | None) -> Ended | None:
            ended = engine.staging.end(
                key, wire_epoch, commits=commits, pending=pending, spare=spare, acted=acted
            )
            self._env.host.buggify("transaction.deciding")
            return ended

        ended = await self._with_spare(command)
        return await self._awaited(key, ended, max(0.0, until - self._env.now()))

    async def _pending(
        self,
        key: TransactionKey,
        wire_epoch: int,
        opened: Sequence[OpenGroup],
        acted: ConnectionTransactions | None,
    ) -> Transaction | None:
        """The open transaction of ``key``, once its offsets are pending; None where there is no
        such one: what that means is for the decision to say."""
        found = await self._perform(
            lambda engine: engine.staging.identified(key, wire_epoch, acted)
        )
        if found.state is not State.ONGOING:
            return None
        groups = {each.group for each in found.offsets}
        if not groups <= {each.key.name for each in opened}:
            raise ConcurrentTransactions(f"{key}: offsets were added as it was ended; end it again")
        try:
            for group in sorted(groups):
                offsets = [each for each in found.offsets if each.group == group]
                await self._endings.rpc.stage_offsets(_staging(key, found, group, offsets))
                self._env.host.buggify("transaction.offsets-pending")
        except (
            ProducerFenced,
            InvalidProducerEpoch,
            InvalidProducerMapping,
            InvalidTransactionState,
        ):
            return None  # it was ended meanwhile, or the group has another coordinator by now
        return found

    # --- sinks ------------------------------------------------------------------------------------

    async def begin_attempt(
        self,
        principal: Principal,
        sink: str,
        query: str,
        run: str,
        batch: int,
        partition: int,
        number: int,
        planned_ms: int,
        timeout_ms: int,
    ) -> SinkTransaction:
        """See :meth:`SinkTransactions.begin`, and :class:`Attempt` for who begins. Repeated after
        an unknown outcome it opens another transaction; the lost one ends with the next commit, or
        its time-out."""
        self.permit(principal, Operation.TRANSACT, sink)
        attempt = Attempt(sink, query, run, batch, partition, number, planned_ms)
        spare = await self._producer_ids.allocate()
        return await self._perform(
            lambda engine: engine.sinks.begin(attempt, timeout_ms, spare, principal.account)
        )

    async def touch_batch(self, principal: Principal, sink: str, run: str, batch: int) -> int:
        """See :meth:`SinkTransactions.touch`."""
        self.permit(principal, Operation.TRANSACT, sink)
        return await self._perform(lambda engine: engine.sinks.touch(sink, run, batch))

    async def commit_group(
        self,
        principal: Principal,
        sink: str,
        run: str,
        batch: int,
        transactions: Sequence[str],
        *,
        wait_s: float = 0.0,
    ) -> bool:
        """See :meth:`SinkTransactions.commit`; returns whether readers everywhere can see all of it
        (after ``wait_s`` at most)."""
        self.permit(principal, Operation.TRANSACT, sink)

        def command(engine: TransactionEngine) -> None:
            engine.sinks.commit(sink, run, batch, transactions)
            self._env.host.buggify("transaction.deciding")

        await self._perform(command)
        return await self._endings.wait_sink(sink, batch, wait_s)

    async def abort_group(
        self,
        principal: Principal,
        sink: str,
        batch: int,
        transactions: Sequence[str],
        *,
        run: str = "",
    ) -> None:
        """See :meth:`SinkTransactions.abort`."""
        self.permit(principal, Operation.TRANSACT, sink)
        await self._perform(lambda engine: engine.sinks.abort(sink, batch, transactions, run))

    async def sink_state(self, principal: Principal, sink: str) -> Sink | None:
        """The sink as it stands; None when it is not known."""
        self.permit(principal, Operation.DESCRIBE, sink)
        return await self._perform(lambda engine: engine.sinks.state(sink))

    # --- operators --------------------------------------------------------------------------------

    async def list(self, principal: Principal, states: Sequence[str]) -> Sequence[TransactionInfo]:
        """All ids that the principal may see, in one of ``states`` (empty: any), by family and
        name. Each as it is in its turn: who lists 100,000 keeps nobody else waiting. Raises
        InvalidRequest for what is no state."""
        wanted = states_named(states)
        keys = await self.keys()
        runs = []
        for at in range(0, len(keys), _AT_A_TIME):
            await self._turns.next()
            found = await self.infos(keys[at : at + _AT_A_TIME], wanted)
            seen = [each for each in found if self.may_see(principal, each.key)]
            runs.append(sorted(seen, key=_place))
        return await self._turns.run(_merged(runs))

    async def keys(self) -> Sequence[TransactionKey]:
        """Of all ids, in no order. Nobody is asked whether that may be told."""
        return await self._perform(lambda engine: engine.inspection.keys())

    async def infos(
        self, some: Sequence[TransactionKey], states: frozenset[State]
    ) -> Sequence[TransactionInfo]:
        """Those of a few that are in one of ``states`` (empty: any). Nobody is asked either."""
        return await self._perform(partial(_listed, some, states))

    def may_see(self, principal: Principal, key: TransactionKey) -> bool:
        """Whether lists show ``principal`` an id."""
        resource = Resource(ResourceKind.TRANSACTION, key.owner)
        return self._access.allows(principal, Operation.DESCRIBE, resource)

    async def known(self, principal: Principal, key: TransactionKey) -> StagedInfo:
        """An id of staged transactions, for its client. See :meth:`StagedTransactions.known`."""
        self.permit(principal, Operation.DESCRIBE, key.owner)
        found = await self._perform(lambda engine: engine.staging.known(key))
        return staged_info(found)

    async def describe(self, principal: Principal, key: TransactionKey) -> TransactionInfo:
        """One id. Raises TransactionNotFound."""
        self.permit(principal, Operation.DESCRIBE, key.owner)
        return info_of(await self._perform(lambda engine: engine.inspection.describe(key)))

    async def abort(self, principal: Principal, key: TransactionKey, *, wait_s: float) -> Ended:
        """Abort an open transaction for an operator, and fence its producer. Raises
        TransactionNotFound, InvalidTransactionState."""
        self.permit(principal, Operation.TRANSACT, key.owner)

        def command(engine: TransactionEngine) -> Ended:
            engine.inspection.abort(key, "aborted by an operator")
            return Ended(engine.store.transactions[key].next_identity, complete=False)

        return await self._awaited(key, await self._perform(command), wait_s)

    # --- the way in -------------------------------------------------------------------------------

    async def _perform(self, command: Callable[[TransactionEngine], R]) -> R:
        return await self._machines.perform(PARTITION, EVERYTHING, command, commit_s=self._commit_s)

    async def _with_spare(self, command: Callable[[TransactionEngine, int | None], R | None]) -> R:
        """Run a command that may need a fresh producer id, which most do not."""
        answer = await self._perform(lambda engine: command(engine, None))
        if answer is None:
            spare = await self._producer_ids.allocate()
            answer = await self._perform(lambda engine: command(engine, spare))
        assert answer is not None
        return answer


def states_named(names: Sequence[str]) -> frozenset[State]:
    """Raises InvalidRequest for what is no state."""
    unknown = [name for name in names if name not in _STATES]
    if unknown:
        raise InvalidRequest(f"no transaction is {unknown[0]!r}; states are {', '.join(_STATES)}")
    return frozenset(_STATES[name] for name in names)


def _listed(
    some: Sequence[TransactionKey], states: frozenset[State], engine: TransactionEngine
) -> list[TransactionInfo]:
    return [info_of(each) for each in engine.inspection.listed(some, states)]


def _place(listed: TransactionInfo) -> str:
    return str(listed.key)


def _merged(runs: Sequence[Sequence[TransactionInfo]]) -> Work[Sequence[TransactionInfo]]:
    merged = []
    for each in heapq.merge(*runs, key=_place):
        merged.append(each)
        if not len(merged) % _MERGED_PER_UNIT:
            yield 1
    return merged


def _staging(
    key: TransactionKey, found: Transaction, group: GroupName, offsets: Sequence[StagedOffset]
) -> wire.StageOffsets:
    """What the group's coordinator is asked to keep pending; a transaction has one member of a
    group."""
    return wire.StageOffsets(
        family=key.family.value,
        name=key.name,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        group=group,
        member=offsets[0].member,
        generation=offsets[0].generation,
        offsets=tuple(
            wire.SettledOffset(
                each.topic, each.partition, each.offset, each.metadata, each.topic_id
            )
            for each in offsets
        ),
    )


def _member(image: Image, topic: str, number: int) -> PartitionName:
    if is_internal_topic(topic):
        raise PolicyViolation(f"{topic}: internal topics take no records from clients")
    image.partition(topic, number)
    return PartitionName(topic, number)
