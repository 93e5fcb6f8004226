"""What ``paceline`` says to those who mistype, of a cluster that runs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline

pytestmark = pytest.mark.paceline(nodes=1)


@pytest.fixture(autouse=True)
def _nothing_to_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


@pytest.mark.parametrize(("listener", "protocol"), [("v1", "V1"), ("http", "HTTP")])
def test_another_listener_is_named_by_what_it_speaks(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str], listener: str, protocol: str
) -> None:
    [address] = paceline.addresses(listener)
    assert cli.main(["topic", "list", "--bootstrap", address]) == Exit.DATA
    said = capsys.readouterr().err
    assert f"paceline: {address} speaks {protocol}, not the native protocol\n" in said


def test_a_name_that_no_topic_can_have_is_told_with_those_that_can(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It was 'bad/name: error code 17'."""
    file = tmp_path / "lines"
    file.write_text("a\n")
    [address] = paceline.addresses("native")
    assert cli.main(["produce", "bad/name", str(file), "--bootstrap", address]) == Exit.DATA
    assert "no topic can have this name: expected 1 to 249 of A-Z" in capsys.readouterr().err
