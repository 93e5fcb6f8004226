"""``log``: looks into data directories without any node, reading only."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import trio

from paceline.types import Compression
from paceline.wire.batch_header import COMPRESSION_MASK
from paceline.wire.records import decode_records
from paceline_cluster import state
from paceline_cluster.cli.envelope import to_json_value
from paceline_cluster.cli.find import Address, cluster_options, find
from paceline_cluster.cli.output import Printer, Table, output_option
from paceline_cluster.errors import Exit, NoSuchCluster
from paceline_node.storage import layout
from paceline_node.storage.compare import compare_replicas
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.layout import Offsets
from paceline_node.storage.partition_file import NAME as PARTITION_FILE
from paceline_node.storage.verify import (
    DumpedBatch,
    Finding,
    LogReport,
    dump_segment,
    verify_log,
)

SEGMENT_SUFFIX = ".log"
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


@dataclass(frozen=True, slots=True)
class Place:
    """A log on this machine: the disk it lies on and its path there."""

    disk: RealDisk
    path: str

    @property
    def name(self) -> str:
        return str(Path(self.disk.root) / self.path)


@dataclass(slots=True)
class Verdict:
    """What verifying found; paths are absolute."""

    logs: list[tuple[Place, LogReport]] = field(default_factory=list)
    findings: list[tuple[str, Finding]] = field(default_factory=list)

    @property
    def is_sound(self) -> bool:
        return not any(finding.problem.is_error for _, finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {
            "ok": self.is_sound,
            "logs": [
                {
                    "path": place.name,
                    "topic": None if report.identity is None else report.identity.topic,
                    "partition": None if report.identity is None else report.identity.partition,
                    "log_start_offset": report.log_start_offset,
                    "log_end_offset": report.log_end_offset,
                    "batches": report.batch_count,
                    "records": report.record_count,
                    "size_bytes": report.size_bytes,
                }
                for place, report in self.logs
            ],
            "findings": [
                {
                    "problem": finding.problem.value,
                    "severity": "error" if finding.problem.is_error else "note",
                    "path": path,
                    "offset": finding.offset,
                    "message": finding.message,
                }
                for path, finding in self.findings
            ],
        }


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
    what the next start of a node repairs by itself is only noted.
    """
    if not paths:
        found = find(directory, bootstrap).require_dir("log verify")
        paths = tuple(entry.dir for entry in state.load(found).nodes)
    verdict = trio.run(_verify, [path.resolve() for path in paths], printer)
    data = verdict.to_json()
    tables = [_table(_LOG_COLUMNS, data["logs"])]
    if data["findings"]:
        tables.append(_table(_FINDING_COLUMNS, data["findings"]))
    printer.result(data, *tables)
    printer.say(f"{len(verdict.logs)} logs, {'sound' if verdict.is_sound else 'NOT sound'}")
    return Exit.OK if verdict.is_sound else Exit.DATA


def _table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Table:
    return Table(columns, [[row[column] for column in columns] for row in rows])


async def _verify(paths: Sequence[Path], printer: Printer) -> Verdict:
    disks: list[RealDisk] = []
    verdict = Verdict()
    try:
        places = []
        for path in paths:
            places += await _places(path, disks)
        with printer.progress("verify", len(places)) as update:
            for done, place in enumerate(places, start=1):
                report = await verify_log(
                    place.disk, place.path, recovery_point=await _recovery_point(place)
                )
                verdict.logs.append((place, report))
                root = Path(place.disk.root)
                verdict.findings += [(str(root / each.path), each) for each in report.findings]
                update(done)
        await _compare(verdict)
    finally:
        for disk in disks:
            disk.close()
    return verdict


async def _places(path: Path, disks: list[RealDisk]) -> list[Place]:
    """The logs at a path. Raises NoSuchCluster when it is neither kind of directory."""
    if (path / layout.META).is_file():
        disk = RealDisk(str(path))
        disks.append(disk)
        return [Place(disk, found.path) for found in await layout.list_partitions(disk)]
    if not _is_partition(path):
        raise NoSuchCluster(f"{path} is neither a data directory nor a partition's directory")
    root = path.parent.parent if path.parent.name == layout.TOPICS else path.parent
    disk = RealDisk(str(root))
    disks.append(disk)
    return [Place(disk, path.relative_to(root).as_posix())]


def _is_partition(path: Path) -> bool:
    return (path / PARTITION_FILE).is_file() or any(path.glob(f"*{SEGMENT_SUFFIX}"))


async def _recovery_point(place: Place) -> int:
    """Up to where the directory promises that the log is whole."""
    return await _offset(place, Offsets.RECOVERY)


async def _offset(place: Place, which: Offsets) -> int:
    for found in await layout.list_partitions(place.disk):
        if found.path == place.path and found.identity is not None:
            offsets = await layout.read_offsets(place.disk, which)
            return offsets.get((found.identity.topic_id, found.identity.partition), 0)
    return 0


async def _compare(verdict: Verdict) -> None:
    """Compare logs of the same partition, up to what any of them knows to be committed."""
    groups: dict[Any, list[Place]] = defaultdict(list)
    for place, report in verdict.logs:
        if report.identity is not None:
            groups[report.identity].append(place)
    for places in groups.values():
        if len(places) < 2:
            continue
        committed = max([await _offset(place, Offsets.HIGH_WATERMARK) for place in places])
        findings = await compare_replicas(
            {place.name: (place.disk, place.path) for place in places}, high_watermark=committed
        )
        verdict.findings += [(each.path, each) for each in findings]


# --- dump ----------------------------------------------------------------------------------------


@log.command()
@click.argument("path", type=click.Path(path_type=Path, exists=True))
@click.option("--records", is_flag=True, help="The records of each batch too.")
@output_option
def dump(path: Path, records: bool, printer: Printer) -> int:
    """Print the batches of a segment file, or of a partition's directory.

    With --output json one JSON line a batch. Exit code 65 when a checksum does not hold or bytes
    are no batch.
    """
    segments = sorted(path.glob(f"*{SEGMENT_SUFFIX}")) if path.is_dir() else [path]
    if not segments:
        raise NoSuchCluster(f"{path} holds no segment files (*{SEGMENT_SUFFIX})")
    output = Dump(printer, records)
    for segment in segments:
        output.begin(segment)
        stopped = trio.run(_dump, segment.resolve(), output)
        if stopped is not None:
            output.sound = False
            printer.say(f"{segment}: {stopped}")
    return Exit.OK if output.sound else Exit.DATA


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
        self._printer = printer
        self._records = records
        self._segment = Path()

    def begin(self, segment: Path) -> None:
        """A new segment file."""
        self._segment = segment
        if not self._printer.is_json:
            click.echo(segment)
            click.echo(_row(_COLUMNS))

    def batch(self, batch: DumpedBatch) -> None:
        """One batch; called for each in order."""
        self.sound &= batch.checksum_holds
        header = batch.header
        if self._printer.is_json:
            click.echo(json.dumps(self._data(batch), ensure_ascii=False))
            return
        crc = "ok" if batch.checksum_holds else "BAD"
        cells = (batch.position, header.base_offset, header.last_offset, header.record_count)
        click.echo(_row((*cells, header.leader_epoch, header.size_bytes, crc)))
        for record in self._decoded(batch):
            click.echo(f"    {json.dumps(record, ensure_ascii=False)}")

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
                "key": to_json_value(record.key),
                "value": to_json_value(record.value),
            }
            for record in decode_records(batch.data)
        ]


def _row(cells: Sequence[object]) -> str:
    return "  ".join(str(cell).rjust(width) for cell, width in zip(cells, _WIDTHS, strict=True))
