"""Producer ids for idempotent producers, from blocks that the controller hands out."""

from __future__ import annotations

from collections.abc import Callable

import trio

from paceline.errors import AuthorizationFailed
from paceline.types import BrokerEpoch, NodeId
from paceline.wire.peer.control import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from paceline_node.controller.client import ControllerClient
from paceline_node.security.principals import Operation, Principal, proved_name
from paceline_node.security.producer_ids import SEALED, ProducerIds
from paceline_node.services.authorization.authorizer import Authorizer

_TIMEOUT_S = 10.0
_OF_TRANSACTIONS = "\0transactions"
"""No principal is called so."""


class ProducerIdService:
    """Gives each caller an id that nobody else in the cluster ever gets."""

    def __init__(
        self,
        node_id: NodeId,
        controller: ControllerClient,
        broker_epoch: Callable[[], BrokerEpoch],
        access: Authorizer,
        sealing: ProducerIds,
    ) -> None:
        self._sealing = sealing
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
        return self._sealed(await self._number(), proved_name(principal))

    async def allocate(self) -> int:
        """As :meth:`next_id`, for transactions: whose id that is their coordinator knows."""
        return self._sealed(await self._number(), _OF_TRANSACTIONS)

    def permit(self, principal: Principal, producer_id: int) -> None:
        """Raise AuthorizationFailed where an id is another one's: its batches would fence the
        other's (DESIGN 2.4)."""
        if producer_id < SEALED or not self._access.is_guarded:
            return
        if not self._sealing.is_of(producer_id, proved_name(principal)):
            raise AuthorizationFailed(f"producer id {producer_id} is not of {principal}")

    def _sealed(self, number: int, name: str) -> int:
        return self._sealing.sealed(number, name) if self._access.is_guarded else number

    async def _number(self) -> int:
        async with self._refill:
            for producer_id in self._ids:
                return producer_id
            request = AllocateProducerIdsRequest(self._node_id, self._broker_epoch())
            block = await self._controller.call(
                request, AllocateProducerIdsResponse, timeout_s=_TIMEOUT_S
            )
            self._ids = iter(range(block.first_id, block.first_id + block.count))
            return next(self._ids)
