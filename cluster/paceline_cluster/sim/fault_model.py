"""What of a node's disk can fail in the simulation: every kind of file that it keeps, every call
that it makes.

A fault that the simulated disk cannot produce is one about which a simulation proves nothing.
Therefore ``tests/unit/sim/test_fault_model.py`` compares these tables with the node's code, and
every run looks for files that are of no kind (:func:`kind_of`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from paceline.values import dataclass

MEDIA = ("rot", "unreadable", "loss", "age", "exchange", "torn")
"""What happens to files: bits flip; a range answers EIO; it is gone; it is as it was some time ago;
it is another partition's of the same name;
sectors of a write are old or new after a power cut."""
IN_PLACE = ("durable.marks", "metadata.mark")
"""Files that are open all the time and written where they are: their writes may fail for good while
all others succeed."""
_LOG = r"topics/[^/]+/\d{20}\.log"
_IN_LOG = r"topics/[^/]+/"
# Kept twice; one that was bad in both is set aside.
_QUORUM = r"metadata(\.copy)?(\.lost)?/"
_QUORUM_WRITERS = ("controller/raft_store.py", "controller/raft_copies.py")


@dataclass(frozen=True, slots=True)
class FileKind:
    """Files of one purpose. ``pattern`` matches their whole path. ``writers`` are the modules of
    the node that make them. Where it is ``essential`` the node may refuse to start without it:
    nothing else says who it is, or what it promised to the quorum. What is ``derived`` is made anew
    from the log by whoever doubts it. ``media`` is less than :data:`MEDIA` only for a reason."""

    name: str
    pattern: str
    writers: tuple[str, ...]
    essential: bool = False
    derived: bool = False
    media: tuple[str, ...] = MEDIA
    matches: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "matches", re.compile(self.pattern))


FILES = (
    FileKind("meta.json", r"meta(\.copy)?\.json", ("storage/layout.py",), essential=True),
    FileKind("incarnation", r"incarnation", ("storage/incarnation.py",)),
    # Empty: nothing in it can rot.
    FileKind("disk-failed", r"disk-failed", ("storage/incarnation.py",), media=("loss", "torn")),
    FileKind("durable.marks", r"durable\.marks", ("storage/durable_marks.py",)),
    FileKind("recovery.ckpt", r"recovery\.ckpt", ("storage/layout.py",)),
    FileKind("hw.ckpt", r"hw\.ckpt", ("storage/layout.py",)),
    FileKind("logstart.ckpt", r"logstart(-copy)?\.ckpt", ("storage/layout.py",)),
    FileKind(
        "partition.metadata", _IN_LOG + r"partition\.metadata", ("storage/partition_file.py",)
    ),
    # Exchanged, nothing tells it after a power cut (the README of the room of the storage).
    FileKind(
        ".log",
        _LOG,
        ("storage/log_segment_files.py", "storage/recovery.py"),
        media=("rot", "unreadable", "loss", "age", "torn"),
    ),
    FileKind(".log.cleaned", _LOG + r"\.cleaned", ("storage/cleaner.py",), derived=True),
    FileKind(".log.repair", _LOG + r"\.repair", ("storage/repair.py",), derived=True),
    FileKind(".index", _IN_LOG + r"\d{20}\.index", ("storage/log_segment.py",), derived=True),
    FileKind(
        ".timeindex", _IN_LOG + r"\d{20}\.timeindex", ("storage/log_segment.py",), derived=True
    ),
    FileKind("epochs.ckpt", _IN_LOG + r"epochs\.ckpt", ("storage/epoch_file.py",), derived=True),
    FileKind(
        "producers.snap",
        _IN_LOG + r"producers-\d{20}\.snap",
        ("storage/producer_file.py",),
        derived=True,
    ),
    FileKind("damaged.ckpt", _IN_LOG + r"damaged\.ckpt", ("storage/damage.py",)),
    FileKind(
        "compaction.ckpt",
        _IN_LOG + r"compaction(-copy)?(-cut)?\.ckpt",
        ("storage/compaction_file.py",),
    ),
    FileKind("hardstate", _QUORUM + r"hardstate", _QUORUM_WRITERS, essential=True),
    FileKind(".snapshot", _QUORUM + r"\d{20}\.snapshot", _QUORUM_WRITERS, essential=True),
    FileKind(".raft", _QUORUM + r"\d{20}\.raft", _QUORUM_WRITERS, essential=True),
    FileKind("metadata.mark", r"metadata\.mark", ("controller/raft_mark.py",)),
    FileKind("groups.json", r"groups\.json(\.[a-z-]+)?", ("groups/v1_file_task.py",), derived=True),
    FileKind(
        "offsets.json", r"offsets\.json(\.[a-z-]+)?", ("groups/v1_file_task.py",), derived=True
    ),
    # A checkpoint that has not got its name yet: what it replaces still stands.
    FileKind(".tmp", r"(.+/)?[^/]+\.tmp", ("storage/checkpoint.py",), derived=True),
)
ELSEWHERE = {
    "replication/log_directory.py": "makes logs, whose files are those above",
    "replication/hosted_partitions.py": "makes logs, whose files are those above",
    "controller/force_quorum.py": "copies the quorum's files, in a tool that runs without a node",
}
"""Modules that seem to make files, and why they have no row."""

CALLS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "Disk.create": {"create": ("EIO", "ENOSPC", "EMFILE")},
    "Disk.open": {"open": ("EIO", "waits")},
    "Disk.exists": {"exists": ("EIO",)},
    "Disk.list": {"list": ("EIO", "EMFILE")},
    "Disk.mkdir": {"mkdir": ("EIO", "ENOSPC")},
    "Disk.remove": {"remove": ("EIO",)},
    "Disk.remove_tree": {"remove_tree": ("EIO", "EMFILE")},
    "Disk.rename": {"rename": ("EIO", "ENOSPC")},
    "Disk.sync": {"sync": ("EIO", "slow", "hangs", "lost at a power cut")},
    "Disk.fsync_dir": {"fsync_dir": ("EIO", "waits", "slow", "hangs", "lost at a power cut")},
    "Disk.free_bytes": {"free_bytes": ("EIO", "little")},
    "Disk.total_bytes": {},
    "Disk.device_id": {},
    "Disk.lock": {"lock": ("EIO", "EMFILE")},
    "Disk.close": {},
    "File.path": {},
    "File.size": {},
    "File.append": {"write": ("EIO", "ENOSPC")},
    "File.pwrite": {"write": ("EIO", "ENOSPC")},
    "File.pread": {"read": ("EIO", "a bad range")},
    "File.read": {"read": ("EIO", "a bad range", "slow")},
    "File.truncate": {"truncate": ("EIO", "ENOSPC")},
    "File.fileno": {},
    "File.close": {},
}
"""Each method of the disk and of its files: which operations of the simulated disk stand for it,
and how those fail; ``waits``: for a descriptor, as long as there is none. The ones without any
ask the process's own memory, or the kernel's, not the disk
(``total_bytes`` and ``device_id``: once, at the start, beside ``lock``)."""


def kind_of(path: str) -> FileKind | None:
    """The kind of a file of a data directory; None where nobody has thought of it."""
    return next((kind for kind in FILES if kind.matches.fullmatch(path)), None)
