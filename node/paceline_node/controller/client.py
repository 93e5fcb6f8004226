"""Asking the active controller, wherever it runs.

One table says which api number carries which request and what answers it. A request goes to the
local controller when this node is the active one, otherwise over a peer link to the node that the
quorum says leads. Only definite refusals (not the controller, link refused before anything was
sent) are retried here; an unknown outcome is the caller's to judge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import trio

from paceline.errors import ConnectionLost, ControllerUnavailable, NotController, RequestTimedOut
from paceline.types import NodeId
from paceline.wire.message import Message
from paceline.wire.native import admin
from paceline.wire.native.exchanges import ADMINISTRATION, Exchange
from paceline.wire.peer import control
from paceline.wire.peer.api import PeerApi
from paceline_node.env import Env
from paceline_node.peers.links import PeerLinks

M = TypeVar("M", bound=Message)


EXCHANGES: tuple[Exchange, ...] = (
    Exchange(
        PeerApi.REGISTER_BROKER, control.RegisterBrokerRequest, control.RegisterBrokerResponse
    ),
    Exchange(PeerApi.HEARTBEAT, control.HeartbeatRequest, control.HeartbeatResponse),
    Exchange(
        PeerApi.ALTER_PARTITION, control.AlterPartitionRequest, control.AlterPartitionResponse
    ),
    Exchange(PeerApi.REPORT_DAMAGED, control.ReportDamagedRequest, admin.Done),
    Exchange(
        PeerApi.ALLOCATE_PRODUCER_IDS,
        control.AllocateProducerIdsRequest,
        control.AllocateProducerIdsResponse,
    ),
    Exchange(PeerApi.CREATE_SEGMENT, control.CreateSegmentRequest, admin.Done),
    Exchange(PeerApi.DELETE_SEGMENT, control.DeleteSegmentRequest, admin.Done),
    Exchange(PeerApi.CREATE_INTERNAL_TOPIC, control.CreateInternalTopicRequest, admin.Done),
    *ADMINISTRATION,
)

_BY_REQUEST = {exchange.request: exchange for exchange in EXCHANGES}


class LocalController(Protocol):
    """What this module needs of ``controller.service.Controller``."""

    async def handle(self, sender: NodeId | None, message: Message) -> Message:
        """Answer ``message``, or raise NotController when this node is not the active one."""


class ControllerClient:
    """Sends requests to the active controller.

    ``leader`` returns the node that the metadata quorum follows at present, or None.
    """

    def __init__(
        self,
        env: Env,
        node_id: NodeId,
        local: LocalController,
        links: PeerLinks,
        leader: Callable[[], NodeId | None],
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._local = local
        self._links = links
        self._leader = leader

    async def call(self, request: Message, response: type[M], *, timeout_s: float) -> M:
        """Ask the active controller.

        Raises the controller's typed error; ControllerUnavailable when none answered within
        ``timeout_s`` and the request was surely not accepted; RequestTimedOut or ConnectionLost
        when it may have been. Cancel-safe, with the same doubt.
        """
        exchange = _BY_REQUEST[type(request)]
        deadline = self._env.now() + timeout_s
        backoff_s = 0.02
        while True:
            remaining_s = deadline - self._env.now()
            if remaining_s <= 0:
                raise ControllerUnavailable(f"no active controller answered within {timeout_s:g} s")
            try:
                reply = await self._ask(self._leader(), exchange, request, remaining_s)
            except NotController:
                reply = None
            except ConnectionLost as error:
                if error.was_sent:
                    raise
                reply = None
            if reply is not None:
                assert isinstance(reply, response), (reply, response)
                return reply
            await trio.sleep(min(backoff_s * self._env.rng.uniform(0.5, 1.0), remaining_s))
            backoff_s = min(backoff_s * 2, 0.25)

    async def _ask(
        self, leader: NodeId | None, exchange: Exchange, request: Message, timeout_s: float
    ) -> Message | None:
        if leader is None:
            return None
        if leader != self._node_id:
            frame = await self._links.call(
                leader, exchange.api, request, lane="control", timeout_s=timeout_s
            )
            return exchange.response.unpack(frame.body)
        with trio.move_on_after(timeout_s):
            return await self._local.handle(self._node_id, request)
        raise RequestTimedOut(f"the controller did not commit within {timeout_s:g} s")
