"""Many seeds on all cores, resumable: a line of JSON for every seed that is done.

One seed in fifty is run again in a process of its own, with another PYTHONHASHSEED: both must have
sent the same bytes at the same times (the canary, DESIGN 1.2).
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from itertools import count, islice
from multiprocessing import connection
from pathlib import Path
from types import FrameType

from paceline_cluster.sim.simulators import NODE, Result, profiles_of, run_seed

CANARY_EVERY = 50
_HANG_S = 600
Job = tuple[str, str, int]


class RunHangs(AssertionError):
    """A run burnt ten minutes of CPU: virtual time stands still."""


def jobs_of(tier: str, profiles: Sequence[str], first: int) -> Iterator[Job]:
    """Seeds of a tier without end, its profiles in turn."""
    names = profiles or profiles_of(tier)
    for seed in count(first):
        for profile in names:
            yield tier, profile, seed


def read_results(path: Path) -> list[Result]:
    """The results of earlier runs; a last line that was cut off by a kill is dropped."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        path.write_text("".join(whole), encoding="utf-8")
    return [Result(**json.loads(line)) for line in whole]


@dataclass
class SeedSweep:
    """``seeds`` new seeds, or as many as ``minutes`` allow; the first failures end it.

    It may be killed at any time, by any signal: its workers end with it, results are kept line by
    line.
    A worker process is replaced after ``renew_after`` seeds: whole nodes leave much behind, cores
    are done sooner than a new process has imported everything.
    """

    jobs: Iterator[Job]
    workers: int
    results: Path
    minutes: float | None = None
    seeds: int | None = None
    stop_after_failures: int = 5
    renew_after: int = 25
    say: Callable[[Result], None] = field(default=lambda result: None)

    def run(self) -> list[Result]:
        """Run what is not in the results file yet; returns all results, old and new."""
        done = read_results(self.results)
        known = {result.key for result in done}
        fresh = (job for job in self.jobs if job not in known)
        todo = islice(fresh, self.seeds)
        deadline = None if self.minutes is None else time.monotonic() + 60 * self.minutes
        failures = 0
        with (
            self.results.open("a", encoding="utf-8") as file,
            ProcessPoolExecutor(
                self.workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_begin,
                max_tasks_per_child=self.renew_after,
            ) as pool,
        ):
            running: set[Future[Result]] = set()
            while True:
                late = deadline is not None and time.monotonic() >= deadline
                if not late and failures < self.stop_after_failures:
                    for job in islice(todo, 2 * self.workers - len(running)):
                        running.add(pool.submit(_work, *job))
                if not running:
                    return done
                finished, running = wait(running, return_when=FIRST_COMPLETED)
                for future in finished:
                    result = future.result()
                    failures += result.violation is not None
                    done.append(result)
                    file.write(json.dumps(result.to_json()) + "\n")
                    file.flush()
                    self.say(result)


def _begin() -> None:
    _collect_seldom()
    _end_with_the_batch()


def _collect_seldom() -> None:
    """A tenth of a run is the search for cycles, nearly all of it in what lives as long as the
    process or the run."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)


def _end_with_the_batch() -> None:
    """End this worker, and the canary that it may have started, as soon as the batch's process is
    gone, however it went."""
    os.setpgid(0, 0)
    parent = multiprocessing.parent_process()
    assert parent is not None, "not in a worker"
    threading.Thread(target=_outlive, args=(parent.sentinel,), daemon=True).start()


def _outlive(sentinel: int) -> None:
    connection.wait([sentinel])
    os.killpg(0, signal.SIGKILL)


def _work(tier: str, profile: str, seed: int) -> Result:
    signal.signal(signal.SIGVTALRM, _hangs)
    signal.setitimer(signal.ITIMER_VIRTUAL, _HANG_S)
    try:
        result = run_seed(tier, profile, seed)
    except RunHangs:
        return Result(
            tier=tier,
            profile=profile,
            seed=seed,
            violation="hang: virtual time stands still",
            trace=0,
            virtual_s=0,
            cpu_s=_HANG_S,
            faults=0,
            acknowledged=0,
            elections=0,
        )
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        gc.collect()
    if tier == NODE and seed % CANARY_EVERY == 0 and result.violation is None:
        (again,) = traces_elsewhere([(tier, profile, seed)])
        if again != result.trace:
            found = f"not repeatable: trace {result.trace:x}, elsewhere {again:x}"
            return replace(result, violation=found)
    return result


def _hangs(signum: int, frame: FrameType | None) -> None:
    raise RunHangs("virtual time stands still")


def traces_elsewhere(jobs: Sequence[Job]) -> list[int]:
    """The traces of some seeds, run in one other process with other hashes."""
    environment = {**os.environ, "PYTHONHASHSEED": str(1 + jobs[0][2] % 4_000_000)}
    command = [sys.executable, "-m", "paceline_cluster.sim"]
    for tier, profile, seed in jobs:
        command += ["--trace", tier, profile, str(seed)]
    done = subprocess.run(  # noqa: S603  this very interpreter and package
        command, env=environment, capture_output=True, text=True, check=True
    )
    return [int(trace) for trace in done.stdout.split()]


def summary(results: Sequence[Result]) -> dict[str, object]:
    """The report: what ran, and what came of it."""
    tiers: dict[str, dict[str, object]] = {}
    for tier in sorted({result.tier for result in results}):
        of_tier = [result for result in results if result.tier == tier]
        cpu = sum(result.cpu_s for result in of_tier)
        virtual = sum(result.virtual_s for result in of_tier)
        tiers[tier] = {
            "seeds": len(of_tier),
            "by_profile": dict(Counter(result.profile for result in of_tier)),
            "violations": sum(result.violation is not None for result in of_tier),
            "simulated_hours": round(virtual / 3600, 3),
            "cpu_hours": round(cpu / 3600, 3),
            "simulated_s_per_cpu_s": round(virtual / cpu, 2) if cpu else 0.0,
            "faults": sum(result.faults for result in of_tier),
            "elections": sum(result.elections for result in of_tier),
            "acknowledged": sum(result.acknowledged for result in of_tier),
        }
    failing = [result.to_json() for result in results if result.violation is not None]
    return {"tiers": tiers, "failing": failing}
