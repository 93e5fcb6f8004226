"""The broker on this node: replicas, its session with the controller, client listeners."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from uuid import UUID

import structlog
import trio

from paceline.errors import StorageError
from paceline.health import Exposure
from paceline.types import BrokerEpoch
from paceline.version import __version__
from paceline.wire.cursus.compression import CursusCompressor
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.control import Address
from paceline_node.app.boot import Boot
from paceline_node.app.client_listeners import ClientListeners
from paceline_node.app.cluster_views import ClusterViews
from paceline_node.app.exposure import exposures
from paceline_node.app.groups import GroupMachines
from paceline_node.app.housekeeping import Housekeeping
from paceline_node.app.incarnation_file import IncarnationFile
from paceline_node.app.keyvalue import table_machines
from paceline_node.app.login import make_authenticator
from paceline_node.app.metadata import Metadata, topic_defaults
from paceline_node.app.metric_sources import (
    meter_groups,
    meter_metadata,
    meter_peers,
    meter_process,
    meter_replicas,
    meter_transactions,
    watch_images,
)
from paceline_node.app.peering import Peering
from paceline_node.app.replication import live_replication_settings
from paceline_node.app.tls import NodeTls
from paceline_node.app.transactions import TransactionMachines
from paceline_node.client_memory import ClientMemory
from paceline_node.controller.client import ControllerClient
from paceline_node.controller.controller_session import ControllerSession
from paceline_node.controller.lifecycle import Identity, Lifecycle, LifecycleTiming
from paceline_node.env import Env, is_full
from paceline_node.listeners.serving import BoundListener
from paceline_node.loop_turns import Turns
from paceline_node.observe.metrics import Metrics
from paceline_node.observe.watchdog import LoopWatchdog
from paceline_node.replication.hosted_partitions import refs
from paceline_node.replication.log_directory import OpenedLogs
from paceline_node.replication.manager import ReplicaManager, ReplicationIdentity
from paceline_node.security.principals import Policy
from paceline_node.services.authorization.cluster_policy import ClusterPolicy
from paceline_node.services.broker_services import (
    BrokerParts,
    BrokerServices,
    GroupParts,
    TransactionParts,
)
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.segments.keyvalue_tables import TableService
from paceline_node.settings import ListenerKind, LiveSettings, Login, SliceClock
from paceline_node.storage import incarnation
from paceline_node.storage.incarnation import Verdict

SOFTWARE = f"paceline/{__version__}"
_CLOSE_S = 30.0
_UNKNOWN = incarnation.Incarnation()


class Broker:
    """Everything above the metadata, in its order of start."""

    client_memory: ClientMemory | None = None
    """What clients hold, since they are served."""

    def __init__(
        self,
        live: LiveSettings,
        env: Env,
        boot: Boot,
        peering: Peering,
        metadata: Metadata,
        bound: list[BoundListener],
        *,
        policy: Policy | None,
        compressors: Sequence[CursusCompressor],
        tls: NodeTls,
        failed: Callable[[OSError], None],
        stop_with_cluster: Callable[[], None],
    ) -> None:
        self._live = live
        self._settings = settings = live.current
        self._env = env
        self._boot = boot
        self._peering = peering
        self._metadata = metadata
        self._bound = bound
        self._policy = policy or _cluster_policy(live, metadata)
        self._compressors = compressors
        self._tls = tls
        self._stop_with_cluster = stop_with_cluster
        self._incarnation = IncarnationFile(env, boot.meta.node, boot.previous or _UNKNOWN)
        self._watchdog = LoopWatchdog(_stopwatch(env, settings.metrics.slice_clock))
        self._metrics = Metrics(version=__version__, per_partition=settings.metrics.per_partition)
        meter_process(self._metrics, env.disk, self._watchdog)
        meter_metadata(self._metrics, metadata)
        meter_peers(self._metrics, peering)
        self._controller = ControllerClient(
            env, boot.meta.node_id, metadata.controller, peering.links, metadata.leader
        )
        self._session = ControllerSession(without_controller=settings.broker.without_controller)
        self._housekeeping: Housekeeping | None = None
        meta = boot.meta
        self.replicas = ReplicaManager(
            env,
            ReplicationIdentity(meta.cluster_id, meta.node_id, meta.directory_id),
            metadata.image_store,
            peering.links,
            self._controller,
            session_valid=self._session.is_valid,
            disk_failed=failed,
            lower_floor=self._incarnation.lower_floor,
            metrics=self._metrics,
            settings=live_replication_settings(live),
        )
        metadata.quorum.lacks_room = self.replicas.health.lacks_room
        meter_replicas(self._metrics, self.replicas)
        self._groups = GroupMachines(env, settings, self.replicas, metadata.image_store)
        meter_groups(self._metrics, self._groups.machines)
        self.transactions = TransactionMachines(
            env, settings, meta.node_id, metadata, peering, self.replicas, self._groups
        )
        meter_transactions(self._metrics, self.transactions)
        self._tables = table_machines(env, settings.limits, self.replicas)
        self.replicas.register(peering.server)
        peering.on_session_closed(self.replicas.session_closed)
        self._replica_tasks = trio.CancelScope()
        self._replica_tasks_ended = trio.Event()
        self._recovered = False
        self.addresses = {item.config.kind.value: item.address for item in bound}
        self.turns = Turns()

    @property
    def cluster_id(self) -> UUID:
        return self._boot.meta.cluster_id

    @property
    def metadata(self) -> Metadata:
        """The quorum's member here, and the image it feeds."""
        return self._metadata

    def exposures(self) -> tuple[Exposure, ...]:
        """What others on the network may do to this node that they should not."""
        policy = self._policy
        is_guarded = not isinstance(policy, ClusterPolicy) or policy.is_guarded
        return exposures(self._live.current, is_guarded=is_guarded)

    @property
    def lifecycle(self) -> Lifecycle:
        """This broker's session; there is one once :meth:`enter` has begun to register."""
        assert self._session.lifecycle is not None, "the broker has not entered the cluster"
        return self._session.lifecycle

    def settings_changed(self) -> None:
        """The settings in force are others: tell those who hold copies."""
        self._metadata.controller.change_topic_defaults(topic_defaults(self._live.current))

    def _session_lost(self) -> None:
        if not self._settings.broker.without_controller:
            self.replicas.session_lost()

    # --- start ------------------------------------------------------------------------------------

    async def start_core(self, core: trio.Nursery) -> None:
        """Peers, quorum, controller, and the replicas' own tasks."""
        core.start_soon(self._watchdog.run)
        if self._boot.previous is not None:
            found = self._metadata.found
            await self._incarnation.write(incarnation.opened(self._boot.previous, found))
        await core.start(self._metadata.quorum.run)
        await core.start(self._metadata.controller.run)
        await core.start(self._run_replicas)
        sockets = [
            socket
            for item in self._bound
            if item.config.kind is ListenerKind.PEER
            for socket in item.sockets
        ]
        await core.start(partial(self._peering.run, sockets))

    async def _run_replicas(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        try:
            with self._replica_tasks:
                await self.replicas.run(task_status=task_status)
        finally:
            self._replica_tasks_ended.set()

    async def _run_groups(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        try:
            await self._groups.run(task_status=task_status)
        except* OSError as group:
            raise StorageError(f"writing the groups' files: {group.exceptions[0]}") from group

    async def enter(self, core: trio.Nursery) -> None:
        """Recover logs, register, and wait until the controller lets this broker serve.

        Raises StorageError, and what makes a registration impossible.
        """
        boot = self._boot
        known_syncs = incarnation.known_syncs(
            boot.previous, self._metadata.store_on_disk.noted_syncs
        )
        clean = boot.verdict is Verdict.TRUSTED and (boot.previous or _UNKNOWN).clean
        try:
            opened = await self.replicas.open_logs(
                clean=clean,
                disk_failed=boot.disk_failed,
                same_boot=boot.same_boot,
                acked_unsynced=boot.acked_unsynced,
                known_syncs=known_syncs,
            )
            await self._groups.open(opened)
        except OSError as error:
            raise StorageError(f"opening the logs: {error}") from error
        verdict = incarnation.resolve(
            Verdict.UNTRUSTED if opened.doubtful else boot.verdict,
            reached_durable_mark=opened.reached_durable_mark,
        )
        previous = None if boot.previous is None else self._incarnation.current
        await self._incarnation.write(incarnation.begin(previous, verdict, wall_ms=boot.wall_ms))
        incarnation.forget_failure(self._env.disk)
        self._recovered = True
        await core.start(self._run_groups)
        await core.start(self.transactions.run)
        await core.start(self._tables.run)
        trusts_itself = self._incarnation.current.trusted
        offset_found = self._offset_found()
        lifecycle = self._session.lifecycle = self._make_lifecycle(offset_found)
        broker_epoch = await lifecycle.register(refs(opened.damaged))
        if opened.list_is_lost:
            await self._report_absent(opened, broker_epoch)
        marks = self.replicas.directory.marks
        await marks.count_from(known_syncs, self._metadata.store_on_disk.note_syncs)
        floor = self.replicas.table.weakest_flush_mode()
        await self._incarnation.write(
            incarnation.registered(
                self._incarnation.current,
                broker_epoch=broker_epoch,
                boot_id=boot.boot_id,
                flush_floor=floor,
                metadata=self._metadata.witness(),
                syncs=marks.noted_syncs,
            )
        )
        self.replicas.registered(broker_epoch, floor)
        await core.start(lifecycle.run)
        await lifecycle.wait_running()
        if trusts_itself:
            self._tell_if_outdated(broker_epoch, offset_found)

    def _tell_if_outdated(self, broker_epoch: BrokerEpoch, metadata_offset: int) -> None:
        """Nothing on an older copy of a disk shows that it is one; the cluster knows."""
        known = self._metadata.image_store.image.brokers.get(self._boot.meta.node_id)
        if known is not None and known.broker_epoch == broker_epoch and not known.trusted:
            structlog.get_logger().error(
                "this disk is an older copy of itself; what it holds counts when it has caught up",
                metadata_offset=metadata_offset,
            )

    async def _report_absent(self, opened: OpenedLogs, broker_epoch: BrokerEpoch) -> None:
        """The directory does not know any more which logs it kept, but the cluster knows which
        replicas this node had. This process is registered and still fenced: none of them has been
        elected yet."""
        store = self._metadata.image_store
        reached = trio.Event()
        unsubscribe = store.subscribe(
            lambda _, image: reached.set() if image.offset >= broker_epoch else None
        )
        try:
            if store.image.offset < broker_epoch:
                await reached.wait()
        finally:
            unsubscribe()
        told = {*opened.logs, *opened.damaged}
        assigned = self.replicas.table.assigned(store.image)
        absent = [key for key in assigned if key not in told]
        if absent:
            await self.lifecycle.report_damaged(refs(absent))

    def _make_lifecycle(self, metadata_offset: int) -> Lifecycle:
        meta = self._boot.meta
        current = self._incarnation.current
        settings = self._settings.broker
        identity = Identity(
            cluster_id=meta.cluster_id,
            node_id=meta.node_id,
            directory_id=meta.directory_id,
            incarnation_id=self._boot.incarnation_id,
            boot_seq=current.boot_seq,
            prev_epoch=current.broker_epoch,
            trusted=current.trusted,
            endpoints=tuple(
                Address(ListenerKind(name).endpoint, host, port)
                for name, (host, port) in self.addresses.items()
            ),
            rack=self._settings.node.rack,
            most_partitions=self._settings.limits.partitions,
            metadata_offset=metadata_offset,
        )
        return Lifecycle(
            self._env,
            self._controller,
            identity,
            LifecycleTiming(
                settings.heartbeat_ms / 1000,
                settings.session_ms / 1000,
                settings.shutdown_ms / 1000,
            ),
            health=self.replicas.health,
            image_offset=self._metadata.image_offset,
            durable_offset=self._metadata.durable_offset,
            session_lost=self._session_lost,
        )

    def _offset_found(self) -> int:
        """Where the metadata log ended when the first start since the last registration found it;
        -1: not known."""
        found = self._metadata.found
        known = self._incarnation.current.found.of(found.directory)
        return found.offset if known < 0 else known

    def _parts(self) -> BrokerParts:
        meta = self._boot.meta
        return BrokerParts(
            env=self._env,
            cluster_id=meta.cluster_id,
            node_id=meta.node_id,
            software=SOFTWARE,
            store=self._metadata.image_store,
            controller=self._controller,
            table=self.replicas.table,
            lifecycle=self.lifecycle,
            policy=self._policy,
            deadlines=self.replicas.deadlines,
            turns=self.turns,
            topic_defaults=lambda: self._live.current.topic_configs(),
            cluster_key=self._peering.decoy_secret,
            session_valid=self._session.is_valid,
        )

    async def serve_clients(self, clients: trio.Nursery) -> None:
        """Open the client listeners in ``clients``."""
        store, server = self._metadata.image_store, self._peering.server
        broker, transactions = self._parts(), self.transactions
        groups = GroupParts(self._groups.machines, self._groups.limits, self._groups.commit_s)
        services = BrokerServices.over(
            broker,
            groups,
            TransactionParts(
                transactions.machines,
                transactions.endings,
                transactions.rpc,
                transactions.produce,
                transactions.commit_s,
            ),
            quorum=self._metadata.view,
            stop_with_cluster=self._stop_with_cluster,
            loop_delay=lambda: self._watchdog.worst_s,
            certificates=self._tls,
            exposures=self.exposures,
        )
        routing = LeaderRouting(
            self._env, broker.node_id, store, self._peering.links, self.replicas.table
        )
        housekeeping = self._housekeeping = Housekeeping(
            self._settings,
            broker,
            services,
            routing,
            server,
            shares=self.replicas.context.shares,
            rounds_due=self._groups.rounds_due,
            transactions=transactions.rpc,
        )
        tables = TableService(
            self._env,
            store,
            self._controller,
            routing,
            self._tables,
            services.access,
            commit_s=self._settings.groups.commit_timeout_ms / 1000,
        )
        server.register(PeerApi.TABLE, tables.serve_forwarded)
        listeners = ClientListeners(
            self._live,
            broker,
            services,
            self.replicas,
            routing,
            tables,
            self._metrics,
            compressors=self._compressors,
            tls=self._tls,
            authenticator=make_authenticator(
                self._env, store, self._peering.decoy_secret, self._settings
            ),
            views=ClusterViews(broker, services, groups, routing, self._watchdog, self._metrics),
        )
        self.client_memory = listeners.memory
        listeners.register(server)
        server.complete()
        # From here on: changes applied earlier, while catching up, happened in another life.
        store.subscribe(watch_images(self._metrics, broker.node_id))
        store.subscribe(self._groups.topics_changed)
        await housekeeping.start(clients)
        await listeners.start(clients, self._bound)

    def prepare_to_stop(self) -> None:
        """While this node still leads: what is better done now than after it gave that up."""
        if self._housekeeping is not None:
            self._housekeeping.prepare_to_stop()

    # --- stop -------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Flush and close every log, then mark the stop as clean; without room for that it is none,
        and the next start recovers. Before the logs were recovered there is nothing to close, and
        what the last process left must be judged by the next. Raises OSError."""
        self._replica_tasks.cancel("the node stops")
        if not self._recovered:
            return
        with trio.move_on_after(_CLOSE_S, shield=True) as scope:
            # A task that writes a checkpoint ends when its thread does, not when it is cancelled.
            await self._replica_tasks_ended.wait()
            try:
                await self.replicas.close()
                await self._incarnation.write(
                    incarnation.stopped(
                        self._incarnation.current,
                        self._metadata.witness(),
                        syncs=self.replicas.directory.marks.noted_syncs,
                    )
                )
            except OSError as error:
                if not is_full(error):
                    raise
                structlog.get_logger().warning("no room to stop cleanly", reason=str(error))
        if scope.cancelled_caught:
            structlog.get_logger().warning("logs were not closed in time", limit_s=_CLOSE_S)


def _cluster_policy(live: LiveSettings, metadata: Metadata) -> ClusterPolicy:
    return ClusterPolicy(
        metadata.image_store,
        lambda: live.current.security.super_users,
        wants_log_in=lambda: any(
            each.login is Login.REQUIRED for each in live.current.effective_listeners
        ),
    )


def _stopwatch(env: Env, clock: SliceClock) -> Callable[[], float] | None:
    """What measures the steps of the loop; None where time stands still in a step."""
    if env.host.stopwatch is None or clock is SliceClock.WALL:
        return env.host.stopwatch
    return time.thread_time
