"""``logs``: the log files of the nodes on this machine, one after the other or as they grow."""

from __future__ import annotations

import sys
from collections import deque
from pathlib import Path

import click
import trio

from paceline_cluster import state
from paceline_cluster.cli.complete import complete_nodes
from paceline_cluster.cli.find_cluster import Address, cluster_options, find
from paceline_cluster.cli.output import Printer, output_option
from paceline_cluster.log_lines import parsed
from paceline_cluster.state import NodeEntry

POLL_S = 0.2
CHUNK_BYTES = 256 * 1024


class LogTail:
    """Reads a growing file line by line; starts over when the file was replaced or cut."""

    def __init__(self, path: Path, *, last_lines: int | None) -> None:
        self._path = path
        self._position = 0
        self._rest = b""
        if last_lines is not None:
            self._position = _position_of_last(path, last_lines)

    def new_lines(self) -> list[str]:
        """Whole lines that were added since the last call."""
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return []
        if size < self._position:
            self._position, self._rest = 0, b""
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = self._rest + file.read(CHUNK_BYTES)
            self._position = file.tell()
        *lines, self._rest = data.split(b"\n")
        return [line.decode("utf-8", errors="replace") for line in lines]


def _position_of_last(path: Path, count: int) -> int:
    """Where the last ``count`` lines of a file begin."""
    starts: deque[int] = deque([0], maxlen=count + 1)
    try:
        with path.open("rb") as file:
            for line in file:
                starts.append(starts[-1] + len(line))
    except FileNotFoundError:
        return 0
    return starts[0]


@click.command()
@cluster_options
@click.argument("nodes", type=int, nargs=-1, metavar="[NODE]...", shell_complete=complete_nodes)
@click.option("-f", "--follow", is_flag=True, help="Follow the logs as they grow, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0), help="Only the last lines of each node.")
@output_option
def logs(
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    nodes: tuple[int, ...],
    follow: bool,
    lines: int | None,
    printer: Printer,
) -> None:
    """Show what the nodes logged (all of them, or the named ones). Each entry stays on one line, on
    a terminal of any width, so that it can be searched and copied."""
    current = state.load(find(directory, bootstrap).require_dir("logs"))
    entries = [current.node(number) for number in nodes] or list(current.nodes)
    tails = [(entry, LogTail(entry.log_path, last_lines=lines)) for entry in entries]
    for entry, tail in tails:
        while batch := tail.new_lines():
            _print(entry, batch, printer)
    if follow:
        trio.run(_follow, tails, printer)


async def _follow(tails: list[tuple[NodeEntry, LogTail]], printer: Printer) -> None:
    while True:
        for entry, tail in tails:
            while batch := tail.new_lines():
                _print(entry, batch, printer)
        sys.stdout.flush()
        await trio.sleep(POLL_S)


def _print(entry: NodeEntry, lines: list[str], printer: Printer) -> None:
    for line in lines:
        if printer.is_data:
            printer.item({"node": entry.id, **parsed(line)})
        else:
            printer.line(f"node-{entry.id} | {line}")
