"""One line an address, in front of the work of looking at passwords (security/DESIGN 5.3)."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio
import trio.testing

from paceline.errors import AuthenticationFailed
from paceline_node.security.attempts import TOO_MANY
from paceline_node.security.password_line import PasswordLine


async def test_how_many_stand_there_is_bounded_and_nobody_keeps_others_out(
    autojump_clock: trio.testing.MockClock,
) -> None:
    line = PasswordLine(most_of_one=3, most=4, longest_wait_s=100)
    taken: list[str] = []

    async def stand(source: str) -> None:
        with suppress(AuthenticationFailed):
            async with line.turn(source):
                await trio.sleep(1)
                taken.append(source)

    async with trio.open_nursery() as nursery:
        for source in "aaaaabbbccd":
            nursery.start_soon(stand, source)
            await trio.testing.wait_all_tasks_blocked()
    assert sorted(taken) == list("aaabcd"), "an address with nobody there comes in"
    assert line.refused == 5
    assert not line._lines
    assert line._count == 0


async def test_nobody_waits_for_long(autojump_clock: trio.testing.MockClock) -> None:
    line = PasswordLine(longest_wait_s=2)
    async with line.turn("a"):
        began = trio.current_time()
        with pytest.raises(AuthenticationFailed, match=TOO_MANY):
            async with line.turn("a"):
                pass
        assert trio.current_time() - began == pytest.approx(2)
        async with line.turn("b"):
            pass
    async with line.turn("a"):
        pass
