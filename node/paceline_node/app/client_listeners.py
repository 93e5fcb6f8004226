"""The client side of a broker: which listener serves what of the services."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import trio

from paceline.wire.cursus.compression import CursusCompressor
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.peer.api import PeerApi
from paceline.wire.segment.server import ServerLimits
from paceline_node.app.cluster_views import ClusterViews
from paceline_node.app.cursus import make_cursus
from paceline_node.app.descriptor_limits import shares
from paceline_node.app.node_pages import NodePages
from paceline_node.app.pravega import PravegaParts
from paceline_node.app.tls import NodeTls
from paceline_node.client_memory import ClientMemory
from paceline_node.http.server import HttpServer
from paceline_node.listeners.cursus.listener import PeerHandler
from paceline_node.listeners.kafka.connection import KafkaLimits
from paceline_node.listeners.kafka.driven_requests import CoordinatorRequests
from paceline_node.listeners.kafka.listener import KafkaListener
from paceline_node.listeners.native.acls import NativeAcls
from paceline_node.listeners.native.fetch import FetchHandler
from paceline_node.listeners.native.groups import NativeGroups
from paceline_node.listeners.native.listener import NativeLimits, NativeService
from paceline_node.listeners.native.produce import ProduceHandler
from paceline_node.listeners.native.quotas import NativeQuotas
from paceline_node.listeners.native.requests import NativeRequests
from paceline_node.listeners.native.transactions import NativeTransactions
from paceline_node.listeners.segment.limits import ConnectionLimits, RequestTimes
from paceline_node.listeners.segment.listener import SegmentListener
from paceline_node.listeners.segment.login import SegmentLogin
from paceline_node.listeners.serving import (
    BoundListener,
    Client,
    Serve,
    behind,
    by_address,
    serve_clients,
)
from paceline_node.listeners.v1.admin import V1Admin
from paceline_node.listeners.v1.groups import V1GroupRequests
from paceline_node.listeners.v1.listener import V1Listener, V1Settings
from paceline_node.listeners.v1.records import RecordLimits, V1Records
from paceline_node.listeners.v1.replicas import V1Replicas
from paceline_node.listeners.v1.routing import Router
from paceline_node.net.accepting import AcceptGate, OpenConnections
from paceline_node.net.framestream import Payload
from paceline_node.net.network import RealDescriptors
from paceline_node.observe.metrics import Gauge, Metrics, Sample, Total
from paceline_node.peers.server import PeerServer, Session, Slot
from paceline_node.replication.manager import ReplicaManager
from paceline_node.security.authentication import Authenticator
from paceline_node.services.admin.partition_descriptions import DescriptionService
from paceline_node.services.broker_services import BrokerParts, BrokerServices
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.records.replica_slots import ReplicaSlots
from paceline_node.services.segments.keyvalue_tables import TableService
from paceline_node.settings import ListenerKind, LiveSettings


async def _ask(
    handler: PeerHandler, session: Session, frame: Frame, slot: Slot
) -> tuple[Message, Payload]:
    return await handler(session.peer, frame, slot.given_up)


class ClientListeners:
    """Serves clients through every configured listener."""

    def __init__(
        self,
        live: LiveSettings,
        broker: BrokerParts,
        services: BrokerServices,
        replicas: ReplicaManager,
        routing: LeaderRouting,
        tables: TableService,
        metrics: Metrics,
        *,
        compressors: Sequence[CursusCompressor] = (),
        tls: NodeTls,
        authenticator: Authenticator,
        views: ClusterViews,
    ) -> None:
        self._views = views
        self._live = live
        self._tls = tls
        self._authenticator = authenticator
        self._settings = settings = live.current
        self._broker = broker
        self._services = services
        self._replicas = replicas
        self._metrics = metrics
        env, limits = broker.env, settings.limits
        self.memory = ClientMemory(max(limits.client_memory_bytes, 4 * limits.frame_bytes))
        views.loads.memory = self.memory
        self._opened = {kind: OpenConnections() for kind in ListenerKind}
        self._pravega = PravegaParts(
            env, broker.node_id, services, routing, tables, metrics, authenticator
        )
        self._native = self._make_native()
        self._kafka = self._make_kafka()
        self._segment = self._make_segment()
        self._v1 = self._make_v1(Router(env, routing))
        removal = self._pravega.removal
        self._cursus = make_cursus(
            env=env,
            settings=settings,
            services=services,
            removal=removal,
            routing=routing,
            metrics=metrics,
            compressors=compressors,
            memory=self.memory,
            authenticator=self._authenticator,
        )
        self._pages = self._make_pages()
        self._gate = AcceptGate(RealDescriptors(), reserve=settings.limits.reserved_descriptors)
        metrics.provide(Gauge.READY, lambda: [((), not services.status.reasons())])
        metrics.provide(Gauge.CONNECTIONS_ACTIVE, self._connections)
        metrics.provide(Total.CONNECTIONS_ACCEPTED, self._accepted)
        metrics.provide(Gauge.CLIENT_MEMORY, self.memory.by_listener)
        metrics.provide(Total.CLIENTS_ENDED, lambda: [((), self.memory.ended_count)])
        waited = services.client_quotas
        metrics.provide(Total.CLIENTS_THROTTLED, lambda: [((), waited.waited_s)])
        metrics.provide(Gauge.CHANNEL_DEPTH, self._depths)
        if tls.is_used:
            metrics.provide(Gauge.CERTIFICATE_EXPIRY, self._expiries_of_certificates)
            metrics.provide(Gauge.CERTIFICATES_REFUSED, lambda: [((), bool(tls.refused))])

    def register(self, server: PeerServer) -> None:
        """Serve what other nodes pass on of their clients."""
        self._views.register(server)
        v1, cursus = self._v1.serve_forwarded, self._cursus.serve_forwarded
        server.register(PeerApi.V1_LINE, lambda session, frame: v1(session.peer, frame))
        server.register_patient(
            PeerApi.CURSUS_FRAME,
            lambda session, frame, slot: cursus(session.peer, frame, slot.given_up),
        )
        server.register(PeerApi.SEGMENT, self._pravega.leaders.serve_forwarded)
        for api, handler in self._cursus.asked.items():
            server.register_patient(api, partial(_ask, handler))

    # --- what serves which protocol ---------------------------------------------------------------

    def _make_native(self) -> NativeService:
        services, broker, replicas = self._services, self._broker, self._replicas
        run_blocking = broker.env.host.run_blocking
        limits = self._settings.limits
        requests = NativeRequests(
            topics=services.topics,
            removal=self._pravega.removal,
            descriptions=DescriptionService(services.topics, services.records, services.turns),
            producer_ids=services.producer_ids,
            transactions=services.transactions,
            status=services.status,
            loads=self._views.loads,
            reports=services.corruption_reports,
            trimming=services.trimming,
            users=services.users,
            turns=services.turns,
            run_blocking=run_blocking,
        )
        return NativeService(
            cluster_id=broker.cluster_id,
            node_id=broker.node_id,
            software=broker.software,
            produce=ProduceHandler(services.produce),
            fetch=FetchHandler(services.fetch, services.offsets),
            requests={
                **requests.handlers(),
                **NativeGroups(
                    services.groups, services.transaction_offsets, services.turns
                ).handlers(),
                **NativeTransactions(services.transactions, services.turns).handlers(),
                **NativeAcls(services.acls).handlers(),
                **NativeQuotas(services.quotas).handlers(),
            },
            metadata=requests.metadata,
            limits=NativeLimits(
                limits.frame_bytes,
                limits.requests_per_connection,
                limits.outbox_bytes,
                stall_s=limits.stall_ms / 1000,
                idle_s=limits.native_idle_ms / 1000 or float("inf"),
            ),
            metrics=self._metrics,
            deadlines=replicas.deadlines,
            burst=replicas.burst,
            after_burst=replicas.tell_followers,
            turns=services.turns,
            run_blocking=run_blocking,
            authenticator=self._authenticator,
        )

    def _make_pages(self) -> NodePages:
        return NodePages(
            self._settings,
            self._broker.env.host,
            self._services,
            self._metrics,
            self.memory,
            native=self._native,
            cursus=self._cursus,
            tls=self._tls,
            authenticator=self._authenticator,
            connections=self._views.connections,
            api=self._views.routes,
        )

    def _make_kafka(self) -> KafkaListener:
        services, broker = self._services, self._broker
        return KafkaListener(
            broker.env,
            services,
            self._pravega.removal,
            KafkaLimits(
                max_frame_bytes=self._settings.limits.frame_bytes,
                stall_s=self._settings.limits.stall_ms / 1000,
            ),
            self._metrics,
            CoordinatorRequests(broker.node_id, services.groups, services.topics, self._metrics),
            self._authenticator,
            after_append=self._replicas.tell_followers,
        )

    def _make_v1(self, router: Router) -> V1Listener:
        services, env = self._services, self._broker.env
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
            env=env,
            settings=V1Settings(
                v1.max_line_bytes,
                lambda: self._live.current.v1.admin_commands.value,
                self._settings.limits.stall_ms / 1000,
            ),
            records=records,
            replicas=V1Replicas(env, slots, records, router, leader_wait_s=limits.leader_wait_s),
            admin=V1Admin(services.topics),
            roles=services.roles,
            groups=V1GroupRequests(
                env, services.groups, records, router, coordinator_wait_s=limits.leader_wait_s
            ),
            metrics=self._metrics,
            memory=self.memory,
        )

    def _make_segment(self) -> SegmentListener:
        segment = self._settings.segment
        limits = ConnectionLimits(
            protocol=ServerLimits(segment.max_event_bytes, segment.appenders_per_connection),
            times=RequestTimes(segment.append_timeout_ms / 1000, segment.read_wait_ms / 1000),
            reads=segment.reads_per_connection,
            idle_s=segment.idle_timeout_ms / 1000,
            inflight_high=segment.inflight_bytes,
            inflight_low=segment.inflight_bytes // 2,
            reply_queue=segment.reply_queue_bytes,
            piece_bytes=segment.force_partial_replies,
        )
        return SegmentListener(
            self._broker.env,
            self._services.turns,
            self._services.segments,
            self._pravega.table_requests,
            self._broker.deadlines,
            limits,
            metrics=self._metrics,
            login=self._segment_login,
            inflight_node_bytes=segment.inflight_node_bytes,
        )

    def _segment_login(self, client: Client) -> SegmentLogin:
        acls = self._services.acls
        return SegmentLogin(self._authenticator, lambda: acls.is_guarded, client)

    def _connections(self) -> Iterator[Sample]:
        for kind, opened in self._opened.items():
            if kind is not ListenerKind.PEER:
                yield (kind.value,), opened.count

    def _accepted(self) -> Iterator[Sample]:
        for kind, opened in self._opened.items():
            if kind is not ListenerKind.PEER:
                yield (kind.value,), opened.accepted

    def _expiries_of_certificates(self) -> Iterator[Sample]:
        for setting, ends in self._tls.expiries.items():
            yield (setting,), ends

    def _depths(self) -> Iterator[Sample]:
        yield ("native_outbox_bytes",), self._native.outbox_bytes
        yield ("segment_inflight_bytes",), self._segment.inflight_bytes

    # --- running ----------------------------------------------------------------------------------

    async def start(self, nursery: trio.Nursery, bound: Sequence[BoundListener]) -> None:
        """Serve every client listener in ``nursery``."""
        for item in bound:
            pages = self._pages.server(item.config.kind)
            if pages is not None:
                await self._serve_pages(nursery, item, pages)
            elif item.config.kind is not ListenerKind.PEER:
                await self._serve(nursery, item, self._protocol(item.config.kind))

    def _protocol(self, kind: ListenerKind) -> Serve:
        """What serves connections of a protocol."""
        match kind:
            case ListenerKind.V1:
                return by_address(self._settings.v1.principals, self._v1.serve)
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
                memory=self.memory,
                connections=self._views.connections,
                idle_s=self._settings.limits.idle_ms / 1000,
                quotas=self._services.client_quotas,
                turns=self._services.turns,
                opened=self._opened[bound.config.kind],
            )
        )
