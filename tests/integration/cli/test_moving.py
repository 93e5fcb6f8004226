"""``paceline partition move``: plans, moves, what they wait for, and giving them up."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.reference.outputs import OUTPUTS
from docs.reference.shapes import mismatches
from paceline.types import NodeId, TopicPartition
from paceline_cluster.cli import main as cli
from paceline_cluster.cli.output import OutputFormat, Printer, Update
from paceline_cluster.cli.partitions import carried_out
from paceline_cluster.errors import Exit
from paceline_cluster.moving import what_is_left
from paceline_cluster.replica_plan import Move
from paceline_cluster.testing import BlockingPaceline, Paceline

pytestmark = pytest.mark.paceline(nodes=4)
FIRST = tuple(map(NodeId, (0, 1, 2)))
RECORDS = 300
HANG_S = 300.0
"""Bounds a hang; it measures nothing."""


class Commands:
    def __init__(self, paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]) -> None:
        self._addresses = ",".join(paceline.addresses("native"))
        self._capsys = capsys

    def run(self, *words: str, code: Exit = Exit.OK) -> str:
        """What is printed; of a failure what is said."""
        told = ["partition", "move", *words, "--bootstrap", self._addresses]
        assert cli.main(told) == code, self._capsys.readouterr()
        said = self._capsys.readouterr()
        return " ".join((said.out if code is Exit.OK else said.err).split())

    def data(self, *words: str) -> Any:
        found = json.loads(self.run(*words, "--output", "json"))
        assert not list(mismatches(OUTPUTS[f"partition move {words[0]}"], found))
        return found

    def seen(self, holds: Callable[[list[Any]], bool]) -> list[Any]:
        """What is being moved, once that ``holds``: nodes learn of it one after the other, and any
        of them may be asked."""
        deadline = time.monotonic() + HANG_S
        while not holds(moves := self.data("status")["partitions"]):
            assert time.monotonic() < deadline, moves
            time.sleep(0.05)
        return moves


@pytest.fixture
def move(paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(paceline, capsys)


def replicas(paceline: BlockingPaceline, topic: str, partition: int) -> tuple[int, ...]:
    return tuple(paceline.partition(topic, partition).replicas)


def test_partitions_move_by_a_plan_and_what_is_stuck_says_why(
    paceline: BlockingPaceline, move: Commands, tmp_path: Path
) -> None:
    with paceline.connect() as client:
        client.admin.create_topic("orders", assignment=[FIRST, FIRST])
        with client.producer() as producer:
            for number in range(RECORDS):
                producer.send("orders", b"%d" % number, partition=number % 2)
    file = tmp_path / "plan.json"
    made = move.data("plan", "orders", "--away-from", "0", "--file", str(file))
    assert json.loads(file.read_text()) == made
    assert [(each["former_replicas"], each["replicas"]) for each in made["partitions"]] == [
        ([0, 1, 2], [3, 1, 2])
    ] * 2
    assert all(each["size_bytes"] > 0 for each in made["partitions"])
    done = move.data("execute", str(file), "--at-once", "1")["partitions"]
    assert [(each["partition"], each["state"]) for each in done] == [(0, "moved"), (1, "moved")]
    assert replicas(paceline, "orders", 0) == replicas(paceline, "orders", 1) == (3, 1, 2)
    again = move.data("execute", str(file))["partitions"]
    assert {each["state"] for each in again} == {"there"}
    with paceline.connect() as client, client.consumer("orders") as consumer:
        found = sorted(int(next(consumer).value or b"-1") for _ in range(RECORDS))
    assert found == list(range(RECORDS))

    paceline.kill(0)
    by_hand = tmp_path / "kafka.json"
    wanted = {"topic": "orders", "partition": 0, "replicas": [0, 1], "log_dirs": ["any", "any"]}
    by_hand.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    said = move.run("execute", str(by_hand), "--timeout", "0", code=Exit.TIMEOUT)
    assert "1 partition is still being moved: orders/0 (" in said
    [seen] = move.seen(lambda moves: [e["waits_for"] for e in moves] == ["node 0 does not run"])
    assert (seen["adding"], seen["removing"], seen["left_bytes"]) == ([0], [3, 2], None)
    assert "orders/0 0 3, 2 " in move.run("status")
    said = move.run("plan", code=Exit.UNAVAILABLE)
    assert "1 partition is being moved already (orders/0)" in said
    [given_up] = move.data("cancel", "--all")["partitions"]
    assert (given_up["partition"], given_up["cancelled"]) == (0, True)
    assert replicas(paceline, "orders", 0) == (1, 3, 2), "those from before, in the move's order"
    move.seen(lambda moves: not moves)
    said = move.run("cancel", "orders/0", code=Exit.UNAVAILABLE)
    assert "orders/0: it is not being moved" in said

    said = move.run("plan", "orders", "--away-from", "1", code=Exit.UNAVAILABLE)
    assert "orders/0 has 3 replicas, and no node without one of them can take that of node 1" in (
        said
    )
    wanted |= {"former_replicas": [0, 1, 2]}
    by_hand.write_text(json.dumps({"partitions": [wanted]}))
    said = move.run("execute", str(by_hand), code=Exit.UNAVAILABLE)
    assert "orders/0: its replicas have changed since the plan: 1, 3, 2" in said


@pytest.mark.paceline(nodes=1)
def test_a_plan_that_is_refused_counts_what_it_does_not_name(
    paceline: BlockingPaceline, move: Commands
) -> None:
    """Five were named, as if there were no more."""
    paceline.create_topic("orders", partitions=7, replication_factor=1)
    said = move.run("plan", "orders", "--away-from", "0", code=Exit.UNAVAILABLE)
    assert "orders/4 has 1 replica" in said
    assert "orders/5" not in said
    assert "; and 2 more add a node, or lower the replication factor" in said


class Watched(Printer):
    """Keeps what its bar is told."""

    def __init__(self) -> None:
        super().__init__(OutputFormat.TABLE)
        self.total = 0
        self.done: list[int] = []

    @contextlib.contextmanager
    def progress(
        self, title: str, total: int | None, *, in_bytes: bool = False
    ) -> Iterator[Update]:
        assert total is not None
        self.total = total
        yield self.done.append


@pytest.mark.parametrize("after", [(1, 0, 2), pytest.param((3, 0, 1), marks=pytest.mark.slow)])
async def test_the_bar_of_moves_goes_to_its_end(paceline: Paceline, after: tuple[int, ...]) -> None:
    """It stood at 0 % where no record had to be copied, or was copied between two looks."""
    async with paceline.connect() as client:
        await client.admin.create_topic("orders", assignment=[FIRST, FIRST])
        nodes = tuple(map(NodeId, after))
        moves = [Move(TopicPartition("orders", number), FIRST, nodes, 1) for number in range(2)]
        watched = Watched()
        results = await carried_out(client, moves=moves, at_once=1, timeout=None, printer=watched)
    assert [each.state for each in results] == ["moved", "moved"]
    assert watched.done[-1] == watched.total == 2


@pytest.mark.paceline(nodes=1)
async def test_a_move_that_the_node_asked_does_not_know_is_named_all_the_same(
    paceline: Paceline,
) -> None:
    """Nodes learn of a move one after the other, and any of them may be asked: the sentence ended
    behind its colon."""
    await paceline.create_topic("orders", partitions=2)
    moves = [
        Move(TopicPartition("orders", number), FIRST[:1], FIRST[1:2], 1) for number in range(2)
    ]
    async with paceline.connect() as client:
        said = await what_is_left(client, moves[:1], 1)
        assert said == (
            "1 partition is still being moved: orders/0 (how far it is is not known yet); "
            "1 more has not begun"
        )
        said = await what_is_left(client, moves, 0)
    assert said.startswith("2 partitions are still being moved: orders/0 (how")
    assert "), orders/1 (how" in said


@pytest.mark.paceline(nodes=1)
def test_what_is_no_plan_is_said_to_be_none(move: Commands, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for text, said in (
        ("{", "is no JSON"),
        ("[]", "has no list 'partitions'"),
        ('{"version": 2, "partitions": []}', "is a plan of version 2, not 1"),
        ('{"partitions": [{}]}', "partitions[0] names no topic"),
        ('{"partitions": [{"topic": "t", "partition": -1}]}', "are numbers from 0 on"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}',
            "expected distinct nodes",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": ["a"]}]}',
            "partitions[0].replicas: expected a list of node numbers",
        ),
    ):
        file.write_text(text)
        assert said in move.run("execute", str(file), code=Exit.DATA)
    for words, said in (
        (["cancel"], "give --all"),
        (["cancel", "orders"], "'orders' is no TOPIC/PARTITION"),
        (["plan", "--away-from", "7"], "there is no node 7"),
    ):
        assert said in move.run(*words, code=Exit.USAGE)
    file.write_text('{"partitions": [{"topic": "no", "partition": 0, "replicas": [0]}]}')
    [seen] = move.data("execute", str(file))["partitions"]
    assert (seen["state"], seen["reason"]) == ("gone", "the topic was deleted")
