"""The ``paceline`` fixture with every node in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster import HANG_S

TESTS = """
def test_kill_freeze_and_restart(paceline):
    paceline.create_topic("orders")
    with paceline.connect() as client, client.producer() as producer:
        producer.send("orders", b"a")
        dead = paceline.kill("leader of orders/0")
        producer.send("orders", b"b")
        assert paceline.wait_for_leader("orders", other_than=dead) != dead
        paceline.restart(dead)
        paceline.wait_until_healthy()
        frozen = paceline.suspend("a follower of orders/0")
        paceline.resume(frozen)
        producer.send("orders", b"c")
    with paceline.connect() as client, client.consumer("orders") as consumer:
        assert [next(consumer).value for _ in range(3)] == [b"a", b"b", b"c"]
"""


@pytest.mark.slow
def test_the_same_methods_work_on_processes(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    result = subprocess.run(
        # In a folder of its own: in the common one it would clear away what old runs have left.
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--paceline-processes",
            f"--basetemp={tmp_path / 'inner'}",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * HANG_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
