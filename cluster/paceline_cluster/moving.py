"""Moves partitions by a plan, some at a time, and says how far they are and what keeps them.

Everything can be begun again: who carries a plan out a second time goes on with what is left of it.
Which moves are good is ``replica_plan.py``.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

import trio

from paceline.client import Client
from paceline.counted import counted, first_of
from paceline.errors import (
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    PacelineError,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from paceline.types import NO_NODE, NodeId, TopicPartition
from paceline.values import dataclass
from paceline.wire.native.data import BrokerInfo, PartitionDescription, PartitionInfo, TopicInfo
from paceline_cluster.errors import Refused, TooLate
from paceline_cluster.replica_plan import Move, Placed, Site

LOOK_S = 0.3
PACE_S = 1.0
"""Between two looks that tell how fast moves go."""
AT_ONCE = 8
"""So many partitions are moved at the same time unless said otherwise: what new replicas fetch is
taken from what clients are served."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A move under way. ``left_bytes`` is what new replicas still have to fetch, by their leader's
    count; -1 where nobody says. ``bytes_per_s`` is how fast that becomes less, with what is written
    meanwhile taken off; -1 where that is not known. ``waits_for`` says what is missing."""

    at: TopicPartition
    leader: NodeId
    replicas: tuple[NodeId, ...]
    adding: tuple[NodeId, ...]
    removing: tuple[NodeId, ...]
    left_records: int
    left_bytes: int
    waits_for: str
    bytes_per_s: int = -1

    @property
    def left_s(self) -> int:
        """At that rate; -1 where it is not known, or does not end."""
        if self.left_bytes < 0 or self.bytes_per_s <= 0:
            return -1
        return math.ceil(self.left_bytes / self.bytes_per_s)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a move: ``moved``, ``there`` (nothing to do), ``gone`` (the topic was deleted)
    or ``refused``, with the reason."""

    move: Move
    state: str
    reason: str = ""


Report = Callable[[int], None]
"""Told how much is done of what :func:`extent` counts."""


async def placement(
    client: Client, topics: Collection[str] | None = None
) -> tuple[list[Site], list[Placed]]:
    """The nodes, and where the partitions lie: all, or those of ``topics``. Raises Refused while
    one of them is being moved, or has no leader who knows how large it is."""
    cluster = await client.admin.describe_cluster()
    sites = [Site(each.node_id, each.rack, not each.fenced) for each in cluster.brokers]
    moving = await client.admin.list_reassignments(None if topics is None else list(topics))
    if moving:
        names = first_of([f"{each.topic}/{each.partition}" for each in moving], ", ")
        raise Refused(
            f"{counted(len(moving), 'partition')} {_are(moving)} being moved already ({names})",
            hint="'paceline partition move status' shows how far they are, 'cancel' gives them up",
        )
    names_of = [each.name for each in await client.admin.list_topics()]
    wanted = names_of if topics is None else sorted(topics)
    found: list[Placed] = []
    for name in wanted:
        try:
            described = await client.admin.describe_topic(name)
        except UnknownTopicOrPartition:
            if topics is not None:
                raise
            continue  # deleted meanwhile
        for each in described.partitions:
            at = TopicPartition(name, each.partition)
            found.append(Placed(at, each.replicas, max(0, each.size_bytes)))
    return sites, found


def _are(found: Sequence[object]) -> str:
    return "is" if len(found) == 1 else "are"


def _have(count: int) -> str:
    return "has" if count == 1 else "have"


async def standings(client: Client, topics: Iterable[str] | None = None) -> list[Standing]:
    """The moves under way, of all topics or of these, and what each waits for."""
    moves = await client.admin.list_reassignments(None if topics is None else list(topics))
    cluster = await client.admin.describe_cluster()
    brokers = {each.node_id: each for each in cluster.brokers}
    told: dict[TopicPartition, PartitionDescription] = {}
    for name in dict.fromkeys(each.topic for each in moves):
        try:
            described = await client.admin.describe_topic(name)
        except UnknownTopicOrPartition:
            continue
        told.update((TopicPartition(name, each.partition), each) for each in described.partitions)
    found = []
    for move in moves:
        at = TopicPartition(move.topic, move.partition)
        target = tuple(node for node in move.replicas if node not in move.removing)
        missing = tuple(node for node in move.adding if node not in move.isr)
        records, size, reason = _lacking(told.get(at), missing, brokers)
        if not missing:
            reason = "too few of the target replicas are in sync"
        found.append(
            Standing(
                at=at,
                leader=move.leader,
                replicas=target,
                adding=move.adding,
                removing=move.removing,
                left_records=records,
                left_bytes=size,
                waits_for=reason,
            )
        )
    return found


async def paced_standings(client: Client, topics: Sequence[str] | None = None) -> list[Standing]:
    """:func:`standings` with how fast they go, which takes a second where records are fetched."""
    before = {each.at: each for each in await standings(client, topics) if each.left_bytes > 0}
    began = trio.current_time()
    if before:
        await trio.sleep(PACE_S)
    found = await standings(client, topics)
    took_s = max(trio.current_time() - began, PACE_S)
    return [_paced(each, before.get(each.at), took_s) for each in found]


def _paced(now: Standing, before: Standing | None, took_s: float) -> Standing:
    if before is None or now.left_bytes < 0 or before.adding != now.adding:
        return now
    return replace(now, bytes_per_s=max(0, int((before.left_bytes - now.left_bytes) / took_s)))


def _lacking(
    seen: PartitionDescription | None,
    missing: Sequence[NodeId],
    brokers: dict[NodeId, BrokerInfo],
) -> tuple[int, int, str]:
    """What the new replicas lack, in records and bytes, and what the move waits for."""
    away = [node for node in missing if node not in brokers or brokers[node].fenced]
    if away:
        return -1, -1, f"node {', '.join(map(str, away))} does not run"
    if seen is None or seen.leader == NO_NODE:
        return -1, -1, "the partition has no leader"
    if seen.error or seen.log_end_offset < 0:
        return -1, -1, f"its leader, node {seen.leader}, does not answer"
    ends = {each.node_id: each.log_end_offset for each in seen.progress}
    length = max(1, seen.log_end_offset - seen.log_start_offset)
    records = 0
    for node in missing:
        reached = max(ends.get(node, -1), seen.log_start_offset)
        records += max(0, seen.log_end_offset - reached)
    size = math.ceil(max(0, seen.size_bytes) * (records / length))
    if records:
        return records, size, f"node {', '.join(map(str, missing))} is fetching the log"
    return 0, 0, f"node {', '.join(map(str, missing))} is about to be in sync"


async def begin(client: Client, move: Move) -> Result | None:
    """Begin a move, unless it is made or under way; None: it goes on. Raises what may pass."""
    name = move.at.topic
    try:
        info = _partition(await client.admin.topic(name), move.at)
        if info.replicas == move.after and set(move.adding) <= set(info.isr):
            return Result(move, "there")
        moving = await client.admin.list_reassignments([name])
        going = next((each for each in moving if each.partition == move.at.partition), None)
        if going is None and move.before and info.replicas not in (move.before, move.after):
            there = _listed(info.replicas)
            return Result(move, "refused", f"its replicas have changed since the plan: {there}")
        if going is None or _target(going.replicas, going.removing) != move.after:
            await client.admin.reassign_partition(move.at, move.after)
    except UnknownTopicOrPartition:
        return Result(move, "gone", "the topic was deleted")
    except (InvalidReplicationFactor, PolicyViolation) as error:
        return Result(move, "refused", str(error))
    return None


def _target(replicas: Sequence[NodeId], removing: Collection[NodeId]) -> tuple[NodeId, ...]:
    return tuple(node for node in replicas if node not in removing)


def _partition(info: TopicInfo, at: TopicPartition) -> PartitionInfo:
    for each in info.partitions:
        if each.partition == at.partition:
            return each
    raise UnknownTopicOrPartition(
        f"{at}: the topic has {counted(len(info.partitions), 'partition')}"
    )


def _listed(nodes: Iterable[NodeId]) -> str:
    return ", ".join(map(str, nodes))


async def _ended(client: Client, move: Move) -> Result | None:
    """What became of a move that has begun; None while it goes on."""
    try:
        info = _partition(await client.admin.topic(move.at.topic), move.at)
    except UnknownTopicOrPartition:
        return Result(move, "gone", "the topic was deleted")
    if info.replicas == move.after and set(move.adding) <= set(info.isr):
        return Result(move, "moved")
    if move.adding and not set(move.adding) <= set(info.replicas):
        return Result(
            move, "refused", f"it was given up: its replicas are {_listed(info.replicas)}"
        )
    return None


def _bytes_of(move: Move) -> int:
    return len(move.adding) * move.size_bytes


def extent(moves: Iterable[Move]) -> tuple[int, bool]:
    """How much there is to do, and whether that is bytes; where none are copied it is moves."""
    each = [_bytes_of(move) for move in moves]
    whole = sum(each)
    return (whole, True) if whole else (len(each), False)


async def carry_out(
    client: Client,
    moves: Sequence[Move],
    *,
    at_once: int = AT_ONCE,
    timeout_s: float = math.inf,
    report: Report | None = None,
) -> list[Result]:
    """Make the moves, at most ``at_once`` at the same time, and return once all have ended.

    Raises TooLate after ``timeout_s``, naming those that are left and what they wait for; what has
    begun goes on then, as it does when this is cancelled.
    """
    deadline = trio.current_time() + timeout_s
    waiting = deque(moves)
    going: list[Move] = []
    results: list[Result] = []
    _, in_bytes = extent(moves)
    while waiting or going:
        while waiting and len(going) < at_once:
            move = waiting.popleft()
            result = await begin(client, move)
            if result is None:
                going.append(move)
            else:
                results.append(result)
        for move in list(going):
            result = await _ended(client, move)
            if result is not None:
                going.remove(move)
                results.append(result)
        if report is not None:
            report(await _done_of(client, results, going) if in_bytes else len(results))
        if not going:
            continue
        if trio.current_time() > deadline:
            raise TooLate(await what_is_left(client, going, len(waiting)))
        await trio.sleep(LOOK_S)
    return results


async def _done_of(client: Client, results: Iterable[Result], going: Sequence[Move]) -> int:
    begun = sum(map(_bytes_of, going))
    left = await _left_bytes(client, going) if going else 0
    return sum(_bytes_of(each.move) for each in results) + max(0, begun - left)


async def _left_bytes(client: Client, going: Sequence[Move]) -> int:
    wanted = {move.at: move for move in going}
    found = {each.at: each for each in await standings(client, {m.at.topic for m in going})}
    left = 0
    for at, move in wanted.items():
        seen = found.get(at)
        if seen is not None:
            left += _bytes_of(move) if seen.left_bytes < 0 else seen.left_bytes
    return left


async def what_is_left(client: Client, going: Sequence[Move], waiting: int) -> str:
    """One sentence about moves that go on, and how many are ``waiting`` to be begun."""
    seen = await standings(client, {move.at.topic for move in going})
    # Any node may be asked, and nodes learn of a move one after the other, or have seen its end.
    told = dict.fromkeys((move.at for move in going), "how far it is is not known yet")
    told.update((each.at, each.waits_for) for each in seen if each.at in told)
    stuck = ", ".join(f"{at} ({reason})" for at, reason in told.items())
    behind = f"; {waiting} more {_have(waiting)} not begun" if waiting else ""
    return f"{counted(len(going), 'partition')} {_are(going)} still being moved: {stuck}{behind}"


async def give_up(client: Client, places: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """Cancel moves; of each whether it was given up, or why not."""
    said: dict[TopicPartition, str] = {}
    for at in places:
        try:
            await client.admin.cancel_reassignment(at)
        except NoReassignmentInProgress:
            said[at] = "it is not being moved"
        except PacelineError as error:
            said[at] = str(error)
        else:
            said[at] = ""
    return said
