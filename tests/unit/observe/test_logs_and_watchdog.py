from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from paceline_node.observe.logs import configure_logs
from paceline_node.observe.watchdog import INTERVAL_S, LoopWatchdog


@pytest.fixture
def out(tmp_path: Path) -> Iterator[TextIO]:
    with (tmp_path / "log").open("w+") as file:
        yield file


def written(file: TextIO) -> str:
    file.seek(0)
    return file.read()


def test_json_lines_hold_event_facts_and_tracebacks(out: TextIO) -> None:
    configure_logs(level="info", format="json", stream=out)
    log = structlog.get_logger(component="peers", node=3)
    log.debug("not shown")
    log.info("peer link down", reason="refused")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("page failed")
    first, second = map(json.loads, written(out).splitlines())
    assert first["event"] == "peer link down"
    assert (first["component"], first["node"], first["level"]) == ("peers", 3, "info")
    assert first["timestamp"].endswith("Z")
    assert second["exception"][0]["exc_value"] == "broken"


def test_console_lines_are_for_people(out: TextIO) -> None:
    configure_logs(level="warning", format="console", stream=out)
    log = structlog.get_logger()
    log.info("hidden")
    log.warning("disk is slow", p99_s=1.5)
    (line,) = written(out).splitlines()
    assert "disk is slow" in line
    assert "p99_s=1.5" in line
    assert "\x1b" not in line


def test_the_level_changes_for_loggers_in_use(out: TextIO) -> None:
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
    told = [json.loads(line)["event"] for line in written(out).splitlines()]
    assert told == ["two", "three", "five", "six"]


def test_a_full_disk_costs_lines_and_no_process() -> None:
    """A node whose log lay on its data's disk ended at the first line that found no room."""
    with Path("/dev/full").open("w") as full:
        configure_logs(level="info", format="console", stream=full)
        structlog.get_logger().error("no room")


def test_dropped_lines_are_counted_in_the_next_one() -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with os.fdopen(reading, "rb", buffering=0) as there, os.fdopen(writing, "w") as here:
        configure_logs(level="info", format="json", stream=here)
        log = structlog.get_logger()
        room = 1 << 20
        log.info("fills it", blank=" " * room)
        log.info("lost")
        while len(there.read(room)) == room:
            continue
        log.info("there is room")
        log.info("again")
        told = [json.loads(line) for line in there.read(room).splitlines()]
    assert [(each["event"], each.get("lines_dropped")) for each in told] == [
        ("there is room", 2),
        ("again", None),
    ]


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
