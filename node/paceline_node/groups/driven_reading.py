"""Who of a group's consumers reads what: matched and dealt out in stretches.

A group of 1,000 consumers with a pattern each, of which each has 1,000 streams, may meet 10,000
topics. Such a group waits longer for its round; whoever else wants the event loop does not.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.assignors.stream_range import Dealer, Portion
from paceline.wire.consumer_protocol import Assignment
from paceline_node.groups.driven_state import WHITELIST, DrivenGroup, Numbers, Share
from paceline_node.sliced_work import Work

SHARES_MAX = 32767
"""Partitions of one consumer: its Start counts them with 16 bits."""
_PER_UNIT = 16
"""Consumers looked at, or partitions dealt out, in a unit."""
_PARTITIONS_AT_ONCE = 500


class Reading:
    """What the consumers of ``driven`` would read of ``topics`` now. ``seen``: topics that any
    of them reads; ``shares`` and, as it is stored, ``assignments``: of each consumer."""

    def __init__(self, driven: DrivenGroup, topics: Numbers) -> None:
        self.consumers = dict(driven.consumers)
        self.seen: dict[str, Sequence[int]] = {}
        self.shares: dict[str, list[Share]] = {name: [] for name in self.consumers}
        self.assignments: dict[str, bytes] = {}
        self._driven = driven
        self._topics = topics
        self._listed = driven.listed
        self._work = self._finding()

    @property
    def is_void(self) -> bool:
        """Whether the group wants it no more."""
        return self._driven.reading is not self

    def go_on(self, units: int) -> tuple[int, bool]:
        """Do about ``units`` more of the work; how many it was, and whether all is done."""
        spent = 0
        for more in self._work:
            spent += more
            if spent >= units:
                return spent, False
        return spent, True

    def _finding(self) -> Work[None]:
        dealer = Dealer()
        for topic in sorted(self._topics):
            numbers = self._topics[topic]
            streams = yield from self._readers(topic)
            if streams:
                self.seen[topic] = numbers
                yield len(streams) // _PER_UNIT
                for portion in dealer.deal(numbers, streams):
                    yield from self._give(topic, portion)
        for name, mine in self.shares.items():
            del mine[SHARES_MAX:]
            yield 1 + len(mine) // _PER_UNIT
            self.assignments[name] = assignment(mine)

    def _readers(self, topic: str) -> Work[dict[str, int]]:
        """How many streams of each consumer read ``topic``, of those that do."""
        readers = {}
        fits: dict[str, bool] = {}
        for at, (name, consumer) in enumerate(self.consumers.items()):
            if at % _PER_UNIT == 0:
                yield 1
            wants, pattern = consumer.wants, consumer.pattern
            if pattern is not None:
                if pattern.text not in fits:
                    yield 1
                    fits[pattern.text] = yield from pattern.matching(topic)
                is_wanted = fits[pattern.text] is (wants.pattern_kind == WHITELIST)
                count = wants.topics[0].count if is_wanted else 0
            elif wants.topics:
                count = consumer.counts.get(topic, 0)
            else:
                count = 1 if self._listed is None or topic in self._listed else 0
            if count and consumer.channel.may_read(topic):
                readers[name] = count
        return readers

    def _give(self, topic: str, portion: Portion) -> Work[None]:
        mine = self.shares[portion.consumer]
        for start in range(0, len(portion.partitions), _PARTITIONS_AT_ONCE):
            some = portion.partitions[start : start + _PARTITIONS_AT_ONCE]
            yield 1 + len(some) // _PER_UNIT
            mine += [Share((topic, number), portion.stream) for number in some]


def assignment(shares: Sequence[Share]) -> bytes:
    """A consumer's shares as they are stored."""
    numbers: dict[str, list[int]] = {}
    for (topic, number), _ in shares:
        numbers.setdefault(topic, []).append(number)
    return Assignment(numbers).to_bytes() if numbers else b""
