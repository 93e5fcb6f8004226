"""A batch of simulations that is killed leaves nothing running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGTERM, marks=pytest.mark.slow), signal.SIGINT]
)
def test_workers_end_with_their_batch(how: signal.Signals, tmp_path: Path) -> None:
    """SIGTERM is not handled, so that SIGKILL is the same to it."""
    results = tmp_path / "results"
    command = [sys.executable, "-m", "paceline_cluster.sim", "--tier", "raft", "--seeds", "100000"]
    batch = subprocess.Popen(
        [*command, "--jobs", "1", "--results", str(results)], stderr=subprocess.DEVNULL
    )
    try:
        # A worker that has finished a seed is in the middle of the next one.
        wait_until(lambda: results.exists() and bool(results.read_text()))
        workers = children_of(batch.pid)
        assert workers, "nothing would be shown"
        batch.send_signal(how)
        assert batch.wait(30) == -how
        wait_until(lambda: not any(map(is_running, workers)))
    finally:
        batch.kill()
        batch.wait()
    # What was done is kept.
    first = json.loads(results.read_text().splitlines()[0])
    assert first["violation"] is None


def children_of(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state != "Z"


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it does not come to pass"
        time.sleep(0.02)
