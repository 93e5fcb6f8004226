"""A cluster that leaves nothing: its directory and its nodes go with the process that asked for it.

That process may be killed and can then clean up nothing, so another one does: the keeper, which
waits at a pipe for the end of the first one (``python -m paceline_cluster.ephemeral DIRECTORY``).
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import trio

from paceline_cluster import processes, state
from paceline_cluster.launch import adopt_strays, wait_ended

KEEPER = "paceline_cluster.ephemeral"
"""The module that the keeper runs."""
_KILLED_S = 10.0
"""A process that was killed is gone within a moment, or waits for a disk."""


@contextlib.contextmanager
def ephemeral_directory() -> Iterator[Path]:
    """A directory for a cluster. With the block, or with this process, its nodes are killed and it
    is removed."""
    directory = Path(tempfile.mkdtemp(prefix="paceline-")).resolve()
    # A session of its own: Ctrl-C, and the end of a terminal, are not for it.
    keeper = subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
        [sys.executable, "-m", KEEPER, str(directory)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    assert keeper.stdin is not None
    try:
        yield directory
    finally:
        keeper.stdin.close()
        keeper.wait()


async def remove(directory: Path) -> None:
    """Kill the nodes of the cluster in a directory, and remove that. Its launcher has ended."""
    if state.exists(directory):
        nodes = adopt_strays(directory).nodes
        for entry in nodes:
            processes.send(entry.pid, entry.pid_started, signal.SIGKILL)
        for entry in nodes:
            await wait_ended(entry, _KILLED_S)
    shutil.rmtree(directory)


def _keep(directory: Path) -> None:
    sys.stdin.buffer.read()  # until the other end of the pipe is closed, by whatever
    trio.run(remove, directory)


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
