"""What serves the Pravega segment dialect besides the segment listener: streams, tables, calls.

The calls need HTTP/2, which the extra ``segment`` brings (h2); tables and streams do not.
"""

from __future__ import annotations

from paceline.errors import ConfigurationError
from paceline.types import NodeId
from paceline_node.env import Env
from paceline_node.listeners.segment.pravega_tables import TableRequests
from paceline_node.listeners.serving import Client, Serve
from paceline_node.observe.metrics import Metrics
from paceline_node.security.authentication import Authenticator
from paceline_node.services.admin.topic_deletion import TopicDeletion
from paceline_node.services.broker_services import BrokerServices
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.segments.keyvalue_tables import TableService
from paceline_node.services.segments.pravega_streams import StreamService
from paceline_node.services.segments.segment_leaders import SegmentLeaders
from paceline_node.settings import ListenerKind, Settings
from paceline_node.settings.addresses import has_http2

_CALL_S = 25.0
"""How long a call may take: real clients wait longer, and then ask for ever."""


def check_http2(settings: Settings) -> None:
    """Raise ConfigurationError where the listener is configured and cannot be served."""
    kinds = {listener.kind for listener in settings.listeners}
    if ListenerKind.PRAVEGA in kinds and not has_http2():
        raise ConfigurationError(
            "listeners: pravega:// needs the package h2; install paceline[segment], "
            "or leave the listener out"
        )


class PravegaParts:
    """Owns what the calls and the table requests of a node work with."""

    def __init__(
        self,
        env: Env,
        node_id: NodeId,
        services: BrokerServices,
        routing: LeaderRouting,
        tables: TableService,
        metrics: Metrics,
        authenticator: Authenticator,
    ) -> None:
        self._authenticator = authenticator
        self._env = env
        self._node_id = node_id
        self._services = services
        self._metrics = metrics
        self.leaders = SegmentLeaders(env, services.segments, routing)
        self.table_requests = TableRequests(tables)
        self._streams = StreamService(
            env, services.access, tables, services.segments, self.leaders, timeout_s=_CALL_S
        )
        self.removal = TopicDeletion(env, services.topics, self._streams)

    def protocol(self) -> Serve:
        """What serves the listener's connections."""
        from paceline.wire.pravega.grpc import GrpcLimits
        from paceline_node.listeners.pravega.calls import PravegaCalls
        from paceline_node.listeners.pravega.listener import PravegaListener
        from paceline_node.listeners.pravega.login import PravegaLogin

        calls = PravegaCalls(
            self._node_id,
            self._streams,
            self.leaders,
            self._services.topics,
            leader_wait_s=_CALL_S,
        )
        acls, authenticator = self._services.acls, self._authenticator

        def login(client: Client) -> PravegaLogin:
            return PravegaLogin(authenticator, lambda: acls.is_guarded, client)

        listener = PravegaListener(
            self._env, calls.procedures(), GrpcLimits(), self._metrics, self._services.turns, login
        )
        return listener.serve
