"""``produce``: lines of files or standard input become records.

Lines travel in columns, a list of keys and a list of values per chunk of input; a record object is
made only for JSON input and headers. Memory is bounded by the producer's buffer: reading waits
while it is full.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import trio

from paceline.client import Client, Producer, ProducerSettings
from paceline.client.single_error_nursery import open_scope
from paceline.counted import counted
from paceline.errors import AuthorizationFailed, MessageTooLarge, PacelineError
from paceline.types import Acks, Compression
from paceline.values import dataclass
from paceline_cluster.cli.acknowledged_file import AckedFile
from paceline_cluster.cli.complete import complete_topics
from paceline_cluster.cli.delivery_counts import Tally
from paceline_cluster.cli.failures import INTERRUPTED, Failure, failure_of, show
from paceline_cluster.cli.find_cluster import Address, ClusterRef, client_options, find
from paceline_cluster.cli.input_format import Parse, compile_input
from paceline_cluster.cli.input_lines import STDIN, Lines, read_lines, read_whole
from paceline_cluster.cli.input_records import Shape, parse_delimiter
from paceline_cluster.cli.output import Printer, output_option
from paceline_cluster.cli.record_text import BadLine, parse_header_option
from paceline_cluster.cli.session import client_of
from paceline_cluster.cli.signals import on_signals
from paceline_cluster.cli.start_positions import parse_time
from paceline_cluster.cli.topic_names import those_in_other_case
from paceline_cluster.cli.units import Seconds
from paceline_cluster.errors import BadInput, Exit
from paceline_cluster.refused import what_to_do

STUCK_S = 10.0
"""After so long without an acknowledgement who waits at a terminal is told."""
_LOOK_S = 0.5
NOTE_S = 5.0
"""How long a note about the topic's name may keep the first record waiting."""
ACKS = {"0": Acks.NONE, "1": Acks.LEADER, "all": Acks.ALL}


@dataclass(frozen=True, slots=True)
class Job:
    """One call of ``produce``."""

    cluster: ClusterRef
    topic: str
    paths: tuple[Path, ...]
    shape: Shape
    settings: ProducerSettings
    is_whole: bool = False


def _headers(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, bytes], ...]:
    try:
        return tuple(parse_header_option(text) for text in values)
    except BadLine as error:
        raise click.BadParameter(str(error)) from None


def _timestamp(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    try:
        return None if value is None else parse_time(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _input_format(text: str) -> Parse:
    try:
        return compile_input(text)
    except BadLine as error:
        raise click.UsageError(f"--format: {error}") from None


class _File(click.Path):
    """A file that is there; who meant a record is told where records are read from."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            if Path(value).exists():
                raise
            said = f"{error.message} Lines come from standard input where no FILE is named."
            raise click.BadParameter(said, ctx, param) from None


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument(
    "files",
    nargs=-1,
    type=_File(path_type=Path, exists=True, dir_okay=False, allow_dash=True),
    metavar="[FILE]...",
)
@client_options
@click.option(
    "--json",
    "is_json",
    is_flag=True,
    help="Lines are JSON as 'consume' prints them: value, and if wanted key, headers, timestamp, "
    "partition.",
)
@click.option("--key-delimiter", metavar="TEXT", help="Split each line into key and value.")
@click.option("--allow-keyless", is_flag=True, help="A line without it is a value without a key.")
@click.option("--key", metavar="TEXT", help="The same key for all lines.")
@click.option(
    "--header", "headers", multiple=True, metavar="NAME=VALUE", callback=_headers, help="Add one."
)
@click.option(
    "--format",
    "format_",
    metavar="TEXT",
    help="What a line is made of: %k key, %s value, %p partition, %T time in ms, %h headers, and "
    "what stands between them, such as '%T\\t%k\\t%s'; as 'consume --format' prints it.",
)
@click.option("--whole-files", is_flag=True, help="Each FILE is one value, whatever bytes it has.")
@click.option("--partition", type=click.IntRange(0), help="Write to this partition.")
@click.option(
    "--timestamp", metavar="TIME", callback=_timestamp, help="Of all records: ms, or ISO 8601."
)
@click.option("--keep-partitions", is_flag=True, help="With --json: to the partition of the line.")
@click.option("--tombstones", is_flag=True, help="An empty value is null.")
@click.option("--acks", type=click.Choice(list(ACKS)), default="all", show_default=True)
@click.option(
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Compression]),
    default="none",
    show_default=True,
)
@click.option("--no-create", is_flag=True, help="Fail when the topic does not exist.")
@click.option(
    "--timeout",
    type=Seconds(low_open=True),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up on a record after this time without acknowledgement.",
)
@click.option(
    "--acked-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write one JSON line per acknowledged record.",
)
@output_option
def produce(
    topic: str,
    files: tuple[Path, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    is_json: bool,
    key_delimiter: str | None,
    allow_keyless: bool,
    key: str | None,
    headers: tuple[tuple[str, bytes], ...],
    format_: str | None,
    whole_files: bool,
    partition: int | None,
    timestamp: int | None,
    keep_partitions: bool,
    tombstones: bool,
    acks: str,
    compression: str,
    no_create: bool,
    timeout: float,
    acked_file: Path | None,
    printer: Printer,
) -> int:
    """Write lines of FILEs (or standard input) to TOPIC, one record a line.

    Lines are values; --key-delimiter splits a key off, --json reads whole records, --whole-files
    takes files as they are. With --acks all
    (the default) every record is stored once and in order, whatever fails in the meantime.
    """
    if is_json and (
        key_delimiter is not None or key is not None or headers or timestamp is not None
    ):
        raise click.UsageError("--json takes keys, headers and times from the lines")
    forms = [is_json, key_delimiter is not None, format_ is not None, whole_files]
    if sum(forms) > 1:
        raise click.UsageError(
            "--json, --key-delimiter, --format and --whole-files exclude each other"
        )
    if allow_keyless and key_delimiter is None:
        raise click.UsageError("--allow-keyless needs --key-delimiter")
    if key_delimiter is not None and key is not None:
        raise click.UsageError("--key and --key-delimiter exclude each other")
    shape = Shape(
        is_json=is_json,
        key_delimiter=None if key_delimiter is None else parse_delimiter(key_delimiter),
        key=None if key is None else os.fsencode(key),
        headers=headers,
        partition=partition,
        empty_is_null=tombstones,
        keeps_partitions=keep_partitions,
        keyless=allow_keyless,
        timestamp_ms=timestamp,
        parsed=None if format_ is None else _input_format(format_),
    )
    settings = ProducerSettings(
        acks=ACKS[acks],
        compression=Compression[compression.upper()],
        delivery_timeout_s=timeout,
        auto_create=not no_create,
    )
    job = Job(find(directory, bootstrap), topic, files or (STDIN,), shape, settings, whole_files)
    with contextlib.ExitStack() as stack:
        file = None if acked_file is None else stack.enter_context(AckedFile(acked_file))
        size = _size_of(job.paths)
        if STDIN in job.paths and sys.stdin.isatty():
            printer.say("type records, one a line; Ctrl-D ends")  # a bar would run into them
            tally = Tally(file, lambda _done: None)
        else:
            bar = printer.progress(f"produce {topic}", size, in_bytes=size is not None)
            tally = Tally(file, stack.enter_context(bar), in_bytes=size is not None)
        trio.run(_produce, job, tally, printer)
    return _report(job, tally, printer)


def _size_of(paths: Sequence[Path]) -> int | None:
    """How many bytes there are to read; None where that is not known before the end."""
    if not all(path.is_file() for path in paths):
        return None
    return sum(path.stat().st_size for path in paths)


def _report(job: Job, tally: Tally, printer: Printer) -> int:
    if printer.is_data:
        printer.result({"topic": job.topic, "acked": tally.acked, "failed": tally.failed})
    elif not tally.is_stopped:
        printer.say(f"{_records(tally.acked)} acknowledged")
    failure = ending(job.topic, tally)
    return Exit.OK if failure is None else show(failure, printer.format)


def ending(topic: str, tally: Tally) -> Failure | None:
    """What a person has to know of lines that are not stored, or may not be; None where all are."""
    if tally.is_stopped:
        return _interrupted(topic, tally)
    if tally.error is None:
        return None
    failed = f"{_records(tally.failed)} {'was' if tally.failed == 1 else 'were'} not acknowledged"
    why = _why(topic, tally.error)
    message = (
        f"{topic}: {failed}, the first is that of line {tally.first_failed_line}: "
        f"{why.message.removeprefix(f'{topic}: ')} ({tally.outcome()})"
    )
    return replace(why, message=message)


def _interrupted(topic: str, tally: Tally) -> Failure:
    """A line that was refused is told all the same: to go on behind those stored leaves it out."""
    rest = [
        (tally.unknown, "sent and may be stored all the same"),
        (tally.given_up, "given up and not stored"),
    ]
    told = "".join(
        f"; {count} more {'was' if count == 1 else 'were'} {what}" for count, what in rest if count
    )
    stored = f"{_records(tally.acked)} {'is' if tally.acked == 1 else 'are'} stored"
    message = f"interrupted: {stored}{told}"
    if tally.refusal is None:
        return replace(INTERRUPTED, message=message)
    refused = f"{_records(tally.refused)} {'was' if tally.refused == 1 else 'were'} refused"
    why = _why(topic, tally.refusal)
    message += (
        f"; {topic}: {refused}, the first is that of line {tally.first_refused_line}: "
        f"{why.message.removeprefix(f'{topic}: ')} "
        f"({'it is' if tally.refused == 1 else 'they are'} not stored)"
    )
    return replace(why, message=message)


def _why(topic: str, error: PacelineError) -> Failure:
    """The right that is missing is that to write this topic, even where the refusal names none."""
    failure = failure_of(error)
    if isinstance(error, AuthorizationFailed):
        return replace(failure, hint=what_to_do(str(error), written=topic))
    return failure


def _records(count: int) -> str:
    return counted(count, "record")


async def _produce(job: Job, tally: Tally, printer: Printer) -> None:
    def stop() -> None:
        tally.stop()
        if tally.open:
            printer.say(f"waiting for {_records(tally.open)}; Ctrl-C again gives up")
        elif not tally.is_reading:
            nursery.cancel_scope.cancel()  # no node was reached yet

    async with open_scope() as nursery:
        nursery.start_soon(on_signals, stop, nursery.cancel_scope.cancel)
        if printer.is_watched:
            nursery.start_soon(tell_when_stuck, tally, printer.say)
        try:
            await _produce_all(job, tally, printer)
        except AuthorizationFailed as error:  # before a line was taken
            error.add_note(what_to_do(str(error), written=job.topic))
            raise


async def tell_when_stuck(tally: Tally, say: Callable[[str], None]) -> None:
    """Say once that nothing was acknowledged for a while: trying on is silent otherwise."""
    acked, since = 0, trio.current_time()
    while trio.current_time() - since < STUCK_S:
        await trio.sleep(_LOOK_S)
        if not tally.open or tally.acked != acked:
            acked, since = tally.acked, trio.current_time()
    say(
        f"nothing was acknowledged for {STUCK_S:g} s, {_records(tally.open)} "
        f"{'waits' if tally.open == 1 else 'wait'}; 'paceline health' says what is wrong"
    )


async def _note_another_case(client: Client, topic: str, printer: Printer) -> None:
    """A topic that is about to be made may be one that was misspelt."""
    others: list[str] = []
    # Where nodes do not answer or refuse, writing says so.
    with contextlib.suppress(PacelineError), trio.move_on_after(NOTE_S):
        others = await those_in_other_case(client, topic)
    if others:
        differs = f"{' and '.join(others)} {'differs' if len(others) == 1 else 'differ'}"
        printer.say(
            f"note: there is no topic {topic}, so the first record makes it; {differs} from it in "
            "case only"
        )


async def _produce_all(job: Job, tally: Tally, printer: Printer) -> None:
    bad_line: BadLine | None = None
    async with client_of(job.cluster) as client, client.producer(job.settings) as producer:
        if job.settings.auto_create:
            await _note_another_case(client, job.topic, printer)
        try:
            read = read_whole if job.is_whole else read_lines
            async with contextlib.aclosing(read(job.paths)) as chunks:
                while (chunk := await _next(chunks, tally)) is not None:
                    tally.read_bytes += sum(map(len, chunk.lines)) + len(chunk.lines)
                    await _send(producer, job, chunk, tally)
        except BadLine as error:
            bad_line = error
        # Without this the producer would raise the failure that the tally reports better.
        with contextlib.suppress(PacelineError):
            await producer.flush()
    if bad_line is not None:
        are = "is" if tally.acked == 1 else "are"
        raise BadInput(
            f"{bad_line} ({_records(tally.acked)} before it {are} stored)", hint=bad_line.hint
        )


async def _next(chunks: AsyncGenerator[Lines, None], tally: Tally) -> Lines | None:
    """The next lines; None at the end of the input, or once a record has failed or the person has
    had enough, even while a slow input has nothing to read."""
    with trio.CancelScope() as scope:
        tally.on_failure = scope.cancel
        if tally.error is None and not tally.is_stopped:
            return await anext(chunks, None)
    return None


async def _send(producer: Producer, job: Job, chunk: Lines, tally: Tally) -> None:
    shape = job.shape
    if shape.in_columns:
        good = shape.well_formed(chunk.lines)
        await _send_columns(producer, job, Lines(chunk.first, chunk.lines[:good]), tally)
        if good < len(chunk.lines):
            raise BadLine(f"line {chunk.first + good}: {shape.refusal()}")
        return
    for number, line in enumerate(chunk.lines, start=chunk.first):
        try:
            record = shape.record(line)
            delivery = await producer.submit(
                job.topic,
                record.value,
                key=record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
        except BadLine as error:
            raise BadLine(f"line {number}: {error}", hint=error.hint) from None
        except MessageTooLarge as error:
            raise _too_large(job.topic, number, error) from None
        tally.follow_one(delivery, number, record.key)


async def _send_columns(producer: Producer, job: Job, chunk: Lines, tally: Tally) -> None:
    """A chunk with a line that no record may be as large as is halved, until it is that line."""
    keys, values = job.shape.columns(chunk.lines)
    try:
        portions = await producer.submit_many(
            job.topic, values, keys=keys, partition=job.shape.partition
        )
    except MessageTooLarge as error:
        if len(chunk.lines) == 1:
            raise _too_large(job.topic, chunk.first, error) from None
        too_large = True
    else:
        too_large = False
        for portion in portions:
            tally.follow(portion, chunk.first, keys)
    if too_large:
        half = len(chunk.lines) // 2
        await _send_columns(producer, job, Lines(chunk.first, chunk.lines[:half]), tally)
        await _send_columns(producer, job, Lines(chunk.first + half, chunk.lines[half:]), tally)


def _too_large(topic: str, line: int, error: MessageTooLarge) -> BadLine:
    return BadLine(f"line {line}: {str(error).removeprefix(f'{topic}: ')}")
