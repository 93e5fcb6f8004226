"""Recorded processes: told apart from others with the same number, signalled, found again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline_cluster import processes
from paceline_cluster.processes import ProcessState

pytestmark = pytest.mark.skipif(not processes.PROC.is_dir(), reason="needs /proc")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that has said it runs and waits for ever."""
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); import signal; signal.pause()"],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_states_of_a_process(sleeper: subprocess.Popen[bytes]) -> None:
    started = processes.start_time(sleeper.pid)
    assert processes.state_of(sleeper.pid, started) is ProcessState.RUNNING
    assert processes.send(sleeper.pid, started, signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    assert processes.state_of(sleeper.pid, started) is ProcessState.SUSPENDED
    assert processes.send(sleeper.pid, started, signal.SIGKILL)
    # Not reaped yet: a zombie counts as stopped.
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    assert processes.state_of(sleeper.pid, started) is ProcessState.STOPPED
    sleeper.wait()
    assert processes.start_time(sleeper.pid) is None


def test_a_process_whose_threads_still_run_is_not_gone() -> None:
    """As one that was killed while a thread waits for a disk: it still holds what it has open."""
    first_thread_ends = (
        "import ctypes, platform, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "print(flush=True)\n"
        "ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", first_thread_ends], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        started = processes.start_time(process.pid)
        stat = processes.PROC / str(process.pid) / "stat"
        while " Z " not in stat.read_text():
            time.sleep(0.01)
        assert processes.state_of(process.pid, started) is ProcessState.RUNNING
        assert processes.send(process.pid, started, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert processes.state_of(process.pid, started) is ProcessState.STOPPED
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_same_number_with_another_start_time_is_nobody(sleeper: subprocess.Popen[bytes]) -> None:
    started = processes.start_time(sleeper.pid)
    assert started is not None
    assert processes.state_of(sleeper.pid, started + 1) is ProcessState.STOPPED
    assert not processes.send(sleeper.pid, started + 1, signal.SIGKILL)
    assert sleeper.poll() is None


def test_nothing_recorded_is_stopped() -> None:
    assert processes.state_of(None, None) is ProcessState.STOPPED
    assert not processes.send(None, None, signal.SIGKILL)


def test_node_is_found_by_its_configuration(tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    assert processes.find_node(config) is None
    code = "print(flush=True); import signal; signal.pause()"
    words = [sys.executable, "-c", code, "paceline_node", "--config", str(config)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            assert processes.find_node(config) == process.pid
        finally:
            process.kill()
    assert processes.find_node(config) is None
