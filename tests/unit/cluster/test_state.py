"""cluster.json: round trip, errors, replacement as a whole, and the lock."""

import json
import multiprocessing
from pathlib import Path

import pytest

from paceline_cluster import state
from paceline_cluster.errors import BadState, NoSuchCluster, NoSuchNode
from paceline_cluster.state import ClusterState, NodeEntry


def _cluster(directory: Path, count: int = 2) -> ClusterState:
    nodes = tuple(
        NodeEntry(
            id=number,
            dir=directory / f"node-{number}",
            listeners={"v1": f"127.0.0.1:{9092 + number}", "native": f"127.0.0.1:{7400 + number}"},
        )
        for number in range(count)
    )
    return ClusterState("c-1", nodes, {"log.segment_bytes": "1024"})


def test_what_is_stored_is_loaded(tmp_path: Path) -> None:
    written = _cluster(tmp_path)
    state.store(tmp_path, written)
    assert state.load(tmp_path) == written


def test_file_has_the_documented_shape(tmp_path: Path) -> None:
    state.store(tmp_path, _cluster(tmp_path, 1))
    data = json.loads((tmp_path / "cluster.json").read_text())
    assert data["cluster_id"] == "c-1"
    [node] = data["nodes"]
    assert node["id"] == 0
    assert node["pid"] is None
    assert node["dir"] == str(tmp_path / "node-0")
    assert node["listeners"]["v1"] == "127.0.0.1:9092"


def test_a_listener_that_was_renamed_since_is_found_and_shown_by_its_new_name(
    tmp_path: Path,
) -> None:
    state.store(tmp_path, _cluster(tmp_path, 1))
    file = tmp_path / "cluster.json"
    file.write_text(file.read_text().replace('"v1"', '"coordinator"'))
    loaded = state.load(tmp_path)
    assert loaded.addresses("kafka") == ["127.0.0.1:9092"]
    state.store(tmp_path, loaded)
    [node] = json.loads(file.read_text())["nodes"]
    assert node["listeners"] == {"kafka": "127.0.0.1:9092", "native": "127.0.0.1:7400"}


def test_no_cluster_names_the_directory(tmp_path: Path) -> None:
    with pytest.raises(NoSuchCluster, match=str(tmp_path)):
        state.load(tmp_path)
    assert not state.exists(tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cluster_id": "x"}', '{"nodes": [{}]}'])
def test_broken_file_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(BadState, match=r"cluster\.json"):
        state.load(tmp_path)


def test_unknown_node_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(NoSuchNode, match=r"no node 7 .* it has 0, 1"):
        _cluster(tmp_path).node(7)


def test_addresses_by_listener(tmp_path: Path) -> None:
    assert _cluster(tmp_path).addresses("native") == ["127.0.0.1:7400", "127.0.0.1:7401"]
    assert _cluster(tmp_path).addresses("http") == []


def test_write_file_sets_the_mode_and_leaves_no_rest(tmp_path: Path) -> None:
    path = tmp_path / "cluster.secret"
    state.write_file(path, "s3", mode=0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["cluster.secret"]


def _count_up(directory: Path, node_id: int, times: int) -> None:
    import dataclasses

    for _ in range(times):
        state.update_node(
            directory,
            node_id,
            lambda entry: dataclasses.replace(entry, pid=(entry.pid or 0) + 1),
        )


def test_changes_of_several_processes_do_not_get_lost(tmp_path: Path) -> None:
    state.store(tmp_path, _cluster(tmp_path))
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_count_up, args=(tmp_path, number, 20)) for number in (0, 1, 0)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
        worker.close()
    loaded = state.load(tmp_path)
    assert [entry.pid for entry in loaded.nodes] == [40, 20]


def test_only_a_cluster_is_locked(tmp_path: Path) -> None:
    """'down' of a directory that is gone said '[Errno 2] ... .lock', and left a lock in others."""
    with (
        pytest.raises(NoSuchCluster, match="there is no cluster in"),
        state.locked(tmp_path / "no"),
    ):
        pytest.fail("there is nothing to lock")
    with pytest.raises(NoSuchCluster), state.locked(tmp_path):
        pytest.fail("there is nothing to lock")
    assert not list(tmp_path.iterdir())
