"""How a command talks to the cluster: one client for its whole life."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import trio

from paceline.client import Client, ClientSettings, connect
from paceline.errors import Unreachable
from paceline_cluster.cli.find import ClusterRef
from paceline_cluster.errors import NobodyThere

T = TypeVar("T")

CLIENT_ID = "paceline-cli"


def with_client(ref: ClusterRef, work: Callable[[Client], Awaitable[T]]) -> T:
    """Connect to the cluster, do ``work``, disconnect. Raises PacelineError, ClusterError."""

    async def run() -> T:
        async with client_of(ref) as client:
            return await work(client)

    return trio.run(run)


@contextlib.asynccontextmanager
async def client_of(ref: ClusterRef) -> AsyncIterator[Client]:
    """A client of the cluster. Raises NobodyThere when nothing takes connections at its addresses,
    and as :func:`paceline.client.connect` does."""
    settings = ClientSettings(client_id=CLIENT_ID, first_contact_timeout_s=ref.connect_timeout_s)
    async with contextlib.AsyncExitStack() as stack:
        try:
            client = await stack.enter_async_context(connect(ref.bootstrap(), settings))
        except Unreachable as error:
            raise NobodyThere(
                f"{error} (tried for {ref.connect_timeout_s:g} s): is the cluster up? "
                "--connect-timeout waits longer for one that is starting"
            ) from None
        yield client
