"""The audit job over the source and one copy of it, in one Spark session for all of them."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

from paceline.spark.jobs.commands import pipeline
from paceline_cluster.bench.rig import Rig
from paceline_cluster.pipeline_chaos.driver import JAVA_OPTIONS
from paceline_cluster.pipeline_chaos.trial import SOURCE, Trial


def audit(rig: Rig, base: Path, trial: Trial) -> None:
    """Run ``paceline pipeline audit --compare`` in this process; what it found goes to the trial,
    what it said to ``base``."""
    report = base / trial.point / "audit.json"
    words = [
        *("audit", "--topics", SOURCE, "--compare", trial.target),
        *("--bootstrap", ",".join(rig.addresses), "--report", str(report)),
        *("--conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}"),
    ]
    began = time.monotonic()
    with (
        (base / trial.point / "audit.log").open("w", encoding="utf-8") as log,
        contextlib.redirect_stdout(log),
    ):
        pipeline.main(words, standalone_mode=False)
    told = json.loads(report.read_text(encoding="utf-8"))
    trial.findings = told["findings"]
    trial.audited = True
    trial.audit_seconds = round(time.monotonic() - began, 1)
