"""The one printer of all commands.

Data go to stdout, talk to stderr. ``--output json`` and ``yaml`` print one document, or one for
each item of a stream (JSON: a line); ``--output table`` prints tables (``tables.py``), whole on a
terminal of any width (which honours NO_COLOR) and as plain aligned columns otherwise, so that a
pipe never sees control characters. Progress is drawn only when both streams are terminals, and not
from the background (a shell's ``&``), where it would write over what is typed meanwhile.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import click

from paceline_cluster.cli.tables import Table, draw, drawn, print_plain
from paceline_cluster.cli.terminal import escaped, sentences
from paceline_cluster.cli.yaml_text import to_yaml

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["OutputFormat", "Printer", "Screen", "Table", "Update", "output_option"]

Update = Callable[[int], None]
"""Tells a progress bar how much is done in total."""


class OutputFormat(enum.StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class Screen:
    """The whole of a terminal, which has its own lines back when it is left."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @property
    def line_count(self) -> int:
        """How many lines there are at the moment."""
        return self._console.height

    def show(self, tables: Sequence[Table]) -> None:
        """Show as much of the tables as fits, in the place of what was shown."""
        from rich.screen import Screen as RichScreen
        from rich.text import Text

        width, height = self._console.size
        lines = drawn(tables, width)[:height]
        self._console.print(
            RichScreen(Text("\n".join(lines), no_wrap=True, overflow="crop")), end=""
        )


class Printer:
    """Prints results in the format that was asked for."""

    def __init__(
        self,
        format_: OutputFormat,
        *,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
    ) -> None:
        self.format = format_
        self._stdout = stdout if stdout is not None else sys.stdout
        self._stderr = stderr if stderr is not None else sys.stderr
        self._above_bar: Callable[[str], None] | None = None

    @property
    def is_data(self) -> bool:
        """Whether a program reads the result, not a person."""
        return self.format is not OutputFormat.TABLE

    @property
    def is_watched(self) -> bool:
        """Whether somebody waits at a terminal for what is said."""
        return _is_waited_for_at(self._stderr)

    def result(self, data: Any, *tables: Table) -> None:
        """Print a command's result: ``data`` as a document, or the tables."""
        if self.format is OutputFormat.JSON:
            self.line(json.dumps(data, indent=2, ensure_ascii=False))
            return
        if self.format is OutputFormat.YAML:
            self.line(to_yaml(data).removesuffix("\n"))
            return
        for position, table in enumerate(tables):
            if position:
                print(file=self._stdout)
            self._table(table)

    def say(self, sentence: str) -> None:
        """Tell the person something that is not data."""
        if self._above_bar is not None:
            self._above_bar(sentences(sentence))
        else:
            print(sentences(sentence) if self._stderr.isatty() else sentence, file=self._stderr)

    def item(self, data: Any) -> None:
        """Print the next of many results: a JSON line, or a YAML document."""
        self.line(self.item_text(data))

    def item_text(self, data: Any) -> str:
        """What :meth:`item` prints, without the line end."""
        if self.format is OutputFormat.YAML:
            return "---\n" + to_yaml(data).removesuffix("\n")
        return json.dumps(data, ensure_ascii=False)

    def line(self, text: str) -> None:
        """Print a line of data that is no table."""
        print(escaped(text) if self._stdout.isatty() else text, file=self._stdout)

    def flush(self) -> None:
        """Have what was printed reach a reader now; a pipe's gets it when there is enough."""
        self._stdout.flush()

    def _table(self, table: Table) -> None:
        if self._stdout.isatty():
            draw(table, self._stdout)
        else:
            print_plain(table, self._stdout)

    @contextlib.contextmanager
    def screen(self) -> Iterator[Screen | None]:
        """A screen of its own for tables that replace one another; None where nobody looks at a
        terminal."""
        if self.is_data or not self._stdout.isatty():
            yield None
            return
        from rich.console import Console

        console = Console(file=self._stdout)
        with console.screen():
            yield Screen(console)

    @contextlib.contextmanager
    def progress(
        self, title: str, total: int | None, *, in_bytes: bool = False
    ) -> Iterator[Update]:
        """Show how far long work has come; silent where nobody waits at a terminal for it.

        ``total`` None means that the end is not known. ``in_bytes``, which needs a total, shows the
        percentage, the rate and the time that is left, too.
        """
        if not (self._stdout.isatty() and _is_waited_for_at(self._stderr)):
            yield lambda _done: None
            return
        from rich import progress
        from rich.console import Console

        columns: list[progress.ProgressColumn] = [
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=None if in_bytes else 40),
        ]
        if in_bytes:
            columns += [
                progress.TaskProgressColumn(),
                progress.DownloadColumn(),
                progress.TransferSpeedColumn(),
                progress.TimeRemainingColumn(),
            ]
        else:
            columns.append(progress.MofNCompleteColumn())
        console = Console(file=self._stderr)
        with progress.Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(title, total=total)
            self._above_bar = partial(console.print, markup=False, highlight=False, soft_wrap=True)
            try:
                yield lambda done: bar.update(task, completed=done)
            finally:
                self._above_bar = None


def _is_waited_for_at(stream: TextIO) -> bool:
    """Whether it is a terminal, and this process not one of its shell's background jobs."""
    if not stream.isatty():
        return False
    try:
        return os.tcgetpgrp(stream.fileno()) == os.getpgrp()
    except OSError:  # a terminal of others, without job control of ours; or no file at all
        return True


def output_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--output``; the command gets ``printer``."""

    def convert(_ctx: click.Context, _param: click.Parameter, value: str) -> Printer:
        return Printer(OutputFormat(value))

    return click.option(
        "--output",
        "printer",
        type=click.Choice([format_.value for format_ in OutputFormat]),
        default=OutputFormat.TABLE.value,
        show_default=True,
        callback=convert,
        help="How results are printed.",
    )(function)
