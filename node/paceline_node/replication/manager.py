"""The room as one object: everything replication needs, put together and run.

Life of a node, as ``app`` drives it: :meth:`ReplicaManager.open_logs`, register with the
controller, :meth:`ReplicaManager.registered`, while :meth:`ReplicaManager.run` is running; at the
end leadership is handed over, ``run`` is cancelled, and :meth:`ReplicaManager.close` leaves a
directory that may be marked clean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import field
from uuid import UUID

import structlog
import trio

from paceline.types import BrokerEpoch, NodeId
from paceline.values import dataclass
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.net.deadlines import Deadlines
from paceline_node.net.frame_bursts import Burst
from paceline_node.observe.metrics import Metrics
from paceline_node.peers.links import PeerLinks
from paceline_node.peers.server import PeerServer, Session
from paceline_node.replication.catchup_throttle import CatchupThrottle
from paceline_node.replication.compaction_schedule import Compactions, CompactionSettings
from paceline_node.replication.damage_refusals import was_elected_anyway
from paceline_node.replication.disk_health import Health
from paceline_node.replication.fetcher import Fetchers, FetchIdentity, FetchSettings
from paceline_node.replication.hosted_partitions import HostedPartitions, HostingSettings
from paceline_node.replication.log_directory import LogDirectory, OpenedLogs
from paceline_node.replication.maintenance import Maintenance, MaintenanceSettings
from paceline_node.replication.partition import (
    Partition,
    PartitionContext,
    PartitionKey,
)
from paceline_node.replication.partition_context import PartitionEvents
from paceline_node.replication.producer_quota import ProducerLimits, ProducerShares
from paceline_node.replication.proposals import ControllerCalls, Proposals
from paceline_node.replication.repairs import Repairs, RepairSettings
from paceline_node.replication.replica_server import ReplicaServer, ServingLimits
from paceline_node.replication.state_transfer import StateTransfers
from paceline_node.replication.write_admission import Admission
from paceline_node.settings import tree
from paceline_node.settings.flush_mode import FlushMode
from paceline_node.storage.flusher import Flusher
from paceline_node.storage.log import Log

NO_BROKER_EPOCH = BrokerEpoch(-1)
RoleChanged = Callable[[Partition], None]
Released = Callable[[PartitionKey], None]


@dataclass(frozen=True, slots=True)
class ReplicationIdentity:
    """Whose replicas these are."""

    cluster_id: UUID
    node_id: NodeId
    directory_id: UUID


def _unlimited() -> float:
    return -1


@dataclass(frozen=True, slots=True)
class ReplicationSettings:
    """``acks1_early``: answer acks=1 before the flush. ``simulated_max_lag``: records
    that a simulated replica may lack and still count. ``catchup_bytes_per_s``: sent to replicas
    that are not in sync, now; less than 0 being no bound."""

    lag_max_s: float = tree.ReplicationSettings().lag_max_ms / 1000
    acks1_early: bool = False
    flush_linger_s: float = tree.FlushSettings().linger_ms / 1000
    simulated_max_lag: int = 0
    fetch: FetchSettings = field(default_factory=FetchSettings)
    serving: ServingLimits = field(default_factory=ServingLimits)
    table: HostingSettings = field(default_factory=HostingSettings)
    repairs: RepairSettings = field(default_factory=RepairSettings)
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    producers: ProducerLimits = field(default_factory=ProducerLimits)
    catchup_bytes_per_s: Callable[[], float] = _unlimited


class ReplicaManager:
    """All replicas of one node.

    ``session_valid``: whether this node has a session with a controller (DESIGN 4.1).
    ``disk_failed`` is called once with the error of the data directory: the node must end.
    ``lower_floor`` writes a weaker flush floor to the incarnation file (storage/DESIGN 2.2).
    """

    def __init__(
        self,
        env: Env,
        identity: ReplicationIdentity,
        store: MetadataStore,
        links: PeerLinks,
        controller: ControllerCalls,
        *,
        session_valid: Callable[[], bool],
        disk_failed: Callable[[OSError], None],
        lower_floor: Callable[[FlushMode], Awaitable[None]],
        metrics: Metrics,
        settings: ReplicationSettings | None = None,
    ) -> None:
        settings = settings or ReplicationSettings()
        self._traffic = metrics.topic
        self._disk_failed = disk_failed
        self.log = structlog.get_logger(component="replication", node=identity.node_id)
        self.health = Health()
        self.broker_epoch = NO_BROKER_EPOCH
        self._reported: frozenset[PartitionKey] = frozenset()
        self._role_watchers: list[tuple[RoleChanged, Released]] = []
        self.deadlines = Deadlines()
        self.burst = Burst()
        self.directory = LogDirectory(env)
        self.flusher = self._make_flusher(env, metrics, settings)
        self.context = self._context(env, identity, session_valid, settings)
        self.table = HostedPartitions(
            self.context,
            store,
            self.directory,
            self.flusher,
            self.health,
            settings.table,
            role_changed=self._role_changed,
            registered=self._registration_changed,
            released=self._partition_released,
            lower_floor=lower_floor,
        )
        self.serving = self._server(env, identity, settings)
        self.fetchers = self._fetchers(env, identity, links, settings)
        self.proposals = Proposals(env, self.context, controller, self._current_broker_epoch)
        self.repairs = self._repairs(env, links, controller, settings)
        self.states = StateTransfers(
            env,
            self.context,
            links,
            self.health,
            find=self.table.find,
            follow=self.fetchers.follow,
        )
        self.maintenance = self._make_maintenance(env, settings)
        self.compactions = Compactions(
            env,
            self.context,
            find=self.table.find,
            hosted=self._hosted,
            settings=settings.compaction,
        )

    def _make_flusher(self, env: Env, metrics: Metrics, settings: ReplicationSettings) -> Flusher:
        return Flusher(
            env,
            self.failed,
            linger_s=settings.flush_linger_s,
            on_synced=metrics.synced,
            after_group=lambda: self.fetchers.send_acks(),
            marks=self.directory.marks,
        )

    def _make_maintenance(self, env: Env, settings: ReplicationSettings) -> Maintenance:
        return Maintenance(
            env,
            self.context,
            self.directory,
            self.flusher,
            self.health,
            hosted=self._hosted,
            is_elsewhere=self.table.is_elsewhere,
            starts_written=self.fetchers.send_acks,
            scrub=self.repairs.scrub,
            settings=settings.maintenance,
        )

    def _context(
        self,
        env: Env,
        identity: ReplicationIdentity,
        session_valid: Callable[[], bool],
        settings: ReplicationSettings,
    ) -> PartitionContext[Partition]:
        return PartitionContext(
            env=env,
            node_id=identity.node_id,
            deadlines=self.deadlines,
            admission=Admission(session_valid),
            burst=self.burst,
            events=_Events(self),
            traffic=self._traffic,
            lag_max_s=settings.lag_max_s,
            acks1_early=settings.acks1_early,
            simulated_max_lag=settings.simulated_max_lag,
            shares=ProducerShares(settings.producers),
        )

    def _fetchers(
        self,
        env: Env,
        identity: ReplicationIdentity,
        links: PeerLinks,
        settings: ReplicationSettings,
    ) -> Fetchers:
        whose = FetchIdentity(
            identity.cluster_id,
            identity.node_id,
            identity.directory_id,
            self._current_broker_epoch,
        )
        return Fetchers(
            env,
            whose,
            links,
            self.deadlines,
            append_failed=self.context.events.append_failed,
            behind=lambda partition: self.states.behind(partition),
            lacking=self._leader_lacks,
            request_flush=self._request_flush,
            settings=settings.fetch,
        )

    def _server(
        self, env: Env, identity: ReplicationIdentity, settings: ReplicationSettings
    ) -> ReplicaServer:
        return ReplicaServer(
            env,
            identity.cluster_id,
            self.table.find,
            self.deadlines,
            settings.serving,
            lag_max_s=settings.lag_max_s,
            throttle=CatchupThrottle(settings.catchup_bytes_per_s),
        )

    def _repairs(
        self,
        env: Env,
        links: PeerLinks,
        controller: ControllerCalls,
        settings: ReplicationSettings,
    ) -> Repairs:
        return Repairs(
            env,
            self.context,
            links,
            controller,
            find=self.table.find,
            hosted=self._hosted,
            follow=self.fetchers.follow,
            unfollow=self.fetchers.unfollow,
            broker_epoch=self._current_broker_epoch,
            fetch_state=lambda partition: self.states.fetch(partition),
            settings=settings.repairs,
        )

    # --- life ------------------------------------------------------------------------------------

    def register(self, server: PeerServer) -> None:
        """Serve other nodes on ``server``; its ``on_close`` must reach :meth:`session_closed`."""
        self.serving.register(server)
        self.repairs.register(server)
        self.states.register(server)

    async def open_logs(
        self,
        *,
        clean: bool,
        disk_failed: bool = False,
        same_boot: bool = False,
        acked_unsynced: bool = False,
        known_syncs: int = 0,
    ) -> OpenedLogs:
        """Open and recover all logs; what is damaged must be named when registering.

        The flags say how the process before ended, as :meth:`LogDirectory.open_all`;
        ``known_syncs`` is as there. Raises OSError.
        """
        self.directory.known_syncs = known_syncs
        opened = await self.table.open_logs(
            clean=clean,
            disk_failed=disk_failed,
            same_boot=same_boot,
            acked_unsynced=acked_unsynced,
        )
        self._reported = frozenset(opened.damaged)
        return opened

    def registered(self, broker_epoch: BrokerEpoch, floor: FlushMode) -> None:
        """The controller accepted this process, and the incarnation file says so
        (storage/DESIGN 2.3)."""
        self.broker_epoch = broker_epoch
        self.table.registered(broker_epoch, floor)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.deadlines.run)
            await nursery.start(self.flusher.run)
            await nursery.start(self.serving.run)
            await nursery.start(self.fetchers.run)
            await nursery.start(self.proposals.run)
            await nursery.start(self.states.run)
            await nursery.start(self.repairs.run)
            await nursery.start(self.maintenance.run)
            await nursery.start(self.compactions.run)
            await nursery.start(self.table.run)
            task_status.started()

    async def close(self) -> None:
        """Flush and close all logs, once ``run`` has ended. Raises OSError: not a clean stop."""
        await self.table.close()

    def tell_followers(self) -> None:
        """All that was just appended belongs together: followers need not wait for more."""
        self.serving.answer_now()

    def session_closed(self, session: Session) -> None:
        """A connection from another node ended."""
        self.serving.closed(session)

    def session_lost(self) -> None:
        """The session with the controller is over: another node may lead what this one led, so
        nothing more can be promised here to those who wait."""
        for partition in self.table.partitions:
            partition.session_lost()

    def watch_roles(self, changed: RoleChanged, released: Released) -> Callable[[], None]:
        """Call ``changed`` for every hosted partition now, and whenever one gets a role or a leader
        epoch; ``released`` when one is given up. Both are synchronous, inside the change. Returns
        the function that ends it."""
        watcher = (changed, released)
        self._role_watchers.append(watcher)
        for partition in self.table.partitions:
            changed(partition)
        return lambda: self._role_watchers.remove(watcher)

    # --- between the parts -----------------------------------------------------------------------

    def _hosted(self) -> tuple[Partition, ...]:
        return self.table.partitions

    def _current_broker_epoch(self) -> BrokerEpoch:
        return self.broker_epoch

    def _request_flush(self, partition: Partition) -> None:
        if partition.replica.counts_durable:
            self.flusher.request(partition.log)

    def _leader_lacks(self, partition: Partition, leader_end: int, is_committed: bool) -> None:
        self.repairs.leader_lacks(partition, leader_end, is_committed=is_committed)

    def _role_changed(self, partition: Partition) -> None:
        log = partition.log
        if partition.replica.leader is not None and log.durable_offset < log.log_end_offset:
            self._request_flush(partition)  # what was withheld counts now (storage/DESIGN 6.1)
        if partition.log.is_damaged and not self.was_elected_anyway(partition):
            self.repairs.report(partition, known=partition.key in self._reported)
        elif partition.replica.follower is not None:
            self.fetchers.follow(partition)
        else:
            self.fetchers.unfollow(partition.key)
        for changed, _ in tuple(self._role_watchers):
            changed(partition)

    def _registration_changed(self, partition: Partition) -> None:
        if partition.replica.follower is not None and self.context.node_id not in partition.isr:
            self.fetchers.renew(partition)
        self.repairs.registered(partition)

    def _partition_released(self, key: PartitionKey) -> None:
        self.fetchers.unfollow(key)
        for _, released in tuple(self._role_watchers):
            released(key)

    def was_elected_anyway(self, partition: Partition) -> bool:
        """Whether it leads though it is damaged: an operator, or the lack of others, wanted it."""
        node = self.context.node_id
        return partition.is_leader and was_elected_anyway(node, partition.registration)

    def failed(self, error: OSError) -> None:
        """The data directory failed."""
        if not self.health.offline:
            self.health.offline = True
            self.log.error("data directory failed", error=str(error))
            self._disk_failed(error)


class _Events(PartitionEvents[Partition]):
    """Tells the parts of a manager, which are made of the context that this is part of."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._log = manager.log

    def request_flush(self, log: Log) -> None:
        self._manager.flusher.request(log)

    def tell_followers(self, partition: Partition) -> None:
        self._manager.serving.tell_followers(partition)

    def advanced(self, partition: Partition) -> None:
        self._manager.serving.advanced(partition)

    def proposing(self, partition: Partition) -> None:
        self._manager.proposals.add(partition)

    def durable(self, partition: Partition) -> None:
        self._manager.fetchers.durable(partition)

    def start_moved(self) -> None:
        self._manager.maintenance.write_starts_soon()

    def suspect(self, partition: Partition, offset: int) -> None:
        repairs = self._manager.repairs
        if not any(each.start <= offset < each.end for each in partition.log.damaged):
            repairs.suspect(partition, offset)
        elif not self._manager.was_elected_anyway(partition):
            repairs.report(partition)

    def unreadable(self, partition: Partition, offset: int, reason: str) -> None:
        self._log.error("unreadable bytes", partition=str(partition), reason=reason)
        self._manager.repairs.suspect(partition, offset)

    def append_failed(self, log: Log) -> None:
        self._manager.maintenance.append_failed(log)

    def state_due(self, log: Log) -> None:
        self._manager.states.due(log)

    def failed(self, error: OSError) -> None:
        self._manager.failed(error)
