"""Producer ids for idempotent producers, from blocks that the controller hands out."""

from __future__ import annotations

from collections.abc import Callable

import trio

from paceline.types import BrokerEpoch, NodeId
from paceline.wire.peer.control import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from paceline_node.controller.client import ControllerClient
from paceline_node.security.principals import Operation, Principal
from paceline_node.services.authorization.authorizer import Authorizer

_TIMEOUT_S = 10.0


class ProducerIdService:
    """Gives each caller an id that nobody else in the cluster ever gets."""

    def __init__(
        self,
        node_id: NodeId,
        controller: ControllerClient,
        broker_epoch: Callable[[], BrokerEpoch],
        access: Authorizer,
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._access = access
        self._ids = iter(range(0))
        self._refill = trio.Lock()

    async def next_id(self, principal: Principal) -> int:
        """A fresh producer id. Raises AuthorizationFailed, ControllerUnavailable or the
        controller's error."""
        self._access.cluster(principal, Operation.IDENTIFY_PRODUCER)
        return await self.allocate()

    async def allocate(self) -> int:
        """As :meth:`next_id`, for the broker's own purposes."""
        async with self._refill:
            for producer_id in self._ids:
                return producer_id
            request = AllocateProducerIdsRequest(self._node_id, self._broker_epoch())
            block = await self._controller.call(
                request, AllocateProducerIdsResponse, timeout_s=_TIMEOUT_S
            )
            self._ids = iter(range(block.first_id, block.first_id + block.count))
            return next(self._ids)
