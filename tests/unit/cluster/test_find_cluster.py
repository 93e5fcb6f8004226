"""Finding the cluster: the order of the four ways, addresses, and the profile."""

from pathlib import Path

import click
import pytest

from paceline_cluster import profiles, state
from paceline_cluster.cli.find_cluster import ClusterRef, client_options, find
from paceline_cluster.errors import BadState, NoSuchCluster, Refused
from paceline_cluster.state import ClusterState, NodeEntry


@pytest.fixture(autouse=True)
def _own_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PACELINE_DIR", raising=False)


def test_order_of_the_four_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoSuchCluster, match="paceline up"):
        find(None, ())
    profiles.select(tmp_path / "p")
    assert find(None, ()) == ClusterRef(tmp_path / "p")
    monkeypatch.setenv("PACELINE_DIR", str(tmp_path / "e"))
    assert find(None, ()) == ClusterRef(tmp_path / "e")
    assert find(None, ("h:1",)) == ClusterRef(None, ("h:1",))
    assert find(tmp_path / "d", ()) == ClusterRef(tmp_path / "d")


@pytest.mark.parametrize(("words", "patience_s"), [((), 5), (("--connect-timeout", "0.5"), 0.5)])
def test_the_cluster_that_is_found_knows_how_long_to_try(
    words: tuple[str, ...], patience_s: float
) -> None:
    seen: list[ClusterRef] = []

    @click.command()
    @client_options
    def command(directory: Path | None, bootstrap: tuple[str, ...]) -> None:
        seen.append(find(directory, bootstrap))

    command.main(["--bootstrap", "h:1", *words], standalone_mode=False)
    assert seen == [ClusterRef(None, ("h:1",), patience_s)]


def test_addresses_come_from_the_directory(tmp_path: Path) -> None:
    node = NodeEntry(id=0, dir=tmp_path, listeners={"native": "127.0.0.1:7400"})
    state.store(tmp_path, ClusterState("c", (node,)))
    assert ClusterRef(tmp_path).bootstrap() == ("127.0.0.1:7400",)


def _stopped_at(directory: Path, address: str) -> ClusterRef:
    directory.mkdir(exist_ok=True)
    state.store(directory, ClusterState("c", (NodeEntry(0, directory, {"native": address}),)))
    return ClusterRef(directory)


def test_a_cluster_that_is_stopped_says_what_starts_it(tmp_path: Path) -> None:
    default = profiles.data_folder({"XDG_DATA_HOME": str(tmp_path)}) / "default"
    other = _stopped_at(tmp_path / "a b", "127.0.0.1:7400")
    assert other.is_stopped()
    assert other.stopped().hint == f"'paceline up --dir '{tmp_path}/a b'' starts it"
    profiles.select(tmp_path / "a b")
    assert other.stopped().hint == "'paceline up' starts it"
    assert default != other.dir


def test_no_address_of_a_stopped_cluster_is_tried_for_long(tmp_path: Path) -> None:
    """A client tried for 5 s, and then asked whether the cluster was up."""
    assert _stopped_at(tmp_path / "here", "127.0.0.1:7400").patience_s() == 0
    waiting = ClusterRef(tmp_path / "here", connect_timeout_s=30)
    assert waiting.patience_s() == 30
    assert _stopped_at(tmp_path / "there", "other.example:7400").patience_s() == 5
    assert ClusterRef(None, ("h:1",)).patience_s() == 5


def test_commands_for_this_machine_need_a_directory() -> None:
    with pytest.raises(Refused, match=r"'node kill' .* --dir"):
        ClusterRef(None, ("h:1",)).require_dir("node kill")


def test_purged_cluster_is_forgotten_and_others_are_not(tmp_path: Path) -> None:
    profiles.select(tmp_path / "a")
    profiles.forget(tmp_path / "b")
    assert profiles.selected() == profiles.Profile(tmp_path / "a")
    profiles.forget(tmp_path / "a")
    assert profiles.selected() is None


def test_broken_profile_is_named() -> None:
    folder = profiles.config_folder()
    folder.mkdir(parents=True)
    (folder / "profile.json").write_text("{}")
    with pytest.raises(BadState, match=r"profile\.json"):
        profiles.selected()


def test_folders_without_xdg() -> None:
    env = {"HOME": "/somewhere"}
    assert profiles.config_folder(env).is_relative_to("/somewhere")
    assert profiles.data_folder(env).is_relative_to("/somewhere")
