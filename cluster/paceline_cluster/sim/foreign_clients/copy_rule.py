"""Exactly once, for foreign clients that copy a topic: what is to hold between the offsets that
their group has committed, what they were told, and the copies. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from paceline_cluster.chaos.copies import Copying, Row, copy_of, first_difference


class Read(NamedTuple):
    """A record of the topic that is copied."""

    partition: int
    offset: int
    value: bytes

    @property
    def copy(self) -> bytes:
        """The value of its copy; without the padding, which not every protocol keeps."""
        return copy_of(self.partition, self.offset, self.value.rstrip())


class CopyRule:
    """Of one group. What a member was told is committed, stays so: whoever asks for stable offsets
    later is told that, or more. In the end each record below the group's offset was copied once, in
    order, and no other."""

    def __init__(self, copying: Copying) -> None:
        self.copying = copying
        self.transactions = 0
        """So many were told to be committed."""
        self._told: dict[int, int] = {}
        self._problem: str | None = None

    def committed(self, offsets: Mapping[int, int]) -> None:
        """A member was told that its transaction is committed."""
        self.transactions += 1
        for partition, offset in offsets.items():
            self._told[partition] = max(offset, self._told.get(partition, 0))

    def floor(self) -> Mapping[int, int]:
        """What a question that is asked now must at least be answered."""
        return dict(self._told)

    def found(self, floor: Mapping[int, int], offsets: Mapping[int, int]) -> None:
        """Stable offsets were asked for after ``floor``, and these were answered."""
        for partition, offset in offsets.items():
            least = floor.get(partition, 0)
            if offset < least and self._problem is None:
                self._problem = (
                    f"group {self.copying.group} is at {offset} of partition {partition}, after "
                    f"a transaction that moved it to {least} was said to be committed"
                )

    def judge(
        self, offsets: Mapping[int, int], records: Iterable[Read], copies: Iterable[bytes]
    ) -> str | None:
        """What is wrong, when all that is in the topic and its copies was read; None for nothing.
        ``offsets``: where the group stands in the end."""
        self.found(self._told, offsets)
        if self._problem is not None:
            return self._problem
        expected: dict[int, list[Row]] = {at.partition: [] for at in self.copying.sources}
        for read in records:
            if read.offset < offsets.get(read.partition, 0):
                expected[read.partition].append((read.offset, read.copy))
        found: dict[int, list[Row]] = {partition: [] for partition in expected}
        for copy in copies:
            partition, offset, _ = copy.split(b" ", 2)
            found[int(partition)].append((int(offset), copy))
        for at in self.copying.sources:
            number = at.partition
            end = offsets.get(number, 0)
            problem = first_difference(at, end, found[number], expected[number])
            if problem is not None:
                return f"{self.copying.group}: {problem}"
        return None
