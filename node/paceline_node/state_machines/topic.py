"""All machines of one internal topic on this node, kept going by one task.

The task folds what was committed, wakes machines whose alarm is due, and lets them lead once they
are loaded. Requests come in through :meth:`StateTopic.perform`, in the caller's task.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, cast

import structlog
import trio

from paceline.errors import (
    CoordinatorNotAvailable,
    CorruptMessage,
    LeaderChangedAfterAppend,
    NotCoordinator,
    NotLeader,
    PacelineError,
    RequestTimedOut,
)
from paceline.types import Acks
from paceline.wire.batch_header import check_crc, read_header
from paceline_node.bare_errors import bare
from paceline_node.env import Env
from paceline_node.replication.manager import ReplicaManager
from paceline_node.replication.partition import Partition, PartitionKey
from paceline_node.replication.pending_produces import ProduceResult
from paceline_node.state_machines.machine import Deferred, Machine, Scope
from paceline_node.state_machines.replica import MachineReplica, Phase
from paceline_node.storage import folding
from paceline_node.storage.folding import FoldStart

_APPEND_TIMEOUT_S = 30.0
_RETRY_S = 0.1
_FOLDED_AT_ONCE = 500
"""Records that replicas fold before others have their turn."""
M = TypeVar("M", bound=Machine)
R = TypeVar("R")


class PartitionLog:
    """A hosted partition as a machine's log. ``session_valid``: whether this node has a session
    with a controller, without which another node may lead already."""

    def __init__(self, partition: Partition, session_valid: Callable[[], bool]) -> None:
        self._partition = partition
        self._session_valid = session_valid

    @property
    def is_leader(self) -> bool:
        return self._partition.is_leader

    @property
    def leader_epoch(self) -> int:
        return self._partition.leader_epoch

    @property
    def high_watermark(self) -> int:
        return self._partition.high_watermark

    @property
    def log_start_offset(self) -> int:
        return self._partition.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._partition.log_end_offset

    @property
    def losses(self) -> int:
        registration = self._partition.registration
        return 0 if registration is None else registration.losses

    def epoch_at(self, offset: int) -> int:
        return self._partition.log.epochs.epoch_at(offset)

    def fold_start(self) -> FoldStart:
        return folding.fold_start(self._partition.log)

    def leads_on(self, start: FoldStart, offset: int) -> bool:
        return folding.leads_on(self._partition.log, start, offset)

    def check_serving(self) -> None:
        if not self._session_valid():
            raise NotLeader(f"{self._partition}: no session with a controller")

    def read(self, offset: int, max_bytes: int, end: int) -> bytes | None:
        log = self._partition.log
        try:
            found = log.locate(offset, max_bytes, end)
            if found is None:
                return None
            data = found.read()
            for position, header in found.batches(data):
                check_crc(data, position, header)
        except CorruptMessage:
            if not log.is_damaged:  # else it is known, and asked for again and again
                self._partition.suspect(offset)
            raise
        return data

    def append(self, batch: bytearray) -> None:
        self._partition.produce(
            batch,
            [read_header(batch, 0)],
            acks=Acks.ALL,
            timeout_s=_APPEND_TIMEOUT_S,
            done=_watched_elsewhere,
        )

    def when_committed(self, offset: int, callback: Callable[[], None]) -> object:
        return self._partition.when_readable(offset, callback)

    def cancel(self, token: object) -> None:
        self._partition.cancel(token)


def _watched_elsewhere(_: ProduceResult | PacelineError) -> None:
    """Whoever waits for the write watches the high watermark."""


class StateTopic(Generic[M]):
    """The machines of ``topic``, made by ``make`` for each partition hosted here."""

    def __init__(
        self,
        env: Env,
        topic: str,
        replicas: ReplicaManager,
        make: Callable[[int], M],
    ) -> None:
        self._env = env
        self._topic = topic
        self._hosting = replicas
        self._make = make
        self._replicas: dict[PartitionKey, tuple[MachineReplica, M]] = {}
        self._by_number: dict[int, PartitionKey] = {}
        self._tokens: dict[PartitionKey, object | None] = {}
        self._ready: dict[PartitionKey, None] = {}
        self._wake = trio.Event()
        self._wake_at = math.inf
        self._broken: dict[PartitionKey, str] = {}
        self._log = structlog.get_logger(component="coordination", topic=topic)

    # --- looking up -------------------------------------------------------------------------------

    def replica(self, number: int) -> MachineReplica | None:
        """The replica of a partition on this node, whatever its phase."""
        key = self._by_number.get(number)
        return None if key is None else self._replicas[key][0]

    def machines(self) -> Iterator[tuple[int, MachineReplica, M]]:
        """All partitions hosted here, by number."""
        for number, key in sorted(self._by_number.items()):
            yield (number, *self._replicas[key])

    # --- requests ---------------------------------------------------------------------------------

    async def perform(
        self,
        number: int,
        scope: Scope,
        operation: Callable[[M], R | Deferred[R]],
        *,
        commit_s: float,
    ) -> R:
        """Run ``operation`` on the leading machine of a partition and return its answer once all
        it can have seen is committed.

        Raises what the operation raises, held back likewise; with nothing done NotCoordinator,
        CoordinatorLoadInProgress, CoordinatorNotAvailable; with unknown outcome RequestTimedOut
        (not committed within ``commit_s`` of the answer) and LeaderChangedAfterAppend. Cancelling
        does not undo what was written.
        """
        key = self._by_number.get(number)
        if key is None:
            raise NotCoordinator(f"{self._topic}/{number} is not hosted on this node")
        replica, machine = self._replicas[key]
        replica.check_leading()
        epoch = replica.led_epoch
        before = replica.write_count
        answer: R | Deferred[R] | PacelineError
        try:
            answer = operation(machine)
        except PacelineError as error:
            answer = bare(error)
        wrote = isinstance(answer, Deferred) or replica.write_count != before
        self._heed_alarm(machine)
        if isinstance(answer, Deferred):
            answer = await _delivered(cast(Deferred[R], answer))
            if isinstance(answer, NotCoordinator):
                raise NotCoordinator(str(answer))  # none came before the leadership ended
        await self._committed(replica, scope, epoch, commit_s, wrote=wrote)
        if isinstance(answer, PacelineError):
            try:
                raise answer
            finally:
                del answer
        return answer

    def tell(self, number: int, operation: Callable[[M], None]) -> bool:
        """Run ``operation`` on the leading machine of a partition, whoever may listen; whether
        there is one here. For news that nobody waits to be answered; it must not raise."""
        key = self._by_number.get(number)
        if key is None or self._replicas[key][0].phase is not Phase.LEADING:
            return False
        machine = self._replicas[key][1]
        operation(machine)
        self._heed_alarm(machine)
        return True

    async def _committed(
        self, replica: MachineReplica, scope: Scope, epoch: int, timeout_s: float, *, wrote: bool
    ) -> None:
        offset = replica.uncommitted(scope)
        if offset is None or replica.led_epoch != epoch:
            self._check_epoch(replica, epoch, wrote=wrote)
            return
        woken = trio.Event()
        token = replica.when_committed(offset, woken.set)
        try:
            with trio.move_on_after(timeout_s):
                await woken.wait()
        finally:
            replica.unwatch(token)
        if not replica.is_committed(offset, epoch):
            self._check_epoch(replica, epoch, wrote=wrote)
            text = f"{replica.name}: offset {offset} is not committed after {timeout_s} s"
            raise RequestTimedOut(text) if wrote else CoordinatorNotAvailable(text)

    def _check_epoch(self, replica: MachineReplica, epoch: int, *, wrote: bool) -> None:
        if replica.led_epoch != epoch:
            text = f"{replica.name}: leader epoch {epoch} ended meanwhile"
            raise LeaderChangedAfterAppend(text) if wrote else NotCoordinator(text)

    def _heed_alarm(self, machine: M) -> None:
        if machine.next_alarm() < self._wake_at:
            self._wake.set()

    # --- the task ---------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow and lead until cancelled; then every waiter is told NotCoordinator."""
        unwatch = self._hosting.watch_roles(self._role_changed, self._released)
        try:
            task_status.started()
            while True:
                self._ring()
                if not self._fold():
                    await self._sleep()
                else:
                    await trio.lowlevel.checkpoint()
        finally:
            unwatch()
            for key in list(self._replicas):
                self._released(key)

    def _role_changed(self, partition: Partition) -> None:
        if partition.topic != self._topic:
            return
        key = partition.key
        if key not in self._replicas:
            machine = self._make(partition.partition)
            log = PartitionLog(partition, self._hosting.context.admission.session_valid)
            replica = MachineReplica(str(partition), log, machine, ClusterClock(self._env))
            self._replicas[key] = replica, machine
            self._by_number[partition.partition] = key
        self._broken.pop(key, None)
        self._replicas[key][0].role_changed()
        self._call(key)

    def _released(self, key: PartitionKey) -> None:
        found = self._replicas.pop(key, None)
        if found is None:
            return
        found[0].unwatch(self._tokens.pop(key, None))
        found[0].close()
        self._ready.pop(key, None)
        self._broken.pop(key, None)
        if self._by_number.get(key[1]) == key:
            del self._by_number[key[1]]

    def _call(self, key: PartitionKey) -> None:
        if key in self._replicas:
            self._ready[key] = None
            self._wake.set()

    def _fold(self) -> bool:
        """One step of every replica that has something to do, or of as many of them as keep the
        loop for a few milliseconds; whether any has more."""
        ready, self._ready = self._ready, {}
        left = _FOLDED_AT_ONCE
        for key in ready:
            if left <= 0:
                self._ready[key] = None
                continue
            replica, machine = self._replicas[key]
            was, before = replica.phase, replica.applied
            try:
                more = replica.step()
            except PacelineError as error:
                self._failed(key, replica, error)
                continue
            self._broken.pop(key, None)
            left -= max(0, replica.applied - before)
            if more:
                self._ready[key] = None
                continue
            if replica.phase is not was:
                self._log.debug("coordinates", partition=replica.name, records=replica.applied)
                self._heed_alarm(machine)
            self._watch(key, replica)
        return bool(self._ready)

    def _watch(self, key: PartitionKey, replica: MachineReplica) -> None:
        replica.unwatch(self._tokens.pop(key, None))
        self._tokens[key] = replica.watch(lambda: self._call(key))

    def _failed(self, key: PartitionKey, replica: MachineReplica, error: PacelineError) -> None:
        """Say so once, and try again after a while: a repair or more replicas may help."""
        text = str(error)
        if self._broken.get(key) != text:
            self._broken[key] = text
            self._log.warning("cannot go on", partition=replica.name, error=text)

    def _ring(self) -> None:
        now = self._env.now()
        for replica, _ in list(self._replicas.values()):
            replica.ring(now)

    async def _sleep(self) -> None:
        now = self._env.now()
        rings = (replica.next_ring(now, _RETRY_S) for replica, _ in self._replicas.values())
        self._wake_at = min(rings, default=math.inf)
        if self._broken:
            self._wake_at = min(self._wake_at, now + _RETRY_S)
        with trio.move_on_at(self._wake_at):
            await self._wake.wait()
        self._wake = trio.Event()
        self._wake_at = math.inf
        self._ready.update(dict.fromkeys(self._broken))


async def _delivered(answer: Deferred[R]) -> R | PacelineError:
    arrived = trio.Event()
    answer.then(arrived.set)
    await arrived.wait()
    value = answer.value
    assert value is not None
    return value


class ClusterClock:
    """Wall-clock time by most clocks of the cluster: what one coordinator writes down and another
    judges by depends on neither's clock alone."""

    def __init__(self, env: Env) -> None:
        self._env = env

    def now(self) -> float:
        return self._env.now()

    def wall_ms(self) -> int:
        return self._env.cluster_ms()
