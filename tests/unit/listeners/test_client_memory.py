"""The account of memory: what is charged, who waits and who is ended when it is short."""

from __future__ import annotations

from collections.abc import Callable

import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from paceline_node.client_addresses import source_of
from paceline_node.client_memory import FREE_BYTES, ClientMemory, Holding, Portion

MIB = 1024 * 1024


class Crowd:
    """An account of 16 MiB, and connections that may be ended."""

    def __init__(self) -> None:
        self.account = ClientMemory(16 * MIB)
        self.ended: list[str] = []

    def connection(self, name: str, address: str, held_bytes: int = 0) -> Holding:
        held = Holding(self.account, "native", address, lambda _: self.ended.append(name))
        held.change(held_bytes)
        return held


async def test_what_is_held_is_summed_up_and_given_back() -> None:
    crowd = Crowd()
    first = crowd.connection("first", "10.0.0.1", MIB)
    second = crowd.connection("second", "10.0.0.2", 2 * MIB)
    portion = Portion(second)
    portion.set(MIB)
    portion.give(5 * MIB)
    assert portion.held_bytes == 0
    second.arriving(MIB)
    assert dict(crowd.account.by_listener()) == {("native",): 4 * MIB}
    first.close()
    second.close()
    second.close()
    portion.set(MIB)  # of a request that ends after its connection
    assert crowd.account.held_bytes == 0


async def test_at_the_limit_the_greediest_of_the_greediest_address_is_ended() -> None:
    crowd = Crowd()
    crowd.connection("large", "10.0.0.1", 5 * MIB)
    for number in range(5):
        crowd.connection(f"of many {number}", "10.0.0.2", 2 * MIB + number)
    crowd.connection("small", "10.0.0.3", MIB - 20)
    assert crowd.ended == []
    newest = crowd.connection("newest", "10.0.0.4", 100)
    assert crowd.ended == ["of many 4"]
    newest.change(MIB)
    assert crowd.ended == ["of many 4"], "what is being ended counts no more"


async def test_who_has_a_request_at_work_is_not_ended_for_those_who_let_it_wait() -> None:
    """20 whose frames were never whole held less each than what was made of an honest request."""
    crowd = Crowd()
    for number in range(10):
        crowd.connection(f"begun {number}", "10.0.0.1", MIB + number)
    honest = crowd.connection("honest", "10.0.0.1", MIB // 10)
    request = Portion(honest, is_passing=True)
    request.set(6 * MIB)
    assert crowd.ended == ["begun 9"]
    request.give_all()
    assert honest.passing_bytes == 0


async def test_when_it_is_short_who_has_less_than_a_share_goes_on(autojump_clock) -> None:
    crowd = Crowd()
    greedy = crowd.connection("greedy", "10.0.0.1", 6 * MIB)
    other = crowd.connection("other", "10.0.0.1", 5 * MIB)
    small = crowd.connection("small", "10.0.0.2", MIB)
    await greedy.room()  # one at a time may go on
    await small.room()
    passed = trio.Event()
    await expect_waiting(other.room, passed, lambda: greedy.close())


async def expect_waiting(
    room: Callable[[], object], passed: trio.Event, free: Callable[[], None]
) -> None:
    async def wait() -> None:
        await room()  # type: ignore[misc]
        passed.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        assert not passed.is_set()
        free()
        await passed.wait()


async def test_who_lets_others_wait_and_is_silent_is_ended(autojump_clock) -> None:
    crowd = Crowd()
    silent = crowd.connection("silent", "10.0.0.1")
    silent.arriving(6 * MIB)
    answers = crowd.connection("takes its time with answers", "10.0.0.1", 5 * MIB)
    await answers.room()
    honest = crowd.connection("honest", "10.0.0.1")
    honest.arriving(4 * MIB)
    await honest.room()
    assert crowd.ended == ["silent"]


async def test_who_sends_a_little_is_not_silent_and_who_sends_less_is(autojump_clock) -> None:
    crowd = Crowd()
    slow = crowd.connection("slow", "10.0.0.1")
    for kib in range(0, 700, 70):
        slow.arriving(1 + kib * 1024)
        await trio.sleep(1)
        assert not slow.is_silent(trio.current_time())
    for _ in range(3):
        await trio.sleep(1)
        slow.arriving(MIB, 650 * 1024)
    assert slow.is_silent(trio.current_time())
    slow.arriving(0)
    assert not slow.is_silent(trio.current_time())


async def test_small_holdings_never_wait(autojump_clock) -> None:
    crowd = Crowd()
    crowd.connection("greedy", "10.0.0.1", 15 * MIB)
    small = crowd.connection("small", "10.0.0.1", FREE_BYTES)
    begun = trio.current_time()
    await small.room()
    assert trio.current_time() == begun


async def test_new_work_of_much_waits_for_memory_unless_its_address_holds_little(
    autojump_clock,
) -> None:
    crowd = Crowd()
    greedy = crowd.connection("greedy", "10.0.0.1", 9 * MIB)
    await Portion(crowd.connection("stranger", "10.0.0.2")).take(MIB)
    mine = Portion(crowd.connection("mine", "10.0.0.1"))

    async def take() -> None:
        await mine.take(MIB)

    await expect_waiting(take, trio.Event(), lambda: greedy.change(-4 * MIB))
    assert mine.held_bytes == MIB


async def test_addresses_that_are_one_client_are_one() -> None:
    assert source_of("10.1.2.3") == source_of("::ffff:10.1.2.3") == "10.1.2.3"
    assert source_of("2001:db8:1:2:3::4") == source_of("2001:db8:1:2:ffff::1%eth0")
    assert source_of("2001:db8:1:2::1") != source_of("2001:db8:1:3::1")
    assert source_of("::1") == "::1"
    assert source_of("memory") == "memory"


async def test_those_that_are_ended_do_not_fill_the_log() -> None:
    crowd = Crowd()
    with capture_logs() as lines:
        for number in range(40):
            crowd.connection(f"{number}", "10.0.0.1", 17 * MIB).close()
    assert len(crowd.ended) == 40
    assert [line["event"] for line in lines] == ["connection ended: memory for clients is short"]
