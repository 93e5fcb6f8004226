"""``paceline up --ephemeral``: whoever asked for the cluster is killed, and nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paceline.client import blocking
from paceline_cluster import processes
from tests.e2e.cluster import PACELINE, Cluster, wait_until

UP = ("up", "--ephemeral", "--nodes", "1", "--output", "json")
PARENT = """
import subprocess, sys
subprocess.run(sys.argv[1:])
"""


@contextmanager
def started(base: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    env = Cluster(base).env
    del env["PYTHONUNBUFFERED"]  # what is said has to arrive at a pipe as it is
    with (base / "err").open("wb") as err:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, env=env)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def told(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def directory_of(found: dict[str, Any]) -> Path:
    return Path(found["nodes"][0]["dir"]).parent


def is_gone(found: dict[str, Any]) -> bool:
    ended = [
        processes.state_of(node["pid"], node["pid_started"]) is processes.ProcessState.STOPPED
        for node in found["nodes"]
    ]
    return all(ended) and not directory_of(found).exists()


def test_it_ends_in_order(tmp_path: Path) -> None:
    with started(tmp_path, *PACELINE, *UP) as process:
        found = told(process)
        with blocking.connect(found["addresses"]["native"]) as client:
            client.admin.create_topic("orders", partitions=1)
            with client.producer() as producer:
                assert producer.send("orders", b"one").offset == 0
        assert directory_of(found).exists()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert is_gone(found)
    assert f"removed {directory_of(found)}" in (tmp_path / "err").read_text()
    assert not (tmp_path / "config").exists(), "other commands find another cluster"


def test_the_command_is_killed(tmp_path: Path) -> None:
    with started(tmp_path, *PACELINE, *UP) as process:
        found = told(process)
        process.kill()
        wait_until("nothing of it stays", lambda: is_gone(found))


def test_its_parent_is_killed(tmp_path: Path) -> None:
    with started(tmp_path, sys.executable, "-c", PARENT, *PACELINE, *UP) as process:
        found = told(process)
        process.kill()
        wait_until("nothing of it stays", lambda: is_gone(found))


@pytest.mark.parametrize("other", [("--detach",), ("--dir", "x"), ("--port-offset", "7")])
def test_what_it_does_not_go_with(tmp_path: Path, other: tuple[str, ...]) -> None:
    result = Cluster(tmp_path).run("up", "--ephemeral", *other, exit_code=64)
    assert b"--ephemeral goes with none of" in result.stderr
    assert os.listdir(tmp_path) == []
