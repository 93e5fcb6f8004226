"""What segment clients are answered in both dialects, and of which of several faults."""

from __future__ import annotations

from uuid import UUID

from paceline.wire.segment import messages as seed
from paceline.wire.segment import pravega_messages as pravega
from paceline.wire.segment.client import closed_block
from paceline.wire.segment.events import frame_events
from tests.unit.listeners.world import check, world

WRITER, OTHER = UUID(int=1), UUID(int=2)

SEED = (
    (seed.SetupAppend(WRITER, "sc/st/0"), "AppendSetup"),
    (closed_block(WRITER, 0, [b"one"]), "DataAppended"),
    (seed.SetupAppend(OTHER, "secret/st/9"), "ErrorMessage -1"),
    (seed.SetupAppend(OTHER, "sc/st/9"), "NoSuchSegment"),
    (seed.SetupAppend(OTHER, "orders"), "NoSuchSegment"),
    (seed.ReadSegment("sc/st/0", 0, 100), "SegmentRead"),
    (seed.ReadSegment("sc/st/0", 999, 1), "ErrorMessage 2"),
    (seed.ReadSegment("secret/st/9", 999, 1), "ErrorMessage -1"),
    (seed.ReadSegment("sc/st/9", 999, 1), "NoSuchSegment"),
    (seed.GetStreamSegmentInfo("secret/st/9"), "ErrorMessage -1"),
    (seed.GetStreamSegmentInfo("sc/st/9"), "StreamSegmentInfo"),
    (seed.TruncateSegment("secret/st/9", 999), "ErrorMessage -1"),
    (seed.TruncateSegment("sc/st/9", 999), "NoSuchSegment"),
    (seed.TruncateSegment("sc/st/0", 999), "ErrorMessage 2"),
    (seed.SealSegment("secret/st/9"), "ErrorMessage -1"),
    (seed.SealSegment("sc/st/9"), "NoSuchSegment"),
    (seed.SealSegment("sc/st/0"), "SegmentSealed"),
    (closed_block(WRITER, 11, [b"two"]), "SegmentIsSealed"),
    (seed.DeleteSegment("secret/st/9"), "ErrorMessage -1"),
    (seed.DeleteSegment("sc/st/9"), "NoSuchSegment"),
    (seed.DeleteSegment("sc/st/0"), "SegmentDeleted"),
)


def block(writer: UUID, last: int, *events: bytes) -> pravega.AppendBlockEnd:
    run = frame_events(events)
    return pravega.AppendBlockEnd(writer, len(run), run, len(events), last, 100 + last)


PRAVEGA = (
    (pravega.SetupAppend(1, WRITER, "sc/st/0", ""), "AppendSetup"),
    (block(WRITER, 0, b"one"), "DataAppended"),
    (pravega.ConditionalBlockEnd(WRITER, 1, 7, b"bytes", 2), "ConditionalCheckFailed"),
    (pravega.SetupAppend(2, OTHER, "secret/st/9", ""), "ErrorMessage -1"),
    (pravega.SetupAppend(3, OTHER, "sc/st/9", ""), "NoSuchSegment"),
    (pravega.ReadSegment("sc/st/0", 0, 100, "", 4), "SegmentRead"),
    (pravega.ReadSegment("secret/st/9", 999, 1, "", 4), "ErrorMessage -1"),
    (pravega.ReadSegment("sc/st/9", 999, 1, "", 5), "NoSuchSegment"),
    (pravega.GetStreamSegmentInfo(6, "secret/st/9", ""), "ErrorMessage -1"),
    (pravega.TruncateSegment(7, "secret/st/9", 999, ""), "ErrorMessage -1"),
    (pravega.TruncateSegment(8, "sc/st/0", 999, ""), "ErrorMessage 2"),
    (pravega.MergeSegments(9, "secret/st/9", "none", ""), "ErrorMessage -1"),
    (pravega.MergeSegments(9, "sc/st/0", "sc/st/9", ""), "NoSuchSegment"),
    (pravega.SealSegment(10, "secret/st/9", ""), "ErrorMessage -1"),
    (pravega.SealSegment(11, "sc/st/0", ""), "SegmentSealed"),
    (block(WRITER, 1, b"two"), "SegmentIsSealed"),
    (pravega.DeleteSegment(12, "sc/st/0", ""), "SegmentDeleted"),
)


def told(reply: object) -> str:
    """A reply in short: its name, and the number of its error if it has one."""
    code = getattr(reply, "error_code", None)
    return type(reply).__name__ + ("" if code is None else f" {code}")


async def test_the_seeds_dialect(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.segment()
        answers = [told(await client.ask(request)) for request, _ in SEED]
    check(answers, SEED)


async def test_the_pravega_dialect(tmp_path, autojump_clock) -> None:
    async with world(tmp_path) as node:
        client = await node.pravega()
        answers = [told(await client.ask(request)) for request, _ in PRAVEGA]
    check(answers, PRAVEGA)
