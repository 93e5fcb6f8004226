"""Guessing is slow (security/DESIGN 5.3)."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from paceline.errors import AuthenticationFailed
from paceline_node.security.attempts import ADDRESSES_MAX, TOO_MANY, Attempts


def attempts() -> Attempts:
    return Attempts(trio.current_time, burst=3, cost_s=1.0, longest_wait_s=5.0)


async def fail(it: Attempts, source: str = "a") -> str:
    with pytest.raises(AuthenticationFailed) as failed:
        async with it.attempt(source):
            raise AuthenticationFailed("wrong")
    return str(failed.value)


async def test_the_first_failures_cost_nothing_and_then_each_its_second(
    autojump_clock: trio.testing.MockClock,
) -> None:
    it = attempts()
    start = trio.current_time()
    for _ in range(4):
        await fail(it)
    assert trio.current_time() == start
    for number in range(1, 20):
        await fail(it)
        assert trio.current_time() == pytest.approx(start + number)


async def test_others_and_those_who_succeed_are_not_slowed_down(
    autojump_clock: trio.testing.MockClock,
) -> None:
    it = attempts()
    start = trio.current_time()
    for _ in range(4):
        await fail(it)
    for _ in range(1000):
        async with it.attempt("b"):
            pass
    assert trio.current_time() == start
    async with it.attempt("a"):  # waits, and pays nothing
        pass
    assert trio.current_time() == pytest.approx(start + 1)
    assert it.owes_s("a") == pytest.approx(3)


async def test_many_at_once_stand_in_line_and_most_are_refused(
    autojump_clock: trio.testing.MockClock,
) -> None:
    it = attempts()
    for _ in range(3):
        await fail(it)
    said: list[str] = []

    async def one() -> None:
        said.append(await fail(it))

    start = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(100):
            nursery.start_soon(one)
    assert said.count("wrong") <= 7
    assert said.count(TOO_MANY) >= 93
    assert trio.current_time() - start == pytest.approx(said.count("wrong") - 1)


async def test_who_goes_away_while_it_is_looked_at_has_paid(
    autojump_clock: trio.testing.MockClock,
) -> None:
    it = attempts()
    for _ in range(4):
        with trio.move_on_after(0.001):
            async with it.attempt("a"):
                assert it.owes_s("a") > 0, "before it is known whether the proof is good"
                await trio.sleep_forever()
    assert it.owes_s("a") == pytest.approx(4, abs=0.1)


async def test_what_is_remembered_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    it = attempts()
    for number in range(ADDRESSES_MAX + 10):
        await fail(it, str(number))
    assert len(it._paid_at) == ADDRESSES_MAX
    await trio.sleep(2)
    await fail(it, "new")
    assert list(it._paid_at) == ["new"], "who owes nothing is forgotten first"
