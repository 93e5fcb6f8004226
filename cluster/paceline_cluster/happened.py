"""What has happened in a cluster, seen from one look at it to the next.

Pure. Nodes keep no list of events: what came and went between two looks is not seen, and nothing of
the time before the first. Partitions that shared a fate are told in one event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from paceline.counted import counted
from paceline.documents.survey import Survey
from paceline.health import RUNNING, Check, Level
from paceline.types import NO_NODE, NodeId, TopicPartition
from paceline.values import dataclass

_NAMED = 3
"""So many partitions are named in a sentence; of more it says how many."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Of a partition: who leads it, and which replicas are in sync."""

    leader: NodeId
    isr: frozenset[NodeId]


@dataclass(frozen=True, slots=True)
class Seen:
    """A look. ``partitions`` None: nobody told, so that none of them has come or gone."""

    survey: Survey
    partitions: Mapping[TopicPartition, Standing] | None


@dataclass(frozen=True, slots=True)
class Event:
    """``kind``: node, election, isr, topic or health. ``node``: who came, went, leads now, or fell
    out of sync, where it is one."""

    kind: str
    level: Level
    text: str
    node: int | None = None
    partitions: tuple[TopicPartition, ...] = ()


def happened(before: Seen, now: Seen) -> Iterator[Event]:
    """What is otherwise now, what is the cause of the rest first."""
    yield from _nodes(before.survey, now.survey)
    yield from _controller(before.survey.controller, now.survey.controller)
    if before.partitions is not None and now.partitions is not None:
        yield from _topics(before.partitions, now.partitions)
        yield from _elections(before.partitions, now.partitions)
        yield from _in_sync(before.partitions, now.partitions)
    yield from _health(before.survey, now.survey)


def _nodes(before: Survey, now: Survey) -> Iterator[Event]:
    was, states = before.states(), now.states()
    for node, state in states.items():
        if node not in was:
            yield Event("node", Level.OK, f"node {node} is registered, and {state}", node)
        elif was[node] != state:
            level = Level.OK if state == RUNNING else Level.WARNING
            if any(view.id == node and view.status is None for view in now.nodes):
                level = Level.CRITICAL
            yield Event("node", level, f"node {node} is {state}, was {was[node]}", node)
    for node in sorted(was.keys() - states.keys()):
        yield Event("node", Level.WARNING, f"node {node} is registered no more", node)


def _controller(before: int | None, now: int | None) -> Iterator[Event]:
    if before == now:
        return
    old = "nobody" if before is None else f"node {before}"
    if now is None:
        yield Event("election", Level.CRITICAL, f"the quorum has no leader, before {old}")
    else:
        yield Event("election", Level.WARNING, f"node {now} leads the quorum, before {old}", now)


Partitions = Mapping[TopicPartition, Standing]


def _topics(before: Partitions, now: Partitions) -> Iterator[Event]:
    for some, others, word in ((now, before, "new"), (before, now, "gone")):
        by_topic: dict[str, list[TopicPartition]] = {}
        for at in sorted(some.keys() - others.keys()):
            by_topic.setdefault(at.topic, []).append(at)
        for topic, these in by_topic.items():
            text = f"{topic}: {counted(len(these), 'partition')} {word}"
            yield Event("topic", Level.OK, text, None, tuple(these))


def _elections(before: Partitions, now: Partitions) -> Iterator[Event]:
    fates: dict[tuple[NodeId, NodeId], list[TopicPartition]] = {}
    for at in sorted(before.keys() & now.keys()):
        if before[at].leader != now[at].leader:
            fates.setdefault((now[at].leader, before[at].leader), []).append(at)
    for (leader, old), these in fates.items():
        text = f"{_name(leader)} leads {_named(these)}, before {_name(old)}"
        level = Level.CRITICAL if leader == NO_NODE else Level.WARNING
        yield Event("election", level, text, _node(leader), tuple(these))


def _in_sync(before: Partitions, now: Partitions) -> Iterator[Event]:
    left: dict[NodeId, list[TopicPartition]] = {}
    joined: dict[NodeId, list[TopicPartition]] = {}
    for at in sorted(before.keys() & now.keys()):
        for node in before[at].isr - now[at].isr:
            left.setdefault(node, []).append(at)
        for node in now[at].isr - before[at].isr:
            joined.setdefault(node, []).append(at)
    for fates, level, word in (
        (left, Level.WARNING, "out of sync"),
        (joined, Level.OK, "in sync"),
    ):
        for node, these in sorted(fates.items()):
            text = f"node {node} is {word} in {_named(these)}"
            yield Event("isr", level, text, int(node), tuple(these))


def _health(before: Survey, now: Survey) -> Iterator[Event]:
    """That something began and that it is over: counts in its sentence change all the time."""
    was, found = _failed(before), _failed(now)
    for key in (each for each in found if each not in was):
        yield Event("health", found[key].level, found[key].reason, found[key].node)
    for key in (each for each in was if each not in found):
        yield Event("health", Level.OK, f"over: {was[key].reason}", was[key].node)


def _failed(survey: Survey) -> dict[tuple[str, int | None], Check]:
    return {(each.name, each.node): each for each in survey.findings() if each.level}


def _named(these: list[TopicPartition]) -> str:
    if len(these) > _NAMED:
        return counted(len(these), "partition")
    return ", ".join(map(str, these))


def _name(node: NodeId) -> str:
    return "nobody" if node == NO_NODE else f"node {node}"


def _node(node: NodeId) -> int | None:
    return None if node == NO_NODE else int(node)
