"""Tables, from any node: the node that leads ``__tables`` answers.

Clients' tables are named ``scope/table``; names without a scope are the node's own.
"""

from __future__ import annotations

import trio

from paceline.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidRequest,
    NotCoordinator,
    NotLeader,
    RequestTimedOut,
)
from paceline.types import NodeId
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.native.admin import Done
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.control import CreateInternalTopicRequest
from paceline.wire.peer.tables import TableAnswer, TableOperation, TableRequest
from paceline_node.controller.client import ControllerClient
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.keyvalue.machine import TableMachine
from paceline_node.keyvalue.records import TABLES_TOPIC
from paceline_node.net.framestream import Payload
from paceline_node.peers.server import Session
from paceline_node.security.principals import Operation, Principal, Resource, ResourceKind
from paceline_node.services.authorization.authorizer import Authorizer
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.state_machines.topic import StateTopic

_NEEDED = {
    TableOperation.CREATE: Operation.CREATE,
    TableOperation.DELETE: Operation.DELETE,
    TableOperation.DELETE_EMPTY: Operation.DELETE,
    TableOperation.UPDATE: Operation.PRODUCE,
    TableOperation.REMOVE: Operation.PRODUCE,
    TableOperation.GET: Operation.CONSUME,
    TableOperation.LIST: Operation.CONSUME,
    TableOperation.CHANGES: Operation.CONSUME,
}
_PARTITION = 0
_MAKE_S = 10.0


class TableService:
    """``commit_s``: longest wait for a change to be committed. What holds for both ways to ask:
    the answer comes once all that it tells is committed, and the first request of a cluster makes
    the topic. Raises with nothing done NotLeader (nobody has coordinated in time) and what the
    controller's absence raises; with unknown outcome RequestTimedOut and LeaderChangedAfterAppend.
    """

    def __init__(
        self,
        env: Env,
        store: MetadataStore,
        controller: ControllerClient,
        routing: LeaderRouting,
        machines: StateTopic[TableMachine],
        access: Authorizer,
        *,
        commit_s: float,
    ) -> None:
        self._env = env
        self._store = store
        self._controller = controller
        self._routing = routing
        self._machines = machines
        self._access = access
        self._commit_s = commit_s
        self._making = trio.Lock()

    @property
    def are_there(self) -> bool:
        """Whether this node knows of any: their topic is made with the first."""
        return self._store.image.find_topic(TABLES_TOPIC) is not None

    async def ask(
        self, principal: Principal, request: TableRequest, *, timeout_s: float
    ) -> TableAnswer:
        """The answer to ``principal``. Raises AuthorizationFailed, and InvalidRequest for a name
        that no client's table has."""
        name = request.table
        resource = Resource(ResourceKind.TOPIC, _asked_for_as(name))
        self._access.resource(principal, _NEEDED[request.operation], resource)
        if "/" not in name.strip("/") or name.startswith("/"):
            raise InvalidRequest(f"{name[:80]!r}: expected scope/table")
        return await self.inside(request, timeout_s=timeout_s)

    async def inside(self, request: TableRequest, *, timeout_s: float) -> TableAnswer:
        """The answer, for what this node does by itself."""
        until = self._env.now() + timeout_s
        if not self.are_there:
            await self._make(timeout_s)

        async def there(node: NodeId) -> TableAnswer:
            budget_s = until - self._env.now()
            frame = await self._routing.ask(node, PeerApi.TABLE, request, budget_s=budget_s)
            return TableAnswer.unpack(frame.body)

        return await self._routing.on_leader(
            TABLES_TOPIC, _PARTITION, here=lambda: self._here(request), there=there, until=until
        )

    async def serve_forwarded(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        """Answer another node, which has judged its client."""
        return await self._here(TableRequest.unpack(frame.body)), b""

    async def _here(self, request: TableRequest) -> TableAnswer:
        try:
            return await self._machines.perform(
                _PARTITION,
                request.table,
                lambda machine: machine.perform(request),
                commit_s=self._commit_s,
            )
        except (NotCoordinator, CoordinatorLoadInProgress, CoordinatorNotAvailable) as error:
            raise NotLeader(str(error)) from error

    async def _make(self, timeout_s: float) -> None:
        timeout_s = min(timeout_s, _MAKE_S)
        try:
            with trio.fail_after(timeout_s + 1):
                async with self._making:
                    if self.are_there:
                        return
                    request = CreateInternalTopicRequest(TABLES_TOPIC)
                    made = await self._controller.call(request, Done, timeout_s=timeout_s)
                    await self._store.wait_offset(made.metadata_offset, timeout_s=timeout_s)
        except trio.TooSlowError as error:
            raise RequestTimedOut(f"{TABLES_TOPIC} was not made in time") from error


def _asked_for_as(name: str) -> str:
    """What policies are asked about: ``scope_table``, as for the topics of streams."""
    scope, _, rest = name.partition("/")
    return f"{scope}_{rest.partition('/')[0]}" if rest else name
