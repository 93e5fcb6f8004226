"""Where a query's files lie, as users name it: a path, or a URI. Pure."""

from __future__ import annotations

import re
from pathlib import Path

NO_HARD_LINKS = (
    "an archive lies on a file system with hard links that driver and workers share (a disk, NFS); "
    "object stores and HDFS have none"
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")


def local_path(place: str) -> Path | None:
    """``a``, ``/a``, ``file:/a`` and ``file:///a``; None for what lies on no file system that is
    mounted here, such as ``s3a://bucket/a``."""
    found = _SCHEME.match(place)
    if found is None:
        return Path(place)
    if found[1].lower() != "file":
        return None
    rest = place[found.end() :]
    if not rest.startswith("//"):
        return Path(rest)
    host, slash, path = rest[2:].partition("/")
    return Path(slash + path) if host in ("", "localhost") else None


def below(place: str, name: str) -> str:
    """A folder of a place, which may be a URI."""
    return f"{place.rstrip('/')}/{name}"
