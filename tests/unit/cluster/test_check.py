"""``paceline check``: thresholds, exit codes, and the four ways in which a verdict is written."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.documents.survey import Survey
from paceline.health import Level
from paceline.types import NodeId
from paceline.wire.native.status_details import CertificateStanding, HealthFinding
from paceline_cluster import questions
from paceline_cluster.cli.main import main
from paceline_cluster.verdicts import (
    Finding,
    Measure,
    Status,
    Thresholds,
    Verdict,
    to_json,
    to_nagios,
    to_prometheus,
    to_text,
    unknown,
)
from tests.unit.cluster.test_survey import ALL_WELL, _survey

DAY_S = 24 * 3600
WELL = replace(ALL_WELL, image_offset=11, disk_bytes=1000, disk_free_bytes=400, loop_delay_ms=100)


def seen(**changes: Any) -> Survey:
    """All well, but for node 0."""
    return _survey(replace(WELL, **changes), WELL, WELL)


def finding(name: str, reason: str) -> dict[str, Any]:
    return {"findings": (HealthFinding(name, Level.CRITICAL, reason, "mend it"),)}


@pytest.mark.parametrize(
    ("thresholds", "values"),
    [
        (Thresholds(1, 3), {0.9: 0, 1: 1, 2.9: 1, 3: 2}),
        (Thresholds(15, 5, is_floor=True), {15: 0, 14.9: 1, 5: 1, 4.9: 2}),
        (Thresholds(1, None), {0: 0, 99: 1}),
        (Thresholds(None, None), {0: 0, 99: 0}),
        (Thresholds(None, 0), {0: 2}),
    ],
)
def test_thresholds(thresholds: Thresholds, values: dict[float, int]) -> None:
    assert {value: int(thresholds.judge(value)) for value in values} == values


@pytest.mark.parametrize(
    ("found", "status"),
    [
        ((), Status.OK),
        ((Status.WARNING, Status.UNKNOWN), Status.WARNING),
        ((Status.UNKNOWN, Status.OK), Status.UNKNOWN),
        ((Status.WARNING, Status.UNKNOWN, Status.CRITICAL), Status.CRITICAL),
    ],
)
def test_the_worst_decides_and_unknown_is_no_excuse(
    found: tuple[Status, ...], status: Status
) -> None:
    assert Verdict("x", "", tuple(Finding(each, "why") for each in found)).status is status


HEALTH = lambda survey: questions.health(survey)  # noqa: E731
QUORUM = lambda survey: questions.quorum(survey, 3, 1000, 10_000)  # noqa: E731
PARTITIONS = lambda survey: questions.partitions(survey, 1, None)  # noqa: E731
DISK = lambda survey: questions.disk(survey, 15, 5)  # noqa: E731
CERTIFICATES = lambda survey: questions.certificates(survey, 14, 3)  # noqa: E731
LOOP = lambda survey: questions.event_loop(survey, 0.5, 2)  # noqa: E731


def _good_for(days: float) -> dict[str, Any]:
    ends = int(time.time() + days * DAY_S)
    return {"certificates": (CertificateStanding("tls.certificate", ends),)}


@pytest.mark.parametrize(
    ("question", "changed", "status", "said"),
    [
        (HEALTH, {}, Status.OK, "healthy"),
        (HEALTH, finding("disk-speed", "the disk is slow"), Status.CRITICAL, "the disk is slow"),
        (HEALTH, {"under_replicated_count": 2}, Status.WARNING, "under-replicated"),
        (HEALTH, finding("event-loop", "it stood still"), Status.OK, "healthy"),
        (QUORUM, {}, Status.OK, "3 nodes vote"),
        (QUORUM, {"voters": (NodeId(0),)}, Status.CRITICAL, "1 node votes, not 3"),
        (QUORUM, {"commit_offset": 1011}, Status.WARNING, "1000 metadata records behind"),
        (QUORUM, {"commit_offset": 99_999}, Status.CRITICAL, "metadata records behind"),
        (QUORUM, {"controller": NodeId(-1)}, Status.CRITICAL, "do not agree"),
        (PARTITIONS, {}, Status.OK, "all 17 partitions"),
        (PARTITIONS, {"under_replicated_count": 1}, Status.WARNING, "1 of 17"),
        (PARTITIONS, {"under_min_isr_count": 1}, Status.CRITICAL, "below min.insync.replicas"),
        (PARTITIONS, {"leaderless_count": 1}, Status.CRITICAL, "without leader"),
        (DISK, {}, Status.OK, "at least 40 %"),
        (DISK, {"disk_free_bytes": 149}, Status.WARNING, "node 0 has 14.9 %"),
        (DISK, {"disk_free_bytes": 49}, Status.CRITICAL, "node 0 has 4.9 %"),
        (DISK, finding("disk-space", "the disk is full"), Status.CRITICAL, "the disk is full"),
        (DISK, {"disk_bytes": -1}, Status.UNKNOWN, "node 0 does not know"),
        (CERTIFICATES, {}, Status.OK, "nothing is encrypted"),
        (CERTIFICATES, _good_for(30), Status.OK, "good for"),
        (CERTIFICATES, _good_for(13), Status.WARNING, "node 0: tls.certificate ends on"),
        (CERTIFICATES, _good_for(-1), Status.CRITICAL, "node 0: tls.certificate ends on"),
        (
            CERTIFICATES,
            finding("certificates", "new certificates are not in force: no"),
            Status.CRITICAL,
            "not in force",
        ),
        (LOOP, {}, Status.OK, "more than 0.1 s"),
        (LOOP, {"loop_delay_ms": 500}, Status.WARNING, "node 0 stood still for 0.5 s"),
        (LOOP, {"loop_delay_ms": 2000}, Status.CRITICAL, "node 0 stood still for 2 s"),
    ],
)
def test_questions(
    question: Callable[[Survey], Verdict], changed: dict[str, Any], status: Status, said: str
) -> None:
    verdict = question(seen(**changed))
    assert verdict.status is status, verdict
    assert said in verdict.headline


@pytest.mark.parametrize("question", [QUORUM, PARTITIONS, DISK, CERTIFICATES, LOOP])
def test_where_nobody_answers_it_is_not_known(question: Callable[[Survey], Verdict]) -> None:
    assert question(_survey(None, None, None)).status is Status.UNKNOWN


def test_a_node_that_says_nothing_is_worse_than_all_being_well() -> None:
    assert DISK(_survey(WELL, WELL, None)).status is Status.UNKNOWN
    low = replace(WELL, disk_free_bytes=1)
    assert DISK(_survey(low, WELL, None)).status is Status.CRITICAL


LIMITS = Thresholds(15, 5, is_floor=True)
LOW = Verdict(
    "disk",
    "enough",
    (Finding(Status.WARNING, "node 0 | low", "make room", 0),),
    (Measure("disk_free", 12.5, "%", LIMITS, 0), Measure("count", 3)),
)


def test_text() -> None:
    assert to_text(LOW) == "WARNING disk: node 0 | low\n  WARNING: node 0 | low; make room"
    assert to_text(Verdict("disk", "enough")) == "OK disk: enough"


def test_nagios_has_performance_data_behind_the_only_bar() -> None:
    assert to_nagios(LOW) == (
        "PACELINE DISK WARNING - node 0 / low | node_0_disk_free=12.5%;15:;5: count=3;;\n"
        "WARNING: node 0 / low"
    )
    assert to_nagios(unknown("disk", "nobody\nanswers")) == (
        "PACELINE DISK UNKNOWN - nobody answers\nUNKNOWN: nobody answers"
    )


def test_prometheus_is_the_text_format() -> None:
    lines = to_prometheus(LOW).split("\n")
    assert 'paceline_check_status{check="disk"} 1' in lines
    assert 'paceline_check_value{check="disk",name="disk_free",unit="%",node="0"} 12.5' in lines
    sample = re.compile(r'[a-z_]+\{([a-z]+="[^"\\]*",?)+\} [0-9.]+')
    assert all(line.startswith("# ") or sample.fullmatch(line) for line in lines)


def test_json() -> None:
    said = to_json(LOW)
    assert (said["check"], said["status"], said["summary"]) == ("disk", "warning", "node 0 | low")
    assert said["findings"][0]["what_to_do"] == "make room"
    assert said["measures"][0] == {
        "name": "disk_free",
        "value": 12.5,
        "unit": "%",
        "warning": 15,
        "critical": 5,
        "node": 0,
    }


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.parametrize("form", ["text", "json", "nagios", "prometheus"])
def test_what_cannot_be_found_out_is_unknown_in_every_form(
    form: str, nobody: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "disk", "--bootstrap", nobody, "--output", form]) == 3
    said = capsys.readouterr().out
    if form == "json":
        assert json.loads(said)["status"] == "unknown"
    else:
        assert "UNKNOWN" in said or 'paceline_check_status{check="disk"} 3' in said


def test_a_wrong_command_line_is_unknown_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("PACELINE_DIR", raising=False)
    for words in (["disk", "--warning", "much"], ["nothing"], ["disk", "--output", "yaml"]):
        assert main(["check", *words]) == 3, words
        assert "paceline:" in capsys.readouterr().err
    assert main(["check", "health"]) == 3, "no cluster is selected"
    assert "no cluster is selected" in capsys.readouterr().out


def test_what_to_do_is_told_once() -> None:
    found = (
        Finding(Status.CRITICAL, "node 1 is stopped: start it", "start it", 1),
        Finding(Status.CRITICAL, "no leader", "wait", None),
    )
    [_, stopped, leader] = to_text(Verdict("health", "", found)).splitlines()
    assert stopped == "  CRITICAL: node 1 is stopped: start it"
    assert leader == "  CRITICAL: no leader; wait"


def test_without_a_controller_no_partition_takes_writes() -> None:
    """Nothing is known to be wrong with them then: it was a warning, of replicas."""
    nobody = replace(WELL, controller=NodeId(-1), under_replicated_count=1)
    verdict = questions.partitions(_survey(nobody, nobody, nobody), 1, None)
    assert verdict.status is Status.CRITICAL
    assert verdict.headline.startswith("there is no controller: ")
