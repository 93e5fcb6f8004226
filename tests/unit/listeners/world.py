"""What the tables of answers are asked about: a node with topics of every kind, some forbidden.

``orders`` holds two records; ``sc_st`` is a stream of segments; ``nowhere`` does not exist; nobody
may do anything to what is called ``secret``, of which a topic exists.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from paceline.types import Compression
from paceline.wire.batch import TRANSACTIONAL
from paceline.wire.segment import messages as segment
from paceline_node.security.principals import AllowAll, Operation, Principal, Resource, refuse
from tests.unit.listeners.lone import LoneNode, batch, lone_node

_GOOD = batch(b"v")
BATCHES = {
    "none": b"",
    "good": _GOOD,
    "two": _GOOD + batch(b"w"),
    "zstd": batch(b"v", compression=Compression.ZSTD),
    "bad crc": _GOOD[:-1] + b"\xff",
    # Of the year 2096: later than a topic allows.
    "late": batch(b"v", timestamp_ms=4_000_000_000_000),
    # More than may be written at once.
    "large": batch(bytes(4_500_000)) * 2,
    "transactional": batch(
        b"v", producer_id=77, producer_epoch=0, base_sequence=0, flags=TRANSACTIONAL
    ),
}
NEW_EPOCH = 7
"""Of a leader of whom nobody has heard: every partition's epoch is 0 here."""


class Secretive:
    """Allows all but ``secret``; with ``is_open`` that, too."""

    def __init__(self) -> None:
        self.is_open = True
        self._allow = AllowAll()

    def authorize(self, principal: Principal, operation: Operation, resource: Resource) -> None:
        self._allow.authorize(principal, operation, resource)
        if not self.is_open and resource.name.startswith("secret"):
            refuse(principal, operation, resource)


@asynccontextmanager
async def world(
    directory: Path, settings: Mapping[str, str] | None = None
) -> AsyncIterator[LoneNode]:
    """The node, on trio's clock, which should be one that jumps."""
    policy = Secretive()
    async with lone_node(directory, settings, policy=policy) as node:
        v1 = await node.v1()
        for topic in ("orders", "orders", "secret"):
            answer = await v1.say("PRODUCE", f"{topic} k:v acks=all")
            assert answer.startswith("OK"), answer
        made = await (await node.segment()).ask(segment.CreateSegment("sc/st/0"))
        assert isinstance(made, segment.SegmentCreated), made
        policy.is_open = False
        yield node


def check(answers: Sequence[object], table: Sequence[Sequence[object]]) -> None:
    """The last column of a table is what was answered, row by row."""
    wrong = [
        f"{row[:-1]}: answered {answer}, expected {row[-1]}"
        for answer, row in zip(answers, table, strict=True)
        if answer != row[-1]
    ]
    assert not wrong, "\n".join(wrong)
