"""Asking the leader of a segment, wherever it is, for clients that asked at this node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from paceline.errors import CorruptMessage, NotLeader, UnknownOutcome
from paceline.types import NodeId
from paceline.wire.frame import Frame
from paceline.wire.message import Message
from paceline.wire.peer.api import PeerApi
from paceline.wire.peer.segments import SegmentAnswer, SegmentOperation, SegmentRequest
from paceline.wire.segment.names import SegmentPlace
from paceline_node.env import Env
from paceline_node.net.framestream import Payload
from paceline_node.peers.server import Session
from paceline_node.security.principals import Operation, Principal, node_principal
from paceline_node.services.leader_routing import LeaderRouting
from paceline_node.services.segments.led_segment import LedSegment
from paceline_node.services.segments.segment_service import SegmentService

_ANSWER_S = 2.0
"""How long one node may take to answer before the question is put again."""
_SEAL_S = 10.0
_NEEDED = {
    SegmentOperation.LOOK: Operation.DESCRIBE,
    SegmentOperation.SEAL: Operation.ALTER,
}


class SegmentLeaders:
    """Every question here may be asked twice, so it is, until its time is over: an answer tells
    that the leader is alive, which metadata alone do not."""

    def __init__(self, env: Env, segments: SegmentService, routing: LeaderRouting) -> None:
        self._env = env
        self._segments = segments
        self._routing = routing

    async def look(
        self, principal: Principal, place: SegmentPlace, *, timeout_s: float
    ) -> SegmentAnswer:
        """Who leads a segment, and where it begins and ends.

        Raises AuthorizationFailed, UnknownTopicOrPartition, NotLeader when nobody has answered as
        its leader in time.
        """
        return await self._ask(principal, SegmentOperation.LOOK, place, timeout_s)

    async def seal(
        self, principal: Principal, place: SegmentPlace, *, timeout_s: float
    ) -> SegmentAnswer:
        """End a segment; no effect when it has ended. Raises as :meth:`look`, NotEnoughReplicas."""
        return await self._ask(principal, SegmentOperation.SEAL, place, timeout_s)

    async def serve_forwarded(self, session: Session, frame: Frame) -> tuple[Message, Payload]:
        """Answer another node, which has judged its client."""
        request = SegmentRequest.unpack(frame.body)
        place = SegmentPlace(request.topic, request.partition, request.name)
        return await self._here(node_principal(session.peer), request.operation, place), b""

    async def _ask(
        self,
        principal: Principal,
        operation: SegmentOperation,
        place: SegmentPlace,
        timeout_s: float,
    ) -> SegmentAnswer:
        self._segments.open(principal, _NEEDED[operation], place)
        await self._segments.appears(place)
        until = self._env.now() + timeout_s
        request = SegmentRequest(operation, place.topic, place.partition, place.name)

        async def there(node: NodeId) -> SegmentAnswer:
            budget_s = _SEAL_S if operation is SegmentOperation.SEAL else _ANSWER_S
            budget_s = min(budget_s, until - self._env.now())
            frame = await self._routing.ask(node, PeerApi.SEGMENT, request, budget_s=budget_s)
            return SegmentAnswer.unpack(frame.body)

        return await self._routing.on_leader(
            place.topic,
            place.partition,
            here=lambda: _again_if_unknown(lambda: self._here(principal, operation, place)),
            there=lambda node: _again_if_unknown(lambda: there(node)),
            until=until,
        )

    async def _here(
        self, principal: Principal, operation: SegmentOperation, place: SegmentPlace
    ) -> SegmentAnswer:
        """The answer of this node, which must lead. Raises NotLeader otherwise."""
        segment = await self._segments.leading(principal, _NEEDED[operation], place)
        if operation is SegmentOperation.SEAL:
            await segment.seal(timeout_s=_SEAL_S)
        return self._answer(segment)

    def _answer(self, segment: LedSegment) -> SegmentAnswer:
        segment.check_serving()
        try:
            bounds = segment.bounds()
        except CorruptMessage as error:
            raise NotLeader(f"{segment}: the log is damaged here: {error}") from error
        return SegmentAnswer(self._routing.node_id, bounds.start, bounds.end, bounds.is_sealed)


async def _again_if_unknown(ask: Callable[[], Awaitable[SegmentAnswer]]) -> SegmentAnswer:
    """An unknown outcome is none that hinders here: the same may be asked again."""
    try:
        return await ask()
    except UnknownOutcome as error:
        raise NotLeader(str(error)) from error
