"""The client side of a broker: which listener serves what of the services."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus

import trio

from paceline.wire.cursus.compression import CursusCompressor
from paceline.wire.peer.api import PeerApi
from paceline.wire.segment.server import ServerLimits
from paceline_node.app.cursus import health_checks, make_cursus
from paceline_node.app.cursus_metering import collect_for_cursus
from paceline_node.app.descriptors import shares
from paceline_node.app.peering import Peering
from paceline_node.app.pravega import PravegaParts
from paceline_node.app.tls import NodeTls
from paceline_node.controller.client import ControllerClient
from paceline_node.controller.store import MetadataStore
from paceline_node.env import Env
from paceline_node.groups.driven_state import RoundsDue
from paceline_node.http.cursus_pages import health_pages
from paceline_node.http.pages import Scrapes, metrics_page, standard_pages
from paceline_node.http.server import HttpLimits, HttpServer, PageMaker, StreamHandler
from paceline_node.keyvalue.machine import TableMachine
from paceline_node.listeners.kafka.connection import KafkaLimits
from paceline_node.listeners.kafka.coordinator import CoordinatorRequests
from paceline_node.listeners.kafka.listener import KafkaListener
from paceline_node.listeners.native.fetch import FetchHandler
from paceline_node.listeners.native.groups import NativeGroups
from paceline_node.listeners.native.listener import NativeLimits, NativeService
from paceline_node.listeners.native.produce import ProduceHandler
from paceline_node.listeners.native.requests import NativeRequests
from paceline_node.listeners.native.transactions import NativeTransactions
from paceline_node.listeners.segment.limits import ConnectionLimits
from paceline_node.listeners.segment.listener import SegmentListener
from paceline_node.listeners.segment.requests import RequestTimes
from paceline_node.listeners.serving import (
    BoundListener,
    Client,
    Serve,
    behind,
    serve_clients,
)
from paceline_node.listeners.v1.admin import V1Admin
from paceline_node.listeners.v1.groups import V1Groups
from paceline_node.listeners.v1.listener import V1Listener, V1Settings
from paceline_node.listeners.v1.records import RecordLimits, V1Records
from paceline_node.listeners.v1.replicas import V1Replicas
from paceline_node.listeners.v1.routing import Router
from paceline_node.memory import ClientMemory, Holding
from paceline_node.net.accepting import AcceptGate, OpenConnections
from paceline_node.net.network import RealDescriptors
from paceline_node.observe.instruments import Family
from paceline_node.observe.metrics import OK, Gauge, Metrics, Sample, Total
from paceline_node.replication.manager import ReplicaManager
from paceline_node.security.origins import BrowserCheck
from paceline_node.security.principals import Principal
from paceline_node.services.bounds import BoundsService
from paceline_node.services.broker_services import BrokerServices
from paceline_node.services.hanging_offsets import HangingOffsets
from paceline_node.services.hanging_transactions import HangingTransactions
from paceline_node.services.producer_expiry import (
    PlainProducers,
    ProducerExpiry,
    ProducerKind,
    SegmentWriters,
    SequencedProducers,
)
from paceline_node.services.rebalancing import Rebalancing
from paceline_node.services.replica_slots import ReplicaSlots
from paceline_node.services.routing import LeaderRouting
from paceline_node.services.tables import TableService
from paceline_node.services.transaction_rpc import TransactionRpc
from paceline_node.settings import ListenerKind, LiveSettings
from paceline_node.state_machines.topic import StateTopic
from paceline_node.storage.layout import DirectoryMeta

NATIVE_PATH = "/native"


class ClientListeners:
    """Serves clients through every configured listener."""

    def __init__(
        self,
        live: LiveSettings,
        env: Env,
        meta: DirectoryMeta,
        services: BrokerServices,
        store: MetadataStore,
        replicas: ReplicaManager,
        peering: Peering,
        table_machines: StateTopic[TableMachine],
        controller: ControllerClient,
        metrics: Metrics,
        rounds_due: RoundsDue,
        transactions: TransactionRpc,
        *,
        software: str,
        compressors: Sequence[CursusCompressor] = (),
        tls: NodeTls,
    ) -> None:
        self._live = live
        self._tls = tls
        self._settings = settings = live.current
        self._services = services
        self._run_blocking = env.host.run_blocking
        self._metrics = metrics
        limits = settings.limits
        self._memory = ClientMemory(max(limits.client_memory_bytes, 4 * limits.frame_bytes))
        self._opened = {kind: OpenConnections() for kind in ListenerKind}
        self._expiries = self._make_expiries(env, replicas, transactions)
        routing = LeaderRouting(env, meta.node_id, store, peering.links, replicas.table)
        bounds = BoundsService(store, replicas.table, routing)
        self._rebalancing = Rebalancing(store, services.groups, bounds, rounds_due, services.turns)
        peering.server.register(PeerApi.PARTITION_BOUNDS, bounds.serve)
        tables = TableService(
            env,
            store,
            controller,
            routing,
            table_machines,
            services.access,
            commit_s=settings.groups.commit_timeout_ms / 1000,
        )
        self._pravega = PravegaParts(env, meta.node_id, services, routing, tables, metrics)
        self._native = self._make_native(env, meta, software, replicas)
        self._kafka = self._make_kafka(env, meta, replicas)
        self._segment = self._make_segment(env, replicas)
        self._v1 = self._make_v1(env, Router(env, store, routing))
        removal = self._pravega.removal
        self._cursus = make_cursus(
            env, settings, services, removal, routing, metrics, compressors, self._memory
        )
        self._http = self._make_http()
        self._gate = AcceptGate(RealDescriptors(), reserve=settings.limits.reserved_descriptors)
        peering.server.register(PeerApi.V1_LINE, self._v1.serve_forwarded)
        peering.server.register_patient(PeerApi.CURSUS_FRAME, self._cursus.serve_forwarded)
        peering.server.register(PeerApi.TABLE, tables.serve_forwarded)
        peering.server.register(PeerApi.SEGMENT, self._pravega.leaders.serve_forwarded)
        metrics.provide(Gauge.READY, lambda: [((), not services.status.reasons())])
        metrics.provide(Gauge.CONNECTIONS_ACTIVE, self._connections)
        metrics.provide(Total.CONNECTIONS_ACCEPTED, self._accepted)
        metrics.provide(Gauge.CLIENT_MEMORY, self._memory.by_listener)
        metrics.provide(Total.CLIENTS_ENDED, lambda: [((), self._memory.ended_count)])
        metrics.provide(Gauge.CHANNEL_DEPTH, self._depths)

    # --- what serves which protocol ---------------------------------------------------------------

    def _make_native(
        self, env: Env, meta: DirectoryMeta, software: str, replicas: ReplicaManager
    ) -> NativeService:
        services = self._services
        limits = self._settings.limits
        requests = NativeRequests(
            services.topics,
            self._pravega.removal,
            services.records,
            services.producer_ids,
            services.transactions,
            services.status,
            services.corruption_reports,
            services.trimming,
            services.turns,
            env.host.run_blocking,
        )
        return NativeService(
            meta.cluster_id,
            meta.node_id,
            software,
            ProduceHandler(services.produce),
            FetchHandler(services.fetch, services.offsets),
            {
                **requests.handlers(),
                **NativeGroups(
                    services.groups, services.transaction_offsets, services.turns
                ).handlers(),
                **NativeTransactions(services.transactions, services.turns).handlers(),
            },
            requests.metadata,
            NativeLimits(
                limits.frame_bytes,
                limits.requests_per_connection,
                limits.outbox_bytes,
                stall_s=limits.stall_ms / 1000,
                idle_s=limits.native_idle_ms / 1000 or float("inf"),
            ),
            self._metrics,
            deadlines=replicas.deadlines,
            burst=replicas.burst,
            after_burst=replicas.tell_followers,
            turns=services.turns,
            run_blocking=env.host.run_blocking,
        )

    def _make_kafka(self, env: Env, meta: DirectoryMeta, replicas: ReplicaManager) -> KafkaListener:
        services = self._services
        return KafkaListener(
            env,
            services,
            self._pravega.removal,
            KafkaLimits(
                max_frame_bytes=self._settings.limits.frame_bytes,
                stall_s=self._settings.limits.stall_ms / 1000,
            ),
            self._metrics,
            CoordinatorRequests(meta.node_id, services.groups, services.topics, self._metrics),
            after_append=replicas.tell_followers,
        )

    def _make_v1(self, env: Env, router: Router) -> V1Listener:
        services = self._services
        v1 = self._settings.v1
        limits = RecordLimits(
            v1.ack_timeout_ms / 1000,
            v1.leader_wait_ms / 1000,
            v1.consume_commit_wait_ms / 1000,
            v1.consume_max_bytes,
            v1.forward_produce,
        )
        records = V1Records(env, services.produce, services.fetch, services.topics, router, limits)
        slots = ReplicaSlots(env, services.access, services.records)
        return V1Listener(
            env,
            V1Settings(
                v1.max_line_bytes,
                lambda: self._live.current.v1.admin_commands.value,
                self._settings.limits.stall_ms / 1000,
            ),
            records,
            V1Replicas(env, slots, records, router, leader_wait_s=limits.leader_wait_s),
            V1Admin(services.topics),
            services.roles,
            V1Groups(
                env, services.groups, records, router, coordinator_wait_s=limits.leader_wait_s
            ),
            self._metrics,
            self._memory,
        )

    def _make_segment(self, env: Env, replicas: ReplicaManager) -> SegmentListener:
        segment = self._settings.segment
        limits = ConnectionLimits(
            ServerLimits(segment.max_event_bytes, segment.appenders_per_connection),
            RequestTimes(segment.append_timeout_ms / 1000, segment.read_wait_ms / 1000),
            segment.reads_per_connection,
            segment.idle_timeout_ms / 1000,
            segment.inflight_bytes,
            segment.inflight_bytes // 2,
            segment.reply_queue_bytes,
            segment.force_partial_replies,
        )
        return SegmentListener(
            env,
            self._services.turns,
            self._services.segments,
            self._pravega.table_requests,
            replicas.deadlines,
            limits,
            self._metrics,
            inflight_node_bytes=segment.inflight_node_bytes,
        )

    def _make_expiries(
        self, env: Env, replicas: ReplicaManager, transactions: TransactionRpc
    ) -> tuple[ProducerExpiry, ...]:
        """What forgets producers that have been silent for long."""
        settings, table = self._settings, replicas.table
        writers = self._services.segments.writers
        replicas.context.shares.is_connected = lambda log, key: (log, key[1]) in writers
        hanging = HangingTransactions(table, transactions)
        hanging_offsets = HangingOffsets(transactions.groups, transactions)

        async def end_hanging() -> None:
            await hanging.look()
            await hanging_offsets.look()

        kinds: tuple[tuple[ProducerKind, int], ...] = (
            (
                SegmentWriters(
                    env, table, self._services.segments, ttl_ms=settings.segment.writer_ttl_ms
                ),
                settings.segment.writer_check_ms,
            ),
            (
                SequencedProducers(env, table, ttl_ms=settings.cursus.producer_ttl_ms),
                settings.cursus.producer_check_ms,
            ),
        )
        return (
            *(ProducerExpiry(env, kind, pause_s=ms / 1000) for kind, ms in kinds),
            ProducerExpiry(
                env,
                PlainProducers(env, table, ttl_s=settings.log.producer_ttl_ms / 1000),
                pause_s=settings.log.producer_check_ms / 1000,
                first=end_hanging,
            ),
        )

    def _browsers(self) -> BrowserCheck:
        http = self._settings.http
        # A browser may use the names that this node tells others.
        advertised = [item.advertised_host for item in self._settings.effective_listeners]
        return BrowserCheck(hosts=[*http.allowed_hosts, *advertised], origins=http.allowed_origins)

    def _make_http(self) -> HttpServer:
        async def native_over_websocket(
            stream: trio.abc.Stream, name: str, principal: Principal, memory: Holding
        ) -> None:
            client = Client(name, is_loopback=False, principal=principal, memory=memory)
            await self._native.serve(stream, client)

        scrapes = self._scrapes(self._metrics.collect)
        reasons = self._services.status.reasons
        pages = standard_pages(scrapes, reasons, self._services.status.permit, self._memory)
        return self._http_server(ListenerKind.HTTP, pages, {NATIVE_PATH: native_over_websocket})

    def _scrapes(self, collect: Callable[[], Iterable[Family]]) -> Scrapes:
        return Scrapes(collect, self._services.turns, self._run_blocking)

    def _http_server(
        self,
        kind: ListenerKind,
        pages: Mapping[str, PageMaker],
        sockets: Mapping[str, StreamHandler] | None = None,
    ) -> HttpServer:
        """A server of a few pages, all counted."""
        names = {path: path.removeprefix("/") or "root" for path in (*pages, *(sockets or {}))}
        meters = self._metrics.requests_by(kind.value, names)

        def count(path: str, status: HTTPStatus, seconds: float) -> None:
            code = OK if status < HTTPStatus.BAD_REQUEST else status.name.lower()
            meters[path].done(code, seconds)

        return HttpServer(
            pages,
            sockets=sockets,
            browsers=self._browsers(),
            limits=self._http_limits(),
            count=count,
            memory=self._memory,
        )

    def _cursus_checks(self, principal: Principal) -> Mapping[str, str]:
        self._services.status.permit(principal)
        return health_checks(self._services)

    def _collect_for_cursus(self) -> Iterator[Family]:
        return collect_for_cursus(self._metrics, self._services, lambda: self._cursus.stream_count)

    def _http_limits(self) -> HttpLimits:
        return HttpLimits(
            connections=self._settings.limits.connections,
            head_s=self._settings.http.request_timeout_ms / 1000,
            message_bytes=self._settings.limits.frame_bytes,
            idle_s=self._settings.limits.idle_ms / 1000,
            stall_s=self._settings.limits.stall_ms / 1000,
        )

    def _connections(self) -> Iterator[Sample]:
        for kind, opened in self._opened.items():
            if kind is not ListenerKind.PEER:
                yield (kind.value,), opened.count

    def _accepted(self) -> Iterator[Sample]:
        for kind, opened in self._opened.items():
            if kind is not ListenerKind.PEER:
                yield (kind.value,), opened.accepted

    def _depths(self) -> Iterator[Sample]:
        yield ("native_outbox_bytes",), self._native.outbox_bytes
        yield ("segment_inflight_bytes",), self._segment.inflight_bytes

    # --- running ----------------------------------------------------------------------------------

    async def start(self, nursery: trio.Nursery, bound: Sequence[BoundListener]) -> None:
        """Serve every client listener in ``nursery``."""
        for expiry in self._expiries:
            await nursery.start(expiry.run)
        await nursery.start(self._rebalancing.run)
        for item in bound:
            pages = self._pages(item.config.kind)
            if pages is not None:
                await self._serve_pages(nursery, item, pages)
            elif item.config.kind is not ListenerKind.PEER:
                await self._serve(nursery, item, self._protocol(item.config.kind))

    def _protocol(self, kind: ListenerKind) -> Serve:
        """What serves connections of a protocol."""
        match kind:
            case ListenerKind.V1:
                return self._v1.serve
            case ListenerKind.NATIVE:
                return self._native.serve
            case ListenerKind.SEGMENT:
                return self._segment.serve
            case ListenerKind.PRAVEGA:
                return self._pravega.protocol()
            case ListenerKind.CURSUS:
                return self._cursus.serve
            case ListenerKind.KAFKA:
                return self._kafka.serve
            case _:
                raise AssertionError(f"{kind} is served otherwise")

    def _pages(self, kind: ListenerKind) -> HttpServer | None:
        """The server of a listener's pages; None where it has none."""
        match kind:
            case ListenerKind.HTTP:
                return self._http
            case ListenerKind.CURSUS_HEALTH:
                return self._http_server(kind, health_pages(self._cursus_checks))
            case ListenerKind.CURSUS_METRICS:
                scrapes = self._scrapes(self._collect_for_cursus)
                pages = {"/metrics": metrics_page(scrapes, self._services.status.permit)}
                return self._http_server(kind, pages)
            case _:
                return None

    def prepare_to_stop(self) -> None:
        """Send consumers away while this node still coordinates, and can store how far they are."""
        self._rebalancing.shut()

    async def _serve_pages(
        self, nursery: trio.Nursery, bound: BoundListener, server: HttpServer
    ) -> None:
        await nursery.start(
            partial(
                server.run,
                bound.sockets,
                door=self._tls.door(bound.config),
                gate=self._gate,
                opened=self._opened[bound.config.kind],
            )
        )

    async def _serve(
        self,
        nursery: trio.Nursery,
        bound: BoundListener,
        handle: Serve,
    ) -> None:
        door = self._tls.door(bound.config)
        if door is not None:
            handle = behind(door, handle)
        await nursery.start(
            partial(
                serve_clients,
                bound,
                handle,
                max_connections=shares(self._settings.limits).per_listener,
                gate=self._gate,
                memory=self._memory,
                idle_s=self._settings.limits.idle_ms / 1000,
                opened=self._opened[bound.config.kind],
            )
        )
