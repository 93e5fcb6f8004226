"""Commands as processes that need not load the program each time.

Much of this tier's time was Python importing the command line, hundreds of times over. Here one
process imports it and forks: every command still is a process with arguments, environment,
streams, signals and exit code of its own. What starts from nothing stays so: nodes, everything
that a test feeds or signals while it runs, and ``test_commands.py``'s look at each command alone.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import resource
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from tests.e2e.forged import DESCRIPTOR

REQUEST_BYTES = 1 << 17
FORGED = Path(__file__).with_name("forged.py")
ROOT = Path(__file__).parents[2]


@functools.cache
def forge() -> Forge:
    """The one of this process; it ends with it."""
    return Forge()


class Forge:
    """The asking side."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )

    def run(
        self, words: Sequence[str], *, stdin: bytes, env: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        """Run ``paceline`` with these words. Kills it and raises subprocess.TimeoutExpired."""
        wanted = {
            "words": words,
            "env": dict(env),
            "cwd": str(Path.cwd()),
            "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE),
        }
        request = json.dumps(wanted).encode()
        assert len(request) <= REQUEST_BYTES, len(request)
        with (
            tempfile.TemporaryFile() as source,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            source.write(stdin)
            source.seek(0)
            reading, writing = os.pipe()
            with open(reading, "rb", buffering=0) as told:
                fds = [source.fileno(), out.fileno(), err.fileno(), writing]
                try:
                    socket.send_fds(self._socket, [request], fds)
                finally:
                    os.close(writing)
                code = _await_code(told, ["paceline", *words], timeout_s)
            return subprocess.CompletedProcess(["paceline", *words], code, _whole(out), _whole(err))

    def scripted(self, folder: Path) -> tuple[int, dict[str, str]]:
        """Make ``folder/paceline``, which scripts call: the descriptor that they have to inherit,
        and their variables beside that folder on the PATH."""
        program = folder / "paceline"
        program.write_text(f"#!{sys.executable} -IS\n" + FORGED.read_text())
        program.chmod(0o755)
        return self._socket.fileno(), {DESCRIPTOR: str(self._socket.fileno())}

    def children(self) -> list[int]:
        """The processes of commands that run now."""
        pid = self._process.pid
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]

    def close(self) -> None:
        """End the process that forks; only a forge of one's own is closed."""
        self._socket.close()
        self._process.wait()


def _await_code(told: IO[bytes], command: list[str], timeout_s: float) -> int:
    """The number of the process comes first, its exit code when it has ended."""
    deadline = time.monotonic() + timeout_s
    text = b""
    with selectors.DefaultSelector() as selector:
        selector.register(told, selectors.EVENT_READ)
        while text.count(b"\n") < 2:
            if not selector.select(deadline - time.monotonic()):
                if b"\n" in text:
                    os.kill(int(text), signal.SIGKILL)
                raise subprocess.TimeoutExpired(command, timeout_s)
            part = told.read(100)
            assert part, f"{command}: the process that forks commands has ended"
            text += part
    return int(text.split()[1])


def _whole(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()


# --- the forking side -----------------------------------------------------------------------------


class _Ended(Exception):
    """Who asked is gone."""


def serve(requests: socket.socket) -> Sequence[str]:
    """Fork a process for each request and tell its asker how it ended. Returns only in such a
    process, with what it shall do; raises _Ended when there is nobody left to ask."""
    askers: dict[int, int] = {}
    woken, waking = socket.socketpair()
    woken.setblocking(False)
    waking.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waking.fileno())
    with selectors.DefaultSelector() as selector:
        selector.register(requests, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is woken:
                    woken.recv(4096)
                    _collect(askers)
                    continue
                message, fds, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 4)
                if not message:
                    raise _Ended
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for end in (woken, waking, requests):
                        end.close()
                    return _become(json.loads(message), fds, askers.values())
                for fd in fds[:3]:
                    os.close(fd)
                askers[pid] = fds[3]
                if not _tell(fds[3], pid):
                    os.kill(pid, signal.SIGKILL)  # its asker could not wait until now


def _tell(asker: int, number: int) -> bool:
    """Whether there still is an asker that hears it."""
    try:
        os.write(asker, b"%d\n" % number)
    except BrokenPipeError:
        return False
    return True


def _collect(askers: dict[int, int]) -> None:
    """Tell of all that have ended."""
    for pid in list(askers):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if not ended:
            continue
        asker = askers.pop(pid)
        _tell(asker, os.waitstatus_to_exitcode(status))
        os.close(asker)


def _become(request: dict[str, Any], fds: list[int], others: Iterable[int]) -> Sequence[str]:
    """Take on what the command would have inherited from its asker; returns its words."""
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    for fd in (*fds, *others):
        os.close(fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, tuple(request["descriptors"]))
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["paceline", *request["words"]]
    words: list[str] = request["words"]
    return words


def _end(code: int) -> NoReturn:
    """End as Python does, but let the system take back what the forge has loaded: to free it object
    by object touches every page that is shared, and took half of a command's time."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def main() -> int:
    from paceline_cluster.cli import main as cli

    for place, _ in cli.COMMANDS.values():
        importlib.import_module(f"paceline_cluster.cli.{place.split(':')[0]}")
    gc.collect()
    gc.freeze()  # what is shared stays shared
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        try:
            words = serve(requests)
        except _Ended:
            return 0
    _end(cli.main(words))


if __name__ == "__main__":
    sys.exit(main())
