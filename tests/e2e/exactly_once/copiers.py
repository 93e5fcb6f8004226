"""The copiers' processes: started, watched, killed and started again."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import trio

HANG_S = 240.0
"""So long without a word in its journal, and a copier hangs: it shows where its threads are."""
_DUMP_S = 5.0
_LOOK_AGAIN_S = 0.2


class Copier:
    """One process after another with the same journal, until one is done. ``problems``: what no
    copier should do; ``hangs``: in ``hangs_in``, where its client library is known to."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        dump: signal.Signals,
        journal: Path,
        errors: Path,
        hangs_in: str = "",
    ) -> None:
        self.name = name
        self._hangs_in = hangs_in
        self._dump = dump
        self.has_ended = False
        self.kills = 0
        self.problems: list[str] = []
        self.hangs: list[str] = []
        self._command = command
        self._journal = journal
        self._errors = errors
        self._process: subprocess.Popen[bytes] | None = None
        self._was_killed = False

    @property
    def written(self) -> int:
        """Bytes of its journal, which has a line for each step of a transaction."""
        return self._journal.stat().st_size if self._journal.exists() else 0

    async def run(self) -> None:
        """Until the copier is done, or has a problem that another start would not mend."""
        try:
            while not self.has_ended:
                self._start()
                await self._watch()
        finally:
            self.has_ended = True
            if self._process is not None:
                self._process.kill()
                self._process.wait()

    def kill(self) -> None:
        """SIGKILL; another takes its place."""
        if self._process is not None and self._process.poll() is None:
            self._was_killed = True
            self.kills += 1
            self._process.kill()

    def _start(self) -> None:
        self._was_killed = False
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(self._command, stdout=errors, stderr=errors)

    async def _watch(self) -> None:
        assert self._process is not None
        size, since = -1, trio.current_time()
        while (code := self._process.poll()) is None:
            if (now := self.written) != size:
                size, since = now, trio.current_time()
            elif trio.current_time() - since > HANG_S:
                await self._hangs()
            await trio.sleep(_LOOK_AGAIN_S)
        if code == 0:
            self.has_ended = True
        elif not self._was_killed:
            self.has_ended = True
            tail = self._errors.read_text(encoding="utf-8", errors="replace")[-3000:]
            self.problems.append(f"{self.name} ended with code {code}:\n{tail}")

    async def _hangs(self) -> None:
        assert self._process is not None
        told = self._errors.stat().st_size
        self._process.send_signal(self._dump)
        await trio.sleep(_DUMP_S)
        with self._errors.open(encoding="utf-8", errors="replace") as errors:
            errors.seek(told)
            dump = errors.read()
        is_known = bool(self._hangs_in) and self._hangs_in in dump
        found = self.hangs if is_known else self.problems
        found.append(f"{self.name} hung for {HANG_S:.0f} s: {self._errors} shows where")
        self.kill()
        await trio.to_thread.run_sync(self._process.wait)


def python_command(module: str, course: Path) -> list[str]:
    """Of a copier that is written in Python."""
    return [sys.executable, "-m", f"tests.e2e.exactly_once.{module}", str(course)]
