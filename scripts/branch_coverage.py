"""The table of ``scripts/coverage``: line and branch coverage of the four rooms of the goal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from typing import Any

FLOOR_PERCENT = 95.0
NODE = "node/paceline_node"
ROOMS: dict[str, tuple[str, ...]] = {
    "Raft": (f"{NODE}/controller/raft*.py",),
    "controller": (f"{NODE}/controller/*.py",),
    "replication": (f"{NODE}/replication/*.py",),
    "log recovery": tuple(
        f"{NODE}/storage/{name}.py"
        for name in ("recovery", "scan", "repair", "damage", "checkpoint", "epochs", "epoch_file")
    ),
}
"""A file counts for the first room that has it."""


def measured() -> dict[str, Any]:
    """What ``coverage`` found in the data of the last run, file by file."""
    words = [sys.executable, "-m", "coverage", "json", "-q", "-o", "-"]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    files: dict[str, Any] = json.loads(done.stdout)["files"]
    return files


def rooms(files: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    left = dict(files)
    for name, patterns in ROOMS.items():
        found = {path for path in left if any(fnmatch(path, pattern) for pattern in patterns)}
        yield name, {path: left.pop(path) for path in sorted(found)}


def percent(covered: int, count: int) -> float:
    return 100.0 * covered / count if count else 100.0


def main() -> int:
    below = False
    print(f"{'room':14}{'files':>6}{'lines':>8}{'':9}{'branches':>9}{'':9}")
    for name, files in rooms(measured()):
        sums = {
            key: sum(found["summary"][key] for found in files.values())
            for key in ("covered_lines", "num_statements", "covered_branches", "num_branches")
        }
        lines = percent(sums["covered_lines"], sums["num_statements"])
        branches = percent(sums["covered_branches"], sums["num_branches"])
        print(
            f"{name:14}{len(files):6}{sums['num_statements']:8}{lines:8.1f}%"
            f"{sums['num_branches']:9}{branches:8.1f}%"
        )
        below |= not files or branches < FLOOR_PERCENT
        if "--missing" in sys.argv:
            missing(files)
    if below:
        print(f"branch coverage is below {FLOOR_PERCENT:.0f} %", file=sys.stderr)
    return int(below)


def missing(files: dict[str, Any]) -> None:
    """Lines that never ran, and branches (from>to, negative: out of the function) never taken."""
    for path, found in files.items():
        lost = set(found["missing_lines"])
        jumps = [f"{a}>{b}" for a, b in found["missing_branches"] if a not in lost]
        if lost or jumps:
            share = found["summary"]["percent_branches_covered"]
            print(f"  {path} {share:.0f}%: {' '.join([*map(str, sorted(lost)), *jumps])}")


if __name__ == "__main__":
    sys.exit(main())
