"""What holds for all tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

# No test judges a time (paceline_cluster/DESIGN 4): a busy machine generates and runs examples
# slowly, too. By default everybody runs the same examples: a change is judged by what it changed.
# New examples are for who looks for them: ./scripts/test unit --hypothesis-profile search
settings.register_profile(
    "paceline", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "search", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=1000
)
settings.load_profile("paceline")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[object]:
    """Whoever captures logs leaves them configured, and a cluster that keeps its nodes' logs to
    itself, where nobody has configured any, would print them in the next test."""
    before = structlog.get_config() if structlog.is_configured() else None
    try:
        return (yield)
    finally:
        structlog.reset_defaults()
        if before is not None:
            structlog.configure(**before)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Cycles are not looked for in all that is imported and collected, which stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10)
