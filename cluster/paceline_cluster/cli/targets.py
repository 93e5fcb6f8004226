"""Which node a command acts on: a number, ``controller``, or ``leader-of:TOPIC/PARTITION``."""

from __future__ import annotations

from paceline.types import NodeId, TopicPartition, is_valid_topic_name
from paceline.values import dataclass


@dataclass(frozen=True, slots=True)
class NodeNumber:
    """The node of that number."""

    id: NodeId


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """Whichever node is the active controller at the time."""


@dataclass(frozen=True, slots=True)
class LeaderOf:
    """Whichever node leads the partition at the time."""

    partition: TopicPartition


Target = NodeNumber | ControllerNode | LeaderOf


def parse_target(text: str) -> Target:
    """Read a target. Raises ValueError saying what it may look like."""
    if text == "controller":
        return ControllerNode()
    if text.startswith("leader-of:"):
        return LeaderOf(parse_partition(text.removeprefix("leader-of:")))
    if text.isascii() and text.isdigit():
        return NodeNumber(NodeId(int(text)))
    raise ValueError(f"{text!r} is no node: give a number, 'controller' or 'leader-of:TOPIC/0'")


def parse_partition(text: str) -> TopicPartition:
    """``orders/2``. Raises ValueError."""
    topic, slash, number = text.rpartition("/")
    if not slash or not is_valid_topic_name(topic) or not (number.isascii() and number.isdigit()):
        raise ValueError(f"{text!r} is no TOPIC/PARTITION, for example orders/2")
    return TopicPartition(topic, int(number))
