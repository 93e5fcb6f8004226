"""Members and offsets of a group, taken out by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paceline.client import GroupSettings
from paceline.types import TopicPartition
from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline

pytestmark = pytest.mark.paceline(nodes=1)


def read_one(paceline: BlockingPaceline, group: str, instance_id: str | None = None) -> None:
    """As a member that reads a record, commits that and ends; a static one is missed then."""
    membership = GroupSettings(instance_id=instance_id)
    with (
        paceline.connect() as client,
        client.group_consumer("orders", group, membership=membership) as consumer,
    ):
        next(consumer)
        consumer.commit()


@pytest.fixture
def orders(paceline: BlockingPaceline) -> BlockingPaceline:
    paceline.create_topic("orders", partitions=1)
    with paceline.connect() as client, client.producer() as producer:
        producer.send("orders", b"first")
    return paceline


def run(paceline: BlockingPaceline, *words: str, code: Exit = Exit.OK) -> None:
    [address] = paceline.addresses("native")
    assert cli.main(["group", *words, "--bootstrap", address]) == code


def test_a_member_that_will_not_come_back_is_evicted(
    orders: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    read_one(orders, "tills", "till-1")

    def members() -> list[Any]:
        with orders.connect() as client:
            return list(client.admin.groups.describe("tills").members)

    [member] = members()
    assert member.instance_id == "till-1"
    run(orders, "evict", "tills", "till-1", code=Exit.USAGE)
    run(orders, "evict", "tills", "till-1", "till-2", "--yes", code=Exit.DATA)
    assert "group tills has no member till-2" in capsys.readouterr().err
    assert len(members()) == 1, "one is wrong, so none is taken out"
    run(orders, "evict", "tills", "till-1", "--yes", "--output", "json")
    [evicted] = json.loads(capsys.readouterr().out)["evicted"]
    assert (evicted["member"], evicted["instance"]) == (member.member_id, "till-1")
    assert members() == []


def test_describe_says_from_where_members_read(
    orders: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    def hosts(*words: str) -> list[Any]:
        capsys.readouterr()
        run(orders, "describe", "billing", *words, "--output", "json")
        return [each["host"] for each in json.loads(capsys.readouterr().out)["members"]]

    with orders.connect() as client:
        with client.group_consumer("orders", "billing") as consumer:
            next(consumer)
            assert hosts() == ["127.0.0.1"]
        with client.coordinated_consumer(
            "orders", group="billing", auto_offset_reset="smallest"
        ) as driven:
            next(driven)
            assert hosts("--family", "coordinator") == ["127.0.0.1"]


def test_describe_counts_what_nothing_is_committed_of(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    zero, one, two = (TopicPartition("sales", number) for number in range(3))
    paceline.create_topic("sales", partitions=3)

    def rows(*words: str, group: str = "nat") -> list[tuple[Any, ...]]:
        capsys.readouterr()
        run(paceline, "describe", group, *words, "--output", "json")
        found = json.loads(capsys.readouterr().out)["partitions"]
        return [
            (each["partition"], each["committed"], each["lag"], bool(each["member"]))
            for each in found
        ]

    with paceline.connect() as client:
        with client.producer() as producer:
            for number in range(30):
                producer.send("sales", b"sold", partition=number % 3)
        client.admin.trim(two, 4)
        by_hand = GroupSettings(auto_commit_s=None)
        with client.group_consumer("sales", "nat", membership=by_hand) as consumer:
            next(consumer)
            consumer.commit({one: 10})
            read = rows()
        with client.coordinated_consumer(
            "sales", group="driven", auto_offset_reset="smallest"
        ) as driven:
            next(driven)
            counted = rows("--family", "coordinator", group="driven")
        client.admin.groups.alter_offsets("chosen", {zero: 3})
    assert read == [(0, None, 10, True), (1, 10, 0, True), (2, None, 6, True)]
    assert [each[1:] for each in counted] == [(None, 10, True), (None, 10, True), (None, 6, True)]
    assert rows() == [(0, None, 10, False), (1, 10, 0, False), (2, None, 6, False)], "it has left"
    assert rows(group="chosen") == [(0, 3, 7, False)], "nobody was dealt the others"


def test_a_living_member_that_is_evicted_comes_back(orders: BlockingPaceline) -> None:
    with orders.connect() as client:
        membership = GroupSettings(session_timeout_s=3)
        with client.group_consumer("orders", "shop", membership=membership) as consumer:
            next(consumer)
            [before] = client.admin.groups.describe("shop").members
            run(orders, "evict", "shop", before.member_id, "--yes")
            assert orders.wait_for_group_stable("shop", members=1) != [before.member_id]
            with client.producer() as producer:
                producer.send("orders", b"second")
            assert b"second" in {next(consumer).value for _ in range(2)}


def test_offsets_of_a_topic_are_forgotten(
    orders: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    read_one(orders, "billing")
    of_orders = ("offsets", "delete", "billing", "--topic")
    run(orders, *of_orders, "orders/1", "--execute", code=Exit.DATA)
    assert "committed nothing of orders/1" in capsys.readouterr().err
    run(orders, *of_orders, "orders/0", "--output", "json")
    planned = json.loads(capsys.readouterr().out)
    assert planned["executed"] is False
    assert planned["offsets"] == [{"topic": "orders", "partition": 0, "offset": 1}]
    with orders.connect() as client:
        assert len(client.admin.groups.offsets("billing")) == 1
        run(orders, *of_orders, "orders", "--execute")
        assert client.admin.groups.offsets("billing") == {}


def test_offsets_of_a_topic_that_members_read_are_kept(
    orders: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said 'error code 86: orders/0'."""
    with orders.connect() as client, client.group_consumer("orders", "shop") as consumer:
        next(consumer)
        consumer.commit()
        words = ("offsets", "delete", "shop", "--topic", "orders", "--execute")
        run(orders, *words, code=Exit.UNAVAILABLE)
        said = capsys.readouterr().err
        assert said.startswith("paceline: members of group shop read orders\nend its members first")
        assert "'paceline group evict NAME MEMBER'" in said
        run(orders, *words, "--output", "json", code=Exit.UNAVAILABLE)
        error = json.loads(capsys.readouterr().err)["error"]
        assert error["code"] == "GROUP_SUBSCRIBED_TO_TOPIC"
        assert len(client.admin.groups.offsets("shop")) == 1
