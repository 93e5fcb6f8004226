"""The cluster of a test as plain tests see it: the same methods, blocking."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from paceline.client import ClientSettings
from paceline.client import blocking as client
from paceline.client.loop_thread import LoopThread
from paceline_cluster.testing.bridge import Paceline, Reached
from paceline_cluster.testing.cluster import LOG_LINES, START_S, Cluster, open_cluster

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    method: Callable[Concatenate[Cluster, P], Awaitable[R]],
) -> Callable[Concatenate[Reached, P], R]:
    """The same method for a thread without a loop."""

    @functools.wraps(method)
    def call(self: Reached, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._loop.call(functools.partial(method, self._cluster, *args, **kwargs))

    return call


class BlockingPaceline(Reached):
    """What the ``paceline`` fixture gives to a plain test. Nodes are named by number or by role:
    ``"controller"``, ``"leader of orders/0"``, ``"a follower of orders/0"``."""

    def connect(self, settings: ClientSettings | None = None) -> client.Client:
        """A blocking client of the cluster; close it, best with ``with``."""
        return client.connect(self.bootstrap, settings)

    @property
    def trio(self) -> Paceline:
        """The same cluster for async code."""
        return Paceline(self._loop, self._cluster)

    create_topic = _blocking(Cluster.create_topic)
    kill = _blocking(Cluster.kill)
    stop = _blocking(Cluster.stop)
    restart = _blocking(Cluster.restart)
    wipe = _blocking(Cluster.wipe)
    suspend = _blocking(Cluster.suspend)
    resume = _blocking(Cluster.resume)
    isolate = _blocking(Cluster.isolate)
    cut = _blocking(Cluster.cut)
    slow = _blocking(Cluster.slow)
    fail_disk = _blocking(Cluster.fail_disk)
    set_clock = _blocking(Cluster.set_clock)
    heal = _blocking(Cluster.heal)
    fail_next = _blocking(Cluster.fail_next)
    node = _blocking(Cluster.node)
    status = _blocking(Cluster.status)
    partition = _blocking(Cluster.partition)
    dump = _blocking(Cluster.dump)
    wait_for_leader = _blocking(Cluster.wait_for_leader)
    wait_for_isr = _blocking(Cluster.wait_for_isr)
    wait_for_high_watermark = _blocking(Cluster.wait_for_high_watermark)
    wait_for_group_stable = _blocking(Cluster.wait_for_group_stable)
    wait_until_healthy = _blocking(Cluster.wait_until_healthy)
    wait_until_ready = _blocking(Cluster.wait_until_ready)


@contextlib.contextmanager
def running_cluster(
    directory: Path,
    *,
    nodes: int = 3,
    settings: Mapping[str, str] | None = None,
    own_processes: bool = False,
    tls: bool = False,
    start_timeout_s: float = START_S,
    log_lines: int = LOG_LINES,
) -> Iterator[BlockingPaceline]:
    """A ready cluster in an empty directory for the length of a block: what the fixture is made of,
    for fixtures of another scope and for programs that are no tests. ``dump`` shows the last
    ``log_lines`` lines of the nodes' logs. Raises TimeoutError, or paceline_cluster.errors.TooLate
    with ``own_processes``, when it is not ready within ``start_timeout_s``."""
    loop = LoopThread()
    try:
        held = loop.enter(
            open_cluster(
                directory,
                nodes=nodes,
                settings=settings or {},
                own_processes=own_processes,
                tls=tls,
                start_timeout_s=start_timeout_s,
                log_lines=log_lines,
            )
        )
        try:
            yield BlockingPaceline(loop, held.value)
        finally:
            held.close()
    finally:
        loop.close()
