"""The cluster of a test as trio tests see it: async methods that cross to the cluster's own loop.

A cluster lives in a loop of its own, in a thread, so that a test may block, or run on a virtual
clock, without stalling it.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Concatenate, ParamSpec, TypeVar

import trio

from paceline.client import Client, ClientSettings, connect
from paceline.client.loop_thread import LoopThread
from paceline.tls import ClientTls
from paceline_cluster.testing.cluster import Cluster

P = ParamSpec("P")
R = TypeVar("R")


class Reached:
    """A cluster in another loop."""

    def __init__(self, loop: LoopThread, cluster: Cluster) -> None:
        self._loop = loop
        self._cluster = cluster

    @property
    def nodes(self) -> tuple[int, ...]:
        """The numbers of all nodes, running or not."""
        return self._cluster.numbers

    @property
    def bootstrap(self) -> list[str]:
        """Native addresses of all nodes, for :func:`paceline.connect`."""
        return self._cluster.bootstrap()

    @property
    def kafka_bootstrap(self) -> str:
        """What Kafka clients take as ``bootstrap.servers``: ``host:port,host:port,...``."""
        return ",".join(self.addresses("kafka"))

    @property
    def tls(self) -> ClientTls | None:
        """Files for clients of other protocols, where the marker said ``tls=True``; ``bootstrap``
        has them in it."""
        return self._cluster.tls

    def addresses(self, listener: str = "native") -> list[str]:
        """``host:port`` of a listener of every node: ``kafka``, ``cursus``, ``segment``, ``v1``,
        ``native``, ``http``. Raises ConfigurationError naming those that there are."""
        return self._cluster.addresses(listener)


def _crossing(
    method: Callable[Concatenate[Cluster, P], Awaitable[R]],
) -> Callable[Concatenate[Reached, P], Awaitable[R]]:
    """The same method, called from a test's loop."""

    @functools.wraps(method)
    async def call(self: Reached, /, *args: P.args, **kwargs: P.kwargs) -> R:
        work = functools.partial(method, self._cluster, *args, **kwargs)
        # A test that is cancelled need not wait for what its cluster is doing.
        return await trio.to_thread.run_sync(self._loop.call, work, abandon_on_cancel=True)

    return call


class Paceline(Reached):
    """What the ``paceline`` fixture gives to an async test. Nodes are named by number or by role:
    ``"controller"``, ``"leader of orders/0"``, ``"a follower of orders/0"``."""

    def connect(
        self, settings: ClientSettings | None = None
    ) -> AbstractAsyncContextManager[Client]:
        """A client of the cluster, in the test's own loop."""
        return connect(self.bootstrap, settings)

    create_topic = _crossing(Cluster.create_topic)
    kill = _crossing(Cluster.kill)
    stop = _crossing(Cluster.stop)
    restart = _crossing(Cluster.restart)
    wipe = _crossing(Cluster.wipe)
    suspend = _crossing(Cluster.suspend)
    resume = _crossing(Cluster.resume)
    isolate = _crossing(Cluster.isolate)
    cut = _crossing(Cluster.cut)
    slow = _crossing(Cluster.slow)
    fail_disk = _crossing(Cluster.fail_disk)
    set_clock = _crossing(Cluster.set_clock)
    heal = _crossing(Cluster.heal)
    fail_next = _crossing(Cluster.fail_next)
    node = _crossing(Cluster.node)
    status = _crossing(Cluster.status)
    partition = _crossing(Cluster.partition)
    dump = _crossing(Cluster.dump)
    wait_for_leader = _crossing(Cluster.wait_for_leader)
    wait_for_isr = _crossing(Cluster.wait_for_isr)
    wait_for_high_watermark = _crossing(Cluster.wait_for_high_watermark)
    wait_for_group_stable = _crossing(Cluster.wait_for_group_stable)
    wait_until_healthy = _crossing(Cluster.wait_until_healthy)
    wait_until_ready = _crossing(Cluster.wait_until_ready)
