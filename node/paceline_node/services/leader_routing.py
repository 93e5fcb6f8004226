"""Which node carries out a request: this one, or the partition's leader by one forward.

For protocols whose clients cannot follow redirections (DESIGN 3.1, 3.2). A request is sent again
only after a definite refusal, or when it changes nothing; when a link is lost after sending, the
outcome of others is unknown and said so. What travels between the nodes is each protocol's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from paceline.errors import (
    ConnectionLost,
    NotEnoughReplicas,
    NotLeader,
    PacelineError,
    RequestTimedOut,
)
from paceline.types import NodeId
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline_node.controller.metadata_store import MetadataStore
from paceline_node.env import Env
from paceline_node.net.framestream import Payload
from paceline_node.peers.links import PeerLinks
from paceline_node.replication.hosted_partitions import HostedPartitions

_RETRY_S = 0.05
_MIN_FORWARD_S = 0.05
_NEW_LOG_S = 0.01
T = TypeVar("T")

Here = Callable[[], Awaitable[T]]
There = Callable[[NodeId], Awaitable[T]]


class LeaderRouting:
    """Runs a partition's request where its leader is."""

    def __init__(
        self,
        env: Env,
        node_id: NodeId,
        store: MetadataStore,
        links: PeerLinks,
        table: HostedPartitions,
    ) -> None:
        self._env = env
        self.node_id = node_id
        self._store = store
        self._links = links
        self._table = table

    def leads(self, topic: str, partition: int) -> bool:
        """Whether this node leads the partition, as the metadata say."""
        found = self._store.image.find_topic(topic)
        registration = None if found is None else found.partitions.get(partition)
        return registration is not None and registration.leader == self.node_id

    def is_marked(self, topic: str, partition: int) -> bool:
        """Whether this node carries a follower mark for the partition (controller/DESIGN 8.1)."""
        found = self._store.image.find_topic(topic)
        registration = None if found is None else found.partitions.get(partition)
        return registration is not None and self.node_id in registration.marks

    async def wait_leading(self, topic: str, partition: int, *, until: float) -> None:
        """Return once this node's replica leads: a partition of a topic just made is assigned
        before its log is there. Raises NotLeader when another node leads, or nobody, and at trio
        time ``until``."""
        while True:
            local = self._table.get(topic, partition)
            if local is not None and local.is_leader:
                return
            left_s = until - self._env.now()
            if left_s <= 0 or not self.leads(topic, partition):
                raise NotLeader(f"{topic}/{partition}: this node does not lead it")
            await self._wait_for_change(min(left_s, _NEW_LOG_S))

    async def on_leader(
        self,
        topic: str,
        partition: int,
        *,
        here: Here[T],
        there: There[T] | None,
        until: float,
        again: tuple[type[PacelineError], ...] = (NotLeader, NotEnoughReplicas),
    ) -> T:
        """What ``here`` gives when this node's replica leads; else what ``there`` gets from the
        leader.

        Definite refusals of the kinds ``again`` are tried again, as leadership moves, until trio
        time ``until``; then the last one is raised. Without ``there`` the request goes no further
        and is tried once.
        """
        while True:
            try:
                return await self._once(topic, partition, here, there, until)
            except again:
                remaining_s = until - self._env.now()
                if there is None or remaining_s <= 0:
                    raise
            await self._wait_for_change(min(remaining_s, _RETRY_S))

    async def _once(
        self, topic: str, partition: int, here: Here[T], there: There[T] | None, until: float
    ) -> T:
        leader = self._store.image.partition(topic, partition).leader
        if leader == self.node_id:
            if there is None:
                until = self._env.now()
            await self.wait_leading(topic, partition, until=until)
            return await here()
        if leader < 0:
            raise NotLeader(f"{topic}/{partition} has no leader")
        if there is None:
            raise NotLeader(f"{topic}/{partition}: node {leader} leads, not {self.node_id}")
        return await there(leader)

    async def ask(
        self,
        node: NodeId,
        api: int,
        body: Message,
        payload: Payload = b"",
        *,
        budget_s: float,
        changes_nothing: bool = False,
    ) -> Frame:
        """Forward something and wait for the answer.

        Raises NotLeader when nothing left this node, or the link was lost with a request that
        ``changes_nothing``; RequestTimedOut when the answer did not come (outcome unknown), or the
        error that the node answered.
        """
        if budget_s < _MIN_FORWARD_S:
            raise NotLeader("no time is left to forward the request")
        try:
            return await self._links.call(
                node, api, body, payload, lane="forward", timeout_s=budget_s
            )
        except ConnectionLost as error:
            if error.was_sent and not changes_nothing:
                raise RequestTimedOut(f"the link to node {node} was lost") from error
            raise NotLeader(f"node {node} cannot be reached") from error

    async def _wait_for_change(self, at_most_s: float) -> None:
        """Until the metadata changes, but not long: a link or a lease changes without it."""
        before = self._store.image
        with trio.move_on_after(at_most_s):
            await self._store.wait_for(lambda image: image is not before)
