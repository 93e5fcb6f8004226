"""The weakest flush mode acknowledged under, written down before it is used (replication 2.2.5)."""

from __future__ import annotations

from functools import partial

from paceline_node.env import Env
from paceline_node.settings.flush_mode import FlushMode
from paceline_node.storage import incarnation
from paceline_node.storage.incarnation import Incarnation
from paceline_node.storage.waiting_for_space import when_there_is_room


class IncarnationFile:
    """This process's incarnation, as it stands on disk."""

    def __init__(self, env: Env, node: bytes, current: Incarnation) -> None:
        self._disk = env.disk
        self._waits = env.waits
        self._node = node
        self.current = current

    async def write(self, changed: Incarnation) -> None:
        """Make ``changed`` durable and current; waits for room. Raises OSError."""
        write = partial(incarnation.write, self._disk, changed, self._node)
        await when_there_is_room(write, self._waits)
        self.current = changed

    async def lower_floor(self, mode: FlushMode) -> None:
        """Records are going to be acknowledged in a weaker mode. Raises OSError."""
        if mode.weakness > self.current.flush_floor.weakness:
            await self.write(incarnation.lowered(self.current, mode))
