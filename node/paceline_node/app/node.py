"""One broker process: identity, start order, stop order. No broker logic lives here.

Start: lock the directory, bind ports, learn or read the identity, run the metadata quorum, recover
logs, register, take roles, serve clients. Stop: refuse new clients, hand leadership over, end
connections, flush, close, mark the stop as clean (DESIGN 2.1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar
from uuid import UUID

import structlog
import trio

from paceline.errors import ConfigurationError, StorageError
from paceline.health import Certificates, judge_certificates
from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.cursus.compression import CompressorRegistry
from paceline_node.app.boot import Boot, format_node, new_meta, open_directory, take_lock
from paceline_node.app.broker import Broker
from paceline_node.app.compressors import chosen
from paceline_node.app.joining import ask_to_join
from paceline_node.app.login import check_oauth
from paceline_node.app.metadata import Metadata, open_store
from paceline_node.app.node_pages import browsers_of
from paceline_node.app.peering import Peering
from paceline_node.app.pravega import check_http2
from paceline_node.app.rejoining import rejoin
from paceline_node.app.starting import PATIENCE_S, StartingNode
from paceline_node.app.tls import NodeTls
from paceline_node.controller.raft_store import MetadataCorrupt, RaftStore
from paceline_node.controller.raft_types import Member
from paceline_node.env import Env
from paceline_node.http.console.files import ConsoleFiles
from paceline_node.listeners.serving import BoundListener, bind
from paceline_node.net.accepting import AcceptGate
from paceline_node.net.network import RealDescriptors
from paceline_node.peers import auth
from paceline_node.peers.server import ServerLimits
from paceline_node.security.principals import Policy
from paceline_node.settings import ListenerKind, LiveSettings, Settings
from paceline_node.storage import incarnation
from paceline_node.storage.waiting_for_space import when_there_is_room

EXIT_DISK_FAILED = 69
_HAND_OVER_S = 2.0
_CLOSE_S = 1.0
_LOOK_AGAIN_S = 0.1
_ASK_AGAIN_S = 1.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    """Advertised addresses by listener name, for whoever started the node in its own process."""

    cluster_id: UUID
    by_listener: dict[str, tuple[str, int]]


class Node:
    """One broker. :meth:`run` once; :meth:`stop` from anywhere in the same loop. ``policy`` decides
    what clients may do; without one, the cluster's ACLs. ``compressors`` are those that setting
    ``cursus.compressors`` chooses from; without them, the installed entry points. Raises
    ConfigurationError for one that is not there, and for a certificate that cannot be used."""

    def __init__(
        self,
        settings: Settings,
        env: Env,
        *,
        policy: Policy | None = None,
        compressors: CompressorRegistry | None = None,
    ) -> None:
        self._live = LiveSettings(settings)
        self._settings = settings
        self._env = env
        self._policy = policy
        self._compressors = chosen(settings.cursus.compressors, compressors)
        check_http2(settings)
        check_oauth(settings.oauth)
        self._tls = NodeTls(self._live)
        self._node_id = NodeId(settings.node.id)
        self._log = structlog.get_logger().bind(node=self._node_id)
        self._stop = trio.Event()
        self._cluster_stops = False
        self._broker: Broker | None = None
        self._refuse_from = 0.0
        self._starting = StartingNode(
            self._waits_for,
            self._tls.door,
            browsers_of(settings),
            AcceptGate(RealDescriptors(), reserve=settings.limits.reserved_descriptors),
            ConsoleFiles(env.host.run_blocking),
        )

    @property
    def broker(self) -> Broker | None:
        """The broker, once the data directory was opened: for those who run nodes in their own
        process and look into them."""
        return self._broker

    @property
    def client_bytes(self) -> int:
        """What clients are known to hold in memory."""
        memory = None if self._broker is None else self._broker.client_memory
        return 0 if memory is None else memory.held_bytes

    @property
    def stopping(self) -> bool:
        """Whether :meth:`stop` was called."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Begin an orderly stop: leadership is handed over before the process ends."""
        self._stop.set()

    def stop_with_cluster(self) -> None:
        """The whole cluster stops: nobody is there to take over (DESIGN 2.4)."""
        self._cluster_stops = True

    @property
    def settings(self) -> Settings:
        """Those in force."""
        return self._live.current

    def reload(self, wanted: Settings) -> Settings:
        """Put what may change while the node runs in force, and say what may not. Returns the
        settings in force."""
        change = self._live.take(wanted)
        if self._broker is not None:
            self._broker.settings_changed()
        if change.applied:
            self._log.info("settings reloaded", settings=list(change.applied))
        if change.refused:
            self._log.warning("settings need a restart", settings=list(change.refused))
        if not (change.applied or change.refused):
            self._log.info("settings reloaded, nothing changed")
        return self._live.current

    async def reload_certificates(self) -> None:
        """Read the files of certificates again, from where the settings in force have them."""
        await self._tls.reload(self._env)
        self._warn_of_exposures()

    def _warn_of_exposures(self) -> None:
        """Said at each start and each SIGHUP, as long as it is so."""
        for each in () if self._broker is None else self._broker.exposures():
            self._log.warning("exposed", problem=each.sentence, what_to_do=each.what_to_do)

    async def run(
        self, *, task_status: trio.TaskStatus[NodeAddresses] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run until stopped; ``started`` once the broker serves clients.

        Raises ConfigurationError, PortInUse, DirectoryInUse, StorageError, maybe in a group.
        """
        now = self._env.host.wall_ms() / 1000
        facts = Certificates(self._tls.expiries, self._tls.refused, now)
        for found in judge_certificates(facts):
            self._log.warning("certificate", problem=found.reason)
        await when_there_is_room(partial(take_lock, self._env.disk), self._env.waits)
        bound: list[BoundListener] = []
        try:
            for config in self._settings.effective_listeners:
                bound.append(await bind(self._env.net, config))
            self._refuse_from = trio.current_time() + PATIENCE_S
            secret = auth.read_secret(self._settings.secret_path)
            known = await self._while_starting(partial(self._know_itself, secret, bound), bound)
            if known is not None:
                await self._run(*known, secret, bound, task_status)
        finally:
            # Those that began to serve are closed already; a failed start leaves the others.
            with trio.move_on_after(_CLOSE_S, shield=True):
                for listener in bound:
                    await listener.close()
            self._env.disk.close()

    # --- identity ---------------------------------------------------------------------------------

    async def _know_itself(
        self, secret: auth.Secret, bound: list[BoundListener]
    ) -> tuple[Boot, RaftStore]:
        """Who this node is, and what it promised; one that cannot know the latter rejoins."""
        boot = await self._identify(secret, bound)
        try:
            return boot, await open_store(self._env, boot)
        except MetadataCorrupt as damage:
            await rejoin(
                self._env,
                boot,
                damage,
                secret=secret,
                peer_address=_peer_address(bound),
                bootstrap=[(peer.host, peer.port) for peer in self._settings.cluster.bootstrap],
                tls=self._tls.peers,
            )
        boot = await self._identify(secret, bound)
        return boot, await open_store(self._env, boot)

    async def _identify(self, secret: auth.Secret, bound: list[BoundListener]) -> Boot:
        """What the data directory says; an empty one joins the cluster of the bootstrap peers."""
        look = partial(open_directory, self._env, self._node_id)
        boot = await when_there_is_room(look, self._env.waits)
        if boot is not None:
            return boot
        peers = self._settings.cluster.bootstrap
        if not peers:
            raise ConfigurationError(
                f"data directory {self._settings.node.data_dir} is empty and cluster.bootstrap "
                "names nobody to join; format it (paceline node format) or name a running node"
            )
        meta = new_meta(self._env, UUID(int=0), self._node_id)
        self._log.info("joining a cluster", bootstrap=[str(peer) for peer in peers])
        reply = await ask_to_join(
            self._env,
            auth.Identity(self._node_id, meta.directory_id, None),
            secret,
            _peer_address(bound),
            [(peer.host, peer.port) for peer in peers],
            until=lambda _: True,
            tls=self._tls.peers,
        )
        await format_node(self._env.disk, replace(meta, cluster_id=reply.cluster_id), ())
        opened = await open_directory(self._env, self._node_id)
        assert opened is not None, "a directory just formatted can be opened"
        return opened

    def _waits_for(self) -> tuple[str, ...]:
        """Why this node does not serve yet."""
        shortage = () if self._broker is None else self._broker.replicas.health.shortage
        return (f"node {self._node_id} is starting", *dict.fromkeys(self._env.waits), *shortage)

    # --- running ----------------------------------------------------------------------------------

    async def _run(
        self,
        boot: Boot,
        store: RaftStore,
        secret: auth.Secret,
        bound: list[BoundListener],
        task_status: trio.TaskStatus[NodeAddresses],
    ) -> None:
        identity = auth.Identity(
            self._node_id,
            boot.meta.directory_id,
            boot.meta.cluster_id,
            boot.boot_seq,
            boot.incarnation_id,
        )
        peering = Peering(
            self._env,
            identity,
            secret,
            self._settings.cluster.bootstrap,
            ServerLimits(max_connections=self._settings.limits.peer_connections),
            tls=self._tls.peers,
        )
        metadata = Metadata(self._settings, self._env, boot, store, peering)
        broker = self._broker = Broker(
            self._live,
            self._env,
            boot,
            peering,
            metadata,
            bound,
            policy=self._policy,
            compressors=self._compressors,
            tls=self._tls,
            failed=self._disk_failed,
            stop_with_cluster=self.stop_with_cluster,
        )
        try:
            async with trio.open_nursery() as core:
                await broker.start_core(core)
                me = Member(self._node_id, boot.meta.directory_id, *_peer_address(bound))
                if not metadata.lists(me):
                    core.start_soon(self._join, me, identity, secret, metadata, peering)

                async def enter() -> bool:
                    await broker.enter(core)
                    return True

                if await self._while_starting(enter, bound):
                    await self._serve(broker, metadata, task_status)
                await broker.close()
                core.cancel_scope.cancel("the node stops")
        except* StorageError as group:
            self._disk_failed(group.exceptions[0])
        finally:
            metadata.store_on_disk.close()

    async def _while_starting(
        self, work: Callable[[], Awaitable[T]], bound: Sequence[BoundListener]
    ) -> T | None:
        """The result of ``work``; None when the node was told to stop before it was done. Clients
        are sent away meanwhile."""
        result = None
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                await self._stop.wait()
                nursery.cancel_scope.cancel("stopped while starting")

            async def send_away() -> None:
                await trio.sleep_until(self._refuse_from)
                await self._starting.run(bound)

            nursery.start_soon(watch)
            nursery.start_soon(send_away)
            result = await work()
            nursery.cancel_scope.cancel("started")
        return result

    async def _serve(
        self,
        broker: Broker,
        metadata: Metadata,
        task_status: trio.TaskStatus[NodeAddresses],
    ) -> None:
        async with trio.open_nursery() as clients:
            await broker.serve_clients(clients)
            task_status.started(NodeAddresses(broker.cluster_id, broker.addresses))
            self._log.info("serving", listeners=broker.addresses)
            self._warn_of_exposures()
            await self._stop.wait()
            self._log.info("stopping", whole_cluster=self._cluster_stops)
            broker.prepare_to_stop()
            if self._cluster_stops:
                broker.lifecycle.stop_at_once()
            else:
                await broker.lifecycle.drain()
                await metadata.hand_over(_HAND_OVER_S)
            clients.cancel_scope.cancel("the node stops")

    async def _join(
        self,
        me: Member,
        identity: auth.Identity,
        secret: auth.Secret,
        metadata: Metadata,
        peering: Peering,
    ) -> None:
        """Ask to be one of the quorum's members until it lists this node for good, with this disk
        and where it is now. A leader lists itself."""
        peers = self._settings.cluster.bootstrap

        async def ask() -> None:
            while True:
                if metadata.names(me):  # most likely it hears of the commit before long
                    await trio.sleep(_ASK_AGAIN_S)
                reply = await ask_to_join(
                    self._env,
                    identity,
                    secret,
                    (me.host, me.port),
                    [
                        *((peer.host, peer.port) for peer in peers),
                        *metadata.quorum.addresses.values(),
                    ],
                    until=lambda reply: reply.admitted,
                    tls=self._tls.peers,
                )
                peering.introduce(reply.members)
                # What a leader let in may be lost with its leadership.
                await trio.sleep(_ASK_AGAIN_S)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            while not metadata.lists(me):
                metadata.admit(me)
                await trio.sleep(_LOOK_AGAIN_S)
            nursery.cancel_scope.cancel("the quorum lists this node")

    def _disk_failed(self, error: Exception) -> None:
        """The data directory failed: end at once, nothing in it may be used again
        (storage/DESIGN 2.2)."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        self._log.error("data directory failed", error=str(error))
        incarnation.mark_failed(self._env.disk)
        self._env.host.exit(EXIT_DISK_FAILED)


def _peer_address(bound: list[BoundListener]) -> tuple[str, int]:
    for item in bound:
        if item.config.kind is ListenerKind.PEER:
            return item.address
    raise ConfigurationError("listeners: a peer:// listener is needed")
