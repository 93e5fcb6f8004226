"""Nodes in processes of their own (``--paceline-processes``)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import trio

from paceline.tls import ClientTls
from paceline_cluster import launch
from paceline_cluster.errors import TooLate
from paceline_cluster.faulty.fleet import Fleet, open_fleet
from paceline_cluster.processes import ProcessState


class ProcessNodes:
    """See :class:`paceline_cluster.testing.nodes.Nodes`; a :class:`Fleet` behind it."""

    def __init__(self, fleet: Fleet, *, log_lines: int) -> None:
        self._fleet = fleet
        self._log_lines = log_lines
        self.mesh = fleet.mesh
        self.pages = fleet.pages

    @property
    def tls(self) -> ClientTls | None:
        return self._fleet.state.tls

    def listeners(self, node: int) -> Mapping[str, str]:
        return self._fleet.state.node(node).listeners

    def is_running(self, node: int) -> bool:
        return self._fleet.process(node) is not ProcessState.STOPPED

    async def start(self, node: int) -> None:
        self._fleet.start(node)
        await trio.lowlevel.checkpoint()

    async def kill(self, node: int) -> None:
        await self._fleet.kill(node)

    async def stop(self, node: int) -> None:
        await self._fleet.terminate(node)

    async def wipe(self, node: int) -> None:
        await self._fleet.wipe(node)

    def suspend(self, node: int) -> None:
        self._fleet.suspend(node)

    def resume(self, node: int) -> None:
        self._fleet.resume(node)

    def describe_end(self, node: int) -> str:
        entry = self._fleet.state.node(node)
        process = self._fleet.process(node)
        tail = launch.log_tail(entry, self._log_lines)
        return f"node {node} is {process}; its log {entry.log_path} ends:\n{tail}"

    async def close(self) -> None:
        # What does not stop in order is killed when the fleet is left.
        with contextlib.suppress(TooLate):
            await self._fleet.stop()


@contextlib.asynccontextmanager
async def in_processes(
    directory: Path,
    count: int,
    settings: Mapping[str, str],
    *,
    timeout_s: float,
    log_lines: int,
    tls: bool = False,
) -> AsyncIterator[ProcessNodes]:
    """``count`` node processes, ready, each of which tells its share of ``log_lines``. Raises
    TooLate."""
    fleet_of = open_fleet(directory / "cluster", count, settings, timeout_s=timeout_s, tls=tls)
    async with fleet_of as fleet:
        nodes = ProcessNodes(fleet, log_lines=-(-log_lines // count))
        try:
            yield nodes
        finally:
            with trio.move_on_after(60, shield=True):
                await nodes.close()
