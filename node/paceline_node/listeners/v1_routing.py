"""Which node serves a V1 request: this one, or the partition's leader by one forward.

V1 clients never learn leaders, so every node serves everything (spec v1 8.2, SETTLED R11). A
request is sent again only after a definite refusal; when a link is lost after sending, the outcome
is unknown and said so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import trio

from paceline.errors import ConnectionLost, NotEnoughReplicas, NotLeader, RequestTimedOut
from paceline.types import NodeId
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.v1_line import V1Answer, V1Line
from paceline.wire.v1.errors import V1Code, V1Error
from paceline_node.controller.store import MetadataStore
from paceline_node.env import Env
from paceline_node.peers.links import PeerLinks
from paceline_node.security.principals import Principal

_RETRY_S = 0.05
_MIN_FORWARD_S = 0.05
_ANSWER_S = 0.1
"""Left of a call's time when a forward is given up, so that its answer can still be chosen."""


@dataclass(frozen=True, slots=True)
class Call:
    """One V1 request under way. ``deadline`` is when its answer must be out; ``forwarded`` tells
    that another node sent it here, so that it goes no further. ``principal`` asks for it; where it
    is forwarded, that is the node which has judged it (SETTLED R11)."""

    command: str
    args: bytes
    deadline: float
    principal: Principal
    forwarded: bool


LocalServe = Callable[[], Awaitable[bytes]]


class Router:
    """Runs a partition's request where its leader is."""

    def __init__(self, env: Env, node_id: NodeId, store: MetadataStore, links: PeerLinks) -> None:
        self._env = env
        self._node_id = node_id
        self._store = store
        self._links = links

    def is_marked_follower(self, topic: str, partition: int) -> bool:
        """Whether this node carries a follower mark for the partition (spec v1 8.1)."""
        found = self._store.image.find_topic(topic)
        registration = None if found is None else found.partitions.get(partition)
        return registration is not None and self._node_id in registration.marks

    def leads(self, topic: str, partition: int) -> bool:
        """Whether this node leads the partition, as the metadata say."""
        found = self._store.image.find_topic(topic)
        registration = None if found is None else found.partitions.get(partition)
        return registration is not None and registration.leader == self._node_id

    async def on_leader(
        self,
        call: Call,
        topic: str,
        partition: int,
        serve: LocalServe,
        *,
        until: float,
        patience_s: float = float("inf"),
    ) -> bytes:
        """The payload of the answer, from ``serve`` here or from the leader's node.

        Definite refusals are tried again, as leadership moves, until trio time ``until``; then the
        last one is raised (NotLeader or NotEnoughReplicas). A forwarded call is tried here once.
        A leader elsewhere that does not answer within ``patience_s``, or in time for the call's
        deadline, is a RequestTimedOut: outcome unknown.
        """
        while True:
            refusal: NotLeader | NotEnoughReplicas
            try:
                return await self._try(call, topic, partition, serve, patience_s)
            except (NotLeader, NotEnoughReplicas) as error:
                refusal = error
            remaining_s = min(until, call.deadline) - self._env.now()
            if call.forwarded or remaining_s <= 0:
                raise refusal
            await self._wait_for_change(min(remaining_s, _RETRY_S))

    async def _try(
        self, call: Call, topic: str, partition: int, serve: LocalServe, patience_s: float
    ) -> bytes:
        leader = self._store.image.partition(topic, partition).leader
        if leader == self._node_id:
            return await serve()
        if leader < 0:
            raise NotLeader(f"{topic}/{partition} has no leader")
        if call.forwarded:
            raise NotLeader(f"{topic}/{partition}: node {leader} leads, not {self._node_id}")
        return await self._forward(leader, call, patience_s)

    async def _forward(self, leader: NodeId, call: Call, patience_s: float) -> bytes:
        budget_s = min(patience_s, call.deadline - self._env.now() - _ANSWER_S)
        if budget_s < _MIN_FORWARD_S:
            raise NotLeader("no time is left to forward the request")
        line = V1Line(call.command, call.args, int(budget_s * 1000))
        try:
            frame = await self._links.call(
                leader, PeerApi.V1_LINE, line, lane="forward", timeout_s=budget_s
            )
        except ConnectionLost as error:
            if error.was_sent:
                raise RequestTimedOut(f"the link to node {leader} was lost") from error
            raise NotLeader(f"node {leader} cannot be reached") from error
        answer = V1Answer.unpack(frame.body)
        if answer.code:
            raise V1Error(V1Code(answer.code), answer.payload.decode("utf-8", "replace"))
        return answer.payload

    async def _wait_for_change(self, at_most_s: float) -> None:
        """Until the metadata changes, but not long: a link or a lease changes without it."""
        before = self._store.image
        with trio.move_on_after(at_most_s):
            await self._store.wait_for(lambda image: image is not before)
