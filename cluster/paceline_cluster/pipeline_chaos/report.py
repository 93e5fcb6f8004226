"""The report of ``scripts/spark-chaos``: what is in it already is not done again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paceline_cluster.pipeline_chaos.trial import Trial

HELD, BROKEN, UNFINISHED = "every record once", "broken", "unfinished"


@dataclass
class Report:
    """One JSON file, written anew after each trial. ``seed``, ``records`` and Spark's ``master``
    hold for all."""

    path: Path
    seed: int
    records: int
    master: str
    trials: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def open(
        cls, path: Path, *, seed: int | None, new_seed: int, records: int, master: str
    ) -> Report:
        """The report at ``path``, or a new one. Raises ValueError where it is of another seed,
        size or master than what is asked for."""
        if not path.exists():
            return cls(path, new_seed if seed is None else seed, records, master)
        told = json.loads(path.read_text(encoding="utf-8"))
        report = cls(path, told["seed"], told["records"], told["master"], told["trials"])
        wanted = report.seed if seed is None else seed, records, master
        if (report.seed, report.records, report.master) != wanted:
            raise ValueError(
                f"{path} is of seed {report.seed} and {report.records} records on {report.master}, "
                f"asked for are {wanted[0]} and {wanted[1]} on {master}: remove it to begin anew, "
                "or name another --report"
            )
        return report

    @property
    def done(self) -> set[str]:
        """The points that were struck."""
        return {trial["point"] for trial in self.trials}

    def verdict(self, points: Sequence[str]) -> str:
        """Of all that ``points`` asks for."""
        if not all(trial["passed"] for trial in self.trials):
            return BROKEN
        return HELD if self.done.issuperset(points) else UNFINISHED

    def note(self, trial: Trial, points: Sequence[str]) -> None:
        """Add a trial and leave the file, whole or not at all."""
        self.trials.append(asdict(trial) | {"passed": trial.passed})
        told = {
            "seed": self.seed,
            "records": self.records,
            "master": self.master,
            "verdict": self.verdict(points),
            "trials": self.trials,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        draft = self.path.with_name(self.path.name + ".new")
        draft.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
        draft.replace(self.path)
