"""What a bad disk does to a node's files, done to real ones: rot, loss, age.

Which file is struck is drawn: every kind of file as likely as the others, however many there are.
The node may run meanwhile or not; of files that it holds open it sees what was written into them.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

_DIGITS = re.compile(r"\d+")
_NOT_STRUCK = frozenset({"LOCK", "node.toml"})
"""The kernel's memory of a process, not the disk's; and what the operator wrote, without which the
node cannot come back, so that every fault behind it would find one replica less."""
_LAST = 512
_MOST_KEPT_BYTES = 64 * 1024 * 1024
METADATA = "metadata"
TOPICS = "topics"


def files_of(folder: Path) -> list[Path]:
    """All files of a data directory, in order; what vanishes meanwhile is left out."""
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name not in _NOT_STRUCK
    )


def choose(folder: Path, paths: Sequence[Path], rng: random.Random) -> Path | None:
    """One of the files; all of one directory and suffix are one kind."""
    kinds: dict[str, list[Path]] = {}
    for path in paths:
        top = path.relative_to(folder).parts[0]
        kinds.setdefault(f"{top}/{_DIGITS.sub('', path.name)}", []).append(path)
    return rng.choice(kinds[rng.choice(sorted(kinds))]) if kinds else None


def rot(folder: Path, rng: random.Random) -> str | None:
    """Flip bits of one file; what was done, in words."""
    path = choose(folder, [each for each in files_of(folder) if _size(each)], rng)
    if path is None:
        return None
    size = _size(path)
    start = rng.choice((0, max(0, size - _LAST)))
    with path.open("r+b") as file:
        for _ in range(rng.choice((1, 8, 64))):
            position = rng.randrange(start, size)
            file.seek(position)
            (byte,) = file.read(1) or b"\0"
            file.seek(position)
            file.write(bytes([byte ^ 1 << rng.randrange(8)]))
    return f"{path.relative_to(folder)} rots"


def lose_file(folder: Path, rng: random.Random) -> str | None:
    """Unlink one file."""
    path = choose(folder, files_of(folder), rng)
    if path is None:
        return None
    path.unlink(missing_ok=True)
    return f"{path.relative_to(folder)} is gone"


def lose_partition(folder: Path, rng: random.Random) -> str | None:
    """Remove the directory of one partition's log."""
    found = sorted(path for path in (folder / TOPICS).iterdir() if path.is_dir())
    if not found:
        return None
    path = rng.choice(found)
    shutil.rmtree(path)
    return f"{path.relative_to(folder)} is gone"


def lose_metadata(folder: Path, rng: random.Random) -> str | None:
    """Remove the directory of the metadata log."""
    shutil.rmtree(folder / METADATA, ignore_errors=True)
    return f"{METADATA} is gone"


def remember(folder: Path) -> dict[Path, bytes]:
    """The files as they are now, as far as they fit into memory."""
    kept: dict[Path, bytes] = {}
    room = _MOST_KEPT_BYTES
    for path in files_of(folder):
        size = _size(path)
        if size <= room:
            try:
                kept[path] = path.read_bytes()
            except FileNotFoundError:
                continue
            room -= size
    return kept


def age(folder: Path, before: dict[Path, bytes], rng: random.Random) -> str | None:
    """Let one file be again what it was ``before``."""
    changed = [path for path in files_of(folder) if before.get(path, b"") != path.read_bytes()]
    path = choose(folder, [path for path in changed if path in before], rng)
    if path is None:
        return None
    path.write_bytes(before[path])
    return f"{path.relative_to(folder)} is as it was"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
