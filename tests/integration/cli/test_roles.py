"""``paceline role``: a leader is moved, and what becomes of that is told."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from docs.reference.outputs import OUTPUTS
from docs.reference.shapes import mismatches
from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline

pytestmark = pytest.mark.paceline(nodes=3, settings={"controller.balance_interval_ms": "0"})
HANG_S = 60.0


class Commands:
    def __init__(self, paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]) -> None:
        self._paceline = paceline
        self._capsys = capsys
        with paceline.connect() as client:
            client.admin.create_topic("orders", assignment=[[1, 0, 2], [2, 0, 1]])

    def run(self, *words: str, code: Exit = Exit.OK) -> tuple[str, str]:
        """What is printed, and what is said beside it."""
        self._capsys.readouterr()
        told = [*words, "--bootstrap", ",".join(self._paceline.addresses("native"))]
        assert cli.main(told) == code
        said = self._capsys.readouterr()
        return said.out, said.err

    def data(self, *words: str) -> tuple[Any, str]:
        """The document, and what is said beside it."""
        out, said = self.run(*words, "--output", "json")
        found = json.loads(out)
        assert not list(mismatches(OUTPUTS[" ".join(words[:2])], found))
        return found, said

    def described(self) -> list[Any]:
        """What is told of overrides, by partition, by the command and over HTTP alike."""
        found = self.data("topic", "describe", "orders")[0]["partitions"]
        address = self._paceline.addresses("http")[0]
        with urllib.request.urlopen(f"http://{address}/api/topics/orders", timeout=HANG_S) as page:
            told = json.load(page)["partitions"]
        overrides = [(each["pinned"], each["follower_marks"]) for each in found]
        assert [(each["pinned"], each["follower_marks"]) for each in told] == overrides
        return overrides


@pytest.fixture
def commands(paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(paceline, capsys)


def test_whoever_moves_a_leader_once_is_told_that_it_may_move_back(commands: Commands) -> None:
    """A minute later the balancer undid it, and nothing had said so."""
    done, said = commands.data("role", "elect", "orders/0", "--node", "0")
    assert (done["leader"], done["preferred"], done["pinned"]) == (0, 1, False)
    assert said == (
        "node 1 is the preferred leader of orders/0, and may have it back when leaders are balanced"
        " (controller.balance_interval_ms, 60 s unless it is set); 'paceline role set orders/0 "
        "leader --node 0' keeps it at node 0\n"
    )
    done, said = commands.data("role", "elect", "orders", "0", "--node", "1")
    assert (done["leader"], said) == (1, ""), "nobody moves it from the preferred leader"


def test_what_role_set_has_made_of_a_partition_is_seen(commands: Commands) -> None:
    assert commands.described() == [(False, []), (False, [])]
    assert "ROLE SET" not in commands.run("topic", "describe", "orders")[0]
    commands.data("role", "set", "orders/0", "leader", "--node", "2")
    commands.data("role", "set", "orders", "1", "follower", "--node", "2")
    assert commands.described() == [(True, []), (True, [2])]
    rows = [line.split() for line in commands.run("topic", "describe", "orders")[0].splitlines()]
    assert rows[1][-2:] == ["ROLE", "SET"]
    assert rows[2][-1] == "pinned"
    assert rows[3][-3:] == ["pinned,", "follower", "2"]
    done, said = commands.data("role", "elect", "orders/0", "--node", "0")
    assert (done["pinned"], said) == (True, ""), "it stays where it is moved to"
    commands.data("role", "set", "orders/0", "auto", "--node", "0")
    commands.data("role", "set", "orders/1", "auto", "--node", "2")
    assert commands.described() == [(False, []), (False, [])]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["elect", "orders", "--node", "0"], "'orders' is no TOPIC/PARTITION"),
        (["elect", "orders/x", "--node", "0"], "'orders/x' is no TOPIC/PARTITION"),
        (["elect", "orders", "x", "--node", "0"], "'orders/x' is no TOPIC/PARTITION"),
        (["elect", "orders/0", "0", "--node", "0"], "'orders/0/0' is no TOPIC/PARTITION"),
        (["elect", "--node", "0"], "Missing argument"),
        (["set", "orders/0", "--node", "0"], "TOPIC/PARTITION ROLE"),
        (["set", "orders/0", "king", "--node", "0"], "'king' is not one of"),
        (["set", "orders", "leader", "--node", "0"], "'orders' is no TOPIC/PARTITION"),
        (["set", "--node", "0"], "Missing argument"),
    ],
)
def test_what_names_no_partition_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["role", *words]) == Exit.USAGE
    assert said in capsys.readouterr().err
