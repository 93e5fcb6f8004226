"""One connection's failure is that connection's, and the simulator sees it all the same."""

from __future__ import annotations

import pytest
import structlog

from paceline_cluster.sim.timeline import Timeline
from paceline_node.net.accepting import contained
from paceline_node.observe.rate_limited_log import RateLimitedLog


async def test_a_broken_invariant_ends_one_connection() -> None:
    with structlog.testing.capture_logs() as logged:
        async with contained("v1", "somebody", RateLimitedLog()):
            raise AssertionError("a broken rule")
    assert [entry["event"] for entry in logged] == ["connection failed"]


async def test_the_simulator_ends_its_run() -> None:
    timeline = Timeline()
    with timeline.recording(), pytest.raises(ExceptionGroup) as caught:
        async with contained("v1", "somebody", RateLimitedLog()):
            raise AssertionError("a broken rule")
    assert caught.group_contains(AssertionError, match="a broken rule", depth=1)
    with timeline.recording():
        async with contained("v1", "somebody", RateLimitedLog()):
            raise ValueError("a bug that is merely logged")
