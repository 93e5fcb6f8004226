"""What a cluster for tests needs of its nodes, however they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from paceline.tls import ClientTls
from paceline_cluster.faulty.control import ControlPage
from paceline_cluster.faulty.proxy import Mesh


class Unsupported(Exception):
    """This way of running nodes cannot do that; the text says which can."""


class Nodes(Protocol):
    """Nodes in this process or in processes of their own. Every method may be called in any state
    of the node; starting one that runs and ending one that does not do nothing."""

    @property
    def mesh(self) -> Mesh:
        """The links between them."""

    @property
    def pages(self) -> Mapping[int, ControlPage]:
        """What switches the faults of their disks and clocks."""

    @property
    def tls(self) -> ClientTls | None:
        """What clients need where everything is encrypted."""

    def listeners(self, node: int) -> Mapping[str, str]:
        """``host:port`` of each listener, by its name; the same for all lives of the node."""

    def is_running(self, node: int) -> bool: ...

    async def start(self, node: int) -> None:
        """Start it; it serves a little later."""

    async def kill(self, node: int) -> None:
        """End it at once, without any clean-up of its own."""

    async def stop(self, node: int) -> None:
        """Have it stop in order: it hands its leaderships over first."""

    async def wipe(self, node: int) -> None:
        """Kill it and give it a new, empty disk."""

    def suspend(self, node: int) -> None:
        """Freeze it. Raises Unsupported."""

    def resume(self, node: int) -> None:
        """Let it go on."""

    def describe_end(self, node: int) -> str:
        """How it ended, or that it runs; for the report of a failed test."""

    async def close(self) -> None:
        """Stop all nodes, as a whole cluster is stopped."""
