"""What can be done to a cluster: every kind of fault with its beginning and its end.

A fault strikes a set of nodes. ``losing`` faults take acknowledged bytes away for good: one strikes
only while everything is in sync, so that never more replicas than min.insync - 1 have lost
something (sim/DESIGN 3). ``moves``: whatever the nodes led is led by others after it.
"""

from __future__ import annotations

import enum
import errno
from collections.abc import Awaitable, Callable, Mapping, Sequence

from paceline.client import connect
from paceline.errors import PacelineError
from paceline.types import is_internal_topic
from paceline.values import dataclass
from paceline_cluster.chaos import harms
from paceline_cluster.faulty.fleet import Fleet

Act = Callable[[Fleet, Sequence[int], Mapping[str, float]], Awaitable[None]]
"""(the cluster, the nodes, the fault's own numbers)."""


_SLOWEST_CLOCK = 0.01


class Part(enum.Enum):
    """What of a node a fault takes hold of; two faults that hold the same do not overlap there."""

    PROCESS = "process"
    LINKS = "links"
    DISK = "disk"
    CLOCK = "clock"
    PACE = "pace"
    LEADERSHIP = "leadership"


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One kind. ``numbers`` are its own settings with their defaults; ``instant``: it has no
    length; ``serving``: only nodes that serve can stand it (one that starts on a full disk ends,
    and says so)."""

    text: str
    part: Part
    begin: Act
    end: Act
    numbers: Mapping[str, float]
    losing: bool = False
    moves: bool = False
    instant: bool = False
    serving: bool = False


async def _kill(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        await fleet.kill(node)


async def _terminate(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        await fleet.terminate(node)


async def _start(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    fleet.start(*nodes)


async def _restart(fleet: Fleet, nodes: Sequence[int], numbers: Mapping[str, float]) -> None:
    await _terminate(fleet, nodes, numbers)
    fleet.start(*nodes)


async def _move(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    try:
        async with connect(fleet.bootstrap) as client:
            for topic in await client.admin.list_topics():
                for each in () if is_internal_topic(topic.name) else topic.partitions:
                    heirs = [node for node in each.isr if node not in nodes]
                    if each.leader in nodes and heirs:
                        await client.admin.elect_leader(topic.name, each.partition, heirs[0])
    except PacelineError:
        return  # a cluster in trouble moves nothing, which is no fault of its own


async def _suspend(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.suspend(node)


async def _resume(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.resume(node)


async def _wipe(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        await fleet.wipe(node)


def _others(fleet: Fleet, nodes: Sequence[int]) -> list[int]:
    return [node for node in fleet.nodes if node not in nodes]


async def _isolate(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.mesh.isolate(node)


async def _split(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    fleet.mesh.split(nodes, _others(fleet, nodes))


async def _deafen(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        for other in _others(fleet, nodes):
            fleet.mesh.cut(other, node)


async def _mute(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        for other in _others(fleet, nodes):
            fleet.mesh.cut(node, other)


async def _slow(fleet: Fleet, nodes: Sequence[int], numbers: Mapping[str, float]) -> None:
    for node in nodes:
        for other in fleet.nodes:
            if other != node:
                for pair in ((node, other), (other, node)):
                    fleet.mesh.slow(*pair, delay_s=numbers["delay_ms"] / 1000)


async def _mend(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        for other in fleet.nodes:
            if other != node:
                fleet.mesh.mend(node, other)
                fleet.mesh.mend(other, node)


async def _fill(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.pages[node].free_bytes = 0
        fleet.pages[node].write_errno = errno.ENOSPC


async def _fail_writes(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.expect_end(node)
        fleet.pages[node].write_errno = errno.EIO


async def _fail_sync(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.expect_end(node)
        fleet.pages[node].sync_failures = 1


async def _slow_disk(fleet: Fleet, nodes: Sequence[int], numbers: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.pages[node].sync_delay_s = numbers["sync_ms"] / 1000


async def _empty(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.pages[node].free_bytes = None
        fleet.pages[node].write_errno = 0


async def _quicken(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.pages[node].sync_delay_s = 0.0


async def _new_disk(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.pages[node].write_errno = 0
        fleet.pages[node].sync_failures = 0
    fleet.start(*nodes)


async def _jump(fleet: Fleet, nodes: Sequence[int], numbers: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.pages[node].wall_offset_ms = int(numbers["jump_ms"])


async def _set_right(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.pages[node].wall_offset_ms = 0


async def _hurry(fleet: Fleet, nodes: Sequence[int], numbers: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.pages[node].clock_rate = max(numbers["rate"], _SLOWEST_CLOCK)


async def _in_time(fleet: Fleet, nodes: Sequence[int], _: Mapping[str, float]) -> None:
    for node in nodes:
        fleet.pages[node].clock_rate = 1.0


async def _nothing(_fleet: Fleet, _nodes: Sequence[int], _: Mapping[str, float]) -> None:
    """An instant fault has no end."""


def _harm(text: str, begin: Act, end: Act = harms.come_back) -> FaultKind:
    return FaultKind(text, Part.PROCESS, begin, end, {}, losing=True, moves=True)


KINDS: dict[str, FaultKind] = {
    "kill": FaultKind(
        "SIGKILL, started again at its end", Part.PROCESS, _kill, _start, {}, moves=True
    ),
    "terminate": FaultKind(
        "SIGTERM, started again at its end", Part.PROCESS, _terminate, _start, {}, moves=True
    ),
    "restart": FaultKind(
        "SIGTERM and started again at once",
        Part.PROCESS,
        _restart,
        _nothing,
        {},
        moves=True,
        instant=True,
    ),
    "move": FaultKind(
        "leaderships moved to others, by request",
        Part.LEADERSHIP,
        _move,
        _nothing,
        {},
        instant=True,
    ),
    "suspend": FaultKind("SIGSTOP, SIGCONT at its end", Part.PROCESS, _suspend, _resume, {}),
    "wipe": FaultKind(
        "SIGKILL, started again at its end on an emptied disk",
        Part.PROCESS,
        _wipe,
        _start,
        {},
        losing=True,
        moves=True,
    ),
    "isolate": FaultKind(
        "cut off from every other node; clients still reach it", Part.LINKS, _isolate, _mend, {}
    ),
    "split": FaultKind(
        "the nodes cut off from the rest, as a group", Part.LINKS, _split, _mend, {}
    ),
    "deafen": FaultKind("the nodes hear no other node", Part.LINKS, _deafen, _mend, {}),
    "mute": FaultKind("no other node hears the nodes", Part.LINKS, _mute, _mend, {}),
    "slow-link": FaultKind(
        "every chunk to and from the nodes is held back", Part.LINKS, _slow, _mend, {"delay_ms": 50}
    ),
    "disk-full": FaultKind("no room, and ENOSPC", Part.PROCESS, _fill, _empty, {}, serving=True),
    "write-error": FaultKind(
        "EIO on every write: the node ends; started again at its end",
        Part.PROCESS,
        _fail_writes,
        _new_disk,
        {},
        losing=True,
    ),
    "sync-error": FaultKind(
        "EIO on one sync: the node ends; started again at its end",
        Part.PROCESS,
        _fail_sync,
        _new_disk,
        {},
        losing=True,
    ),
    "slow-disk": FaultKind(
        "every sync takes longer", Part.DISK, _slow_disk, _quicken, {"sync_ms": 300}
    ),
    "clock": FaultKind(
        "the wall clock jumps, and back at its end",
        Part.CLOCK,
        _jump,
        _set_right,
        {"jump_ms": 3_600_000},
    ),
    "clock-rate": FaultKind(
        "the monotonic clock goes too fast or too slow: all time-outs with it",
        Part.PACE,
        _hurry,
        _in_time,
        {"rate": 1.05},
    ),
    "rot": _harm("SIGKILL, bits flip in one of its files, any; started again", harms.rot),
    "rot-running": _harm("bits flip in a file while it runs; restarted", harms.rot_running),
    "lose-file": _harm("one of its files is gone; restarted at its end", harms.lose_file),
    "lose-partition": _harm(
        "SIGKILL, a partition's directory is gone; started again", harms.lose_partition
    ),
    "lose-metadata": _harm(
        "SIGKILL, the metadata's directory is gone; started again", harms.lose_metadata
    ),
    "age": _harm(
        "SIGKILL at its end, a file is as it was at its beginning; started again",
        harms.begin_to_age,
        harms.aged,
    ),
    "unreadable": _harm("a range of its logs answers EIO; restarted at its end", harms.unreadable),
}
"""Every kind by the name it has in scenarios."""
