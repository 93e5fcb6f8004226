"""``log``: looks into data directories without any node, reading only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import trio

from paceline.counted import counted
from paceline.documents.records import json_of
from paceline.types import Compression, is_internal_topic
from paceline.wire.batch_header import COMPRESSION_MASK
from paceline.wire.records import decode_records
from paceline_cluster import state
from paceline_cluster.cli.find_cluster import Address, cluster_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.errors import BadInput, Exit
from paceline_cluster.verification import verify_directories
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.layout import META, TOPICS
from paceline_node.storage.log_segment import LOG_SUFFIX, parse_name
from paceline_node.storage.verify import DumpedBatch, dump_segment

_LOG_COLUMNS = ("path", "topic", "partition", "log_start_offset", "log_end_offset", "records")
_FINDING_COLUMNS = ("severity", "problem", "path", "offset", "message")
_COLUMNS = ("position", "base_offset", "last_offset", "records", "leader_epoch", "size", "crc")
_CODECS = {int(codec): codec.name.lower() for codec in Compression}
_WIDTHS = (12, 14, 14, 8, 12, 10, 8)


@click.group()
def log() -> None:
    """Dump and verify segment files, offline.

    PATH is a node's data directory or one partition's directory in it.
    """


# --- verify --------------------------------------------------------------------------------------


@log.command()
@click.argument(
    "paths",
    nargs=-1,
    metavar="[PATH]...",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
)
@cluster_options
@output_option
def verify(
    paths: tuple[Path, ...],
    directory: Path | None,
    bootstrap: tuple[Address, ...],
    printer: Printer,
) -> int:
    """Check checksums, offsets, epochs and indexes; compare replicas of the same partition.

    Without PATH: all nodes of the cluster on this machine. Exit code 65 when records are affected;
    what a node's next start repairs by itself is only noted.
    """
    if not paths:
        found = find(directory, bootstrap).require_dir("log verify")
        paths = tuple(entry.dir for entry in state.load(found).nodes)
    with printer.progress("verify", None) as update:
        verdict = trio.run(verify_directories, [path.resolve() for path in paths], update)
    data = verdict.to_json()
    tables = [_table(_LOG_COLUMNS, data["logs"])]
    if data["findings"]:
        tables.append(_table(_FINDING_COLUMNS, data["findings"]))
    printer.result(data, *tables)
    printer.say(
        f"{counted(len(verdict.logs), 'log')}, {'sound' if verdict.is_sound else 'NOT sound'}"
    )
    return Exit.OK if verdict.is_sound else Exit.DATA


def _table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Table:
    return Table(columns, [[row[column] for column in columns] for row in rows])


# --- dump ----------------------------------------------------------------------------------------


@log.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--records", is_flag=True, help="The records of each batch too.")
@output_option
def dump(path: Path, records: bool, printer: Printer) -> int:
    """Print the batches of a segment file, or of a partition's directory in a node's topics/.

    With --output json, one JSON line per batch. Exit code 65 when a checksum does not match or
    bytes are not a batch.
    """
    segments = segments_in(path) if path.is_dir() else [path]
    output = Dump(printer, records)
    for segment in segments:
        output.begin(segment)
        stopped = trio.run(_dump, segment.resolve(), output)
        if stopped is not None and not output.has_read and parse_name(segment.name) is None:
            raise BadInput(f"{segment} is no segment file: {stopped}")
        if stopped is not None:
            output.sound = False
            printer.say(f"{segment}: {stopped}")
    return Exit.OK if output.sound else Exit.DATA


def segments_in(path: Path) -> list[Path]:
    """The segment files of a partition's directory, oldest first. Raises BadInput, which says where
    such a directory is when this is one above."""
    found = sorted(each for each in path.iterdir() if parse_name(each.name) is not None)
    if found:
        return found
    is_cluster = state.exists(path)
    nodes = [entry.dir for entry in state.load(path).nodes] if is_cluster else [path]
    if not is_cluster and not (path / META).is_file():
        raise BadInput(f"{path} holds no segment files (20 digits and {LOG_SUFFIX})")
    partitions = sorted(
        (each for node in nodes for each in node.glob(f"{TOPICS}/*")),
        key=lambda each: (is_internal_topic(each.name), each),
    )
    what = "cluster's directory" if is_cluster else "node's data directory"
    where = f"such as {partitions[0]}" if partitions else "of which there is none yet"
    raise BadInput(f"{path} is a {what}; name the directory of a partition, {where}")


async def _dump(segment: Path, output: Dump) -> str | None:
    disk = RealDisk(str(segment.parent))
    try:
        return await dump_segment(disk, segment.name, output.batch)
    finally:
        disk.close()


class Dump:
    """Prints batches as they are read, so that memory does not grow with the log."""

    def __init__(self, printer: Printer, records: bool) -> None:
        self.sound = True
        self.has_read = False
        self._printer = printer
        self._records = records
        self._segment = Path()

    def begin(self, segment: Path) -> None:
        """A new segment file."""
        self._segment = segment
        if not self._printer.is_data:
            click.echo(segment)
            click.echo(_row(_COLUMNS))

    def batch(self, batch: DumpedBatch) -> None:
        """One batch; called for each in order."""
        self.has_read = True
        self.sound &= batch.checksum_holds
        header = batch.header
        if self._printer.is_data:
            self._printer.item(self._data(batch))
            return
        crc = "ok" if batch.checksum_holds else "BAD"
        cells = (batch.position, header.base_offset, header.last_offset, header.record_count)
        click.echo(_row((*cells, header.leader_epoch, header.size_bytes, crc)))
        for record in self._decoded(batch):
            self._printer.line(f"    {json.dumps(record, ensure_ascii=False)}")

    def _data(self, batch: DumpedBatch) -> dict[str, Any]:
        header = batch.header
        data = {
            "segment": str(self._segment),
            "position": batch.position,
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "records": header.record_count,
            "leader_epoch": header.leader_epoch,
            "size_bytes": header.size_bytes,
            "max_timestamp": header.max_timestamp,
            "compression": _CODECS.get(header.attributes & COMPRESSION_MASK, "unknown"),
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "base_sequence": header.base_sequence,
            "crc_ok": batch.checksum_holds,
        }
        if self._records:
            data["content"] = self._decoded(batch)
        return data

    def _decoded(self, batch: DumpedBatch) -> list[dict[str, Any]]:
        if not self._records or not batch.checksum_holds:
            return []
        return [
            {
                "offset": record.offset,
                "timestamp": record.timestamp_ms,
                "key": json_of(record.key),
                "value": json_of(record.value),
            }
            for record in decode_records(batch.data)
        ]


def _row(cells: Sequence[object]) -> str:
    return "  ".join(str(cell).rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
