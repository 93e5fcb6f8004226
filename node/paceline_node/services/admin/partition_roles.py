"""SET_PARTITION_ROLE and leader elections, asked at one node (controller/DESIGN 8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from paceline.errors import RequestTimedOut
from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.native.admin import RoleSet, SetRole
from paceline_node.controller.client import ControllerClient
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.replication.hosted_partitions import HostedPartitions
from paceline_node.replication.partition import Partition
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.authorization.authorizer import Authorizer

ROLE_BUDGET_S = 3.5
_LOOK_AGAIN_S = 0.01


@dataclass(frozen=True, slots=True)
class RoleResult:
    """The role a node now has; ``high_watermark`` is exclusive, as its own replica knows it."""

    role: str
    leader: NodeId
    high_watermark: int


class RolesOfTopic:
    """The roles of this node's replicas of a topic, for somebody who may change them: the only way
    to do that."""

    def __init__(
        self, topic: str, change: Callable[[str, int, str], Awaitable[RoleResult]]
    ) -> None:
        self._topic = topic
        self._change = change

    async def set(self, partition: int, role: str) -> RoleResult:
        """Make this node ``leader`` or ``follower`` of a partition, or ``auto``: no wish.

        Returns once this node acts in the role. Raises NotAReplica, PreferredLeaderNotAvailable
        (not in sync, or nobody else can lead), UnknownTopicOrPartition; RequestTimedOut after
        3.5 s, outcome unknown. A refused ``leader`` changes nothing.
        """
        return await self._change(self._topic, partition, role)


class RoleService:
    """Changes the role of this node's replicas, through the controller only."""

    def __init__(
        self,
        env: Env,
        node_id: NodeId,
        store: MetadataStore,
        controller: ControllerClient,
        table: HostedPartitions,
        access: Authorizer,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._store = store
        self._controller = controller
        self._table = table
        self._access = access

    def open(self, principal: Principal, topic: str) -> RolesOfTopic:
        """This node's roles of a topic, which need not exist yet. Raises AuthorizationFailed unless
        ``principal`` may move its leaderships."""
        self._access.topic(principal, Operation.MOVE_LEADER, topic)
        return RolesOfTopic(topic, self._set_role)

    async def _set_role(self, topic: str, partition: int, role: str) -> RoleResult:
        deadline = self._env.now() + ROLE_BUDGET_S
        request = SetRole(topic, partition, self._node_id, role)
        reply = await self._controller.call(request, RoleSet, timeout_s=ROLE_BUDGET_S)
        await self._store.wait_offset(
            reply.metadata_offset, timeout_s=max(0.0, deadline - self._env.now())
        )
        local = await self._acting(topic, partition, role, deadline)
        return RoleResult(role, reply.leader, local.high_watermark)

    def is_in_sync(self, topic: str, partition: int) -> bool:
        """Whether this node's replica is in the committed ISR."""
        return self._node_id in self._store.image.partition(topic, partition).isr

    async def _acting(self, topic: str, partition: int, role: str, deadline: float) -> Partition:
        """This node's replica, once it acts in the role the controller gave it: a partition of a
        topic just made is assigned before its log is there."""
        while True:
            local = self._table.get(topic, partition)
            if local is not None and (role != "leader" or local.is_leader):
                return local
            if self._env.now() >= deadline:
                raise RequestTimedOut(
                    f"{topic}/{partition}: node {self._node_id} is to be {role} but is not yet"
                )
            await trio.sleep(_LOOK_AGAIN_S)
