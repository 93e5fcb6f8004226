"""``segment``: create, append, read, seal, truncate, info, delete."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID, uuid4

import click

from paceline.client import (
    BlockShape,
    Client,
    SegmentReader,
    Segments,
    SegmentWriter,
    SegmentWriterSettings,
)
from paceline.counted import counted
from paceline.documents.records import json_of
from paceline.errors import UnknownTopicOrPartition
from paceline.wire.segment.messages import HEADER_BYTES
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.input_lines import STDIN, Lines, read_lines
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.cli.record_output import write_all
from paceline_cluster.cli.record_text import BadLine
from paceline_cluster.cli.session import with_client
from paceline_cluster.errors import BadInput, NoSuchSegment

T = TypeVar("T")
Place = tuple[Path | None, tuple[Address, ...]]
Shape = Callable[[SegmentReader], Awaitable[bytes]]
"""The next part of what is printed."""


@click.group()
def segment() -> None:
    """Create, append to, read and end segments (names such as scope/stream/0)."""


def _with_segments(place: Place, work: Callable[[Segments], Awaitable[T]]) -> T:
    async def run(client: Client) -> T:
        try:
            async with client.segments() as segments:
                return await work(segments)
        except UnknownTopicOrPartition as error:
            error.add_note("'paceline segment create NAME' makes one")
            raise

    return with_client(find(*place), run)


def _missing(name: str) -> NoSuchSegment:
    return NoSuchSegment(
        f"there is no segment {name!r}", hint=f"'paceline segment create {name}' makes one"
    )


def _done(name: str, what: str, printer: Printer) -> None:
    if printer.is_data:
        printer.result({"name": name, what: True})
    else:
        printer.say(f"{name} {what}")


@segment.command()
@click.argument("name")
@client_options
@output_option
def create(
    name: str, directory: Path | None, bootstrap: tuple[Address, ...], printer: Printer
) -> None:
    """Create a segment."""
    _with_segments((directory, bootstrap), lambda segments: segments.create(name))
    _done(name, "created", printer)


@segment.command()
@click.argument("name")
@client_options
@output_option
def seal(
    name: str, directory: Path | None, bootstrap: tuple[Address, ...], printer: Printer
) -> None:
    """End a segment: it takes no more Events."""
    _with_segments((directory, bootstrap), lambda segments: segments.seal(name))
    _done(name, "sealed", printer)


@segment.command()
@click.argument("name")
@click.argument("position", type=click.IntRange(0))
@client_options
@output_option
def truncate(
    name: str,
    position: int,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> None:
    """Give up the bytes of a segment before POSITION."""
    _with_segments((directory, bootstrap), lambda segments: segments.truncate(name, position))
    _done(name, "truncated", printer)


@segment.command()
@click.argument("name")
@client_options
@output_option
def delete(
    name: str, directory: Path | None, bootstrap: tuple[Address, ...], printer: Printer
) -> None:
    """Delete a segment with its bytes."""
    _with_segments((directory, bootstrap), lambda segments: segments.delete(name))
    _done(name, "deleted", printer)


@segment.command()
@click.argument("name")
@client_options
@output_option
def info(
    name: str, directory: Path | None, bootstrap: tuple[Address, ...], printer: Printer
) -> None:
    """Show where a segment begins and ends, and whether it is sealed."""
    found = _with_segments((directory, bootstrap), lambda segments: segments.info(name))
    if found is None:
        raise _missing(name)
    data: dict[str, Any] = {
        "name": found.name,
        "start": found.start,
        "length": found.length,
        "sealed": found.is_sealed,
        "last_modified_ms": found.last_modified_ms,
    }
    printer.result(data, Table(tuple(data), [list(data.values())]))


# --- append --------------------------------------------------------------------------------------


@segment.command()
@click.argument("name")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@client_options
@click.option(
    "--writer",
    type=click.UUID,
    metavar="UUID",
    help="Continue as this writer: lines of the same input that it has already stored are skipped.",
)
@output_option
def append(
    name: str,
    files: tuple[Path, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    writer: UUID | None,
    printer: Printer,
) -> None:
    """Append lines of FILES, or of standard input, to a segment, one Event each.

    All go out as a stream in one unbounded block. A run that was cut off, repeated with the same
    --writer and the same input, stores each line once.
    """
    identity = writer or uuid4()
    feed = _Feed(files or (STDIN,))
    settings = SegmentWriterSettings(shape=BlockShape.STREAM)

    async def work(segments: Segments) -> int:
        async with segments.writer(name, writer=identity, settings=settings) as appender:
            await appender.ready()
            if writer is None:
                printer.say(f"writer {identity}")
            try:
                await feed.into(appender)
            except BadLine as error:
                raise BadInput(str(error)) from None
        return appender.level

    level = _with_segments((directory, bootstrap), work)
    if printer.is_data:
        data = {"name": name, "writer": str(identity), "appended": feed.appended, "level": level}
        printer.result(data)
    else:
        printer.say(
            f"{counted(feed.appended, 'Event')} appended, {level} bytes of this writer stored"
        )


class _Feed:
    """Lines into a writer, those that are stored already left out."""

    def __init__(self, paths: tuple[Path, ...]) -> None:
        self._paths = paths
        self._position = 0
        self.appended = 0

    async def into(self, writer: SegmentWriter) -> None:
        stored = await writer.ready()
        async with contextlib.aclosing(read_lines(self._paths)) as chunks:
            async for chunk in chunks:
                events = self._unstored(chunk, stored)
                self.appended += len(events)
                await writer.append_all(events)
        if self._position < stored:
            raise BadInput(
                f"the writer has stored {stored} bytes, the input makes {self._position}: it is "
                "not the input that the writer began with"
            )

    def _unstored(self, chunk: Lines, stored: int) -> list[bytes]:
        events = []
        for number, line in enumerate(chunk.lines, start=chunk.first):
            begin, self._position = self._position, self._position + HEADER_BYTES + len(line)
            if begin >= stored:
                events.append(line)
            elif self._position > stored:
                raise BadLine(
                    f"line {number} ends at byte {self._position} of the writer's stream, which "
                    f"has no Event that ends behind {stored}: not the input it began with"
                )
        return events


# --- read ----------------------------------------------------------------------------------------


@segment.command()
@click.argument("name")
@client_options
@click.option(
    "--from",
    "position",
    type=click.IntRange(0),
    metavar="POSITION",
    help="The byte to begin with; an Event must begin there. Default: the first one kept.",
)
@click.option("--follow", is_flag=True, help="Go on with new Events until the segment is sealed.")
@click.option("--raw", is_flag=True, help="The bytes as they are stored, headers included.")
@output_option
def read(
    name: str,
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    position: int | None,
    follow: bool,
    raw: bool,
    printer: Printer,
) -> None:
    """Print the Events of a segment, one per line, up to what is committed now.

    With --output json, one JSON line per Event: the position at which it begins, and its value.
    """
    if raw and printer.is_data:
        raise click.UsageError("--raw and --output json exclude each other")
    shape = _raw if raw else _items(printer) if printer.is_data else _lines

    async def work(segments: Segments) -> None:
        start = position
        if start is None:
            found = await segments.info(name)
            if found is None:
                raise _missing(name)
            start = found.start
        await _print(segments.reader(name, start), shape, follow=follow)

    _with_segments((directory, bootstrap), work)


async def _print(reader: SegmentReader, shape: Shape, *, follow: bool) -> None:
    output = sys.stdout.fileno()
    while not reader.at_end:
        await write_all(output, await shape(reader), raw=shape is _raw)
        if reader.at_tail and not follow:
            return


async def _raw(reader: SegmentReader) -> bytes:
    return await reader.read()


async def _lines(reader: SegmentReader) -> bytes:
    return b"".join([event + b"\n" for event in await reader.events()])


def _items(printer: Printer) -> Shape:
    async def items(reader: SegmentReader) -> bytes:
        lines = []
        position = reader.event_position
        for event in await reader.events():
            line = printer.item_text({"position": position, "value": json_of(event)})
            lines.append(line.encode() + b"\n")
            position += HEADER_BYTES + len(event)
        return b"".join(lines)

    return items
