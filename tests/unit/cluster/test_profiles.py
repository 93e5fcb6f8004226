"""Clusters by name: which are known, which one commands find, what is left of a purged one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline_cluster import processes, profiles, state
from paceline_cluster.cli import main as cli
from paceline_cluster.cli import up
from paceline_cluster.cli.output import OutputFormat, Printer
from paceline_cluster.errors import Exit, NoSuchCluster
from paceline_cluster.profiles import PROFILE_FILE, Profile
from paceline_cluster.state import ClusterState, NodeEntry


@pytest.fixture(autouse=True)
def _own_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PACELINE_DIR", raising=False)


def cluster(directory: Path, *, pid: int | None = None) -> Path:
    """A cluster of one node, whose process may be any that is there."""
    directory.mkdir(parents=True)
    started = None if pid is None else processes.start_time(pid)
    node = NodeEntry(0, directory / "node-0", {"native": "127.0.0.1:1"}, pid, started)
    state.store(directory, ClusterState("c", (node,)))
    return directory


def test_the_last_used_one_is_selected_and_first(tmp_path: Path) -> None:
    a, b = cluster(tmp_path / "a"), cluster(tmp_path / "b")
    for each in (a, b, a):
        profiles.select(each)
    assert profiles.selected() == Profile(a)
    assert profiles.known() == (a, b)
    (b / state.CLUSTER_FILE).unlink()  # removed by hand
    profiles.select(a)
    assert profiles.known() == (a,)


def test_a_file_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    folder = profiles.config_folder()
    folder.mkdir(parents=True)
    (folder / PROFILE_FILE).write_text(json.dumps({"dir": str(tmp_path / "a")}))
    assert profiles.selected() == Profile(tmp_path / "a")
    assert profiles.known() == (tmp_path / "a",)


def test_names_are_those_of_directories(tmp_path: Path) -> None:
    a, other = cluster(tmp_path / "x" / "a"), cluster(tmp_path / "y" / "a")
    profiles.select(a)
    assert profiles.named("a") == profiles.named(str(a)) == a
    profiles.select(other)
    with pytest.raises(NoSuchCluster, match=f"several .* 'a'; name one of {other}, {a}"):
        profiles.named("a")
    with pytest.raises(NoSuchCluster, match="no cluster 'b' is known here"):
        profiles.named("b")


def test_list_use_and_forget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = cluster(tmp_path / "a", pid=os.getpid()), cluster(tmp_path / "b")
    profiles.select(b)
    profiles.select(a)
    assert cli.main(["cluster", "list", "--output", "json"]) == Exit.OK
    assert json.loads(capsys.readouterr().out)["clusters"] == [
        {
            "name": "a",
            "selected": True,
            "state": "running",
            "running": 1,
            "nodes": 1,
            "dir": str(a),
        },
        {
            "name": "b",
            "selected": False,
            "state": "stopped",
            "running": 0,
            "nodes": 1,
            "dir": str(b),
        },
    ]
    assert cli.main(["cluster", "use", "b"]) == Exit.OK
    assert profiles.selected() == Profile(b)
    assert cli.main(["cluster", "use", "c"]) == Exit.DATA
    assert "'paceline cluster list' shows" in capsys.readouterr().err
    assert cli.main(["cluster", "forget", "b"]) == Exit.OK
    assert (profiles.selected(), profiles.known()) == (None, (a,))
    assert state.exists(b)
    assert cli.main(["cluster", "use", str(b)]) == Exit.OK
    assert profiles.selected() == Profile(b)


def test_a_purge_selects_no_other_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It selected one that ran, and a second 'purge --yes' destroyed that."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        running = cluster(tmp_path / "running one", pid=other.pid)
        stopped, purged = cluster(tmp_path / "stopped"), cluster(tmp_path / "purged")
        for each in (running, stopped, purged):
            profiles.select(each)
        assert cli.main(["purge", "--yes"]) == Exit.OK
        said = capsys.readouterr().err
        assert (
            f"'paceline cluster use '{running}'' selects the one in {running}, which runs" in said
        )
        assert (profiles.selected(), profiles.known()) == (None, (stopped, running))
        assert cli.main(["purge", "--yes"]) == Exit.DATA
        said = capsys.readouterr().err
        assert "no cluster is selected\n'paceline cluster use NAME' selects one of " in said
        assert state.exists(running)
        profiles.select(running)
        assert cli.main(["purge", "--yes", "--dir", str(stopped)]) == Exit.OK
        assert profiles.selected() == Profile(running)
        assert "cluster use" not in capsys.readouterr().err
        other.communicate(b"\n")
    assert not purged.exists()


@pytest.mark.parametrize(
    "content", [b"{", b"\xff", b"[]", b'{"cluster_id": "c", "nodes": [{"listeners": []}]}', b"{}"]
)
def test_a_damaged_neighbour_is_told_and_in_nobodys_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    """'cluster list' failed; a purge removed the directory and did not forget the cluster."""
    damaged, purged = cluster(tmp_path / "damaged"), cluster(tmp_path / "purged")
    for each in (damaged, purged):
        profiles.select(each)
    (damaged / state.CLUSTER_FILE).write_bytes(content)
    assert cli.main(["cluster", "list", "--output", "json"]) == Exit.OK
    rows = json.loads(capsys.readouterr().out)["clusters"]
    assert [(row["name"], row["state"]) for row in rows] == [
        ("purged", "stopped"),
        ("damaged", "damaged"),
    ]
    assert cli.main(["purge", "--yes"]) == Exit.OK
    assert (profiles.selected(), profiles.known()) == (None, (damaged,))


@pytest.mark.parametrize("variable", ["other", "a"])
def test_use_says_where_the_variable_goes_first(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str,
) -> None:
    """It said that commands find the cluster, and they found another one."""
    a = cluster(tmp_path / "a")
    profiles.select(a)
    monkeypatch.setenv("PACELINE_DIR", str(tmp_path / variable))
    assert cli.main(["cluster", "use", "a"]) == Exit.OK
    said = capsys.readouterr().err
    told = f"$PACELINE_DIR names {tmp_path / 'other'} and goes first: commands find that one here"
    assert (told in said) is (variable == "other")
    assert profiles.selected() == Profile(a)


@pytest.mark.parametrize("variable", [None, "other", "a"])
def test_up_says_what_commands_find(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variable: str | None,
) -> None:
    a, b = cluster(tmp_path / "a"), cluster(tmp_path / "b")
    profiles.select(b)
    if variable is not None:
        monkeypatch.setenv("PACELINE_DIR", str(tmp_path / variable))
    up.select(a, Printer(OutputFormat.TABLE))
    said = capsys.readouterr().err
    goes_first = f"$PACELINE_DIR names {tmp_path / 'other'} and goes first"
    assert (goes_first in said) is (variable == "other")
    assert (f"commands find the cluster in {a} now; 'paceline cluster use {b}' goes" in said) is (
        variable is None
    )
    assert profiles.selected() == Profile(a)
