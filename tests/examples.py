"""Examples, each in a pytest of its own, as their users run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def require_pass(name: str, *, hang_s: float, **variables: str) -> None:
    """Run the tests of an example, with further variables of the environment. Raises AssertionError
    with all that they print."""
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", ".", "-c", "/dev/null"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=EXAMPLES / name,
        env={**os.environ, **variables},
        capture_output=True,
        timeout=hang_s,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout
