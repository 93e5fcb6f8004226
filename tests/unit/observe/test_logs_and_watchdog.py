from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from paceline_node.observe.logs import configure_logs
from paceline_node.observe.watchdog import INTERVAL_S, LoopWatchdog


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_json_lines_hold_event_facts_and_tracebacks() -> None:
    out = io.StringIO()
    configure_logs(level="info", format="json", stream=out)
    log = structlog.get_logger(component="peers", node=3)
    log.debug("not shown")
    log.info("peer link down", reason="refused")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("page failed")
    first, second = map(json.loads, out.getvalue().splitlines())
    assert first["event"] == "peer link down"
    assert (first["component"], first["node"], first["level"]) == ("peers", 3, "info")
    assert first["timestamp"].endswith("Z")
    assert second["exception"][0]["exc_value"] == "broken"


def test_console_lines_are_for_people() -> None:
    out = io.StringIO()
    configure_logs(level="warning", format="console", stream=out)
    log = structlog.get_logger()
    log.info("hidden")
    log.warning("disk is slow", p99_s=1.5)
    (line,) = out.getvalue().splitlines()
    assert "disk is slow" in line
    assert "p99_s=1.5" in line
    assert "\x1b" not in line


def test_the_level_changes_for_loggers_in_use() -> None:
    out = io.StringIO()
    threshold = configure_logs(level="info", format="json", stream=out)
    log = structlog.get_logger()
    log.debug("one")
    log.info("two")
    threshold.set("debug")
    log.debug("three")
    threshold.set("error")
    log.warning("four")
    log.error("five")
    log.critical("six")
    told = [json.loads(line)["event"] for line in out.getvalue().splitlines()]
    assert told == ["two", "three", "five", "six"]


async def test_the_watchdog_keeps_the_worst_delay_for_a_while(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    watchdog = LoopWatchdog()
    nursery.start_soon(watchdog.run)
    await trio.sleep(1)
    assert watchdog.worst_s < 0.001
    with capture_logs() as logs:
        watchdog.measured(0.1)
        assert logs == []
        watchdog.measured(0.3)
        assert [entry["event"] for entry in logs] == ["event loop was late"]
    await trio.sleep(31)
    assert watchdog.worst_s == 0.3
    await trio.sleep(31)
    assert watchdog.worst_s < 0.001


async def test_a_blocked_loop_is_measured(nursery: trio.Nursery, mock_clock: MockClock) -> None:
    watchdog = LoopWatchdog()
    nursery.start_soon(watchdog.run)
    await trio.testing.wait_all_tasks_blocked()
    mock_clock.jump(INTERVAL_S + 0.2)  # the loop comes back 0.2 s after the watchdog was due
    await trio.testing.wait_all_tasks_blocked()
    assert watchdog.worst_s == pytest.approx(0.2)
