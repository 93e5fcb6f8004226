"""Judges the segment protocol: invariants I1 to I9 of storage/DESIGN 8.3, as soon as they break.

The oracle tells what leaders commit and what replicas hold, the taps on clients' connections what
nodes say, the clients what they have put into their streams. Nothing is taken from anybody's word
but the last: levels and bytes are held against the batches themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from paceline.errors import CorruptMessage
from paceline.wire.segment import messages as m
from paceline_cluster.sim.committed import batches_of
from paceline_cluster.sim.segments.content import SegmentContent, misplaced
from paceline_node.replication.partition import Partition

SCOPE = "rivers"
"""All segments of the simulation lie in this scope. No name is used twice."""

WriterOf = tuple[str, UUID]


class SegmentJudge:
    """``fail`` is told of the invariant that broke, and how."""

    def __init__(self, fail: Callable[[str, str], None]) -> None:
        self._fail = fail
        self._contents: dict[str, SegmentContent] = {}
        self._offered: dict[WriterOf, bytearray] = {}
        self._told: dict[WriterOf, int] = {}
        self.read_bytes = 0

    @property
    def stored_bytes(self) -> int:
        """What is committed of all segments."""
        return sum(len(content.data) for content in self._contents.values())

    def content(self, name: str) -> SegmentContent:
        """What is committed of a segment."""
        return self._contents.setdefault(name, SegmentContent())

    # --- what clients put in ----------------------------------------------------------------------

    def offer(self, name: str, writer: UUID, run: bytes) -> None:
        """``run`` is next in a writer's stream."""
        self._offered.setdefault((name, writer), bytearray()).extend(run)

    def resume(self, name: str, writer: UUID, level: int) -> None:
        """The writer was told ``level`` at its set-up and goes on with other bytes there. What was
        under way on an earlier connection must not be stored any more."""
        offered = self._offered.setdefault((name, writer), bytearray())
        stored = self.content(name).level(writer.bytes)
        if stored > level:
            self._fail("I7", f"{name}: {writer} is told {level} at its set-up, {stored} are stored")
        if level > len(offered):
            self._fail("I5", f"{name}: {writer} has sent {len(offered)} bytes, is told {level}")
        del offered[level:]

    def flushed(self, name: str, writer: UUID) -> None:
        """The writer's client says that all of its stream is stored for good."""
        offered = len(self._offered.get((name, writer), b""))
        told = self._told.get((name, writer), 0)
        if told < offered:
            self._fail("I5", f"{name}: {writer} was flushed at {told} of {offered} bytes")

    # --- what nodes say ---------------------------------------------------------------------------

    def last_told(self, name: str, writer: UUID) -> int:
        """The highest level that any connection of the writer was told."""
        return self._told.get((name, writer), 0)

    def told(self, name: str, writer: UUID, level: int, floor: int) -> None:
        """A node says that ``level`` bytes are stored; whoever asked it knew of ``floor``."""
        content = self.content(name)
        if level < floor:
            self._fail("I6", f"{name}: the level of {writer} falls from {floor} to {level}")
        if level > content.level(writer.bytes):
            committed = content.level(writer.bytes)
            self._fail("I5", f"{name}: {writer} is told {level}, committed is {committed}")
        self._told[name, writer] = max(level, self._told.get((name, writer), 0))

    def read(self, reply: m.SegmentRead) -> None:
        """A node gives a reader bytes."""
        content = self.content(reply.segment)
        self.read_bytes += len(reply.data)
        end = reply.offset + len(reply.data)
        where = f"{reply.segment}: bytes {reply.offset}..{end}"
        if reply.data != content.data[reply.offset : end]:
            self._fail("I4", f"{where} are given, not as committed ({len(content.data)} bytes)")
        if reply.flags & m.ReadFlags.END and not (content.is_sealed and end == len(content.data)):
            self._fail("I8", f"{where} are called the last, there are {len(content.data)}")

    def described(self, reply: m.StreamSegmentInfo) -> None:
        """A node describes a segment."""
        content = self.content(reply.segment)
        if reply.exists and (
            reply.length > len(content.data)
            or reply.start_offset > content.start
            or (reply.is_sealed and not content.is_sealed)
        ):
            self._fail("I4", f"{reply}, committed are {content.start}..{len(content.data)} bytes")

    def sealed(self, name: str) -> None:
        """A node says that it has sealed a segment."""
        if not self.content(name).is_sealed:
            self._fail("I8", f"{name} is called sealed and is not")

    # --- what the oracle sees ---------------------------------------------------------------------

    def committed(self, partition: Partition, end: int) -> None:
        """A leader has committed everything below offset ``end``: I1, I2, I3, I7, I8."""
        name = _name_of(partition)
        if name is None:
            return
        content = self.content(name)
        try:
            for header, batch in batches_of(partition.log, content.end, end):
                for writer, level, payload in content.take(header, batch):
                    self._check_stream(name, UUID(bytes=writer), level, payload)
        except ValueError as error:
            self._fail("segment", f"{name}: {error}")

    def _check_stream(self, name: str, writer: UUID, level: int, payload: bytes) -> None:
        offered = self._offered.get((name, writer), b"")
        if payload != offered[level : level + len(payload)]:
            self._fail(
                "I7",
                f"{name}: {len(payload)} bytes are stored for {writer} from its byte {level} on "
                f"that are not its stream's ({len(offered)} bytes)",
            )

    def holds(self, node: int, partition: Partition, committed_end: int) -> None:
        """A replica that has to hold everything below ``committed_end``: I9, if it holds no
        more."""
        name = _name_of(partition)
        if name is None or partition.log_end_offset != committed_end:
            return
        content = self.content(name)
        if content.end != committed_end:
            self._fail("I9", f"{name}: {content.end} of {committed_end} offsets were ever readable")
            return
        try:
            problem = content.differs(partition.log.producers) or misplaced(content, partition.log)
        except CorruptMessage as error:
            problem = str(error)
        if problem is not None:
            self._fail("I9", f"n{node} {partition}: {problem}")


def _name_of(partition: Partition) -> str | None:
    scope, _, stream = partition.topic.partition("_")
    return f"{scope}/{stream}/{partition.partition}" if scope == SCOPE else None
