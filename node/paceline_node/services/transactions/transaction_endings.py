"""Finishing what the coordinator decided: staged records, markers, offsets, then completion.

Runs on every node and does something where the coordinator is. For each prepared transaction one
task goes through the steps, each repeated until it has happened everywhere; the next
coordinator goes through all of them again, and every step takes that well. No partition and no
group waits for another one that cannot be reached: each has its records, then its marker, and the
groups their offsets, as soon as it can be told. What is staged for one partition is stored there in
the order of the decisions. The steps have names, at which a test may kill the process
(``Host.buggify``)::

    transaction.offsets-pending   a staged transaction's are, in their group; nothing is decided
    transaction.deciding          the decision is appended to __transactions, not committed
    transaction.prepared          it is committed; nobody has been told
    transaction.staged-received   a leader has appended staged records, not committed
    transaction.staged            all staged records are committed
    transaction.marker-received   a leader is about to append a marker
    transaction.marker-appended   it has, not committed
    transaction.partly-marked     some nodes' markers are committed, others' perhaps not
    transaction.marked            all markers are committed
    transaction.settled           all groups have their offsets
    transaction.completed         the completion is committed
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TypeVar

import structlog
import trio

from paceline.errors import (
    ConcurrentTransactions,
    DuplicateSequence,
    ErrorCode,
    InvalidProducerEpoch,
    NotCoordinator,
    NotLeader,
    OutOfOrderSequence,
    PacelineError,
    TransactionCoordinatorFenced,
    error_for,
)
from paceline.types import LeaderEpoch, NodeId
from paceline.wire.peer import transactions as wire
from paceline.wire.peer.names import GroupName, PartitionName
from paceline_node.bare_errors import bare
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.services.transactions.ending_signal import EndingSignal
from paceline_node.services.transactions.existing_partitions import still_there
from paceline_node.services.transactions.marker_progress import MarkerProgress
from paceline_node.services.transactions.staged_batches import staged_batches
from paceline_node.services.transactions.staged_order import StagedOrder
from paceline_node.services.transactions.transaction_rpc import TransactionRpc
from paceline_node.services.transactions.work_limits import WorkLimits
from paceline_node.state_machines.machine import EVERYTHING
from paceline_node.state_machines.topic import StateTopic
from paceline_node.transaction_names import TransactionKey
from paceline_node.transactions.endings import Ending
from paceline_node.transactions.engine import TransactionEngine
from paceline_node.transactions.keys import PARTITION

_WORK_S = 10.0
_COMMIT_S = 30.0
_FIRST_PAUSE_S = 0.02
_LAST_PAUSE_S = 1.0
_SAY_AFTER = 8
"""Rounds after which it is worth a line in the log that something cannot be told."""
_SLOW_S = 0.05
R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


class TransactionEndings:
    """Owns the tasks that end transactions. The engines of ``machines`` tell ``news``."""

    def __init__(
        self,
        env: Env,
        store: MetadataStore,
        machines: StateTopic[TransactionEngine],
        rpc: TransactionRpc,
        news: EndingSignal,
    ) -> None:
        self._env = env
        self._store = store
        self._machines = machines
        self.rpc = rpc
        self._news = news
        self._under_way: set[TransactionKey] = set()
        self._lanes = WorkLimits()
        self._turns = StagedOrder()
        self._overtaken: set[TransactionKey] = set()
        self._dropped: dict[TransactionKey, int] = {}
        """Of transactions under way: staged records whose topics were deleted."""
        self._marked = MarkerProgress()
        self._log = structlog.get_logger(component="transactions")
        self.committed = 0
        """Transactions that were completed here, since this process began."""
        self.aborted = 0

    def _engine(self) -> TransactionEngine | None:
        """The engine, while it leads here."""
        for _, _, engine in self._machines.machines():
            return engine if engine.leads else None
        return None

    # --- waiting ----------------------------------------------------------------------------------

    async def wait_complete(self, key: TransactionKey, timeout_s: float) -> bool:
        """Whether, within so long, ``key`` has no decided transaction that is not complete; False
        too when another node coordinates by then."""
        return await self._wait(lambda engine: engine.ending(key) is None, timeout_s)

    async def wait_sink(self, sink: str, batch: int, timeout_s: float) -> bool:
        """The same of all that a sink has decided up to ``batch``."""

        def is_done(engine: TransactionEngine) -> bool:
            prepared, known = engine.store.prepared, engine.store.transactions
            attempts = engine.store.of_sink.get(sink, {})
            return not any(key in prepared and known[key].batch <= batch for key in attempts)

        return await self._wait(is_done, timeout_s)

    async def _wait(self, is_done: Callable[[TransactionEngine], bool], timeout_s: float) -> bool:
        with trio.move_on_after(timeout_s):
            while True:
                engine = self._engine()
                if engine is None:
                    return False
                if is_done(engine):
                    return True
                await self._news.next.wait()
        return False

    # --- the tasks --------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """End transactions until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                news = self._news.next
                engine = self._engine()
                # Every write of the engine is news, and those under way may be many: the end of
                # each of them is news again.
                is_new = engine is not None and engine.ending_count > len(self._under_way)
                if engine is not None and is_new:
                    self._line_up(engine)
                for key in engine.endings() if engine is not None and is_new else ():
                    if key not in self._under_way:
                        self._under_way.add(key)
                        nursery.start_soon(self._finish, key)
                await news.wait()

    def _line_up(self, engine: TransactionEngine) -> None:
        """All that are decided, for the partitions that they have records for."""
        store = engine.store

        def places(key: TransactionKey) -> set[PartitionName]:
            staged = store.unstored_in(key) if store.transactions[key].commits else ()
            return {PartitionName(each.topic, each.partition) for each in staged}

        self._turns.line_up(self._led_epoch(), store.prepared, store.transactions, places)

    def _led_epoch(self) -> LeaderEpoch:
        """That of the coordinator's partition, if it is led here; else -1."""
        replica = self._machines.replica(PARTITION)
        return LeaderEpoch(-1 if replica is None else replica.led_epoch)

    async def _finish(self, key: TransactionKey) -> None:
        """Do what is left to do for ``key``, as long as this node coordinates."""
        pause_s = _FIRST_PAUSE_S
        try:
            while self._engine() is not None:
                try:
                    if await self._attempt(key):
                        return
                except TransactionCoordinatorFenced as error:
                    self._log.info("another node coordinates", transaction=str(key), why=str(error))
                except PacelineError as error:
                    self._log.debug("not ended yet", transaction=str(key), error=str(error))
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        finally:
            self._under_way.discard(key)
            engine = self._engine()
            if engine is None or key not in engine.store.prepared:  # its next one may be, by now
                self._turns.drop(key)
            self._overtaken.discard(key)
            self._dropped.pop(key, None)
            self._marked.drop(key)
            self._news.tell()  # there may be more to end by now

    async def _attempt(self, key: TransactionKey) -> bool:
        """All steps of one ending; whether there is nothing left to do. Raises PacelineError."""
        ending = await self._perform(lambda engine: engine.ending(key))  # committed, then
        coordinator_epoch, engine = self._led_epoch(), self._engine()
        if ending is None:
            return True
        if coordinator_epoch < 0 or engine is None:
            return False
        if not self._turns.knows(key, ending.serial, coordinator_epoch):
            self._line_up(engine)
        await self._at("transaction.prepared")
        image = await self._store.wait_offset(ending.metadata_offset, _WORK_S)
        where = still_there(image, ending.partitions)
        errors: list[PacelineError] = []
        async with trio.open_nursery() as noting:
            noting.start_soon(self._marked.keep_noted, ending, self._perform)
            async with trio.open_nursery() as nursery:

                async def tell(work: Callable[[], Awaitable[None]], step: str) -> None:
                    try:
                        await work()
                        await self._at(step)
                    except PacelineError as error:
                        errors.append(bare(error))
                        nursery.cancel_scope.cancel()

                marking = partial(self._mark, ending, where, coordinator_epoch)
                nursery.start_soon(tell, marking, "transaction.marked")
                nursery.start_soon(tell, partial(self._settle, ending), "transaction.settled")
            noting.cancel_scope.cancel()
        if errors:
            raise errors.pop(0)
        await self._perform(
            lambda engine: engine.producers.complete(
                key,
                ending.serial,
                overtaken=key in self._overtaken,
                dropped=self._dropped.get(key, 0),
            )
        )
        if ending.commits:
            self.committed += 1
        else:
            self.aborted += 1
        await self._at("transaction.completed")
        return True

    async def _perform(self, command: Callable[[TransactionEngine], R]) -> R:
        return await self._machines.perform(PARTITION, EVERYTHING, command, commit_s=_COMMIT_S)

    async def _at(self, site: str) -> None:
        """A named step: a simulation may linger here, a test of crashes kills the process."""
        if self._env.host.buggify(site):
            await trio.sleep(_SLOW_S)

    # --- partitions -------------------------------------------------------------------------------

    async def _mark(
        self, ending: Ending, partitions: Iterable[PartitionName], coordinator_epoch: LeaderEpoch
    ) -> None:
        """In each partition what was staged for it, then a marker, committed. Raises
        TransactionCoordinatorFenced, or whatever has kept the node from coordinating on."""
        key, meant = ending.key, ending.topic_ids
        unstored = {PartitionName(each.topic, each.partition): 0 for each in ending.staged}
        had_staged = bool(unstored)
        dropped: set[PartitionName] = set()

        def pass_over_deleted() -> None:
            for gone in unstored.keys() - set(still_there(self._store.image, unstored, meant)):
                del unstored[gone]
                dropped.add(gone)
                self._turns.stored(key, gone)

        async def once(left: Sequence[PartitionName]) -> dict[PartitionName, PacelineError]:
            nonlocal had_staged
            if unstored and self._led_epoch() != coordinator_epoch:
                raise NotCoordinator(f"{key}: coordinated anew, whose turn it is may have changed")
            pass_over_deleted()
            refusals: dict[PartitionName, PacelineError] = {
                where: ConcurrentTransactions(f"{where}: another one's records come first")
                for where in unstored
                if not self._turns.may_store(key, where)
            }
            due = sorted(unstored.keys() - refusals.keys())
            async with self._lanes.enter(len(due)):
                refusals |= await self._append_once(ending, due, unstored, coordinator_epoch)
            if had_staged and not unstored:
                had_staged = False
                await self._at("transaction.staged")
            ready = [where for where in left if where not in unstored]
            async with self._lanes.enter(len(ready)):
                refusals |= await self._mark_once(ending, ready, coordinator_epoch)
            return {where: refusals[where] for where in still_there(self._store.image, refusals)}

        turn = partial(self._turns.wait_turn, key)
        await self._until_told(ending, list(partitions), once, turn)
        for gone in unstored:
            self._turns.stored(key, gone)
        dropped.update(unstored)
        self._dropped[key] = sum(
            PartitionName(each.topic, each.partition) in dropped for each in ending.staged
        )

    async def _until_told(
        self,
        ending: Ending,
        left: Sequence[K],
        once: Callable[[Sequence[K]], Awaitable[dict[K, PacelineError]]],
        news: Callable[[], Awaitable[None]] = trio.sleep_forever,
    ) -> None:
        """Tell all of ``left``, again and again those that ``once`` returns as not told, at once if
        there is ``news``. Raises as :meth:`_mark`."""
        pause_s = _FIRST_PAUSE_S
        rounds = 0
        while left:
            refusals = await once(left)
            if not refusals:
                return
            left = list(refusals)
            for error in refusals.values():
                if isinstance(error, TransactionCoordinatorFenced):
                    raise type(error)(str(error))
            await self._perform(lambda engine: engine.ending(ending.key))  # still the coordinator?
            rounds += 1
            if rounds == _SAY_AFTER:
                place, error = next(iter(refusals.items()))
                self._log.warning(
                    "a transaction cannot be ended somewhere yet",
                    transaction=str(ending.key),
                    place=str(place),
                    error=str(error),
                )
            with trio.move_on_after(pause_s) as pause:
                await news()
            waited = pause.cancelled_caught
            pause_s = min(2 * pause_s, _LAST_PAUSE_S) if waited else _FIRST_PAUSE_S

    async def _append_once(
        self,
        ending: Ending,
        due: Iterable[PartitionName],
        unstored: dict[PartitionName, int],
        coordinator_epoch: LeaderEpoch,
    ) -> dict[PartitionName, PacelineError]:
        """Go on storing what was staged for those ``due``, in all partitions at a time, behind the
        batches that each has already; those of which all are committed leave ``unstored``. Those
        that failed."""
        refusals: dict[PartitionName, PacelineError] = {}

        async def store(where: PartitionName) -> None:
            try:
                batches = staged_batches(ending.staged, where, ending.identity)
                for batch in islice(batches, unstored[where], None):
                    await self._append_batch(ending, where, batch, coordinator_epoch)
                    unstored[where] += 1
                del unstored[where]
                self._turns.stored(ending.key, where)
            except OutOfOrderSequence as error:
                unstored[where] = 0  # an unclean election took what was stored: from the first on
                refusals[where] = bare(error)
            except PacelineError as error:
                refusals[where] = bare(error)

        async with trio.open_nursery() as nursery:
            for where in due:
                nursery.start_soon(store, where)
        return refusals

    async def _append_batch(
        self,
        ending: Ending,
        where: PartitionName,
        batch: bytearray,
        coordinator_epoch: LeaderEpoch,
    ) -> None:
        """One batch committed in its partition. Raises PacelineError."""
        known = self._store.image.partition(where.topic, where.partition)
        if known.leader < 0:
            raise NotLeader(f"{where.topic}/{where.partition} has no leader")
        order = wire.AppendStaged(
            where.topic,
            where.partition,
            known.leader_epoch,
            coordinator_epoch,
            int(_WORK_S * 1000),
            ending.topic_ids.get(where.topic),
            ending.began_ms if ending.may_be_forgotten(self._env.cluster_ms()) else -1,
        )
        # Stored, and so long ago that the log forgot where; or before the coordinator forgot that.
        forgotten = (InvalidProducerEpoch,) if ending.set_back else ()
        with suppress(DuplicateSequence, *forgotten):
            await self.rpc.append_staged(known.leader, order, batch)

    async def _mark_once(
        self, ending: Ending, partitions: Iterable[PartitionName], coordinator_epoch: LeaderEpoch
    ) -> dict[PartitionName, PacelineError]:
        """Ask every leader once, all at a time; those that failed."""
        image, meant = self._store.image, ending.topic_ids
        refusals: dict[PartitionName, PacelineError] = {}
        by_leader: dict[NodeId, list[wire.MarkedPartition]] = {}
        for where in partitions:
            known = image.partition(where.topic, where.partition)
            if known.leader < 0:
                refusals[where] = NotLeader(f"{where.topic}/{where.partition} has no leader")
                continue
            marked = wire.MarkedPartition(
                where.topic, where.partition, known.leader_epoch, meant.get(where.topic)
            )
            by_leader.setdefault(known.leader, []).append(marked)

        async def ask(node: NodeId, there: list[wire.MarkedPartition]) -> None:
            order = wire.WriteMarkers(
                ending.identity.producer_id,
                ending.identity.epoch,
                ending.serial,
                ending.commits,
                coordinator_epoch,
                int(_WORK_S * 1000),
                tuple(there),
            )
            refusals.update(await self._order(ending, node, order))
            await self._at("transaction.partly-marked")

        async with trio.open_nursery() as nursery:
            for node, there in sorted(by_leader.items()):
                nursery.start_soon(ask, node, there)
        return refusals

    async def _order(
        self, ending: Ending, node: NodeId, order: wire.WriteMarkers
    ) -> dict[PartitionName, PacelineError]:
        where = [PartitionName(each.topic, each.partition) for each in order.partitions]
        try:
            written = await self.rpc.write_markers(node, order)
        except PacelineError as error:
            return dict.fromkeys(where, bare(error))
        if ErrorCode.INVALID_PRODUCER_EPOCH in written.errors:
            self._overtaken.add(ending.key)
        # The log knows a newer epoch of the producer: there is nothing of this one to end.
        done = {ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH}
        if ending.set_back:
            done.add(ErrorCode.INVALID_TXN_STATE)  # ended otherwise, which is forgotten
        refusals: dict[PartitionName, PacelineError] = {}
        for place, code, message in zip(where, written.errors, written.messages, strict=True):
            if code in done:
                self._marked.add(ending, place)
            else:
                refusals[place] = error_for(code, message)
        return refusals

    # --- offsets ----------------------------------------------------------------------------------

    async def _settle(self, ending: Ending) -> None:
        """Offsets committed or dropped in every group, all at a time. Raises as :meth:`_mark`."""
        held: dict[GroupName, list[wire.SettledOffset]] = {}
        for group in ending.groups:
            held[group] = []
        for each in ending.offsets:
            held.setdefault(each.group, []).append(
                wire.SettledOffset(
                    each.topic, each.partition, each.offset, each.metadata, each.topic_id
                )
            )

        async def once(left: Sequence[GroupName]) -> dict[GroupName, PacelineError]:
            refusals: dict[GroupName, PacelineError] = {}

            async def settle(name: GroupName) -> None:
                order = wire.SettleOffsets(
                    name,
                    ending.identity.producer_id,
                    ending.serial,
                    ending.commits,
                    tuple(held[name]),
                )
                try:
                    await self.rpc.settle_offsets(order)
                except PacelineError as error:
                    refusals[name] = bare(error)

            async with trio.open_nursery() as nursery:
                for name in left:
                    nursery.start_soon(settle, name)
            return refusals

        await self._until_told(ending, list(held), once)
