"""What the client's tests share: a cluster with a client, and cancelling at a chosen step."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from paceline.client import Client, ClientSettings, connect
from paceline.client.single_error_nursery import open_scope
from tests.unit.client.broker import Cluster

WALL_MS = 1_700_000_000_000


@asynccontextmanager
async def cluster_and_client(
    nodes: int = 3,
    settings: ClientSettings | None = None,
    *,
    configure: Callable[[Cluster], None] = lambda cluster: None,
) -> AsyncIterator[tuple[Cluster, Client]]:
    """Scripted brokers, and a client that knows them all; virtual time is the test's choice."""
    async with open_scope() as nursery:
        cluster = Cluster(nursery, nodes)
        configure(cluster)
        async with connect(
            cluster.bootstrap(),
            settings or ClientSettings(operation_timeout_s=5),
            dial=cluster.dial,
            rng=random.Random(1),
            wall_ms=lambda: WALL_MS,
        ) as client:
            yield cluster, client


class CancelAtStep(trio.abc.Instrument):
    """Cancels ``scope`` when the current task is about to take its ``step``-th step from now."""

    def __init__(self, scope: trio.CancelScope, step: int) -> None:
        self._scope = scope
        self._left = step
        self._task = trio.lowlevel.current_task()
        self.has_fired = False

    def __enter__(self) -> CancelAtStep:
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if task is self._task and not self.has_fired:
            self._left -= 1
            if self._left < 0:
                self.has_fired = True
                self._scope.cancel()
