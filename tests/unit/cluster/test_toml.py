"""Node configurations: what is written, TOML reads back; settings are laid over it."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_cluster import node_config
from paceline_cluster.node_config import NodePlan
from paceline_cluster.toml import merged, parse_value, render

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = TEXT | st.integers(-(2**63), 2**63 - 1) | st.booleans() | st.lists(TEXT)


@given(st.dictionaries(st.sampled_from(["", "log", "node"]), st.dictionaries(st.just("k"), VALUES)))
def test_rendered_sections_read_back(sections: dict[str, dict[str, object]]) -> None:
    found = tomllib.loads(render(sections))  # type: ignore[arg-type]
    expected: dict[str, object] = {name: keys for name, keys in sections.items() if name}
    expected.update(sections.get("", {}))
    assert found == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1024", 1024),
        ("true", True),
        ("0.5", 0.5),
        ("group", "group"),
        ("", ""),
        ('["a", "b"]', ["a", "b"]),
        ('"quoted"', "quoted"),
        ("2026-01-01", "2026-01-01"),
        ("[1, 2]", "[1, 2]"),
    ],
)
def test_values_of_set(text: str, expected: object) -> None:
    assert parse_value(text) == expected


def test_settings_win_and_add() -> None:
    sections = {"log": {"a": 1, "b": 2}}
    assert merged(sections, {"log.b": "3", "flush.mode": "group"}) == {
        "log": {"a": 1, "b": 3},
        "flush": {"mode": "group"},
    }
    assert sections == {"log": {"a": 1, "b": 2}}


def _plan(number: int, *, bind: str = "127.0.0.1", data_dir: Path | None = None) -> NodePlan:
    listeners = {"native": (f"h{number}", 7400), "peer": (f"h{number}", 7401)}
    return NodePlan(number, listeners, bind, data_dir, "local")


def test_file_of_a_node() -> None:
    plans = [_plan(0, bind="0.0.0.0"), _plan(1), _plan(2), _plan(3)]
    found = tomllib.loads(node_config.text(plans[0], Path("/c/node-0"), plans, {"v1.x": "7"}))
    assert found == {
        "listeners": [
            "native://0.0.0.0:7400?advertised=h0:7400",
            "peer://0.0.0.0:7401?advertised=h0:7401",
        ],
        "node": {"id": 0, "data_dir": "/c/node-0"},
        "cluster": {
            "bootstrap": ["0@h0:7401", "1@h1:7401", "2@h2:7401", "3@h3:7401"],
            "timing": "local",
        },
        "topics": {"replication_factor": 3, "min_insync_replicas": 2},
        "v1": {"x": 7},
    }


@pytest.mark.parametrize(
    ("nodes", "expected"), [(1, (1, 1)), (2, (2, 2)), (3, (3, 2)), (5, (3, 2))]
)
def test_replication_follows_the_number_of_nodes(nodes: int, expected: tuple[int, int]) -> None:
    plans = [_plan(number) for number in range(nodes)]
    topics = tomllib.loads(node_config.text(plans[0], Path("/c"), plans, {}))["topics"]
    assert (topics["replication_factor"], topics["min_insync_replicas"]) == expected


def test_directory_that_will_be_carried_away() -> None:
    plan = _plan(0, data_dir=Path("/var/lib/paceline"))
    found = tomllib.loads(node_config.text(plan, Path("/c/node-0"), [plan], {}))
    assert found["node"]["data_dir"] == "/var/lib/paceline"
    assert found["cluster"]["secret_file"] == "/var/lib/paceline/cluster.secret"


def test_settings_over_an_existing_file() -> None:
    old = '# note\nlisteners = ["native://127.0.0.1:1"]\n[node]\nid = 4\n'
    found = tomllib.loads(node_config.with_settings(old, {"node.id": "5", "log.x": "a"}))
    assert found == {
        "listeners": ["native://127.0.0.1:1"],
        "node": {"id": 5},
        "log": {"x": "a"},
    }


def test_settings_are_taken_out_of_a_file() -> None:
    old = 'listeners = ["a"]\n[node]\nid = 3\nrack = "x"\n[log]\nrack = "y"\n'
    found = tomllib.loads(node_config.without(old, ["node.rack", "log.gone", "listeners"]))
    assert found == {"node": {"id": 3}, "log": {"rack": "y"}}
