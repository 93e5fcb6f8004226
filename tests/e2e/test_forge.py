"""What runs the commands of this tier is a command line like any other."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.cluster import wait_until
from tests.e2e.forge import Forge, forge

ENV = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}


def test_streams_environment_and_exit_code_are_the_commands_own(tmp_path: Path) -> None:
    done = forge().run(["--version"], stdin=b"", env=ENV, timeout_s=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout[:1].isdigit()
    done = forge().run(["no-such-command"], stdin=b"", env=ENV, timeout_s=60)
    assert (done.returncode, done.stdout) == (64, b"")
    assert b"no-such-command" in done.stderr
    named = {**ENV, "PACELINE_DIR": str(tmp_path / "nowhere")}
    done = forge().run(["status"], stdin=b"", env=named, timeout_s=60)
    assert done.returncode == 65
    assert str(tmp_path / "nowhere") in done.stderr.decode()


def test_a_command_that_hangs_is_killed() -> None:
    words = ["topic", "list", "--bootstrap", "127.0.0.1:1", "--connect-timeout", "600"]
    own = Forge()
    try:
        for timeout_s in (0.0, 2.0):  # before it is known, and while it runs
            with pytest.raises(subprocess.TimeoutExpired):
                own.run(words, stdin=b"", env=ENV, timeout_s=timeout_s)
            assert own.run(["--version"], stdin=b"", env=ENV, timeout_s=60).returncode == 0
            wait_until("the command's end", lambda: not own.children())
    finally:
        own.close()
