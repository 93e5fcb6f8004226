"""Pages of many metrics: made in turns and beside the loop, once for many, charged until taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import trio
import trio.testing

from paceline_node.client_memory import ClientMemory
from paceline_node.fair_line import ASKER, Asker
from paceline_node.http.pages import Scrapes, standard_pages
from paceline_node.http.server import HttpServer
from paceline_node.loop_turns import Turns
from paceline_node.observe.metric_types import Family, Kind

T = TypeVar("T")
FAMILIES, SERIES = 5, 1000
ASKING = 30
ASKED = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n"


class Node(trio.abc.Instrument):
    """Metrics of many partitions, and how they are read."""

    def __init__(self) -> None:
        self.begun = 0
        self.rounds_at: list[int] = []
        self.beside = 0
        self.rounds = 0

    def collect(self) -> Iterator[Family]:
        self.begun += 1
        for number in range(FAMILIES):
            self.rounds_at.append(self.rounds)
            samples = [((str(each),), float(each)) for each in range(SERIES)]
            yield Family(Kind.GAUGE, f"paceline_f{number}", "Doc.", ("partition",), samples)

    async def run_blocking(self, work: Callable[[], T]) -> T:
        self.beside += 1
        return await trio.to_thread.run_sync(work)

    def before_io_wait(self, timeout: float) -> None:
        """A round of the loop is over."""
        self.rounds += 1

    def server(self, memory: ClientMemory | None = None) -> HttpServer:
        memory = memory or ClientMemory(1 << 30)
        scrapes = Scrapes(self.collect, Turns(), self.run_blocking)
        return HttpServer(standard_pages(scrapes, list, lambda _: None, memory), memory=memory)


async def scrape(server: HttpServer) -> bytes:
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.handle, far)
        await near.send_all(ASKED + b"Connection: close\r\n\r\n")
        told = b""
        while more := await near.receive_some():
            told += more
    return told


async def test_others_go_on_between_families() -> None:
    node = Node()
    trio.lowlevel.add_instrument(node)
    told = await scrape(node.server())
    assert told.count(b"\npaceline_f") == FAMILIES * SERIES
    assert len(set(node.rounds_at)) == FAMILIES
    assert node.beside == 1


async def test_who_asks_at_the_same_time_shares_a_page() -> None:
    node = Node()
    server = node.server()
    told: list[bytes] = []

    async def one() -> None:
        told.append(await scrape(server))

    async with trio.open_nursery() as asking:
        for _ in range(ASKING):
            asking.start_soon(one)
    assert [each.count(b"\npaceline_f") for each in told] == [FAMILIES * SERIES] * ASKING
    assert node.begun < ASKING // 2
    before = node.begun
    await scrape(server)
    assert node.begun == before + 1, "a page is older than the question"


async def test_a_shared_page_is_nobodys_work() -> None:
    """Whoever has much under way would keep it from all whom it is made for."""
    askers: set[Asker] = set()

    def collect() -> Iterator[Family]:
        askers.add(ASKER.get())
        yield Family(Kind.GAUGE, "paceline_f", "Doc.", (), [((), 1.0)])

    scrapes = Scrapes(collect, Turns(), trio.to_thread.run_sync)
    mine = Asker("10.6.6.6", 5)
    ASKER.set(mine)
    await scrapes.page()
    assert askers == {Asker()}
    assert ASKER.get() == mine


async def test_a_page_that_nobody_takes_is_charged(nursery: trio.Nursery) -> None:
    memory = ClientMemory(1 << 30)
    server = Node().server(memory)
    near, far = trio.testing.lockstep_stream_pair()
    nursery.start_soon(server.handle, far)
    await near.send_all(ASKED + b"\r\n")
    assert await near.receive_some(1)
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert memory.held_bytes > 64 * 1024
    await near.aclose()
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert memory.held_bytes == 0
