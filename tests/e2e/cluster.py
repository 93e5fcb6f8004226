"""A real cluster for tests: what ``paceline up`` starts, driven by its command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from docs.reference.outputs import FAILURE, OUTPUTS, STREAMS
from docs.reference.shapes import mismatches
from tests.e2e.forge import forge

PACELINE = (sys.executable, "-m", "paceline_cluster.cli.main")
HANG_S = 120.0
"""No command of these tests takes this long; it bounds a hang, it does not measure (T1)."""


class CommandFailed(AssertionError):
    """A command ended with another exit code than expected; the text shows its output."""


class Cluster:
    """A cluster directory below a temporary folder, with a profile folder of its own."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.dir = base / "cluster"
        self.failed = False
        self.env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PACELINE_", "FLUX_"))},
            "XDG_CONFIG_HOME": str(base / "config"),
            "XDG_DATA_HOME": str(base / "data"),
            "PYTHONUNBUFFERED": "1",
        }

    # --- commands ---------------------------------------------------------------------------------

    def run(
        self,
        *words: str,
        exit_code: int | None = 0,
        stdin: bytes | None = None,
        timeout_s: float = HANG_S,
    ) -> subprocess.CompletedProcess[bytes]:
        """Run ``paceline`` (see ``forge.py``); ``exit_code`` None accepts any."""
        result = forge().run(words, stdin=stdin or b"", env=self.env, timeout_s=timeout_s)
        if exit_code is not None and result.returncode != exit_code:
            raise CommandFailed(
                f"paceline {' '.join(words)}: exit code {result.returncode}, expected {exit_code}\n"
                f"{result.stdout.decode(errors='replace')[-4000:]}"
                f"{result.stderr.decode(errors='replace')[-4000:]}"
            )
        if "--output" in words and words[words.index("--output") + 1] == "json":
            require_documented(words, result)
        return result

    def json(self, *words: str, stdin: bytes | None = None) -> Any:
        """The JSON document that a command prints."""
        return json.loads(self.run(*words, "--output", "json", stdin=stdin).stdout)

    def spawn(
        self, *words: str, stdin: Path, stdout: Path, stderr: Path
    ) -> subprocess.Popen[bytes]:
        """Start ``paceline`` with its streams in files; the caller waits for it."""
        with stdin.open("rb") as source, stdout.open("wb") as out, stderr.open("wb") as err:
            return subprocess.Popen(
                [*PACELINE, *words], stdin=source, stdout=out, stderr=err, env=self.env
            )

    def start(self, *words: str, stderr: Path) -> subprocess.Popen[bytes]:
        """Start ``paceline`` with a pipe for its standard input and no output but ``stderr``."""
        with stderr.open("wb") as err:
            return subprocess.Popen(
                [*PACELINE, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=err,
                env=self.env,
            )

    def up(self, *words: str) -> dict[str, Any]:
        """Start it on free ports and return its status."""
        status: dict[str, Any] = self.json(
            "up", "--detach", "--any-port", "--dir", str(self.dir), *words
        )
        return status

    def wait(
        self, process: subprocess.Popen[bytes], *, stderr: Path, timeout_s: float = HANG_S
    ) -> None:
        """Wait for a command that was started and require that it succeeded; the error of one
        that hangs or fails shows the state of the cluster."""
        try:
            code: int | str = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = f"none in {timeout_s} s"
        if code != 0:
            topics = self.run("topic", "list", "--output", "json", exit_code=None).stdout.decode()
            process.kill()
            process.wait()
            raise CommandFailed(
                f"{process.args!r}: exit code {code}\n"
                f"{stderr.read_text(errors='replace')[-4000:]}\n{topics}"
            )

    def purge(self) -> None:
        """Stop and remove it."""
        if self.dir.exists():
            self.run("purge", "--yes", "--dir", str(self.dir), exit_code=None)

    # --- looking ----------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads((self.dir / "cluster.json").read_text())
        return data

    def node(self, node_id: int) -> dict[str, Any]:
        """The entry of a node in cluster.json."""
        [entry] = [node for node in self.state()["nodes"] if node["id"] == node_id]
        found: dict[str, Any] = entry
        return found

    def address(self, node_id: int, listener: str) -> tuple[str, int]:
        host, _, port = self.node(node_id)["listeners"][listener].rpartition(":")
        return host, int(port)

    def describe(self, topic: str) -> list[dict[str, Any]]:
        """Partitions of a topic as ``topic describe`` shows them."""
        partitions: list[dict[str, Any]] = self.json("topic", "describe", topic)["partitions"]
        return partitions

    def partition_dir(self, node_id: int, topic: str, partition: int) -> Path:
        """The partition's directory on a node's disk."""
        topics = Path(self.node(node_id)["dir"]) / "topics"
        [found] = topics.glob(f"{topic}-{partition}.*")
        return found

    def logs(self, lines: int) -> str:
        """The end of every node's log, for the report of a failed test."""
        parts = []
        for path in sorted(self.dir.glob("node-*/node.log")):
            text = path.read_text(encoding="utf-8", errors="replace").splitlines()
            parts += [f"--- {path.parent.name}", *text[-lines:]]
        return "\n".join(parts)


def wait_until(
    what: str, holds: Callable[[], bool], *, timeout_s: float = HANG_S, every_s: float = 0.1
) -> None:
    """Look again and again until ``holds``; AssertionError naming ``what`` at the end of time. Most
    looks are a command, which takes from those that are waited for: 20 ms of a processor each."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(every_s)


def require_documented(words: Sequence[str], result: subprocess.CompletedProcess[bytes]) -> None:
    """What a command printed with ``--output json`` is what the documentation says of it."""
    command = next(
        (name for size in (3, 2, 1) if (name := " ".join(words[:size])) in OUTPUTS), None
    )
    said = result.stdout.decode()
    if command is not None and said and result.returncode >= 0:
        parts = said.splitlines() if command in STREAMS else [said]
        for part in parts[:1000]:
            wrong = list(mismatches(OUTPUTS[command], json.loads(part), command))
            assert not wrong, f"docs/reference/outputs.py: {'; '.join(wrong)}"
    last = result.stderr.decode(errors="replace").rstrip("\n").rpartition("\n")[2]
    if last.startswith('{"error"'):
        wrong = list(mismatches(FAILURE, json.loads(last)))
        assert not wrong, f"docs/reference/outputs.py: {'; '.join(wrong)}"


def environment_lines() -> Sequence[str]:
    """A real list that every development machine has: the files of the installed packages, one
    line each with name, hash and size, from the packages' own RECORD files."""
    folder = Path(json.__file__).resolve().parent.parent
    site = Path(sys.prefix) / "lib"
    records = sorted(site.glob("python*/site-packages/*.dist-info/RECORD"))
    lines = [line for path in records for line in path.read_text().splitlines() if line]
    return lines or [str(path) for path in sorted(folder.rglob("*.py"))]
