"""Verifies the logs of data directories offline, and compares the replicas among them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from paceline.values import dataclass
from paceline_cluster.errors import NoSuchCluster
from paceline_node.storage import layout
from paceline_node.storage.disk import RealDisk
from paceline_node.storage.layout import Offsets
from paceline_node.storage.partition_file import NAME as PARTITION_FILE
from paceline_node.storage.replica_comparison import compare_replicas
from paceline_node.storage.verify import Finding, LogReport, verify_log

SEGMENT_SUFFIX = ".log"


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


async def verify_directories(
    paths: Sequence[Path], progress: Callable[[int], None] = lambda _done: None
) -> Verdict:
    """Verify the logs below data directories or partitions' directories, which no node uses, and
    compare replicas of the same partition. ``progress`` is told how many logs are done.

    Raises NoSuchCluster, OSError.
    """
    disks: list[RealDisk] = []
    verdict = Verdict()
    try:
        places = []
        for path in paths:
            places += await _places(path, disks)
        for done, place in enumerate(places, start=1):
            report = await verify_log(
                place.disk,
                place.path,
                recovery_point=await _offset(place, Offsets.RECOVERY),
                log_start=await _offset(place, Offsets.LOG_START),
            )
            verdict.logs.append((place, report))
            root = Path(place.disk.root)
            verdict.findings += [(str(root / each.path), each) for each in report.findings]
            progress(done)
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


async def _offset(place: Place, which: Offsets) -> int:
    """What the directory has written down of the log; 0 when it says nothing."""
    for found in await layout.list_partitions(place.disk):
        if found.path == place.path and found.identity is not None:
            offsets = await layout.read_offsets(place.disk, which) or {}
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
