"""The API of each node on three nodes: held against the description that it serves, and against
what commands print with ``--output json``."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from openapi_spec_validator import validate

from paceline.client import GroupSettings
from paceline_cluster.cli import main as cli
from paceline_cluster.errors import Exit
from paceline_cluster.testing import BlockingPaceline
from paceline_cluster.testing.blocking import running_cluster
from tests.openapi import Described

pytestmark = pytest.mark.paceline(nodes=3)
HANG_S = 60.0
RECORDS = 20
ORDERS = ("orders", "orders-2", "orders-3", "billing")

REFUSED = (
    ("/api/topics/nothing", 404, "UNKNOWN_TOPIC_OR_PARTITION", "topic 'nothing' does not"),
    ("/api/topics/orders/partitions/9", 404, "UNKNOWN_TOPIC_OR_PARTITION", "0 to 2"),
    ("/api/topics/orders/partitions/x", 404, "UNKNOWN_TOPIC_OR_PARTITION", "are numbers"),
    ("/api/topics/orders/partitions/²", 404, "UNKNOWN_TOPIC_OR_PARTITION", "are numbers"),
    ("/api/partitions?topic=nothing", 404, "UNKNOWN_TOPIC_OR_PARTITION", "does not exist"),
    ("/api/groups/nothing", 404, "GROUP_ID_NOT_FOUND", "group nothing of family kafka"),
    ("/api/groups/tills?family=cars", 400, "INVALID_REQUEST", "expected one of v1,"),
    ("/api/groups?family=cars", 400, "INVALID_REQUEST", "expected one of v1,"),
    ("/api/groups?after=tills", 400, "INVALID_REQUEST", "'next' of the page before"),
    ("/api/topics/orders?after=x", 400, "INVALID_REQUEST", "'next' of the page before"),
    ("/api/topics?limit=0", 400, "INVALID_REQUEST", "a number from 1 to 1000"),
    ("/api/topics?limit=1001", 400, "INVALID_REQUEST", "a number from 1 to 1000"),
    ("/api/topics?limit=2&limit=3", 400, "INVALID_REQUEST", "limit is there 2 times"),
    ("/api/topics?internal=yes", 400, "INVALID_REQUEST", "expected true or false"),
    ("/api/topics?lmit=3", 400, "INVALID_REQUEST", "unknown parameter 'lmit'"),
    ("/api/topics?limit", 400, "INVALID_REQUEST", "parameters 'limit'"),
    ("/api/nodes?limit=3", 400, "INVALID_REQUEST", "it takes none"),
    ("/api/partitions?trouble=late", 400, "INVALID_REQUEST", "leaderless, under-replicated"),
    ("/api/nothing", 404, "NOT_FOUND", "no page /api/nothing"),
    ("/api/topics/", 404, "NOT_FOUND", "no page /api/topics/"),
    ("/api/", 404, "NOT_FOUND", "no page /api/"),
    ("/api", 404, "NOT_FOUND", "no page /api"),
)


class Api:
    """The API of one node. Each answer is held against the description."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.described = Described(self._get("/api/openapi.json")[1])

    def _get(self, path: str) -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=HANG_S) as page:
                return page.status, json.load(page)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def get(self, path: str, status: int = 200) -> Any:
        found, body = self._get(path)
        assert found == status, body
        self.described.check(path, status, body)
        return body

    def refused(self, path: str, status: int) -> dict[str, Any]:
        """The error of a page that there is not, for one reason or another."""
        error: dict[str, Any] = self.get(path, status)["error"]
        return error

    def pages(self, path: str, key: str, limit: int) -> Iterator[list[Any]]:
        """The items of each page, to the last."""
        mark = "&" if "?" in path else "?"
        after = ""
        while True:
            page = self.get(f"{path}{mark}limit={limit}{after}")
            assert len(page[key]) <= limit
            yield page[key]
            if page["next"] is None:
                return
            after = f"&after={quote(page['next'])}"


def filled(paceline: BlockingPaceline) -> BlockingPaceline:
    """A few topics, of which one is read by groups."""
    for topic in ORDERS:
        paceline.create_topic(topic, partitions=3)
    with paceline.connect() as client:
        with client.producer() as producer:
            for number in range(RECORDS):
                producer.send("orders", b"%d" % number)
        for group in ("tills", "books"):
            with client.group_consumer("orders", group) as consumer:
                for _ in range(RECORDS // 2):
                    next(consumer)
                consumer.commit()
    return paceline


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingPaceline]:
    """For all that only look."""
    with running_cluster(tmp_path_factory.mktemp("shared")) as paceline:
        yield filled(paceline)


@pytest.fixture
def orders(paceline: BlockingPaceline) -> BlockingPaceline:
    """For who changes it."""
    return filled(paceline)


def apis(paceline: BlockingPaceline) -> list[Api]:
    return [Api(address) for address in paceline.addresses("http")]


def printed(
    paceline: BlockingPaceline, capsys: pytest.CaptureFixture[str], *words: str, code: int = Exit.OK
) -> Any:
    capsys.readouterr()
    bootstrap = ",".join(paceline.addresses("native"))
    assert cli.main([*words, "--bootstrap", bootstrap, "--output", "json"]) == code
    said = capsys.readouterr()
    return json.loads(said.out if code == Exit.OK else said.err.splitlines()[-1])


def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in names}


def test_the_description_is_valid(shared: BlockingPaceline) -> None:
    [document, *others] = [api.described.document for api in apis(shared)]
    validate(document)
    assert document["openapi"] == "3.1.0"
    assert others == [document] * 2


def test_topics_are_those_of_the_command_on_every_node(
    shared: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = printed(shared, capsys, "topic", "list")["topics"]
    everything = printed(shared, capsys, "topic", "list", "--internal")["topics"]
    described = printed(shared, capsys, "topic", "describe", "orders")
    for api in apis(shared):
        assert api.get("/api/topics")["topics"] == sorted(listed, key=lambda each: each["name"])
        found = api.get("/api/topics?internal=true")["topics"]
        assert [each["name"] for each in found] == sorted(each["name"] for each in everything)
        topic = api.get("/api/topics/orders")
        for each in (topic, described):
            for partition in each["partitions"]:
                partition["progress"] = []  # moves with each fetch
        assert without(topic, "next") == described
        assert topic["next"] is None
        assert sum(each["high_watermark"] for each in topic["partitions"]) == RECORDS
        one = api.get("/api/topics/orders/partitions/2")
        assert without(one, "topic", "progress") == without(topic["partitions"][2], "progress")
        assert [each["in_sync"] for each in one["progress"]] == [True] * 3


def test_lists_come_in_pages(shared: BlockingPaceline) -> None:
    [api, *_] = apis(shared)
    pages = list(api.pages("/api/topics", "topics", 3))
    assert [[each["name"] for each in page] for page in pages] == [
        ["billing", "orders", "orders-2"],
        ["orders-3"],
    ]
    whole = api.get("/api/topics/orders?limit=1000")["partitions"]
    by_two = list(api.pages("/api/topics/orders", "partitions", 2))
    assert [[each["partition"] for each in page] for page in by_two] == [[0, 1], [2]]
    assert len(whole) == 3
    pages = list(api.pages("/api/partitions", "partitions", 5))
    found = [(each["topic"], each["partition"]) for page in pages for each in page]
    assert found == [(topic, number) for topic in sorted(ORDERS) for number in range(3)]
    assert [len(page) for page in pages] == [5, 5, 2]
    mine = list(api.pages("/api/partitions?topic=orders&node=1&internal=true", "partitions", 2))
    assert [each["topic"] for page in mine for each in page] == ["orders"] * 3
    assert api.get("/api/partitions?trouble=leaderless&internal=true")["partitions"] == []
    groups = list(api.pages("/api/groups", "groups", 1))
    assert [[each["group"] for each in page] for page in groups] == [["books"], ["tills"]]
    progress = list(api.pages("/api/groups/tills", "partitions", 2))
    assert [[each["partition"] for each in page] for page in progress] == [[0, 1], [2]]


def test_groups_are_those_of_the_command_on_every_node(
    orders: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    membership = GroupSettings(instance_id="till-1")
    with (
        orders.connect() as client,
        client.group_consumer("orders", "tills", membership=membership) as consumer,
    ):
        next(consumer)
        listed = printed(orders, capsys, "group", "list")["groups"]
        assert [each["state"] for each in listed] == ["Empty", "Stable"]
        for api in apis(orders):
            groups = api.get("/api/groups")
            assert groups == {"groups": listed, "stale": None, "hidden": None, "next": None}
            named = api.get("/api/groups?family=kafka&family=v1&state=Stable")["groups"]
            assert [each["group"] for each in named] == ["tills"]
            assert api.get("/api/groups?family=v1")["groups"] == []
            described = printed(orders, capsys, "group", "describe", "tills")
            found = api.get("/api/groups/tills")
            for each in (described, found):
                [member] = each["members"]
                assert member.pop("silent_ms") < HANG_S * 1000
                assert (member["instance"], member["host"]) == ("till-1", "127.0.0.1")
                assert sum(part["lag"] for part in each["partitions"]) == RECORDS // 2
            assert without(found, "next") == described
        # What is behind is told of a group without members, too.
        described = printed(orders, capsys, "group", "describe", "books")
        assert without(api.get("/api/groups/books"), "next") == described


def test_nodes_and_quorum_are_those_of_the_commands(
    shared: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    quorum = printed(shared, capsys, "quorum", "describe")
    status = printed(shared, capsys, "status")
    leads = sum(each["leads"] for each in status["nodes"])
    for api in apis(shared):
        found = api.get("/api/quorum")
        for each in (*found["nodes"], *quorum["nodes"]):
            for name in ("commit_offset", "image_offset"):
                each[name] = each[name] > 0  # they grow
        assert found == quorum
        nodes = api.get("/api/nodes")
        assert (nodes["cluster_id"], nodes["controller"]) == (
            status["cluster_id"],
            status["controller"],
        )
        for told, shown in zip(nodes["nodes"], status["nodes"], strict=True):
            assert told["id"] == shown["id"]
            assert [told[key] for key in ("state", "role")] == [
                shown[key] for key in ("state", "role")
            ]
            assert told["listeners"]["native"] == shown["listeners"]["native"]
            assert told["disk_bytes"] > told["disk_free_bytes"] > 0
        assert sum(each["leads"] for each in nodes["nodes"]) == leads


def test_health_is_that_of_the_command(
    orders: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = ",".join(orders.addresses("native"))
    assert cli.main(["health", "--exit-when-healthy", "--bootstrap", bootstrap]) == Exit.OK
    healthy = printed(orders, capsys, "health")
    assert healthy["healthy"] is True
    for api in apis(orders):
        assert api.get("/api/health") == healthy
    dead = orders.kill("leader of orders/0")
    orders.wait_for_leader("orders", 0)
    for number, address in enumerate(orders.addresses("http")):
        if number == dead:
            continue
        api = Api(address)
        told = api.get("/api/health")
        assert told["healthy"] is False
        [of_node] = [each for each in told["checks"] if each["node"] == dead]
        assert (of_node["name"], of_node["level"]) == ("nodes", "critical")
        assert any(f"node {dead} is unreachable" in each for each in told["reasons"])


def test_connections_and_tasks_are_of_the_node_that_is_asked(orders: BlockingPaceline) -> None:
    with orders.connect() as client, client.producer() as producer:
        producer.send("orders", b"one more")
        for number, api in enumerate(apis(orders)):
            found = api.get("/api/connections")
            assert found["node"] == number
            ids = [each["id"] for each in found["connections"]]
            assert ids == sorted(ids)
            own = found["connections"][-1]
            assert (own["protocol"], own["principal"]) == ("http", "anonymous")
            assert {each["protocol"] for each in found["connections"]} <= {"http", "native"}
            pages = list(api.pages("/api/connections", "connections", 1))
            assert len(pages) >= len(ids) - 1
            tasks = api.get("/api/tasks")
            assert tasks["node"] == number
            counted = {each["name"]: each["count"] for each in tasks["tasks"]}
            assert sum(counted.values()) > 30
            assert counted["native connection"] >= 1
        natives = [
            each
            for api in apis(orders)
            for each in api.get("/api/connections")["connections"]
            if each["protocol"] == "native"
        ]
        assert natives
        assert all(each["address"].startswith("127.0.0.1:") for each in natives)


def test_what_there_is_not_is_an_error_of_the_one_form(shared: BlockingPaceline) -> None:
    [api, *_] = apis(shared)
    for path, status, code, said in REFUSED:
        error = api.refused(quote(path, safe="/?&="), status)
        assert error["code"] == code, path
        assert said in error["message"], path
        if error["code"] == "NOT_FOUND":
            assert error["hint"] == "/api/openapi.json describes those", path


def test_errors_are_those_of_the_commands(
    shared: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    [api, *_] = apis(shared)
    for path, words in (
        ("/api/topics/nothing", ("topic", "describe", "nothing")),
        ("/api/groups/nothing", ("group", "describe", "nothing")),
    ):
        shown = printed(shared, capsys, *words, code=Exit.DATA)["error"]
        told = api.refused(path, 404)
        assert (told["code"], told["hint"]) == (shown["code"], shown["hint"])


def test_what_a_dead_node_does_not_tell_is_said(orders: BlockingPaceline) -> None:
    dead = orders.kill("leader of orders/0")
    orders.wait_for_leader("orders", 0)
    addresses = orders.addresses("http")
    api = Api(addresses[(dead + 1) % 3])
    nodes = {each["id"]: each for each in api.get("/api/nodes")["nodes"]}
    assert nodes[dead]["state"] == "unreachable"
    assert nodes[dead]["reason"]
    assert nodes[dead]["uptime_ms"] is None
    assert [each["state"] for each in nodes.values()].count("running") == 2
    quorum = {each["node"]: each for each in api.get("/api/quorum")["nodes"]}
    assert quorum[dead]["state"] == "unreachable"
    topic = api.get("/api/topics/orders")
    assert topic["stale"] is None
    assert len(topic["partitions"]) == 3
    behind = api.get("/api/partitions?topic=orders&trouble=under-replicated")["partitions"]
    assert all(dead not in each["isr"] for each in behind)
    assert api.get("/api/groups/tills")["state"] == "Empty"


def test_without_a_quorum_it_is_stale(orders: BlockingPaceline) -> None:
    kept = orders.node("controller")
    for number in {0, 1, 2} - {kept}:
        orders.kill(number)
    api = Api(orders.addresses("http")[kept])

    def look() -> dict[str, Any]:
        found: dict[str, Any] = api.get("/api/topics/orders")
        return found

    topic = look()
    while "no controller" not in (topic["stale"] or ""):
        topic = look()
    for each in topic["partitions"]:
        assert (each["log_end_offset"] == -1) == (each["error"] is not None)
        assert (each["leader"] == kept) == (each["error"] is None)
    assert "partition" in topic["stale"]
    for path in ("/api/topics", "/api/partitions"):  # whose counts are of leaders that are dead
        assert "there is no controller" in api.get(path)["stale"]
    groups = api.get("/api/groups")
    coordinating = api.get("/api/partitions?topic=__groups&internal=true")["partitions"]
    # Hardly ever this one alone: on a busy machine sessions may have ended, and leaders moved.
    assert ("does not tell which groups it coordinates" in (groups["stale"] or "")) == any(
        each["leader"] != kept for each in coordinating
    )
    nodes = {each["id"]: each for each in api.get("/api/nodes")["nodes"]}
    assert [nodes[number]["state"] == "unreachable" for number in range(3)] == [
        number != kept for number in range(3)
    ]
    assert nodes[kept]["reason"]
    checks = api.get("/ready", 503)
    assert "no active controller is known" in checks["failed"]
