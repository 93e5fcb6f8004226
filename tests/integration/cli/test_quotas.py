"""Quotas by the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline

pytestmark = pytest.mark.paceline(nodes=1)


def test_life_of_quotas(paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]) -> None:
    [address] = paceline.addresses("native")

    def run(*words: str, code: Exit = Exit.OK) -> str:
        assert cli.main(["quota", *words, "--bootstrap", address]) == code
        said = capsys.readouterr()
        return said.out if code is Exit.OK else said.err

    def data(*words: str) -> Any:
        return json.loads(run(*words, "--output", "json"))["quotas"]

    assert data("list") == []
    data("set", "--each-user", "--produce", "20MB", "--fetch", "1GiB")
    made = data("set", "--user", "ann", "--address", "10.0.0.7", "--requests", "12.5")
    assert [(each["for"], each["name"], each["limit"], each["rate"]) for each in made] == [
        ("user", None, "produce", 20e6),
        ("user", None, "fetch", 2.0**30),
        ("user", "ann", "requests", 12.5),
        ("address", "10.0.0.7", "requests", 12.5),
    ]
    shown = run("list")
    assert "(each)" in shown
    assert "20000000 (19.1 MiB)/s" in shown
    assert "12.5/s" in shown
    assert len(data("unset", "--each-user", "--fetch")) == 3
    assert len(data("unset", "--user", "ann", "--each-user", "--each-address")) == 1

    assert "say whose" in run("set", "--produce", "1MB", code=Exit.USAGE)
    assert "say how much" in run("set", "--user", "ann", code=Exit.USAGE)
    assert "much" in run("set", "--user", "ann", "--produce", "much", code=Exit.USAGE)
    assert "no IP address" in run("set", "--address", "here", "--fetch", "1MB", code=Exit.DATA)
    assert "more than 0" in run("set", "--user", "ann", "--fetch", "0", code=Exit.DATA)
