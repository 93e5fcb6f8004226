"""``scripts/show-transactions``: every named step of a transaction's end, struck again and again.

The report has a JSON line for each blow and one for each verdict about the blows before it. It is
also the memory: points that have their blows in it already are left out, so that a run may be cut
into parts.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any

import click
import trio

from tests.e2e.transaction_kills import POINTS, Proof, open_proof

_JUDGED_AFTER = 5
"""Blows until everything is read and judged: what an interrupted run loses at most."""
_UNFINISHED = 75
"""EX_TEMPFAIL: the same command goes on."""

Point = tuple[str, str]


@dataclass
class Book:
    """The report, and what it says already."""

    path: Path
    good: Counter[Point] = field(default_factory=Counter)
    failed: list[Point] = field(default_factory=list)
    pauses: dict[Point, list[float]] = field(default_factory=dict)

    def read(self) -> None:
        """Raises ValueError for a file that is no report."""
        if self.path.exists():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                self._take(json.loads(line))

    def note(self, line: dict[str, Any]) -> None:
        self._take(line)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def _take(self, line: dict[str, Any]) -> None:
        point = (line["protocol"], line["point"])
        if "verdict" not in line:
            self.pauses.setdefault(point, []).append(line["paused_s"])
        elif line["verdict"] == "ok":
            self.good[point] += line["blows"]
        elif line["verdict"] == "failed":
            self.failed.append(point)


class Verdict:
    """About some blows at one point, noted however they end. Cancelled ones count as not struck."""

    def __init__(self, book: Book, point: Point, proof: Proof, blows: int) -> None:
        self._book = book
        self._point = point
        self._ledger = proof.ledger
        self._blows = blows

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        line: dict[str, Any] = dict(zip(("protocol", "point"), self._point, strict=True))
        line["verdict"] = "ok"
        if isinstance(error, Exception):
            line |= {"verdict": "failed", "reason": repr(error)}
        elif error is not None:
            line["verdict"] = "interrupted"
        for name in ("committed", "aborted", "unknown"):
            line[name] = len(getattr(self._ledger, name))
        self._book.note({**line, "blows": self._blows})


@dataclass(frozen=True)
class Show:
    book: Book
    runs: int
    until: float

    async def point(self, point: Point) -> bool:
        """Strike a point as often as it still lacks; whether it has all its blows then."""
        if not self._goes_on(point):
            return self._lack(point) <= 0
        directory = Path(tempfile.mkdtemp(prefix="paceline-transactions-"))
        say(f"{':'.join(point)}: starts, in {directory}")
        try:
            async with open_proof(directory / "fleet", point[0]) as proof:
                while self._goes_on(point):
                    await self._strike(point, proof)
        except trio.Cancelled:
            shutil.rmtree(directory)
            raise
        shutil.rmtree(directory)
        return self._lack(point) <= 0

    def _lack(self, point: Point) -> int:
        return self.runs - self.book.good[point]

    def _goes_on(self, point: Point) -> bool:
        return self._lack(point) > 0 and time.monotonic() < self.until

    async def _strike(self, point: Point, proof: Proof) -> None:
        blows = min(self._lack(point), _JUDGED_AFTER)
        with Verdict(self.book, point, proof, blows):
            await proof.strike(point[1], blows, self._note)
        self._tell(point, proof)

    def _note(self, report: dict[str, object]) -> None:
        self.book.note(report)
        where = f"{report['protocol']}:{report['point']}"
        say(f"  {where}: node {report['node']} died; a commit {report['paused_s']} s later")

    def _tell(self, point: Point, proof: Proof) -> None:
        pauses, ledger = self.book.pauses[point], proof.ledger
        said = (
            f"{':'.join(point)}: {self.book.good[point]} of {self.runs} blows ok",
            f"next commit after {median(pauses):.2f} s p50, {max(pauses):.2f} s at most",
            f"{len(ledger.committed)} committed, {len(ledger.aborted)} aborted",
            f"{len(ledger.unknown)} unknown",
        )
        say("; ".join(said))


def say(line: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')} {line}")
    sys.stdout.flush()


def chosen_points(names: Sequence[str]) -> list[Point]:
    """``native``, ``cursus``, or one point as ``native:transaction.prepared``; all by default."""
    every = [(protocol, site) for protocol, sites in POINTS.items() for site in sites]
    found: list[Point] = []
    for name in names:
        matching = [each for each in every if name in (each[0], ":".join(each))]
        if not matching:
            known = ", ".join(map(":".join, every))
            raise click.UsageError(f"no point {name!r}; there are native, cursus, {known}")
        found += matching
    return found or every


async def run(show: Show, points: Sequence[Point]) -> None:
    """All points, until the time is over or a signal says stop."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_at_signal, nursery.cancel_scope)
        for point in points:
            if not await show.point(point):
                break
        nursery.cancel_scope.cancel()


async def _stop_at_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            say(f"{signal.Signals(number).name}: stops")
            scope.cancel()
            return


@click.command()
@click.option(
    "--runs", type=click.IntRange(1), default=20, show_default=True, help="Blows a point."
)
@click.option("--points", multiple=True, help="native, cursus, or PROTOCOL:POINT; all by default.")
@click.option("--minutes", type=float, default=float("inf"), help="No new blows after that.")
@click.option("--report", type=click.Path(path_type=Path), default="build/transactions.jsonl")
def main(runs: int, points: tuple[str, ...], minutes: float, report: Path) -> None:
    """Strike each named step of a transaction's end with SIGKILL. Exit code 0: every chosen point
    has its blows, all judged well. 1: something was lost, seen in part or hangs; the report says
    what, and the cluster's folder is kept; nothing more is struck into that report. 75: the time is
    over; the same command goes on."""
    chosen = chosen_points(points)
    report.parent.mkdir(parents=True, exist_ok=True)
    book = Book(report)
    book.read()
    if not book.failed:
        trio.run(run, Show(book, runs, time.monotonic() + minutes * 60), chosen)
    done = sum(book.good[point] >= runs for point in chosen)
    word = "failed" if book.failed else "ok" if done == len(chosen) else "unfinished"
    say(f"verdict: {word}; {done} of {len(chosen)} points with {runs} blows; report: {report}")
    sys.exit({"ok": 0, "failed": 1, "unfinished": _UNFINISHED}[word])


if __name__ == "__main__":
    main()
