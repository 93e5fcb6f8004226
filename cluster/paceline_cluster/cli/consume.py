"""``consume``: prints the records of a topic, batch by batch.

Records are rendered and written one whole batch at a time; what is read ahead is bounded by the
consumer's prefetch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from paceline.client import Client, ConsumedBatch, ConsumedRecord, Consumer, OutOfRange, Position
from paceline.client.single_error_nursery import open_scope
from paceline.types import OffsetSpec, TopicPartition
from paceline.values import dataclass
from paceline_cluster.cli.complete import complete_topics
from paceline_cluster.cli.consume_group import PROTOCOLS, GroupReading, Show, read_group
from paceline_cluster.cli.consume_waiting import Waiting
from paceline_cluster.cli.filters import Filter, wanted
from paceline_cluster.cli.find_cluster import Address, client_options, find
from paceline_cluster.cli.input_records import parse_delimiter
from paceline_cluster.cli.output import OutputFormat, Printer, output_option
from paceline_cluster.cli.record_output import write_all
from paceline_cluster.cli.record_text import ENCODINGS, BadLine, Encode, compile_format, to_data
from paceline_cluster.cli.session import with_client
from paceline_cluster.cli.signals import on_signals
from paceline_cluster.cli.start_positions import FORMS, parse_place
from paceline_cluster.cli.topic_names import TopicNames, regex_option
from paceline_cluster.cli.units import Seconds
from paceline_cluster.errors import BadInput

Render = Callable[[ConsumedBatch, int | None], tuple[bytes, int]]
"""The text of a batch's first records (None: all of them), and how many these are."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One call of ``consume``."""

    topics: TopicNames
    partitions: tuple[int, ...]
    start: Position
    stop: Position | None
    count: int | None
    render: Render
    raw: bool = False


SESSION_TIMEOUT_S = 10.0
_GROUP_STARTS = {Position.EARLIEST: OutOfRange.EARLIEST, Position.LATEST: OutOfRange.LATEST}


def _place(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Position | None:
    if value is None:
        return None
    try:
        return parse_place(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument(
    "topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics
)
@client_options
@regex_option
@click.option(
    "--from", "start", default="start", show_default=True, callback=_place, help=f"{FORMS}."
)
@click.option(
    "--until", "stop", callback=_place, help="Stop before this place, which may be any of --from."
)
@click.option("--key", metavar="TEXT", help="Only records with this key.")
@click.option(
    "--grep",
    metavar="REGEX",
    help="Only records in whose value, as UTF-8 text, this is found: '\\xff' is a character, "
    "$'\\xff' in a shell the byte.",
)
@click.option(
    "--group",
    metavar="NAME",
    help="Share the partitions with the group's other members; --from then says where to begin "
    "(start or end) what the group has not read yet.",
)
@click.option(
    "--protocol",
    type=click.Choice(PROTOCOLS),
    show_default=PROTOCOLS[0],
    help="With --group: how it is shared. coordinator: as its coordinator tells each member.",
)
@click.option(
    "--session-timeout",
    type=Seconds(0.1, 1800),
    show_default=str(SESSION_TIMEOUT_S),
    metavar="SECONDS",
    help="With --group: how long the group waits for a member that has fallen silent.",
)
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Only this partition of one topic; may be given more than once.",
)
@click.option(
    "--exit-at-end",
    is_flag=True,
    help="Stop at what is committed now; waits for partitions that have no leader. With --group: "
    "what it has not read yet of what is there when it is dealt out; then commit, and leave.",
)
@click.option("--count", type=click.IntRange(0), metavar="N", help="Stop after N records.")
@click.option(
    "--format",
    "format_",
    metavar="TEXT",
    help="%t topic, %p partition, %o offset, %T time in ms, %D as a date, %k key, %s value, "
    "%h headers, \\n.",
)
@click.option(
    "--encoding",
    type=click.Choice(tuple(ENCODINGS)),
    default="none",
    show_default=True,
    help="How the bytes of keys and values are printed; JSON has its own way.",
)
@click.option("--key-delimiter", metavar="TEXT", help="Print the key and TEXT before the value.")
@click.option("--json", "is_json", is_flag=True, help="The same as --output json.")
@click.option("--raw", is_flag=True, help="Show control characters to a terminal unescaped.")
@output_option
def consume(
    topics: tuple[str, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    is_regex: bool,
    start: Position,
    stop: Position | None,
    key: str | None,
    grep: str | None,
    group: str | None,
    protocol: str | None,
    session_timeout: float | None,
    partitions: tuple[int, ...],
    exit_at_end: bool,
    count: int | None,
    format_: str | None,
    encoding: str,
    key_delimiter: str | None,
    is_json: bool,
    raw: bool,
    printer: Printer,
) -> None:
    """Print the records of TOPICs, one value a line. TOPIC may be a pattern such as 'orders-*', or
    with --regex a regular expression; topics that are made later are not read.

    To print the newest two of each partition and exit: --from -2 --exit-at-end.

    Without --exit-at-end, --until or --count it continues with new records until Ctrl-C, which is
    not a failure, with --group or without. JSON lines hold whole records, and 'produce --json'
    reads them.
    """
    if is_json:
        _require_no_other_form(printer)
        printer = Printer(OutputFormat.JSON)
    if sum([printer.is_data, format_ is not None, key_delimiter is not None]) > 1:
        raise click.UsageError(
            "--output json or yaml, --format and --key-delimiter exclude each other"
        )
    if group is None and (protocol is not None or session_timeout is not None):
        raise click.UsageError("--protocol and --session-timeout need --group")
    if exit_at_end and stop is not None:
        raise click.UsageError("--exit-at-end and --until exclude each other")
    meant = TopicNames(topics, is_regex)
    if partitions and not meant.is_one:
        raise click.UsageError("--partition is of one topic")
    reading = Reading(
        topics=meant,
        partitions=partitions,
        start=start,
        stop=Position.LATEST if exit_at_end else stop,
        count=count,
        render=_choose(printer, format_, key_delimiter, wanted(key, grep), ENCODINGS[encoding]),
        raw=raw,
    )
    if count == 0:
        return
    if group is None:
        with_client(find(directory, bootstrap), lambda client: _read(client, reading, printer))
        return
    if partitions or (stop, key, grep) != (None,) * 3 or start not in _GROUP_STARTS:
        raise click.UsageError(
            "--group excludes --partition, --until, --key, --grep and other --from than start and "
            "end"
        )
    shared = GroupReading(
        meant,
        group,
        out_of_range=_GROUP_STARTS[start],
        session_timeout_s=session_timeout or SESSION_TIMEOUT_S,
        protocol=protocol or PROTOCOLS[0],
        count=count,
        show=_shown_by(reading.render, raw=raw),
        to_end=exit_at_end,
    )
    with_client(find(directory, bootstrap), lambda client: read_group(client, shared, printer))


def _require_no_other_form(printer: Printer) -> None:
    """--json beside an --output that says something else."""
    asked = click.get_current_context().get_parameter_source("printer")
    if asked is not ParameterSource.DEFAULT and printer.format is not OutputFormat.JSON:
        raise click.UsageError(f"--json and --output {printer.format} exclude each other")


def _shown_by(render: Render, *, raw: bool) -> Show:
    output = sys.stdout.fileno()

    async def show(batch: ConsumedBatch, most: int | None) -> int:
        text, count = render(batch, most)
        await write_all(output, text, raw=raw)
        return count

    return show


async def _read(client: Client, reading: Reading, printer: Printer) -> None:
    topics = await reading.topics.expanded(client)
    sources: list[str | TopicPartition] = list(topics)
    if reading.partitions:
        sources = [TopicPartition(topics[0], number) for number in reading.partitions]
    if reading.start.offset is not None:
        for topic in topics:
            await _require_within(client, topic, reading.partitions, reading.start.offset)
    waiting = Waiting(client, topics, reading.partitions, printer.say)
    async with open_scope() as nursery:
        stop = nursery.cancel_scope.cancel
        nursery.start_soon(on_signals, stop, stop)
        if reading.stop is not None:
            nursery.start_soon(waiting.run)
        async with client.consumer(sources, start=reading.start, stop=reading.stop) as consumer:
            waiting.over()
            await _show(consumer, reading, waiting)


async def _show(consumer: Consumer, reading: Reading, waiting: Waiting) -> None:
    left = reading.count
    output = sys.stdout.fileno()
    while (batch := await consumer.next_batch()) is not None:
        waiting.records_came()
        text, count = reading.render(batch, left)
        await write_all(output, text, raw=reading.raw)
        if left is not None:
            left -= count
            if left == 0:
                return
    waiting.over()


async def _require_within(
    client: Client, topic: str, partitions: Sequence[int], offset: int
) -> None:
    """Raises BadInput where a partition ends before the offset: nothing would be read of it, which
    looks as if there were nothing."""
    there = [each.partition for each in (await client.admin.topic(topic)).partitions]
    numbers = set(there).intersection(partitions or there)
    ends = await client.admin.find_offsets(
        {TopicPartition(topic, number): OffsetSpec.LATEST for number in numbers}
    )
    beyond = [
        f"{at} ({found.offset})" for at, found in sorted(ends.items()) if found.offset < offset
    ]
    if beyond:
        raise BadInput(
            f"offset {offset} is beyond the end of {', '.join(beyond)}",
            hint="'--from end' waits for new records; --partition N reads one partition only",
        )


def _choose(
    printer: Printer,
    format_: str | None,
    key_delimiter: str | None,
    only: Filter | None,
    encode: Encode,
) -> Render:
    if printer.is_data:
        if encode is not bytes:
            raise click.UsageError("--encoding is for lines; JSON and YAML have base64 for bytes")
        return _each_consumed(lambda each: printer.item_text(to_data(each)).encode() + b"\n", only)
    if format_ is not None:
        try:
            return _each_consumed(compile_format(format_, encode), only)
        except BadLine as error:
            raise click.UsageError(str(error)) from None
    delimiter = None if key_delimiter is None else parse_delimiter(key_delimiter)
    if only is not None or encode is not bytes:
        return _each_consumed(lambda each: _line(each, delimiter, encode), only)
    return _value_lines if delimiter is None else _keyed_lines(delimiter)


def _value_lines(batch: ConsumedBatch, most: int | None) -> tuple[bytes, int]:
    values = [record.value or b"" for record in batch.records()[:most]]
    return _lines(values), len(values)


def _keyed_lines(delimiter: bytes) -> Render:
    def render(batch: ConsumedBatch, most: int | None) -> tuple[bytes, int]:
        lines = [
            (record.value or b"")
            if record.key is None
            else record.key + delimiter + (record.value or b"")
            for record in batch.records()[:most]
        ]
        return _lines(lines), len(lines)

    return render


def _lines(items: Iterable[bytes]) -> bytes:
    return b"".join([item + b"\n" for item in items])


def _line(record: ConsumedRecord, delimiter: bytes | None, encode: Encode) -> bytes:
    key = b"" if record.key is None or delimiter is None else encode(record.key) + delimiter
    return key + encode(record.value or b"") + b"\n"


def _each_consumed(form: Callable[[ConsumedRecord], bytes], only: Filter | None) -> Render:
    def render(batch: ConsumedBatch, most: int | None) -> tuple[bytes, int]:
        records = [each for each in batch.consumed() if only is None or only(each)][:most]
        return b"".join([form(record) for record in records]), len(records)

    return render
