"""Is an archive whole? Every file against the log, and the offsets of every partition.

Writers, compactions and vacuums may be at work: a version is there a moment before its files are
in their places, and what a compaction has replaced may be gone a moment later. So before a file is
called damaged the log is asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from paceline.spark.archive_files import check_file
from paceline.spark.archive_log import ArchiveDamaged, ArchiveFile, ArchiveLog, State
from paceline.types import TopicPartition
from paceline.values import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """``kind``: FILE_DAMAGED, ROWS_WRONG, OFFSET_REPEATED, OFFSET_MISSING, LOG_DAMAGED."""

    kind: str
    where: str
    what: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def verify(root: Path, *, allow_gaps: bool) -> tuple[list[Finding], dict[str, Any]]:
    """Every file against the log, and the offsets of every partition: each once, none missing
    between the first and the end. ``allow_gaps``: compacted and transactional topics have some."""
    log = ArchiveLog(root)
    looks: dict[TopicPartition, _Look] = {}
    try:
        log.repair()
        state = log.state()
        for at in sorted(state.by_partition()):
            while at not in looks:
                try:
                    looks[at] = _look(log, state, at)
                except _Replaced:
                    state = log.state()
    except ArchiveDamaged as error:
        return [Finding("LOG_DAMAGED", str(root), str(error))], {}
    findings: list[Finding] = []
    for at, look in looks.items():
        findings += look.findings
        findings += [
            flaw.finding()
            for flaw in _judge(at, look.offsets, look.first, look.end)
            if flaw.is_repeat or not (allow_gaps or look.explains(flaw))
        ]
    counts = {str(at): len(look.offsets) for at, look in looks.items()}
    return findings, {
        "files": sum(look.files for look in looks.values()),
        "rows_by_partition": counts,
        "version": state.version,
        "rows": sum(counts.values()),
    }


class _Replaced(Exception):
    """A compaction has replaced a file that was to be looked at."""


@dataclass
class _Look:
    """A partition as one version has it: ``offsets`` in order, from ``first`` to below ``end``;
    ``damaged`` lie in files that are not what they must be."""

    files: int
    first: int
    end: int
    offsets: list[int] = field(default_factory=list)
    damaged: list[range] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def explains(self, flaw: _Flaw) -> bool:
        """What a damaged file held is said once, not again as missing offsets."""
        edges = flaw.offsets[0], flaw.offsets[-1]
        return all(any(edge in lost for lost in self.damaged) for edge in edges)


def _look(log: ArchiveLog, state: State, at: TopicPartition) -> _Look:
    """Raises _Replaced where ``state`` is not the newest, and files of it are gone; ArchiveDamaged
    when that cannot be told."""
    files = state.by_partition()[at]
    found = _Look(len(files), files[0].first, state.ends.get(at, 0))
    for file in files:
        try:
            offsets = _offsets_of(log, file)
        except _FileDamaged as error:
            found.findings.append(Finding("FILE_DAMAGED", file.path, str(error)))
            found.damaged.append(range(file.first, file.last + 1))
            continue
        found.offsets += offsets
        ends = (offsets[0], offsets[-1]) if offsets else None
        if len(offsets) != file.rows or ends != (file.first, file.last):
            what = f"{len(offsets)} rows, the log says {file.rows} in {file.first}..{file.last}"
            found.findings.append(Finding("ROWS_WRONG", file.path, what))
    found.offsets.sort()
    return found


class _FileDamaged(Exception):
    """And nobody is about to put it right."""


def _offsets_of(log: ArchiveLog, file: ArchiveFile) -> list[int]:
    """Raises _FileDamaged, _Replaced, and ArchiveDamaged for the log."""
    try:
        return _read(log.root, file)
    except ArchiveDamaged:
        log.repair()  # its writer may not have put it in place yet
        if file.path not in log.state().files:
            raise _Replaced from None
    try:
        return _read(log.root, file)
    except ArchiveDamaged as error:
        raise _FileDamaged(str(error)) from error


def _read(root: Path, file: ArchiveFile) -> list[int]:
    check_file(root, file)
    try:
        offsets = pq.read_table(root / file.path, columns=["offset"])["offset"]
    except FileNotFoundError as error:  # a moment later
        raise ArchiveDamaged(str(error)) from error
    found: list[int] = offsets.to_pylist()
    return found


@dataclass(frozen=True, slots=True)
class _Flaw:
    """Offsets of a partition that are there twice, or not at all."""

    at: TopicPartition
    offsets: range
    is_repeat: bool

    def finding(self) -> Finding:
        if self.is_repeat:
            return Finding("OFFSET_REPEATED", str(self.at), f"offset {self.offsets[0]}")
        what = f"offsets {self.offsets[0]}..{self.offsets[-1]}"
        return Finding("OFFSET_MISSING", str(self.at), what)


def _judge(at: TopicPartition, offsets: Sequence[int], first: int, end: int) -> list[_Flaw]:
    """What is wrong with sorted offsets that must be all of ``first .. end``."""
    found = []
    before = first - 1
    for after in [*offsets, end]:
        if after == before:
            found.append(_Flaw(at, range(after, after + 1), is_repeat=True))
        elif after > before + 1:
            found.append(_Flaw(at, range(before + 1, after), is_repeat=False))
        before = after
    return found
