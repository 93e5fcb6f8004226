"""``paceline`` for scripts that tests run: has the forge of their test fork the command, on this
process's streams, and ends as it does.

It is copied to a folder on the script's PATH and started for each command, so it loads nothing that
it can do without.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys

DESCRIPTOR = "FORGE_DESCRIPTOR"
"""Variable with the number of the forge's socket."""


def main() -> int:
    environment = dict(os.environ)
    try:
        forge = socket.socket(fileno=int(environment.pop(DESCRIPTOR)))
    except OSError:  # a program between has closed it for its children, as Python's do
        os.execv(sys.executable, [sys.executable, "-m", "paceline_cluster.cli.main", *sys.argv[1:]])
    reading, writing = os.pipe()
    wanted = {
        "words": sys.argv[1:],
        "env": environment,
        "cwd": os.getcwd(),
        "descriptors": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    socket.send_fds(forge, [json.dumps(wanted).encode()], [0, 1, 2, writing])
    os.close(writing)
    with open(reading, "rb") as told:
        pid = int(told.readline())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda which, _frame: os.kill(pid, which))
        code = int(told.readline())
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(main())
