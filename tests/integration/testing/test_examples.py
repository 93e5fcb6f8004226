"""The examples that need no Spark."""

from __future__ import annotations

import pytest

from tests.examples import EXAMPLES, require_pass

NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/test_*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_an_example_passes(name: str) -> None:
    require_pass(name, hang_s=120.0)
