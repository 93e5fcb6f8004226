"""Talking to the node that coordinates a group, or transactions, wherever it is at the moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from paceline.client.metadata import Metadata
from paceline.client.pool import ConnectionPool
from paceline.client.retry import Backoff, may_repeat, retrying
from paceline.errors import (
    ConnectionLost,
    CoordinatorNotAvailable,
    NotCoordinator,
    PacelineError,
    RebalanceInProgress,
)
from paceline.types import NO_NODE, NodeId
from paceline.wire.message import Message
from paceline.wire.native.api import NativeApi
from paceline.wire.native.groups import KAFKA_FAMILY, CoordinatorFound, FindCoordinator
from paceline.wire.native.transactions import FindTransactionCoordinator

M = TypeVar("M", bound=Message)


def may_repeat_in_group(error: PacelineError) -> bool:
    """Whether asking again, here or at the next coordinator, can help. A rebalance is news for the
    member, not a failure to be repeated away."""
    return may_repeat(error) and not isinstance(error, RebalanceInProgress)


class CoordinatorLink:
    """Finds a coordinator by asking any node with ``find``, and again whenever it was the wrong
    one."""

    def __init__(
        self,
        pool: ConnectionPool,
        metadata: Metadata,
        backoff: Backoff,
        api: NativeApi,
        find: Message,
    ) -> None:
        self._api = api
        self._request = find
        self._pool = pool
        self._metadata = metadata
        self._backoff = backoff
        self._node = NO_NODE

    async def call(
        self,
        api: NativeApi,
        body: Message,
        reply: type[M],
        *,
        timeout_s: float,
        wait_s: float = 0.0,
        may_retry: Callable[[PacelineError], bool] = may_repeat_in_group,
    ) -> M:
        """Ask the coordinator, repeatedly, until ``timeout_s`` is over; then the last error is
        raised. ``wait_s`` is how long the request itself may take there.

        Everything asked of a coordinator may be asked twice: joining and heartbeats name a member,
        commits an offset, ends of transactions an epoch.
        """

        async def attempt() -> M:
            node = await self._find()
            try:
                connection = await self._pool.to_node(node)
                return await connection.call(api, body, reply, wait_s=wait_s)
            except (NotCoordinator, CoordinatorNotAvailable, ConnectionLost):
                if self._node == node:
                    self._node = NO_NODE
                raise

        return await retrying(
            attempt, timeout_s=timeout_s, backoff=self._backoff, may_retry=may_retry
        )

    async def node(self, *, timeout_s: float) -> NodeId:
        """Which node coordinates, asked anew, repeatedly until ``timeout_s`` is over."""
        self._node = NO_NODE
        return await retrying(self._find, timeout_s=timeout_s, backoff=self._backoff)

    async def _find(self) -> NodeId:
        if self._node == NO_NODE:
            connection = await self._pool.to_any()
            found = await connection.call(self._api, self._request, CoordinatorFound)
            node = found.broker.node_id
            if self._pool.endpoint_of(node) is None:
                await self._metadata.refresh([])
            self._node = node
        return self._node


class Coordinator(CoordinatorLink):
    """A group's coordinator."""

    def __init__(
        self,
        pool: ConnectionPool,
        metadata: Metadata,
        backoff: Backoff,
        group: str,
        *,
        family: str = KAFKA_FAMILY,
        subject: str = "",
    ) -> None:
        find = FindCoordinator(group, family, subject)
        super().__init__(pool, metadata, backoff, NativeApi.FIND_COORDINATOR, find)
        self.group = group
        self.family = family
        self.subject = subject


class TransactionCoordinator(CoordinatorLink):
    """The coordinator of transactions; ``name`` is a transactional id or a sink."""

    def __init__(
        self, pool: ConnectionPool, metadata: Metadata, backoff: Backoff, name: str
    ) -> None:
        find = FindTransactionCoordinator(name)
        api = NativeApi.FIND_TRANSACTION_COORDINATOR
        super().__init__(pool, metadata, backoff, api, find)
