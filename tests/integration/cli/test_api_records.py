"""What the API shows of records, transactions and traffic, on three nodes: each answers for all."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any
from urllib.parse import quote

import pytest

from paceline.client import Position
from paceline.types import Isolation, TopicPartition
from paceline_cluster.cli import main as cli
from paceline_cluster.testing import BlockingPaceline
from tests.integration.cli.test_api import Api, apis, printed, without

pytestmark = pytest.mark.paceline(nodes=3)
RECORDS = 500
LONG = b"x" * 10_000


@pytest.fixture
def orders(paceline: BlockingPaceline) -> BlockingPaceline:
    """A partition of five hundred records and a few odd ones behind them."""
    paceline.create_topic("orders", partitions=1)
    with paceline.connect() as client, client.producer() as producer:
        for number in range(RECORDS):
            producer.submit("orders", b"order %d" % number, key=b"user-%d" % (number % 7))
        producer.send("orders", b"\xff\x00", key=None, headers=[("trace", b"\xfe"), ("n", None)])
        producer.send("orders", LONG + "é".encode() * 10, key="clé".encode())
        producer.send("orders", None, key=b"gone")
    return paceline


def of(found: dict[str, Any]) -> list[int]:
    return [each["offset"] for each in found["records"]]


def path(**said: object) -> str:
    query = "&".join(f"{name}={quote(str(value))}" for name, value in said.items())
    return f"/api/topics/orders/partitions/0/records?{query}"


def every(api: Api, contains: str, limit: int = 100) -> list[int]:
    """All that hold it, however far one look comes."""
    found: list[int] = []
    place = 0
    while place < RECORDS + 3:
        looked = api.get(path(offset=place, contains=contains, limit=limit))
        assert len(of(looked)) <= limit
        found += of(looked)
        assert looked["next"] > place
        place = looked["next"]
    return found


def test_records_are_shown_by_every_node(orders: BlockingPaceline) -> None:
    for api in apis(orders):
        last = api.get(path(last=3, limit=3))
        assert of(last) == [RECORDS, RECORDS + 1, RECORDS + 2]
        assert (last["log_start_offset"], last["end"], last["next"]) == (
            0,
            RECORDS + 3,
            RECORDS + 3,
        )
        odd, long, gone = last["records"]
        assert odd["value"] == {"base64": "/wA="}
        assert odd["headers"] == [["trace", {"base64": "/g=="}], ["n", None]]
        assert (odd["key"], odd["key_bytes"], odd["value_bytes"]) == (None, -1, 2)
        assert (long["key"], long["value"]) == ("clé", LONG.decode()[:4096])
        assert long["value_bytes"] == len(LONG) + 20
        assert (gone["key"], gone["value"], gone["value_bytes"]) == ("gone", None, -1)
        assert of(api.get(path(offset=490, limit=5))) == [490, 491, 492, 493, 494]
        assert of(api.get(path(offset=10**18))) == []
        assert len(of(api.get(path()))) == 100


def test_records_are_those_of_the_command(
    orders: BlockingPaceline, capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    bootstrap = ",".join(orders.addresses("native"))
    code = cli.main(["consume", "orders", "--count", "20", "--json", "--bootstrap", bootstrap])
    assert code == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    [api, *_] = apis(orders)
    found = api.get(path(offset=0, limit=20))["records"]
    assert [without(each, "key_bytes", "value_bytes") for each in found] == lines


def test_records_are_found_by_what_they_hold_and_by_time(orders: BlockingPaceline) -> None:
    for api in apis(orders):
        assert every(api, "order 33") == [33, *range(330, 340)]
        assert every(api, "order 33", limit=4) == [33, *range(330, 340)]
        assert every(api, "gone") == [RECORDS + 2]
        assert every(api, "trace") == [RECORDS]
        assert every(api, "nothing has it") == []
        record = api.get(path(offset=250, limit=1))["records"][0]
        at = api.get(path(time=record["timestamp"], limit=1))
        assert at["records"][0]["timestamp"] == record["timestamp"]
        assert of(api.get(path(time=int(time.time() * 1000) + 3_600_000))) == []


def test_what_there_is_not_is_refused(orders: BlockingPaceline) -> None:
    [api, *_] = apis(orders)
    for asked, status, code in (
        ("/api/topics/nothing/partitions/0/records", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/api/topics/orders/partitions/9/records", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("/api/topics/orders/partitions/x/records", 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        (path(offset=-1), 400, "INVALID_REQUEST"),
        (path(offset=1, last=1), 400, "INVALID_REQUEST"),
        (path(contains="x" * 1001), 400, "INVALID_REQUEST"),
    ):
        assert api.refused(asked, status)["code"] == code


def test_what_is_aborted_or_open_is_not_shown(orders: BlockingPaceline) -> None:
    with orders.connect() as client, client.transactional_producer("till-1") as producer:
        with suppress(ZeroDivisionError), producer.transaction():
            producer.send("orders", b"aborted")
            raise ZeroDivisionError
        with producer.transaction():
            producer.send("orders", b"committed")
            for api in apis(orders):
                assert api.get(path(offset=0, contains="committed"))["records"] == []
        for api in apis(orders):
            assert api.get(path(offset=0, contains="aborted"))["records"] == []
    with orders.connect() as client:
        place = TopicPartition("orders", 0)
        isolation = Isolation.READ_COMMITTED
        with client.consumer(place, stop=Position.LATEST, isolation=isolation) as consumer:
            [end] = [each.offset for each in consumer if each.value == b"committed"]
    for api in apis(orders):
        assert of(api.get(path(offset=0, contains="committed"))) == [end]


def test_transactions_are_those_of_the_command_on_every_node(
    orders: BlockingPaceline, capsys: pytest.CaptureFixture[str]
) -> None:
    with orders.connect() as client:
        for number in range(5):
            with (
                client.transactional_producer(f"till-{number}") as producer,
                producer.transaction(),
            ):
                producer.send("orders", b"x")
    listed = printed(orders, capsys, "transaction", "list")["transactions"]
    assert len(listed) == 5
    for api in apis(orders):
        assert api.get("/api/transactions") == {"transactions": listed, "next": None}
        pages = list(api.pages("/api/transactions", "transactions", 2))
        assert [len(page) for page in pages] == [2, 2, 1]
        assert [each for page in pages for each in page] == listed
        assert api.get("/api/transactions?state=ongoing")["transactions"] == []
        assert api.refused("/api/transactions?state=lost", 400)["code"] == "INVALID_REQUEST"


def test_load_counts_what_was_written_and_read(orders: BlockingPaceline) -> None:
    def total(api: Api, name: str) -> int:
        found: list[dict[str, Any]] = api.get("/api/load")["nodes"]
        assert [each["node"] for each in found] == [0, 1, 2]
        return sum(each[name] for each in found)

    with orders.connect() as client, client.consumer("orders", stop=Position.LATEST) as consumer:
        read = len(list(consumer))
    assert read == RECORDS + 3
    for api in apis(orders):
        assert total(api, "appended_records") >= RECORDS + 3
        assert total(api, "fetched_records") >= read
        for each in api.get("/api/load")["nodes"]:
            for spread in (each["writes"], each["syncs"]):
                assert len(spread["counts"]) == len(spread["up_to_ms"]) + 1
    dead = orders.kill("leader of orders/0")
    [api, _] = apis_of_others(orders, dead)
    silent = api.get("/api/load")["nodes"][dead]
    assert silent["reason"]
    assert silent["appended_records"] is None


def apis_of_others(paceline: BlockingPaceline, dead: int) -> list[Api]:
    addresses = paceline.addresses("http")
    return [Api(each) for number, each in enumerate(addresses) if number != dead]
