"""The log of an archive: which Parquet files hold which records. The truth about its directory.

::

    <root>/_log/<20-digit version>.json
    {"v": 1, "kind": "batch" | "compaction" | "vacuum", "txn": {"app": query id, "batch": n},
     "end": {topic: {partition: offset}}, "ids": {topic: topic id},
     "add": [{"path", "stage", "topic", "partition", "first", "last", "rows", "bytes",
              "minTs", "maxTs", "sha256"}],
     "remove": [path, ...]}

A version is made exclusively (a hard link of a finished file, which fails if it exists), so two
writers never both succeed; then its files are renamed from ``_stage`` to their paths. Whoever opens
the log finishes renames that a crash left over. Paths are relative to the root.

Spark forgets a batch once it is committed, so a version is made only when all that it names is on
stable storage, names of directories included. A vacuum says in a version of its own which files it
is about to delete: a batch that would name one of them must come before it, or fails.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, field
from pathlib import Path
from typing import Any

from paceline.errors import ConfigurationError
from paceline.types import TopicPartition
from paceline.values import dataclass

VERSION = 1
LOG, STAGE = "_log", "_stage"
BATCH, COMPACTION, VACUUM = "batch", "compaction", "vacuum"
RECENT = 8
"""Versions whose renames are looked after when the log is opened."""


class ArchiveConflict(ConfigurationError):
    """Another writer was quicker, or these records are archived already."""


class ArchiveDamaged(ConfigurationError):
    """The log or a file of the archive is not what it must be."""


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """A Parquet file of one partition and hour; offsets ``first .. last`` (inclusive) lie between,
    not necessarily without gaps. Times in ms, -1 when no record has one."""

    path: str
    stage: str
    topic: str
    partition: int
    first: int
    last: int
    rows: int
    bytes: int
    minTs: int  # noqa: N815 - as it stands in the log
    maxTs: int  # noqa: N815
    sha256: str

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True)
class Entry:
    """One version. ``end``: what the archive reaches after it, of the partitions it touches.
    ``ids``: which topics those are, where that is known; a name may be given again."""

    kind: str
    app: str
    batch: int
    end: Mapping[TopicPartition, int]
    add: Sequence[ArchiveFile] = ()
    remove: Sequence[str] = ()
    ids: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        end: dict[str, dict[str, int]] = {}
        for at in sorted(self.end):
            end.setdefault(at.topic, {})[str(at.partition)] = self.end[at]
        return {
            "v": VERSION,
            "kind": self.kind,
            "txn": {"app": self.app, "batch": self.batch},
            "end": end,
            "ids": dict(sorted(self.ids.items())),
            "add": [asdict(each) for each in self.add],
            "remove": list(self.remove),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Entry:
        return cls(
            data["kind"],
            data["txn"]["app"],
            data["txn"]["batch"],
            {
                TopicPartition(topic, int(partition)): offset
                for topic, places in data["end"].items()
                for partition, offset in places.items()
            },
            tuple(ArchiveFile(**each) for each in data["add"]),
            tuple(data["remove"]),
            dict(data.get("ids", {})),
        )


@dataclass
class State:
    """All versions up to one, folded. ``batches``: the last batch of each app. ``vacuumed``: paths
    that may be gone and must not be named again. ``replaced``: paths that a compaction has
    replaced, and in which version; readers may still have them open."""

    version: int = 0
    files: dict[str, ArchiveFile] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    vacuumed: set[str] = field(default_factory=set)
    replaced: dict[str, int] = field(default_factory=dict)

    def take(self, version: int, entry: Entry) -> None:
        """Fold in the next version."""
        self.version = version
        if entry.kind == VACUUM:
            self.vacuumed.update(entry.remove)
            return
        self.ids.update(entry.ids)
        for path in entry.remove:
            self.files.pop(path, None)
            self.replaced[path] = version
        for each in entry.add:
            self.files[each.path] = each
        for at, end in entry.end.items():
            self.ends[at] = max(end, self.ends.get(at, 0))
        if entry.kind == BATCH:
            self.batches[entry.app] = max(entry.batch, self.batches.get(entry.app, -1))

    def by_partition(self) -> dict[TopicPartition, list[ArchiveFile]]:
        """The files in order of their first offset."""
        found: dict[TopicPartition, list[ArchiveFile]] = {}
        for each in sorted(self.files.values(), key=lambda file: (file.at, file.first, file.path)):
            found.setdefault(each.at, []).append(each)
        return found


class ArchiveLog:
    """The log below ``root``, on a file system that all writers share."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._log = self.root / LOG

    def versions(self) -> list[int]:
        """All versions, ascending."""
        if not self._log.is_dir():
            return []
        return sorted(int(path.stem) for path in self._log.glob("*.json") if path.stem.isdecimal())

    def identity(self, version: int = 1) -> str:
        """What tells a version from others of its number, wherever the archive lies; the first
        one, which is never made anew, tells archives apart. Raises ArchiveDamaged where there is
        none."""
        path = self._path(version)
        try:
            return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        except OSError as error:
            raise ArchiveDamaged(f"{path}: {error}") from error

    def made_at(self, version: int) -> float:
        """When a version was made, by the file system's clock; later where the log was copied."""
        return self._path(version).stat().st_mtime

    def entry(self, version: int) -> Entry:
        """One version. Raises ArchiveDamaged."""
        path = self._path(version)
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["v"] != VERSION:
                raise ArchiveDamaged(f"{path}: version {data['v']}, this program knows {VERSION}")
            return Entry.from_json(data)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ArchiveDamaged(f"{path}: {error}") from error

    def state(self, version: int | None = None) -> State:
        """Everything up to ``version``, the newest by default. Raises ArchiveDamaged where one is
        missing, that one included."""
        state = State()
        for expected, number in enumerate(self.versions(), start=1):
            if version is not None and number > version:
                break
            if number != expected:
                raise ArchiveDamaged(f"{self._path(expected)}: missing")
            state.take(number, self.entry(number))
        if version is not None and state.version < version:
            raise ArchiveDamaged(
                f"{self._path(version)}: missing; the newest is {state.version}: was the archive "
                "put back from a backup? What has read of it needs a new checkpoint"
            )
        return state

    def append(self, entry: Entry, *, after: int) -> int:
        """Make the version behind ``after``, and put its files in place. Raises ArchiveConflict
        when another writer has made it, ConfigurationError where the file system cannot do that.
        """
        version = after + 1
        make_directory(self._log)
        draft = self._log / f"draft-{uuid.uuid4().hex}"
        try:
            with draft.open("w", encoding="utf-8") as file:
                json.dump(entry.to_json(), file)
                file.flush()
                os.fsync(file.fileno())
            try:
                os.link(draft, self._path(version))
            except FileExistsError:
                raise ArchiveConflict(f"{self._path(version)}: another writer made it") from None
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                    raise
                raise ConfigurationError(
                    f"{self.root}: this file system makes no hard links ({error}), and an archive "
                    "needs them so that two writers never both succeed; choose another one"
                ) from error
        finally:
            draft.unlink(missing_ok=True)
        sync(self._log)
        self._place(entry.add)
        return version

    def repair(self) -> None:
        """Finish what a writer that died after its version left undone."""
        for version in self.versions()[-RECENT:]:
            self._place(self.entry(version).add)

    def _place(self, files: Iterable[ArchiveFile]) -> None:
        touched = set()
        for each in files:
            stage, path = self.root / each.stage, self.root / each.path
            if not each.stage or not stage.exists():
                continue
            make_directory(path.parent)
            with contextlib.suppress(FileNotFoundError):  # another one does it, too
                stage.rename(path)
                touched.add(path.parent)
        for folder in touched:
            sync(folder)

    def drop_stages(self, stages: Iterable[str], *, keep: Iterable[ArchiveFile] = ()) -> None:
        """Delete files that no version names."""
        named = {each.stage for each in keep}
        for stage in stages:
            if stage not in named:
                with contextlib.suppress(FileNotFoundError):
                    (self.root / stage).unlink()

    def _path(self, version: int) -> Path:
        return self._log / f"{version:020d}.json"


def commit_batch(
    log: ArchiveLog,
    app: str,
    batch: int,
    files: Sequence[ArchiveFile],
    ids: Mapping[str, str] | None = None,
) -> bool:
    """Archive a micro-batch, once: False when this batch is in the log already. One without files
    makes a version too, so that the next one knows that none is missing. ``ids``: of the topics,
    where the caller knows them.

    Raises ArchiveConflict when other batches have archived any of these offsets, which is what a
    lost checkpoint would cause, when a batch of this number has not archived all of them, which is
    what an older checkpoint would cause, when a batch before it is missing, which is what an older
    archive would cause, or when they are of another topic of that name. A compaction that is
    quicker is no conflict: its files are others.
    """
    log.repair()
    while True:
        state = log.state()
        if state.batches.get(app, -1) >= batch:
            _check_repeated(log.root, state, files)
            log.drop_stages([each.stage for each in files])
            return False
        check_complete(log.root, state, app, batch - 1)
        known = {name: found for name, found in (ids or {}).items() if name in _topics(files)}
        check_ids(log.root, state, known)
        gone = [each.stage for each in files if each.stage in state.vacuumed]
        if gone:
            raise ArchiveConflict(
                f"{log.root / gone[0]}: a vacuum has deleted it before its batch was committed; "
                "run the archive job again, and vacuum with a longer --grace"
            )
        entry = Entry(BATCH, app, batch, _ends(state, files), files, ids=known)
        try:
            log.append(entry, after=state.version)
        except ArchiveConflict:
            continue
        return True


def _check_repeated(root: Path, state: State, files: Iterable[ArchiveFile]) -> None:
    """Raise ArchiveConflict where a batch that is in the log already has records that are not: it
    was planned anew, and all that it read would be taken for done."""
    for each in files:
        end = state.ends.get(each.at, 0)
        if each.last >= end:
            raise ArchiveConflict(
                f"{root}: a batch of this number is archived already, and {each.at} up to {end} "
                f"only, not up to {each.last + 1}: the checkpoint is older than the archive (put "
                "back from a backup, or a copy). With a new one the job goes on where it ends"
            )


def check_complete(root: Path, state: State, app: str, batch: int) -> None:
    """Raise ArchiveConflict unless all batches of a query up to ``batch`` are archived, as its
    checkpoint takes them for."""
    held = state.batches.get(app, -1)
    if held < batch:
        raise ArchiveConflict(
            f"{root}: holds the batches of this query up to {held if held >= 0 else 'none'}, its "
            f"checkpoint up to {batch}: the archive is older than that (put back from a backup, or "
            "emptied). With a new checkpoint the job goes on where the archive ends"
        )


def _topics(files: Iterable[ArchiveFile]) -> set[str]:
    return {each.topic for each in files}


def check_ids(root: Path, state: State, ids: Mapping[str, str]) -> None:
    """Raise ArchiveConflict where a topic is not the one that was archived under its name."""
    for topic, found in sorted(ids.items()):
        if state.ids.get(topic, found) != found:
            raise ArchiveConflict(
                f"{root}: holds another topic {topic} (id {state.ids[topic]}, now {found}): it was "
                "deleted and made anew, or is of another cluster. Archive it to another directory"
            )


def _ends(state: State, files: Sequence[ArchiveFile]) -> dict[TopicPartition, int]:
    ends: dict[TopicPartition, int] = {}
    for each in files:
        if each.first < state.ends.get(each.at, 0):
            raise ArchiveConflict(
                f"{each.at}: offsets {each.first}..{each.last} are archived already (up to "
                f"{state.ends[each.at]}). With a new checkpoint, start where the archive ends"
            )
        ends[each.at] = max(each.last + 1, ends.get(each.at, 0))
    return ends


def units(files: Sequence[ArchiveFile]) -> list[list[ArchiveFile]]:
    """Files of one partition, in order, grouped so that offsets of different groups do not mix
    (records whose times go back and forth over an hour lie in files whose ranges overlap)."""
    groups: list[list[ArchiveFile]] = []
    end = -1
    for each in files:
        if groups and each.first <= end:
            groups[-1].append(each)
        else:
            groups.append([each])
        end = max(end, each.last)
    return groups


def sync(path: Path) -> None:
    """Make a file's bytes durable, or a directory's entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> None:
    """Make a directory and those above it, durably."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)
