"""The examples, each in a pytest of its own, as their users run them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
HANG_S = 120.0


@pytest.mark.parametrize("name", [path.parent.name for path in EXAMPLES.glob("*/test_*.py")])
def test_an_example_passes(name: str) -> None:
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", ".", "-c", "/dev/null"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=EXAMPLES / name,
        capture_output=True,
        timeout=HANG_S,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout
