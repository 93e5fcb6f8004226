"""Members of a group as processes: ``paceline consume --group``, and what each has printed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from paceline.client import blocking
from paceline.errors import PacelineError
from tests.e2e.cluster import Cluster

FORMAT = "%p %o %s\\n"


class Member:
    """One process. ``seen`` is what it has printed: (partition, offset) to value."""

    def __init__(self, cluster: Cluster, topic: str, group: str, output: Path, *words: str) -> None:
        self.errors = output.with_suffix(".errors")
        self._output = output
        self._read_to = 0
        self.seen: dict[tuple[int, int], str] = {}
        self.repeated = 0
        self.process: subprocess.Popen[bytes] = cluster.spawn(
            *("consume", topic, "--group", group, "--format", FORMAT, *words),
            stdin=Path(os.devnull),
            stdout=output,
            stderr=self.errors,
        )

    def look(self) -> int:
        """Read what was printed since the last look; how many lines there are by now."""
        with self._output.open("rb") as file:
            file.seek(self._read_to)
            text = file.read()
        end = text.rfind(b"\n") + 1
        self._read_to += end
        for line in text[:end].decode().splitlines():
            partition, offset, value = line.split(" ", 2)
            place = (int(partition), int(offset))
            self.repeated += place in self.seen
            self.seen[place] = value
        return len(self.seen)

    def suspend(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM, as a service manager would; the exit code."""
        self.resume()
        self.process.terminate()
        return self.process.wait(60)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def union(members: Sequence[Member]) -> dict[tuple[int, int], str]:
    """All that was processed by anybody."""
    together: dict[tuple[int, int], str] = {}
    for member in members:
        member.look()
        together |= member.seen
    return together


class OffsetWatch:
    """Asks again and again what a group has committed, and who has what; ``falls`` lists what went
    backwards, and what two had at a time."""

    def __init__(self, bootstrap: Sequence[str], group: str, family: str = "kafka") -> None:
        self._family = family
        self._bootstrap = list(bootstrap)
        self._group = group
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.falls: list[str] = []
        self.looks = 0

    def __enter__(self) -> OffsetWatch:
        self._thread.start()
        return self

    def __exit__(self, *_details: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        known: dict[object, int] = {}
        with blocking.connect(self._bootstrap) as client:
            while not self._stop.wait(0.1):
                try:
                    found = client.admin.groups.offsets(self._group, family=self._family)
                    members = client.admin.groups.describe(self._group, family=self._family).members
                except PacelineError:
                    continue
                self.looks += 1
                owned = [
                    (each.topic, number)
                    for member in members
                    for each in member.assigned
                    for number in each.partitions
                ]
                self.falls += [f"{at} twice" for at in set(owned) if owned.count(at) > 1]
                for at, committed in found.items():
                    if committed.offset < known.get(at, 0):
                        self.falls.append(f"{at}: {committed.offset} after {known[at]}")
                    known[at] = committed.offset
