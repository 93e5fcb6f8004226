"""What this node's process is busy with: connections of its clients, its tasks."""

from __future__ import annotations

import trio

from paceline.types import NodeId
from paceline.values import dataclass
from paceline_node.client_connections import Connection, Connections
from paceline_node.loop_turns import Turns
from paceline_node.observe.task_counts import count_tasks
from paceline_node.observe.watchdog import LoopWatchdog
from paceline_node.security.principals import Principal
from paceline_node.services.admin.node_status import StatusService
from paceline_node.services.paging import Paged, in_order
from paceline_node.sliced_work import Work


@dataclass(frozen=True, slots=True)
class TaskView:
    """Tasks of one name. ``long_slices``: how often one kept the loop for more than 10 ms;
    ``longest_slice_s``: the longest of those of the last minute, 0: there was none."""

    name: str
    count: int
    long_slices: int
    longest_slice_s: float


class ProcessViews:
    """Of this node alone."""

    def __init__(
        self,
        node_id: NodeId,
        status: StatusService,
        connections: Connections,
        watchdog: LoopWatchdog,
        turns: Turns,
    ) -> None:
        self.node_id = node_id
        self._status = status
        self._connections = connections
        self._watchdog = watchdog
        self._turns = turns

    @property
    def loop_delay_s(self) -> float:
        """How long the event loop stood still at a time, within the last minute."""
        return self._watchdog.worst_s

    async def connections(
        self, principal: Principal, *, after: int | None, limit: int
    ) -> Paged[Connection]:
        """A page of those that are open, the oldest first. Raises AuthorizationFailed."""
        self._status.permit(principal)

        def found() -> Work[Paged[Connection]]:
            some: list[Connection] = []
            for number in (yield from in_order(self._connections.numbers(), after)):
                yield 1
                each = self._connections.find(number)
                if each is not None and len(some) == limit:
                    return Paged(some, has_more=True)
                if each is not None:
                    some.append(each)
            return Paged(some, has_more=False)

        return await self._turns.run(found())

    async def tasks(self, principal: Principal) -> list[TaskView]:
        """Of the whole process, by name, with those that are gone and kept the loop for long.
        Raises AuthorizationFailed."""
        self._status.permit(principal)
        counts = await self._turns.run(count_tasks(trio.lowlevel.current_root_task()))
        slices = self._watchdog.slices
        longest = {} if slices is None else {name: s for (name,), s in slices.longest()}
        too_long = {} if slices is None else {name: int(n) for (name,), n in slices.too_long()}
        return [
            TaskView(name, counts[name], too_long.get(name, 0), longest.get(name, 0.0))
            for name in sorted({*counts, *longest, *too_long})
        ]
