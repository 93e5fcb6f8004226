"""Several topics at once, by name and by pattern."""

from __future__ import annotations

import io
import json
import time
import urllib.request
from typing import Any

import pytest

from docs.reference.outputs import OUTPUTS
from docs.reference.shapes import mismatches
from paceline.types import NodeId
from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline
from paceline_node.settings.topic_config import KEYS

pytestmark = pytest.mark.paceline(nodes=1)
HANG_S = 120.0


@pytest.fixture(autouse=True)
def _nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())


@pytest.mark.parametrize(
    ("words", "said", "step"),
    [
        ("alter t --config retention=7d", "did you mean retention.ms?", "topic settings' shows"),
        ("alter t --config segment.bytes=5", "expected 1024 to", "'paceline topic settings' sh"),
        ("alter t --config cleanup.policy=foo", "expected one of", "'paceline topic settings' sh"),
        ("alter t --config min.insync.replicas=5", "replication factor is 1", "topic settings' s"),
        ("alter t --unset foo", "unknown topic configuration", "'paceline topic settings' shows"),
        ("create u --partitions 100000", "expected 1 to 2000", "fewer will do: "),
        ("create u/v", "expected 1 to 249 of A-Z", "choose another name"),
        ("add-partitions t 1", "has 2 partitions", "partitions are never taken away"),
    ],
)
def test_what_a_topic_cannot_have_is_told_with_what_to_do(
    paceline: BlockingPaceline,
    capsys: pytest.CaptureFixture[str],
    words: str,
    said: str,
    step: str,
) -> None:
    """There was no second line."""
    paceline.create_topic("t", partitions=2)
    told = ["topic", *words.split(), "--bootstrap", *paceline.addresses("native")]
    assert cli.main(told) == Exit.DATA
    wrong, todo = capsys.readouterr().err.splitlines()
    assert said in wrong
    assert step in todo


def test_what_can_be_set_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topic", "settings", "--output", "json"]) == Exit.OK
    found = json.loads(capsys.readouterr().out)["settings"]
    assert [each["name"] for each in found] == list(KEYS)
    [policy] = [each for each in found if each["name"] == "cleanup.policy"]
    assert (policy["default"], policy["allowed"]) == (
        "delete",
        "delete or compact or compact,delete",
    )
    [retention] = [each for each in found if each["name"] == "retention.ms"]
    assert retention["allowed"] == f"-1 to {2**63 - 1} (ms)"


@pytest.mark.paceline(nodes=3)
def test_a_list_without_a_controller_says_that_it_may_be_out_of_date(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    """LEADERLESS was 0 of topics whose leaders were dead, and nothing was said of it."""
    paceline.create_topic("orders", partitions=3)
    listing = ["topic", "list", "--output", "json", "--bootstrap", paceline.addresses("native")[0]]
    assert cli.main(listing) == Exit.OK
    assert capsys.readouterr().err == ""
    paceline.kill(1)
    paceline.kill(2)
    deadline = time.monotonic() + HANG_S
    while not (told := _listed(listing, capsys)):
        assert time.monotonic() < deadline, "node 0 knows a controller for as long as it is told"
    assert told.startswith("there is no controller, so leaders and replicas in sync may be others ")


def _listed(listing: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(listing) == Exit.OK
    return capsys.readouterr().err


def test_topics_are_made_described_and_deleted_together(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    [address] = paceline.addresses("native")

    def run(*words: str, code: Exit = Exit.OK) -> str:
        assert cli.main(["topic", *words, "--bootstrap", address]) == code
        said = capsys.readouterr()
        return said.out if code is Exit.OK else said.err

    def data(*words: str) -> Any:
        return json.loads(run(*words, "--output", "json"))

    made = data("create", "orders-1", "orders-2", "bills", "--partitions", "1")
    assert [each["name"] for each in made["topics"]] == ["orders-1", "orders-2", "bills"]
    assert data("create", "alone", "--partitions", "1")["name"] == "alone"
    assert data("describe", "bills")["name"] == "bills"
    found = data("describe", "bills", "orders-*", "bills")
    assert [each["name"] for each in found["topics"]] == ["bills", "orders-1", "orders-2"]
    assert [each["name"] for each in data("describe", "b*")["topics"]] == ["bills"]
    assert "__groups" not in run("describe", "*")
    assert "__groups" in run("describe", "__*")
    assert "nothing-*: no topic has such a name" in run("describe", "nothing-*", code=Exit.DATA)
    by_regex = data("describe", "--regex", r"orders-\d|b.*")["topics"]
    assert [each["name"] for each in by_regex] == ["bills", "orders-1", "orders-2"]
    [only] = data("describe", "--regex", "^bills$")["topics"]
    assert only["name"] == "bills"
    assert "__groups" not in run("describe", "--regex", ".*")
    assert "__groups" in run("describe", "--regex", "^__.*")
    assert "order: no topic has such a name" in run("describe", "--regex", "order", code=Exit.DATA)
    said = run("describe", "--regex", "orders-(", code=Exit.USAGE)
    assert "'orders-(' is no regular expression: missing )" in said
    half = run("create", "new", "bills", "newer", "--partitions", "1", code=Exit.DATA)
    assert "created before it: new\n" in half
    refused = run("delete", "orders-*", code=Exit.USAGE)
    assert "removes all records of orders-1, orders-2; confirm" in refused
    deleted = data("delete", "orders-*", "new", "--yes")
    assert [each["name"] for each in deleted["topics"]] == ["orders-1", "orders-2", "new"]
    assert [each["name"] for each in data("list")["topics"]] == ["alone", "bills"]
    run("create", "logs.1", "logs.2", "logs-3", "--partitions", "1")
    refused = run("delete", "--regex", r"logs\..", code=Exit.USAGE)
    assert "removes all records of logs.1, logs.2; confirm" in refused
    [deleted] = data("delete", "--regex", "logs-.", "--yes")["topics"]
    assert deleted == {"name": "logs-3", "deleted": True}
    run("delete", "--regex", r"logs\..", "--yes")
    assert data("delete", "alone", "--yes") == {"name": "alone", "deleted": True}


@pytest.mark.parametrize(
    "words",
    [
        ("describe", "log"),
        ("alter", "log", "--config", "retention.ms=1d"),
        ("add-partitions", "log", "4"),
        ("trim", "log", "--yes"),
        ("delete", "log", "--yes"),
    ],
)
def test_a_topic_that_is_not_there_comes_with_the_one_that_is_meant(
    words: tuple[str, ...], paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that change a topic said 'topic not found: log', and no more."""
    [address] = paceline.addresses("native")
    paceline.create_topic("logs", partitions=1)
    assert cli.main(["topic", *words, "--bootstrap", address]) == Exit.DATA
    said = "log: no such topic\nthere is 'logs'; 'paceline topic list' shows all\n"
    assert capsys.readouterr().err == f"paceline: {said}"


@pytest.mark.paceline(nodes=3)
def test_sizes_say_which_topic_and_which_node_uses_the_disk(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    [address, *_] = paceline.addresses("native")
    paceline.create_topic("large", partitions=2, replication_factor=3)
    paceline.create_topic("small", partitions=1, replication_factor=2)
    with paceline.connect() as client, client.producer() as producer:
        for partition, values in ((0, 1), (1, 3)):
            for _ in range(values):
                producer.send("large", bytes(100_000), partition=partition)
        producer.send("small", b"one")

    def run(*words: str, code: Exit = Exit.OK) -> str:
        assert cli.main(["topic", "sizes", *words, "--bootstrap", address]) == code
        said = capsys.readouterr()
        return said.out if code is Exit.OK else said.err

    found = json.loads(run("large", "sm*", "--output", "json"))
    large, small = found["topics"]
    assert (large["name"], small["name"]) == ("large", "small")
    # acks=all: it is on every replica.
    for number, values in ((0, 1), (1, 3)):
        replicas = large["partitions"][number]["replicas"]
        assert [each["node"] for each in replicas] == [0, 1, 2]
        assert {each["size_bytes"] // 100_000 for each in replicas} == {values}
    assert large["disk_bytes"] == 3 * large["size_bytes"]
    assert len(small["partitions"][0]["replicas"]) == 2
    told = sum(each["disk_bytes"] for each in found["nodes"])
    assert told == large["disk_bytes"] + small["disk_bytes"]
    rows = [line.split() for line in run().splitlines()]
    assert (rows[1][0], int(float(rows[1][1])), rows[1][2]) == ("large", 400, "kB")
    assert "__groups" in [row[0] for row in rows if row]
    assert "nothing: no such topic" in run("nothing", code=Exit.DATA)


@pytest.mark.paceline(nodes=3, settings={"topics.min_insync_replicas": "1"})
def test_what_was_written_down_of_the_nodes_settings_is_not_the_topics_own(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    """min.insync.replicas was said to be set for every topic, though nobody had set it."""
    paceline.create_topic("plain", partitions=1)
    paceline.create_topic("strict", partitions=1, configs={"min.insync.replicas": "2"})
    words = ["--bootstrap", ",".join(paceline.addresses("native")), "--output", "json"]
    assert cli.main(["topic", "describe", "plain", "strict", *words]) == Exit.OK
    found = json.loads(capsys.readouterr().out)["topics"]
    held = [
        [(each["value"], each["source"]) for each in topic["settings"] if "insync" in each["name"]]
        for topic in found
    ]
    assert held == [[("1", "node")], [("2", "topic")]]
    assert [each["configs"] for each in found] == [{}, {"min.insync.replicas": "2"}]
    with urllib.request.urlopen(f"http://{paceline.addresses('http')[0]}/api/topics/plain") as page:
        assert json.load(page)["configs"] == {}


@pytest.mark.paceline(nodes=3, settings={"log.retention_ms": "3600000"})
def test_what_alter_has_changed_is_shown_and_nothing_else(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    """It showed min.insync.replicas, which nobody had set, and after --unset nothing but that."""
    paceline.create_topic("orders", partitions=3, configs={"flush.mode": "none"})
    addresses = ",".join(paceline.addresses("native"))

    def alter(*words: str) -> Any:
        told = ["topic", "alter", "orders", *words, "--bootstrap", addresses, "--output", "json"]
        assert cli.main(told) == Exit.OK
        found = json.loads(capsys.readouterr().out)
        assert not list(mismatches(OUTPUTS["topic alter"], found))
        changes = [
            (each["name"], each["before"], each["after"], each["source"])
            for each in found["changes"]
        ]
        return changes, found["configs"]

    kept = {"flush.mode": "none"}
    size = KEYS["segment.bytes"].default
    changed = alter("--config", "segment.bytes=1MiB", "--config", "retention.ms=1d")
    assert changed == (
        [
            ("retention.ms", "3600000", "86400000", "topic"),
            ("segment.bytes", size, "1048576", "topic"),
        ],
        {**kept, "retention.ms": "86400000", "segment.bytes": "1048576"},
    )
    changed = alter("--unset", "segment.bytes", "--unset", "retention.ms")
    assert changed == (
        [
            ("retention.ms", "86400000", "3600000", "node"),
            ("segment.bytes", "1048576", size, "default"),
        ],
        kept,
    )
    changed = alter("--config", "min.insync.replicas=1")
    assert changed[0] == [("min.insync.replicas", "2", "1", "topic")]
    changed = alter("--unset", "min.insync.replicas")
    assert changed == ([("min.insync.replicas", "1", "2", "default")], kept)
    assert cli.main(
        ["topic", "alter", "orders", "--unset", "flush.mode", "--bootstrap", addresses]
    ) == (Exit.OK)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["SETTING", "BEFORE", "AFTER", "SOURCE"],
        ["flush.mode", "none", "group", "default"],
    ]


def test_what_alter_cannot_look_up_is_told_as_it_was_set(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a leader nobody says what holds."""
    [address] = paceline.addresses("native")
    paceline.create_topic("orders", partitions=1)
    with paceline.connect() as client:
        client.admin.set_role("orders", 0, NodeId(0), "follower")
    words = ["topic", "alter", "orders", "--bootstrap", address]
    assert cli.main([*words, "--config", "retention.ms=1d", "--unset", "segment.ms"]) == Exit.OK
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [["retention.ms", "-", "86400000", "topic"], ["segment.ms", "-", "-", "-"]]


@pytest.mark.paceline(nodes=1, settings={"log.retention_ms": "3600000"})
def test_what_holds_for_a_topic_is_told_with_where_it_is_from(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    [address] = paceline.addresses("native")
    paceline.create_topic("orders", partitions=1, configs={"flush.mode": "none"})
    words = ["topic", "describe", "orders", "--bootstrap", address]
    assert cli.main([*words, "--output", "json"]) == Exit.OK
    settings = json.loads(capsys.readouterr().out)["settings"]
    held = {each["name"]: (each["value"], each["source"]) for each in settings}
    assert set(held) == set(KEYS)
    assert held["flush.mode"] == ("none", "topic")
    assert held["retention.ms"] == ("3600000", "node")
    assert held["min.insync.replicas"] == ("1", "node")
    assert held["segment.bytes"] == (KEYS["segment.bytes"].default, "default")
    assert cli.main(words) == Exit.OK
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["SETTING", "VALUE", "SOURCE"] in rows
    assert ["retention.ms", "3600000", "(1", "h)", "node"] in rows


def test_consume_reads_several_topics_between_places_and_only_what_is_asked_for(
    paceline: BlockingPaceline, capfd: pytest.CaptureFixture[str]
) -> None:
    [address] = paceline.addresses("native")
    for topic in ("orders-1", "orders-2", "bills"):
        paceline.create_topic(topic, partitions=1)
    with paceline.connect() as client, client.producer() as producer:
        for number in range(5):
            producer.send("orders-1", b"one %d" % number, key=b"k%d" % (number % 2))
        producer.send("orders-2", b"two\n0", key=b"k0")
        producer.send("bills", b"bill")

    def read(*words: str, code: Exit = Exit.OK) -> list[str]:
        assert cli.main(["consume", *words, "--bootstrap", address]) == code
        said = capfd.readouterr()
        return sorted((said.out if code is Exit.OK else said.err).splitlines())

    end = "--exit-at-end"
    assert read("orders-*", end, "--format", "%t %o\\n") == [
        *(f"orders-1 {offset}" for offset in range(5)),
        "orders-2 0",
    ]
    assert read("orders-2", "bills", end) == ["0", "bill", "two"]
    assert read("--regex", "bills|.*-2", end) == ["0", "bill", "two"]
    assert read("--regex", "b.*", "--group", "g", "--count", "1") == ["bill"]
    said = " ".join(read("--regex", "b.*", "--partition", "0", end, code=Exit.USAGE))
    assert "--partition is of one topic" in said
    assert read("orders-1", "--from", "1", "--until", "3") == ["one 1", "one 2"]
    assert read("orders-1", "--until", "-4") == ["one 0"]
    assert read("orders-1", end, "--grep", "[34]$") == ["one 3", "one 4"]
    assert read("orders-1", end, "--key", "k0", "--count", "2") == ["one 0", "one 2"]
    keyed = read("orders-*", end, "--key", "k0", "--grep", "^two", "--key-delimiter", "=")
    assert keyed == ["0", "k0=two"]
    said = " ".join(read("bills", "--grep", "(", code=Exit.USAGE))
    assert "--grep: '(' is no regular expression" in said
    refused = read("nothing-*", end, code=Exit.DATA)
    assert "paceline: nothing-*: no topic has such a name" in refused
