"""What any node shows of the whole cluster, and tells others of itself for that."""

from __future__ import annotations

from paceline_node.client_connections import Connections
from paceline_node.http.api.groups import GroupPages
from paceline_node.http.api.nodes import NodePages
from paceline_node.http.api.pages import Route, routes
from paceline_node.http.api.records import RecordPages
from paceline_node.http.api.topics import TopicPages
from paceline_node.http.api.transactions import TransactionPages
from paceline_node.observe.metrics import Metrics
from paceline_node.observe.watchdog import LoopWatchdog
from paceline_node.peers.server import PeerServer
from paceline_node.services.admin.node_loads import LoadViews
from paceline_node.services.admin.node_views import NodeViews
from paceline_node.services.admin.partition_descriptions import DescriptionService
from paceline_node.services.admin.process_views import ProcessViews
from paceline_node.services.admin.topic_views import TopicViews
from paceline_node.services.admin.transaction_views import TransactionViews
from paceline_node.services.broker_services import BrokerParts, BrokerServices, GroupParts
from paceline_node.services.groups.group_pages import GroupPages as GroupsHere
from paceline_node.services.groups.group_views import GroupViews
from paceline_node.services.groups.partition_bounds import BoundsService
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.records.record_browser import RecordBrowser


class ClusterViews:
    """The views, and the pages of the API made of them."""

    def __init__(
        self,
        broker: BrokerParts,
        services: BrokerServices,
        groups: GroupParts,
        routing: LeaderRouting,
        watchdog: LoopWatchdog,
        metrics: Metrics,
    ) -> None:
        turns, topics, status = services.turns, services.topics, services.status
        descriptions = DescriptionService(topics, services.records, turns)
        self.connections = Connections()
        self._topics = TopicViews(topics, descriptions, routing, turns)
        self._groups = GroupViews(
            services.groups,
            GroupsHere(services.groups, groups.machines, turns),
            topics,
            BoundsService(broker.store, broker.table, routing),
            routing,
            turns,
        )
        self._nodes = NodeViews(status, topics, routing, turns)
        self.loads = LoadViews(broker.env, status, topics, routing, metrics, self.connections)
        self._transactions = TransactionViews(services.transactions, topics, routing, turns)
        self._records = RecordBrowser(broker.env, services.records, topics, routing, turns)
        process = ProcessViews(broker.node_id, status, self.connections, watchdog, turns)
        self.routes: tuple[Route, ...] = routes(
            TopicPages(self._topics, status, turns),
            RecordPages(self._records, turns),
            GroupPages(self._groups, turns),
            TransactionPages(self._transactions, turns),
            NodePages(self._nodes, self.loads, process, turns),
        )

    def register(self, server: PeerServer) -> None:
        """Answer other nodes."""
        for each in (self._topics, self._records, self._groups, self._transactions, self._nodes):
            each.register(server)
        self.loads.register(server)
