"""The notebook that users begin with, run as it stands."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FIRST_STEPS = Path(__file__).parents[2] / "deploy" / "spark" / "first_steps.py"


@pytest.mark.usefixtures("spark")
def test_the_first_steps_lead_to_an_exactly_once_stream(
    bootstrap: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PACELINE_BOOTSTRAP", bootstrap)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(FIRST_STEPS), run_name="__main__")
    said = capsys.readouterr().out
    assert "orders taken: 1001\norders taken: 0\n" in said
    assert "large orders: 110 in first-steps-orders, 110 in first-steps-large" in said
    assert "not json" in said.lower(), "the order that is none lies apart, with its reason"
