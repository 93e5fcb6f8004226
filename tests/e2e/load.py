"""A writer of keyed counters that runs beside a fault: ``paceline produce`` fed line by line."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.e2e.acked import check, read_acked, read_consumed
from tests.e2e.cluster import Cluster, CommandFailed, wait_until

KEYS = 16
PAUSE_S = 0.0005
"""Between lines: the load lasts as long as the fault, whatever that takes."""


class Load:
    """Use as a context; afterwards :meth:`require_complete` proves what was acknowledged."""

    def __init__(self, cluster: Cluster, topic: str, folder: Path, *options: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._acked = folder / f"{topic}.acked"
        self._errors = folder / f"{topic}.errors"
        self._output = folder / f"{topic}.consumed"
        self._stop = threading.Event()
        self._lines: list[tuple[str, str]] = []
        words = ("produce", topic, "--acks", "all", "--key-delimiter", ":")
        self._process = cluster.start(
            *words, "--acked-file", str(self._acked), *options, stderr=self._errors
        )
        self._feeder = threading.Thread(target=self._feed)

    def __enter__(self) -> Load:
        self._feeder.start()
        return self

    def __exit__(self, *_details: object) -> None:
        self._stop.set()
        self._feeder.join(60)
        try:
            self._process.wait(180)
        finally:
            self._process.kill()
            self._process.wait()

    def _feed(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            while not self._stop.wait(PAUSE_S):
                number = len(self._lines)
                key, value = f"k{number % KEYS}", str(number)
                stdin.write(f"{key}:{value}\n".encode())
                stdin.flush()
                self._lines.append((key, value))
            stdin.close()
        except BrokenPipeError:
            # The producer gave up; its exit code is judged by require_complete.
            return

    def acked_count(self) -> int:
        try:
            return self._acked.read_bytes().count(b"\n")
        except FileNotFoundError:
            return 0

    def more(self, count: int = 300) -> None:
        """Wait for ``count`` further acknowledgements."""
        wanted = self.acked_count() + count
        wait_until(
            f"{count} acknowledgements",
            lambda: self.acked_count() >= wanted or self._process.poll() is not None,
        )
        self._require_success()

    def _require_success(self) -> None:
        if self._process.poll():
            raise CommandFailed(self._errors.read_text(errors="replace")[-4000:])

    def require_complete(self) -> int:
        """Every line was acknowledged and is read back once, in order. Returns how many."""
        self._require_success()
        acked = read_acked(self._acked)
        assert len(acked) == len(self._lines)
        consumed = self._cluster.run("consume", self._topic, "--exit-at-end", "--output", "json")
        self._output.write_bytes(consumed.stdout)
        check(self._lines, acked, read_consumed(self._output))
        return len(acked)
