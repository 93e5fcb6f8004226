"""What every job leaves: a JSON report, and an exit code that says how it went."""

from __future__ import annotations

import enum
import json
import time
from pathlib import Path
from typing import Any


class JobExit(enum.IntEnum):
    """Exit codes of jobs (DESIGN 7.1)."""

    DONE = 0
    USAGE = 2
    FINDINGS = 3
    DATA_LOSS = 4
    FAILED = 5


class Report:
    """Facts of one run, by name; written at its end, however it ends."""

    def __init__(self, job: str, path: Path | None, **inputs: Any) -> None:
        self.facts: dict[str, Any] = {}
        self.errors: list[str] = []
        self.job = job
        self._path = path
        self._inputs = inputs
        self._began = time.monotonic()

    def to_json(self, exit_code: JobExit) -> dict[str, Any]:
        """The whole report."""
        return {
            "job": self.job,
            "inputs": self._inputs,
            "seconds": round(time.monotonic() - self._began, 3),
            "exit": exit_code.name.lower(),
            "errors": self.errors,
            **self.facts,
        }

    def write(self, exit_code: JobExit) -> None:
        """Leave it where it was asked for."""
        if self._path is not None:
            text = json.dumps(self.to_json(exit_code), indent=2, default=str)
            self._path.write_text(text + "\n", encoding="utf-8")
