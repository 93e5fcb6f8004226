"""What would break if a node stopped now: pure, from what nodes say of the cluster (DESIGN 8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paceline.counted import counted, first_of
from paceline.documents.survey import Survey
from paceline.health import RUNNING
from paceline.types import NO_NODE
from paceline.values import dataclass
from paceline.wire.native.data import MetadataReply, PartitionInfo, StatusReply

MIN_INSYNC_REPLICAS = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Breaks:
    """``lasting``: what no waiting changes, for there are too few replicas, voters or nodes that
    may lead. ``passing``: what may mend by itself, or by somebody's hand elsewhere."""

    lasting: tuple[str, ...] = ()
    passing: tuple[str, ...] = ()

    def all(self) -> tuple[str, ...]:
        """Everything that would break."""
        return self.lasting + self.passing


@dataclass(frozen=True, slots=True)
class _Place:
    """A partition, and how many of its replicas must be in sync for a write."""

    name: str
    info: PartitionInfo
    least: int


def breaks(seen: Survey, told: MetadataReply | None, node: int) -> Breaks:
    """What would no longer work while ``node`` is stopped. ``told``: all topics, as the node says
    whose metadata are the newest in ``seen``; None where none says."""
    newest = seen.newest()
    if newest is None or told is None:
        return Breaks(passing=tuple(seen.reasons()) or ("no node says how the cluster is",))
    # Metadata know of the end of a node a moment later than whoever asks it.
    silent = {view.id for view in seen.nodes if view.status is None and not view.is_closed}
    lasting, passing = _quorum_without(newest, node, silent)
    if unknown := _unknown(newest, told):
        passing.append(unknown)
    drained = {int(each.node_id) for each in told.brokers if each.drained}
    unwritable, nobody, lacking = [], [], []
    for place in _places_of(told, node):
        rest = set(place.info.isr) - silent - {node}
        is_bound = len(place.info.replicas) - 1 < place.least
        if is_bound:
            unwritable.append(place.name)
        elif rest and rest <= drained:
            nobody.append(place.name)
        # Where it is missed in any case, the others are to be complete.
        needed = len(place.info.replicas) - 1 if is_bound else place.least
        if len(rest) < needed or place.info.leader == NO_NODE:
            lacking.append(place.name)
    if unwritable:
        lasting.append(
            f"{counted(len(unwritable), 'partition')} cannot be written to without it, by the "
            f"number of replicas: {first_of(unwritable, ', ')}"
        )
    if nobody:
        lasting.append(
            f"{counted(len(nobody), 'partition')} would be led by nobody, for the other nodes are "
            f"drained: {first_of(nobody, ', ')}"
        )
    if lacking:
        passing.append(
            f"{counted(len(lacking), 'partition')} would lack replicas in sync: "
            f"{first_of(lacking, ', ')}"
        )
    return Breaks(tuple(lasting), tuple(passing))


def _quorum_without(
    newest: StatusReply, node: int, silent: set[int]
) -> tuple[list[str], list[str]]:
    if newest.controller == NO_NODE:
        return [], ["there is no controller"]
    if node not in newest.voters:
        return [], []
    needed = len(newest.voters) // 2 + 1
    others = [each for each in newest.voters if each != node]
    if len(others) < needed:
        return [f"nobody votes without it: {_of_voters(newest)}"], []
    down = silent | {int(each.node_id) for each in newest.brokers if each.fenced}
    missing = [str(each) for each in others if each in down]
    if len(others) - len(missing) < needed:
        names = f"{'node' if len(missing) == 1 else 'nodes'} {', '.join(missing)}"
        return [], [f"the metadata quorum would have no majority without {names}"]
    return [], []


def _of_voters(newest: StatusReply) -> str:
    count = len(newest.voters)
    return f"a majority of {counted(count, 'voter')} needs {'it' if count == 1 else 'all'}"


def _unknown(newest: StatusReply, told: MetadataReply) -> str:
    """What who asks is not shown, so that nobody can judge it."""
    hidden = [each.name for each in told.topics if each.configs is None]
    if hidden:
        return (
            "who asks may not see how many replicas must be in sync (describe-configs) of "
            f"{counted(len(hidden), 'topic')}: {first_of(hidden, ', ')}"
        )
    missing = newest.partition_count - sum(len(each.partitions) for each in told.topics)
    if missing > 0:
        return f"who asks is not shown {counted(missing, 'partition')} (describe)"
    return ""


def _places(told: MetadataReply) -> Iterator[_Place]:
    for topic in told.topics:
        least = int((topic.configs or {}).get(MIN_INSYNC_REPLICAS, "1"))
        for each in topic.partitions:
            # Of a partition that is being moved this is the most it can be.
            yield _Place(
                f"{topic.name}/{each.partition}", each, max(1, min(least, len(each.replicas)))
            )


def _places_of(told: MetadataReply, node: int) -> Iterator[_Place]:
    return (each for each in _places(told) if node in each.info.replicas)


def not_back(seen: Survey, told: MetadataReply | None, node: int) -> str:
    """What a node that was restarted still lacks; empty once it serves with all its replicas in
    sync and every partition is led."""
    views = [each for each in seen.nodes if each.id == node]
    newest = seen.newest()
    if told is None or newest is None or not views or views[0].status is None:
        return "; ".join(seen.reasons()) or f"node {node} does not say how it is"
    if views[0].state != RUNNING:
        return "; ".join(views[0].problems())
    if newest.controller == NO_NODE:
        return "there is no controller"
    behind = [each.name for each in _places_of(told, node) if node not in each.info.isr]
    if behind:
        return (
            f"{counted(len(behind), 'replica')} of it {_is(behind)} not in sync: "
            f"{first_of(behind, ', ')}"
        )
    idle = [each.name for each in _places(told) if each.info.leader == NO_NODE]
    if idle:
        return f"{counted(len(idle), 'partition')} {_has(idle)} no leader: {first_of(idle, ', ')}"
    return ""


def _is(found: Sequence[str]) -> str:
    return "is" if len(found) == 1 else "are"


def _has(found: Sequence[str]) -> str:
    return "has" if len(found) == 1 else "have"


def next_of(left: Sequence[int], stopped: Sequence[int], controller: int | None) -> int:
    """Which node is restarted next: one that is stopped, for the others need it; the controller
    last, so that it changes once."""
    return min(left, key=lambda node: (node not in stopped, node == controller, left.index(node)))
