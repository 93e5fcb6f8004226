"""What partitions and consumer groups are called between nodes, and in the records of nodes."""

from __future__ import annotations

from paceline.values import dataclass
from paceline.wire.message import Message


@dataclass(frozen=True, slots=True, order=True)
class PartitionName(Message):
    """A partition by the name of its topic. Clients say ``TopicPartition`` (``paceline/types.py``)
    for it."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, order=True)
class GroupName(Message):
    """A consumer group by what its ``GroupKey`` on a node is made of; ``subject`` as in
    ``wire/native/groups.py``."""

    family: str
    group: str
    subject: str = ""
