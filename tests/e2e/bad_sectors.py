"""Bytes of chosen files that a real node process cannot read, while the test wants it so."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster

SOURCE = Path(__file__).parent / "preload" / "bad_sectors.c"
PAGE = 4096


class BadSectors:
    """The library that makes them, built for this test, and the files it is told by."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler (cc) to build the preloaded library with")
        self._told = folder / "bad-sectors"
        self._told.mkdir()
        self._library = folder / "bad_sectors.so"
        words = [compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", str(self._library)]
        built = subprocess.run(
            [*words, str(SOURCE), "-ldl"], check=False, capture_output=True, text=True
        )
        if built.returncode:
            pytest.skip(f"the preloaded library cannot be built here: {built.stderr[-500:]}")

    def load_into(self, cluster: Cluster, node: int) -> None:
        """(Re)start a node with the library; the others run without."""
        plain = dict(cluster.env)
        cluster.env["LD_PRELOAD"] = str(self._library)
        cluster.env["PACELINE_BAD_SECTORS"] = str(self._told)
        try:
            cluster.run("node", "restart", str(node))
        finally:
            cluster.env = plain
        maps = Path(f"/proc/{cluster.node(node)['pid']}/maps").read_text()
        assert self._library.name in maps

    def strike(self, path: Path, first: int, end: int) -> None:
        """From now on reads of these bytes fail, until they are cut off or the file is another."""
        inode = path.stat().st_ino
        os.link(path, self._told / f"{inode}.held")  # so that no new file gets its number
        fault = self._told / f"{inode}.new"
        fault.write_text(f"{first} {end}\n")
        fault.rename(self._told / str(inode))

    def strike_middle(self, path: Path) -> None:
        """Lose the page in the middle of a file."""
        first = path.stat().st_size // 2 // PAGE * PAGE
        self.strike(path, first, first + PAGE)

    def heal(self, path: Path) -> None:
        """What could not be read can be read again."""
        (self._told / str(path.stat().st_ino)).unlink()

    def is_struck(self, path: Path) -> bool:
        """Whether a file, as it is now, has bytes that cannot be read."""
        return (self._told / str(path.stat().st_ino)).exists()
