"""Strangers cannot fill a disk with lines about them, and hide nothing by it."""

from __future__ import annotations

import structlog

from paceline_node.observe.rate_limited_log import LINES, PERIOD_S, RateLimitedLog


def test_each_cause_has_so_many_lines_a_minute() -> None:
    now = 0.0
    log = RateLimitedLog(clock=lambda: now, component="peers")
    with structlog.testing.capture_logs() as told:
        for _ in range(1000):
            log.info("refused", cause="nonsense", why="what it said")
        log.info("refused", cause="no handshake", why="nothing")
        assert [line["why"] for line in told] == ["what it said"] * LINES + ["nothing"]
        now = PERIOD_S
        log.info("refused", cause="nonsense", why="again")
        log.info("refused", cause="no handshake", why="again")
    assert told[-2]["left_out"] == 1000 - LINES
    assert "left_out" not in told[-1]
    assert {line["component"] for line in told} == {"peers"}
