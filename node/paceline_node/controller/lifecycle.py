"""A broker's life as the controller sees it: registration, heartbeats, controlled shutdown.

STARTING -> (registered, incarnation written) -> CATCHING_UP until the metadata image holds this
registration and the logs are recovered -> RUNNING -> DRAINING -> STOPPED (DESIGN 2, 3).
This is the broker's side; the controller's is ``registration.py`` and ``liveness.py``.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

import structlog
import trio

from paceline.errors import (
    BrokerNotRegistered,
    ConnectionLost,
    DuplicateBrokerRegistration,
    PacelineError,
    StaleBrokerEpoch,
)
from paceline.types import BrokerEpoch, NodeId
from paceline.values import dataclass
from paceline.wire.native.admin import Done
from paceline.wire.peer.control import (
    Address,
    HeartbeatRequest,
    HeartbeatResponse,
    PartitionRef,
    RegisterBrokerRequest,
    RegisterBrokerResponse,
    ReportDamagedRequest,
)
from paceline_node.controller.client import ControllerClient
from paceline_node.controller.metadata_records import FEATURE_LEVEL
from paceline_node.env import Env

EXIT_STALE_BROKER_EPOCH = 4
NO_BROKER_EPOCH = BrokerEpoch(-1)
_EAGER_S = 0.02
_SHORTEST_SLEEP_S = 0.001
"""A sum of times may round to a moment just before the session's end."""


class BrokerState(enum.Enum):
    """Where a broker is in its life; shown in status and /ready."""

    STARTING = "starting"
    CATCHING_UP = "catching-up"
    RUNNING = "running"
    FENCED = "fenced"
    DRAINING = "draining"
    STOPPED = "stopped"


class Health(Protocol):
    """What heartbeats report about this node's disk."""

    @property
    def degraded(self) -> bool:
        """Whether the disk is so slow or full that leadership should move away."""

    @property
    def shortage(self) -> tuple[str, ...]:
        """What of it lacks room, a sentence each: what an operator has to mend."""

    @property
    def slow(self) -> bool:
        """Whether it is degraded because it takes long."""

    @property
    def offline(self) -> bool:
        """Whether the data directory failed."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who registers. ``prev_epoch`` and ``trusted`` come from the incarnation file;
    ``metadata_offset`` is where the metadata log ended at the start, -1: not known."""

    cluster_id: UUID
    node_id: NodeId
    directory_id: UUID
    incarnation_id: UUID
    boot_seq: int
    prev_epoch: BrokerEpoch
    trusted: bool
    endpoints: tuple[Address, ...]
    rack: str = ""
    most_partitions: int = 0
    metadata_offset: int = -1


@dataclass(frozen=True, slots=True)
class LifecycleTiming:
    heartbeat_s: float
    session_s: float
    shutdown_s: float


class Lifecycle:
    """Registers this broker and keeps its session with the controller.

    ``image_offset`` returns the metadata offset applied here, ``durable_offset`` that which is held
    for good; ``caught_up`` whether logs are
    recovered and the image holds this registration, so that roles may be taken. ``session_lost``
    is called each time that a session ends, for want of an answer or because the answer was
    "fenced", at the moment it does.
    """

    def __init__(
        self,
        env: Env,
        controller: ControllerClient,
        identity: Identity,
        timing: LifecycleTiming,
        *,
        health: Health,
        image_offset: Callable[[], int],
        durable_offset: Callable[[], int],
        session_lost: Callable[[], None],
    ) -> None:
        self._env = env
        self._controller = controller
        self._identity = identity
        self._timing = timing
        self._health = health
        self._image_offset = image_offset
        self._durable_offset = durable_offset
        self._session_lost = session_lost
        self._log = structlog.get_logger().bind(node=identity.node_id)
        env.times.share()
        self.state = BrokerState.STARTING
        self.broker_epoch = NO_BROKER_EPOCH
        self._renewed_at = env.now()
        self._renewed = trio.Event()
        self._ended = trio.Event()
        self._running = trio.Event()
        self._drain = trio.Event()
        self._may_stop = trio.Event()

    async def register(self, damaged: tuple[PartitionRef, ...]) -> BrokerEpoch:
        """Register until accepted; return the broker epoch. Raises what no retry can mend:
        InconsistentClusterId, InvalidRegistration, UnsupportedVersion. Cancel-safe."""
        me = self._identity
        request = RegisterBrokerRequest(
            cluster_id=me.cluster_id,
            node_id=me.node_id,
            directory_id=me.directory_id,
            incarnation_id=me.incarnation_id,
            boot_seq=me.boot_seq,
            prev_epoch=me.prev_epoch,
            trusted=me.trusted,
            damaged=damaged,
            endpoints=me.endpoints,
            feature_min=FEATURE_LEVEL,
            feature_max=FEATURE_LEVEL,
            rack=me.rack,
            most_partitions=me.most_partitions,
            metadata_offset=me.metadata_offset,
        )
        reported = False
        while True:
            try:
                reply = await self._controller.call(
                    request, RegisterBrokerResponse, timeout_s=self._timing.session_s
                )
            except PacelineError as error:
                if not (error.retriable or isinstance(error, ConnectionLost)):
                    raise
                if isinstance(error, DuplicateBrokerRegistration) and not reported:
                    self._log.warning("registration waits for an older session", reason=str(error))
                    reported = True
                await trio.sleep(self._timing.heartbeat_s * self._env.rng.uniform(0.5, 1.0))
            else:
                self.broker_epoch = reply.broker_epoch
                self.state = BrokerState.CATCHING_UP
                self._renewed_at = self._env.now()
                return reply.broker_epoch

    async def report_damaged(self, damaged: tuple[PartitionRef, ...]) -> None:
        """Tell of damage that was not known when registering, before any heartbeat, until the
        controller has taken it. Raises StaleBrokerEpoch when another process took this place.
        Cancel-safe."""
        request = ReportDamagedRequest(self._identity.node_id, self.broker_epoch, damaged)
        while True:
            try:
                await self._controller.call(request, Done, timeout_s=self._timing.session_s)
            except PacelineError as error:
                if not (error.retriable or isinstance(error, ConnectionLost)):
                    raise
                await trio.sleep(self._timing.heartbeat_s * self._env.rng.uniform(0.5, 1.0))
            else:
                return

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send heartbeats until the controller lets this broker go. Ends the process with code 4
        when another registration took this broker's place."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_session)
            task_status.started()
            await self._send_heartbeats()
            nursery.cancel_scope.cancel()

    async def _watch_session(self) -> None:
        while True:
            while self.session_valid:
                left_s = self._renewed_at + self._timing.session_s - self._env.now()
                self._ended = trio.Event()
                with trio.move_on_after(max(left_s, _SHORTEST_SLEEP_S)):
                    await self._ended.wait()
            self._log.warning("no session with a controller; this node serves no writes")
            self._renewed = trio.Event()
            self._session_lost()
            await self._renewed.wait()

    async def _send_heartbeats(self) -> None:
        while not self._may_stop.is_set():
            started = self._env.now()
            await self._heartbeat()
            pause_s = self._timing.heartbeat_s - (self._env.now() - started)
            if self.state in (BrokerState.CATCHING_UP, BrokerState.FENCED, BrokerState.DRAINING):
                # Each answer moves things on: unfencing, or the next 200 partitions led elsewhere.
                pause_s = min(pause_s, _EAGER_S)
            with trio.move_on_after(max(0.0, pause_s)):
                if self.state is BrokerState.DRAINING or self._drain.is_set():
                    await self._may_stop.wait()
                else:
                    await self._drain.wait()

    async def _heartbeat(self) -> None:
        draining = self._drain.is_set()
        request = HeartbeatRequest(
            self._identity.node_id,
            self.broker_epoch,
            self._image_offset(),
            want_fence=False if draining else not self.caught_up,
            want_shutdown=draining,
            offline=self._health.offline,
            degraded=self._health.degraded,
            wall_ms=self._env.host.wall_ms(),
            durable_offset=self._durable_offset(),
        )
        asked_at = self._env.now()
        try:
            reply = await self._controller.call(
                request, HeartbeatResponse, timeout_s=self._timing.session_s / 2
            )
        except (StaleBrokerEpoch, BrokerNotRegistered) as error:
            self._log.error("this process was replaced by a newer registration", reason=str(error))
            self._env.host.exit(EXIT_STALE_BROKER_EPOCH)
        except PacelineError as error:
            self._log.debug("heartbeat unanswered", reason=str(error))
            return
        if reply.fenced and self._running.is_set():
            # It may have been deposed without having learned of it: until it is unfenced, which
            # takes an image that shows it, it must not believe in its roles.
            self._renewed_at = -math.inf
            self._ended.set()
        else:
            self._renewed_at = asked_at  # the controller heard of it no earlier, so waits no less
            self._renewed.set()
        self._env.times.heard(reply.cluster_ms, self._env.now())
        self._note(reply)

    def _note(self, reply: HeartbeatResponse) -> None:
        before = self.state
        if self._drain.is_set():
            self.state = BrokerState.DRAINING
            if reply.should_shutdown:
                self._may_stop.set()
        elif reply.fenced:
            self.state = BrokerState.FENCED if self._running.is_set() else BrokerState.CATCHING_UP
        else:
            self.state = BrokerState.RUNNING
            self._running.set()
        if self.state is not before:
            self._log.info("broker state changed", state=self.state.value, before=before.value)

    @property
    def caught_up(self) -> bool:
        """Whether the image has reached this process's own registration
        (replication/DESIGN 3.1)."""
        return self.broker_epoch >= 0 and self._image_offset() >= self.broker_epoch

    @property
    def health(self) -> Health:
        """How this node's disk is."""
        return self._health

    @property
    def session_valid(self) -> bool:
        """Whether a heartbeat that began within one session was answered, and none since by
        "fenced"; a leader without it fences itself (DESIGN 3.1)."""
        return self._env.now() - self._renewed_at < self._timing.session_s

    @property
    def session_s(self) -> float:
        """How long a session lasts without an answer."""
        return self._timing.session_s

    async def wait_running(self) -> None:
        """Return once the controller has unfenced this broker."""
        await self._running.wait()

    async def drain(self) -> None:
        """Ask the controller to move leadership away; return when it has, or after the shutdown
        limit (the start after that is still trusted)."""
        if self.broker_epoch < 0:
            return
        self._drain.set()
        with trio.move_on_after(self._timing.shutdown_s) as scope:
            await self._may_stop.wait()
        if scope.cancelled_caught:
            self._log.warning(
                "left without a controlled shutdown", waited_s=self._timing.shutdown_s
            )
        self._may_stop.set()
        self.state = BrokerState.STOPPED

    def stop_at_once(self) -> None:
        """The whole cluster stops (DESIGN 3.5): leave without handing leadership over."""
        self._drain.set()
        self._may_stop.set()
