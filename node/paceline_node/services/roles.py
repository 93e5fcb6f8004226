"""SET_PARTITION_ROLE and leader elections, asked at one node (spec v1 8.1, SETTLED R10)."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import NotAReplica, RequestTimedOut
from paceline.types import NodeId
from paceline.wire.native.admin import RoleSet, SetRole
from paceline_node.controller.client import ControllerClient
from paceline_node.controller.image import Image
from paceline_node.controller.store import MetadataStore
from paceline_node.env import Env
from paceline_node.replication.table import PartitionTable

ROLE_BUDGET_S = 3.5


@dataclass(frozen=True, slots=True)
class RoleResult:
    """The role a node now has; ``high_watermark`` is exclusive, as its own replica knows it."""

    role: str
    leader: NodeId
    high_watermark: int


class RoleService:
    """Changes the role of this node's replicas, through the controller only."""

    def __init__(
        self,
        env: Env,
        node_id: NodeId,
        store: MetadataStore,
        controller: ControllerClient,
        table: PartitionTable,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._store = store
        self._controller = controller
        self._table = table

    async def set_role(self, topic: str, partition: int, role: str) -> RoleResult:
        """Make this node ``leader`` or ``follower`` of a partition, or ``auto``: no wish.

        Returns once this node acts in the role. Raises NotAReplica, PreferredLeaderNotAvailable
        (not in sync, or nobody else can lead), UnknownTopicOrPartition; RequestTimedOut after
        3.5 s, outcome unknown. A refused ``leader`` changes nothing.
        """
        deadline = self._env.now() + ROLE_BUDGET_S
        request = SetRole(topic, partition, self._node_id, role)
        reply = await self._controller.call(request, RoleSet, timeout_s=ROLE_BUDGET_S)
        await self._store.wait_offset(
            reply.metadata_offset, timeout_s=max(0.0, deadline - self._env.now())
        )
        local = self._table.get(topic, partition)
        if local is None:
            raise NotAReplica(f"node {self._node_id} is not a replica of {topic}/{partition}")
        if role == "leader" and not local.is_leader:
            await self._wait_leading(topic, partition, deadline)
        return RoleResult(role, reply.leader, local.high_watermark)

    async def _wait_leading(self, topic: str, partition: int, deadline: float) -> None:
        def leading(_: Image) -> bool:
            local = self._table.get(topic, partition)
            return local is not None and local.is_leader

        try:
            await self._store.wait_for(leading, timeout_s=max(0.0, deadline - self._env.now()))
        except RequestTimedOut:
            raise RequestTimedOut(
                f"{topic}/{partition}: node {self._node_id} was elected but does not lead yet"
            ) from None
