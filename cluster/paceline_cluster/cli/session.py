"""How a command talks to the cluster: one client for its whole life."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from paceline.client import Client, ClientSettings, connect
from paceline_cluster.cli.find import ClusterRef

T = TypeVar("T")

CLIENT_ID = "paceline-cli"


def with_client(
    ref: ClusterRef, work: Callable[[Client], Awaitable[T]], *, timeout_s: float = 30.0
) -> T:
    """Connect to the cluster, do ``work``, disconnect. Raises PacelineError, ClusterError.

    ``timeout_s`` bounds each administrative call with its retries.
    """
    settings = ClientSettings(client_id=CLIENT_ID, operation_timeout_s=timeout_s)
    addresses = ref.bootstrap()

    async def run() -> T:
        async with connect(addresses, settings) as client:
            return await work(client)

    return trio.run(run)
