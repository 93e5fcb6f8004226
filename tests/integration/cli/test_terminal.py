"""``paceline`` at a terminal of 80 columns, as a newcomer sees it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence

import pytest

from paceline_cluster.testing import BlockingPaceline

COLUMNS = 80
_STYLE = re.compile(r"\x1b\[[0-9;]*m")


def seen(words: Sequence[str]) -> list[str]:
    """The lines of a screen that is as long as it must be."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm", "LINES": "24"}
    command = [sys.executable, "-m", "paceline_cluster.cli.main", *words]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE, env=environment
    ) as process:
        os.close(theirs)
        with open(ours, "rb", buffering=0) as screen:
            text = b"".join(iter(lambda: _read(screen.fileno()), b""))
        _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    return _STYLE.sub("", text.decode()).splitlines()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # a terminal whose other side is closed
        return b""


@pytest.mark.slow
@pytest.mark.paceline(nodes=1)
def test_everything_fits_and_ids_are_whole(paceline: BlockingPaceline) -> None:
    name = "orders-of-the-european-warehouse"
    paceline.create_topic(name, partitions=2)
    with paceline.connect() as client:
        with client.producer() as producer:
            producer.send(name, b"a")
        topic_id = str(client.admin.topic(name).topic_id)
    [address] = paceline.addresses("native")
    for words, whole in (
        (["topic", "describe", name], topic_id),
        (["topic", "list"], name),
        (["status"], address),
        (["group", "list"], "generation"),
        (["transaction", "list"], "producer"),
        (["topic", "create", f"{name}-2", "--partitions", "1"], f"{name}-2"),
    ):
        lines = seen([*words, "--bootstrap", address])
        assert max(map(len, lines)) <= COLUMNS, lines
        assert whole in " ".join(lines), lines


BAR = """
from paceline_cluster.cli.output import OutputFormat, Printer
with Printer(OutputFormat.TABLE).progress("copy", 10) as update:
    update(5)
"""


@pytest.mark.parametrize(("ending", "is_drawn"), [("", True), ("& wait", False)])
def test_a_bar_is_drawn_for_who_waits_for_it(ending: str, is_drawn: bool) -> None:
    """From the background it would write over what is typed meanwhile."""
    ours, theirs = os.openpty()
    command = shlex.join([sys.executable, "-c", BAR])
    shell = ["setsid", "--ctty", "bash", "-c", f"set -m; {command} {ending}"]
    with subprocess.Popen(
        shell, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(theirs)
        with open(ours, "rb", buffering=0) as screen:
            text = b"".join(iter(lambda: _read(screen.fileno()), b""))
    assert process.returncode == 0, text
    assert ("\N{BOX DRAWINGS HEAVY HORIZONTAL}".encode() in text) is is_drawn
