"""Which node serves a V1 request: this one, or the partition's leader by one forward.

V1 clients never learn leaders, so every node serves everything (DESIGN 4.2). A
request is sent again only after a definite refusal; when a link is lost after sending, the outcome
is unknown and said so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from paceline.types import NodeId
from paceline.values import dataclass
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.v1_line import V1Answer, V1Line
from paceline.wire.v1.errors import V1Code, V1Error
from paceline_node.env import Env
from paceline_node.security.principals import Principal
from paceline_node.services.leader_routing import LeaderRouting

_ANSWER_S = 0.1
"""Left of a call's time when a forward is given up, so that its answer can still be chosen."""


@dataclass(frozen=True, slots=True)
class Call:
    """One V1 request under way. ``deadline`` is when its answer must be out; ``forwarded`` tells
    that another node sent it here, so that it goes no further. ``principal`` asks for it; where it
    is forwarded, that is the node which has judged it (services/DESIGN 3.2)."""

    command: str
    args: bytes
    deadline: float
    principal: Principal
    forwarded: bool


LocalServe = Callable[[], Awaitable[bytes]]


class Router:
    """Runs a partition's request where its leader is."""

    def __init__(self, env: Env, routing: LeaderRouting) -> None:
        self._env = env
        self._routing = routing

    def is_marked_follower(self, topic: str, partition: int) -> bool:
        """Whether this node carries a follower mark for the partition (DESIGN 4.2)."""
        return self._routing.is_marked(topic, partition)

    def leads(self, topic: str, partition: int) -> bool:
        """Whether this node leads the partition, as the metadata say."""
        return self._routing.leads(topic, partition)

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

        async def forward(leader: NodeId) -> bytes:
            budget_s = min(patience_s, call.deadline - self._env.now() - _ANSWER_S)
            line = V1Line(call.command, call.args, int(budget_s * 1000))
            frame = await self._routing.ask(leader, PeerApi.V1_LINE, line, budget_s=budget_s)
            answer = V1Answer.unpack(frame.body)
            if answer.code:
                raise V1Error(V1Code(answer.code), answer.payload.decode("utf-8", "replace"))
            return answer.payload

        return await self._routing.on_leader(
            topic,
            partition,
            here=serve,
            there=None if call.forwarded else forward,
            until=min(until, call.deadline),
        )
