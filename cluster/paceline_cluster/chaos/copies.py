"""The judge of what :mod:`paceline_cluster.chaos.copier` leaves behind.

Of each record only a digest is kept, so that an hour's copies fit into memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

import trio

from paceline.client import Client, Position
from paceline.errors import PacelineError
from paceline.types import TopicPartition
from paceline.values import dataclass

_AGAIN_S = 0.3


@dataclass(frozen=True, slots=True)
class Copying:
    """Which topic of how many partitions is copied by which group, to where. The copies of a
    partition lie in one, in order."""

    topic: str
    partitions: int
    group: str
    copies: str
    copies_partitions: int

    def partition_of(self, source: int) -> int:
        """Where a partition's copies go."""
        return source % self.copies_partitions

    @property
    def sources(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in range(self.partitions)]


@dataclass(frozen=True, slots=True)
class Judgement:
    """``copied``: records that the group has read for good. ``problem``: the first difference
    between them and their copies, None when there is none."""

    copied: int
    problem: str | None


Row = tuple[int, bytes]
"""Offset of the record that was copied; digest of what its copy is or should be."""


def copy_of(partition: int, offset: int, value: bytes) -> bytes:
    """The value of a record's copy."""
    return b"%d %d %b" % (partition, offset, value)


async def judge_copies(
    client: Client,
    copying: Copying,
    *,
    decided_s: float,
    going_on: Callable[[], None] = lambda: None,
) -> Judgement:
    """Compare, once nobody copies any more. A transaction that was committed may take up to
    ``decided_s`` seconds until it shows everywhere. ``going_on`` is called for all that is read."""
    deadline = trio.current_time() + decided_s
    while True:
        try:
            judgement = await _compare(client, copying, going_on)
        except PacelineError as error:
            judgement = Judgement(0, f"it could not be read: {error}")
        if judgement.problem is None or trio.current_time() > deadline:
            return judgement
        await trio.sleep(_AGAIN_S)


async def _compare(client: Client, copying: Copying, going_on: Callable[[], None]) -> Judgement:
    copies: dict[int, list[Row]] = {at.partition: [] for at in copying.sources}

    def take_copy(_: int, value: bytes) -> None:
        source, offset, _value = value.split(b" ", 2)
        copies[int(source)].append((int(offset), _digest(value)))

    for number in range(copying.copies_partitions):
        await _read(client, TopicPartition(copying.copies, number), take_copy, going_on)
    offsets = await client.admin.groups.offsets(copying.group)
    copied = 0
    for at in copying.sources:
        end = offsets[at].offset if at in offsets else 0
        expected: list[Row] = []
        take = partial(_expect, expected, at.partition, end)
        await _read(client, at, take, going_on)
        copied += len(expected)
        problem = first_difference(at, end, copies[at.partition], expected)
        if problem is not None:
            return Judgement(copied, problem)
    return Judgement(copied, None)


def _expect(expected: list[Row], partition: int, end: int, offset: int, value: bytes) -> None:
    if offset < end:
        expected.append((offset, _digest(copy_of(partition, offset, value))))


async def _read(
    client: Client,
    at: TopicPartition,
    take: Callable[[int, bytes], None],
    going_on: Callable[[], None],
) -> None:
    """Give every record's offset and value to ``take``."""
    async with client.consumer([at], stop=Position.LATEST) as consumer:
        async for batch in consumer.batches():
            going_on()
            for record in batch.records():
                take(record.offset, record.value or b"")


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=8).digest()


def first_difference(
    at: TopicPartition, end: int, copies: list[Row], expected: list[Row]
) -> str | None:
    """Where the copies of a partition, read for good up to ``end``, are not what they should be."""
    if copies == expected:
        return None
    number = 0
    for copy, wanted in zip(copies, expected, strict=False):
        if copy != wanted:
            break
        number += 1
    return (
        f"{at} was read up to {end}: {len(expected)} records, {len(copies)} copies; number {number}"
        f" is the first to differ: {_told(copies[number:])}, expected {_told(expected[number:])}"
    )


def _told(rows: list[Row]) -> str:
    return f"the copy of offset {rows[0][0]}" if rows else "no more copies"
