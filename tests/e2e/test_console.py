"""The console in a real browser, on three real processes: what it shows is what commands print.

Needs Chromium (Debian: ``apt-get install chromium``); skipped with the reason where there is none.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from paceline.client import blocking
from paceline.types import TopicPartition
from tests.chromium import BROWSER, HANG_S, WHY_NOT, Tab, open_tab
from tests.e2e.cluster import Cluster

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason=WHY_NOT),
    pytest.mark.timeout(3 * HANG_S),
]
PICTURES = "PACELINE_PICTURES"
"""A directory that this names gets pictures of the pages."""
RECORDS = 3000
READ = 1000
TABLE = """Object.fromEntries([...document.querySelectorAll('[data-table="%s"] tbody tr')].map(
  (row) => [row.dataset.key, Object.fromEntries(
    [...row.children].map((each) => [each.dataset.field, each.innerText.trim()]))]))"""
LOOKED_AT_S = 3.0
"""Before a picture is taken: lines over time need some."""
SIZES = {"light": (1360, 900), "dark": (1360, 900), "narrow": (390, 844)}


class Load:
    """Writes, and reads as a group, until told to pause."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._over = threading.Event()
        self.written = 0

    def run(self) -> None:
        with (
            connected(self._cluster) as client,
            client.producer() as producer,
            client.group_consumer("orders", "tills") as tills,
        ):
            while not self._over.is_set():
                for number in range(200):
                    value = {"order": self.written, "euro": number % 97, "till": number % 3}
                    key = b"user-%d" % (number % 50)
                    producer.send("orders", json.dumps(value).encode(), key=key)
                    self.written += 1
                for _ in range(120):
                    next(tills)
                tills.commit()

    def end(self) -> None:
        self._over.set()


@contextmanager
def loaded(cluster: Cluster) -> Iterator[Load]:
    """Under load while the block runs."""
    load = Load(cluster)
    thread = threading.Thread(target=load.run, name="load")
    thread.start()
    try:
        yield load
    finally:
        load.end()
        thread.join(HANG_S)
        assert not thread.is_alive()


def connected(cluster: Cluster) -> AbstractContextManager[blocking.Client]:
    """A client that knows all nodes."""
    return blocking.connect(
        ",".join("{}:{}".format(*cluster.address(node, "native")) for node in range(3))
    )


@pytest.fixture
def orders(cluster: Cluster) -> Cluster:
    """Topics, records, a group that is behind, and a transactional id."""
    cluster.run("topic", "create", "orders", "--partitions", "6")
    cluster.run("topic", "create", "payments", "--partitions", "3")
    with connected(cluster) as client:
        with client.producer() as producer:
            for number in range(300):
                value, key = b'{"payment": %d}' % number, b"user-%d" % (number % 7)
                producer.send("payments", value, key=key)
        with client.group_consumer("payments", "books") as books:
            for _ in range(120):
                next(books)
            books.commit()
        with client.transactional_producer("till-1") as producer, producer.transaction():
            producer.send("orders", b"{}", key=b"user-1")
    return cluster


async def go(tab: Tab, path: str) -> None:
    """To a page, once it shows what it asked for."""
    await tab.value(f"location.hash = '#{path}'")
    await tab.until(
        f"document.querySelector('#main').dataset.shows === '#{path}'"
        " && document.querySelector('.state.live') && document.querySelector('h1')"
        " && !document.querySelector('#main .refusal')"
    )


async def table(tab: Tab, name: str) -> dict[str, dict[str, str]]:
    """A table's texts, by row and field."""
    await tab.until(f"document.querySelector('[data-table=\"{name}\"] tbody tr')")
    found: dict[str, dict[str, str]] = await tab.value(TABLE % name)
    return found


def number(text: str) -> int:
    return int(text.replace("\u202f", ""))


async def picture(tab: Tab, name: str) -> None:
    """Of what is shown, in all its looks, where somebody wants to look."""
    directory = os.environ.get(PICTURES)
    if directory is None:
        return
    for look, (width, height) in SIZES.items():
        await tab.look_as(width=width, height=height, theme="dark" if look == "dark" else "light")
        await trio.sleep(LOOKED_AT_S)
        await trio.Path(directory, f"{name}-{look}.png").write_bytes(await tab.picture())
    await tab.look_as(width=1360, height=900, theme="light")


async def test_pages_show_what_commands_print(orders: Cluster, tmp_path: Path) -> None:
    async def asked(*words: str) -> Any:
        return await trio.to_thread.run_sync(orders.json, *words)

    url = "http://{}:{}/".format(*orders.address(0, "http"))
    async with open_tab(url, tmp_path / "profile") as tab:
        await tab.look_as(width=1360, height=900, theme="light")
        with loaded(orders):
            await go(tab, "/")
            written = "document.querySelector('[data-tile=\"Written\"] .value').innerText"
            await tab.until(f"/[1-9]/.test({written})")
            await tab.until("document.querySelectorAll('.plot path.line').length === 4")
            for path, name in PAGES.items():
                await go(tab, path)
                await picture(tab, name)
        await topics_are(tab, await asked("topic", "list"))
        await topic_is(tab, await asked("topic", "describe", "orders"))
        await group_is(tab, await asked("group", "describe", "books"))
        await quorum_is(tab, await asked("quorum", "describe"), await asked("status"))
        await go(tab, "/connections")
        assert any(row["protocol"] == "http" for row in (await table(tab, "connections")).values())
        await records_are(tab, orders)
        assert await tab.value("document.querySelector('[data-verdict]').dataset.verdict") == "true"
        assert tab.complaints == []


PAGES = {
    "/": "overview",
    "/nodes": "nodes",
    "/topics": "topics",
    "/topics/orders": "topic",
    "/topics/orders/records/0?from=tail&form=json": "records",
    "/groups": "groups",
    "/groups/kafka/tills": "group",
    "/replication": "replication",
    "/quorum": "quorum",
    "/transactions": "transactions",
    "/connections": "connections",
}


async def topics_are(tab: Tab, listed: dict[str, Any]) -> None:
    await go(tab, "/topics")
    rows = await table(tab, "topics")
    assert {key.removeprefix("topic-"): number(row["partitions"]) for key, row in rows.items()} == {
        each["name"]: each["partitions"] for each in listed["topics"]
    }
    await tab.value("document.querySelector('input.filter').focus()")
    await tab.ask("Input.insertText", text="pay")
    await tab.until("document.querySelectorAll('[data-table=\"topics\"] tbody tr').length === 1")


async def topic_is(tab: Tab, described: dict[str, Any]) -> None:
    await go(tab, "/topics/orders")
    names = ("log_start_offset", "high_watermark", "log_end_offset")
    expected = {
        f"partition-{each['partition']}": {name: each[name] for name in names}
        for each in described["partitions"]
    }
    shown: object = None
    with trio.move_on_after(HANG_S):
        while shown != expected:
            rows = await table(tab, "partitions")
            shown = {key: {name: number(row[name]) for name in names} for key, row in rows.items()}
    assert shown == expected
    rows = await table(tab, "partitions")
    leaders = {key: row["leader"] for key, row in rows.items()}
    assert leaders == {
        f"partition-{each['partition']}": str(each["leader"]) for each in described["partitions"]
    }


async def group_is(tab: Tab, described: dict[str, Any]) -> None:
    await go(tab, "/groups/kafka/books")
    rows = await table(tab, "progress")
    assert {
        key: [number(row[name]) for name in ("committed", "end", "lag")]
        for key, row in rows.items()
    } == {
        f"{each['topic']}/{each['partition']}": [each["committed"], each["end"], each["lag"]]
        for each in described["partitions"]
    }
    lag = await tab.value("document.querySelector('[data-tile=\"Lag\"] .value').innerText")
    assert number(lag) == sum(each["lag"] for each in described["partitions"]) > 0


async def quorum_is(tab: Tab, quorum: dict[str, Any], status: dict[str, Any]) -> None:
    await go(tab, "/quorum")
    rows = await table(tab, "quorum")
    assert {key: (row["vote"], number(row["term"])) for key, row in rows.items()} == {
        f"voter-{each['node']}": (each["vote"], each["term"]) for each in quorum["nodes"]
    }
    await go(tab, "/nodes")
    for each in status["nodes"]:
        card = f"document.querySelector('[data-node=\"{each['id']}\"]')"
        led = await tab.until(f"{card}.querySelector('[data-fact=\"leads\"]').innerText")
        assert number(led.partition(" of ")[0]) == each["leads"]


async def records_are(tab: Tab, orders: Cluster) -> None:
    await go(tab, "/topics/payments/records/0?from=offset&at=0&contains=payment")
    shown = await table(tab, "records")

    def read() -> dict[str, str]:
        with (
            connected(orders) as client,
            client.consumer(TopicPartition("payments", 0)) as consumer,
        ):
            found = (next(consumer) for _ in range(min(100, len(shown))))
            return {f"record-{each.offset}": (each.value or b"").decode() for each in found}

    expected = await trio.to_thread.run_sync(read)
    assert {key: row["value"] for key, row in shown.items()} == expected


async def test_a_node_that_is_lost_and_comes_back(orders: Cluster, tmp_path: Path) -> None:
    url = "http://{}:{}/".format(*orders.address(0, "http"))
    verdict = "document.querySelector('[data-verdict]').dataset.verdict"

    async def run(*words: str) -> None:
        # A restart is waited for by looking at the page, however long it takes.
        await trio.to_thread.run_sync(partial(orders.run, *words, exit_code=None))

    async with open_tab(url, tmp_path / "profile") as tab:
        await go(tab, "/")
        await tab.until(f"{verdict} === 'true'")
        await run("node", "kill", "1")
        await tab.until(f"{verdict} === 'false'")
        for place in (".troubles", ".events"):
            await tab.until(f"document.querySelector('{place}').innerText.includes('node 1 is')")
        await picture(tab, "lost")
        await go(tab, "/replication")
        await tab.until("document.querySelector('[data-table=\"behind\"] .replica.out')")
        await picture(tab, "behind")
        await run("node", "restart", "1")
        await go(tab, "/")
        await tab.until(f"{verdict} === 'true'")
        await run("node", "kill", "0")
        await tab.until(
            "document.querySelector('.state.waiting') && document.querySelector('.refusal')"
        )
        await picture(tab, "alone")
        await run("node", "restart", "0")
        await tab.until(f"document.querySelector('.state.live') && {verdict} === 'true'")
