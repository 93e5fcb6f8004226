"""The lock of a data directory, where there is no room for the number that says who holds it."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline_node.storage.disk import RealDisk


@contextmanager
def no_room() -> Iterator[None]:
    """Nothing can be written to any file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("former", [b"", b"123\n", b"1234567890\n"])
def test_it_is_taken_all_the_same(tmp_path: Path, former: bytes) -> None:
    """It was held, and the next attempt found its own lock: in use by process unknown."""
    (tmp_path / "LOCK").write_bytes(former)
    disk, other = RealDisk(str(tmp_path)), RealDisk(str(tmp_path))
    with no_room():
        disk.lock()
    assert (tmp_path / "LOCK").read_bytes() == former, "its room may be needed at the next start"
    with pytest.raises(BlockingIOError, match="is in use by process"):
        other.lock()
    disk.close()
    other.lock()
    assert (tmp_path / "LOCK").read_text().split() == [str(os.getpid())]
    other.close()
