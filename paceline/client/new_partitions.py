"""Partitions that are newer than a group that reads from the end.

Such a group begins once. What its topics get later, it reads from its start: partitions that are
added, and topics that are made, or made anew. Three things tell what is newer:

* What this consumer saw when it first looked, before it became a member.
* What the group's leader, which is a member for longer, saw when it first looked, or when somebody
  first wanted to read the topic. It tells the others with their assignments (user data, which
  consumers of other kinds leave unread), and only of what is newer than the group.
* What the group has committed of other partitions of the topic. An offset at which a partition
  began, and from which nobody has committed on, is committed with a note (the metadata of an
  offset) of how many partitions the topic had then: those behind them are newer. Any other offset
  says that the group has been there for long, and has begun all that it was to begin at the end.

Without the notes the members that start a group could not tell a partition that is new from one
that another of them has not got round to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from uuid import UUID

from paceline.client.coordinator import Coordinator
from paceline.client.metadata import Metadata
from paceline.errors import ErrorCode
from paceline.types import OffsetSpec, TopicId, TopicPartition
from paceline.wire.native.api import NativeApi
from paceline.wire.native.groups import FetchOffsets, OffsetsFetched

_NOTE = "began with "
_DIGITS = 9
_AGES = "paceline-ages"

Age = tuple[TopicId | None, int]
"""A topic, and how many of its partitions are as old as the group; None: there was none of its
name."""


class NewPartitions:
    """Says where partitions begin of which the group has committed nothing."""

    def __init__(self, coordinator: Coordinator, metadata: Metadata, *, timeout_s: float) -> None:
        self._coordinator = coordinator
        self._metadata = metadata
        self._timeout_s = timeout_s
        self._seen: dict[str, Age] = {}
        self._old: dict[str, int] = {}

    async def look(self, topics: Iterable[str]) -> None:
        """Remember which partitions there are of topics never looked at before. Raises as
        :meth:`Metadata.refresh`."""
        names = sorted(topics)
        await self._metadata.refresh(names)
        view = self._metadata.view
        for name in names:
            found = view.topic(name)
            if found is None or found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._seen.setdefault(name, (None, 0))
            elif not found.error:
                seen = self._seen.setdefault(name, (found.topic_id, view.partition_count(name)))
                if seen[0] != found.topic_id:
                    self.forget(name)

    def forget(self, name: str) -> None:
        """The topic that was seen is gone, whatever nodes say that have not heard of it."""
        self._seen[name] = (None, 0)

    async def tell(self, topics: Iterable[str]) -> bytes | None:
        """What a leader says to all who read some of these topics, or have read them. Raises as
        :meth:`look`."""
        names = sorted(topics)
        await self.look(names)
        return ages_told({name: self._seen[name] for name in names if self._has_newer(name)})

    def _has_newer(self, name: str) -> bool:
        view, seen = self._metadata.view, self._seen.get(name)
        return seen is not None and seen[1] < max(1, view.partition_count(name))

    def hear(self, told: bytes | None) -> None:
        """What the leader said."""
        for name, (topic, count) in ages_heard(told).items():
            seen = self._seen.get(name)
            if seen is not None and seen[0] == topic:
                self._seen[name] = (topic, min(count, seen[1]))
            elif seen is not None:
                self.forget(name)

    async def specs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetSpec]:
        """LATEST for those that are as old as the group, EARLIEST for those that are newer. Raises
        what asking the group's coordinator raises, and as :meth:`look`."""
        wanted = list(partitions)
        topics = {at.topic for at in wanted}
        await self.look(topics)
        old = {name: self._seen[name][1] if name in self._seen else 0 for name in topics}
        fetched = await self._coordinator.call(
            NativeApi.FETCH_OFFSETS,
            FetchOffsets(self._coordinator.group, family=self._coordinator.family),
            OffsetsFetched,
            timeout_s=self._timeout_s,
        )
        for each in fetched.partitions:
            if each.topic in topics and each.offset >= 0:
                old[each.topic] = min(old[each.topic], count_noted(each.metadata))
        self._old |= old
        return {
            at: OffsetSpec.LATEST if at.partition < old[at.topic] else OffsetSpec.EARLIEST
            for at in wanted
        }

    def note(self, at: TopicPartition) -> str:
        """What is to be committed with the offset at which a partition begins."""
        return noted(self._old.get(at.topic, 0))


def ages_told(ages: Mapping[str, Age]) -> bytes | None:
    """User data of an assignment; None where there is nothing to tell."""
    if not ages:
        return None
    said = {name: [topic and str(topic), count] for name, (topic, count) in ages.items()}
    return json.dumps({_AGES: said}, separators=(",", ":")).encode()


def ages_heard(told: bytes | None) -> dict[str, Age]:
    """What :func:`ages_told` was given. Leaders of other kinds say nothing, or something else."""
    try:
        said = json.loads(told or b"{}")[_AGES]
        return {
            name: (topic and TopicId(UUID(topic)), max(0, int(count)))
            for name, (topic, count) in said.items()
        }
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def noted(count: int) -> str:
    """The note that ``count`` partitions of the topic are as old as the group."""
    return f"{_NOTE}{count}"


def count_noted(metadata: str) -> int:
    """How many partitions of a topic are as old as the group, by what was committed with the offset
    of one."""
    count = metadata.removeprefix(_NOTE)[:_DIGITS]
    found = int(count) if count.isascii() and count.isdecimal() else 0
    return found if metadata == noted(found) else 0
