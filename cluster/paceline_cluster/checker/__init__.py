"""Judges the history of a run: was every promise of the cluster kept? See README.md."""

from paceline_cluster.checker.checker import Checker, judge
from paceline_cluster.checker.findings import Finding, Kind, Outcome, Verdict

__all__ = ["Checker", "Finding", "Kind", "Outcome", "Verdict", "judge"]
