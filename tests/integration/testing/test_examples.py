"""The examples that need no Spark."""

from __future__ import annotations

import pytest

from tests.examples import EXAMPLES, require_pass

NAMES = sorted(path.parent.name for path in EXAMPLES.glob("*/test_*.py"))
WITH_SPARK = "invoices"


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name != WITH_SPARK])
def test_an_example_passes(name: str) -> None:
    require_pass(name, hang_s=120.0)
