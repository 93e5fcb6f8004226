"""Sending ISR proposals to the controller (DESIGN 3.6).

The answers are hints and change nothing: a proposal lives until the metadata log overtakes it. So
this is a loop that sends what is due, again every 500 ms, and does not wait for answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import structlog
import trio

from paceline.errors import ErrorCode, PacelineError
from paceline.types import BrokerEpoch
from paceline.wire.message import Message
from paceline.wire.peer.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    PartitionProposal,
)
from paceline_node.env import Env
from paceline_node.replication.leader import PROPOSAL_RESEND_S
from paceline_node.replication.partition import Partition, PartitionContext, PartitionKey

M = TypeVar("M", bound=Message)

_MAX_IN_FLIGHT = 4
_MAX_PER_REQUEST = 250
_ANSWER_S = 2.0


class ControllerCalls(Protocol):
    """What replication needs of ``controller.client.ControllerClient``."""

    async def call(self, request: Message, response: type[M], *, timeout_s: float) -> M:
        """Ask the active controller. Raises its typed error, or one of unknown outcome."""


class Proposals:
    """Sends the pending proposals of this node's partitions."""

    def __init__(
        self,
        env: Env,
        context: PartitionContext[Partition],
        controller: ControllerCalls,
        broker_epoch: Callable[[], BrokerEpoch],
    ) -> None:
        self._env = env
        self._node_id = context.node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._pending: dict[PartitionKey, Partition] = {}
        self._in_flight = 0
        self._wake = trio.Event()
        self._log = structlog.get_logger(component="proposals", node=context.node_id)

    def add(self, partition: Partition) -> None:
        """``partition`` has a pending proposal."""
        if partition.key not in self._pending:
            self._pending[partition.key] = partition
            self._wake.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Send proposals as they come; runs until cancelled."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                await self._wake.wait()
                self._wake = trio.Event()
                while self._pending:
                    request = self._collect()
                    if request is not None:
                        self._in_flight += 1
                        nursery.start_soon(self._send, request)
                    with trio.move_on_after(PROPOSAL_RESEND_S / 2):
                        await self._wake.wait()
                        self._wake = trio.Event()

    def _collect(self) -> AlterPartitionRequest | None:
        """Everything that is due; forgets what the metadata log has overtaken."""
        if self._in_flight >= _MAX_IN_FLIGHT:
            return None
        now = self._env.now()
        proposals: list[PartitionProposal] = []
        for key, partition in list(self._pending.items()):
            leader = partition.replica.leader
            if leader is None or leader.pending is None:
                del self._pending[key]
                continue
            if len(proposals) == _MAX_PER_REQUEST:
                break  # the rest is as due in the next one
            due = leader.proposal_due(now)
            if due is not None:
                proposals.append(
                    PartitionProposal(
                        *key, due.leader_epoch, due.partition_epoch, due.isr, due.relinquish
                    )
                )
        if not proposals:
            return None
        return AlterPartitionRequest(self._node_id, self._broker_epoch(), tuple(proposals))

    async def _send(self, request: AlterPartitionRequest) -> None:
        try:
            reply = await self._controller.call(
                request, AlterPartitionResponse, timeout_s=_ANSWER_S
            )
        except PacelineError as error:
            self._log.debug("proposal unanswered", reason=str(error))
            return
        finally:
            self._in_flight -= 1
        for result in reply.results:
            if result.error != ErrorCode.NONE:
                self._log.debug(
                    "proposal refused",
                    topic_id=str(result.topic_id),
                    partition=result.partition,
                    error=result.error,
                )
