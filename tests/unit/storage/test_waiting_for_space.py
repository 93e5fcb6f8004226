"""What waits for room, and what does not."""

from __future__ import annotations

import errno

import pytest
import structlog.testing
import trio
import trio.testing

from paceline_node.storage.waiting_for_space import RETRY_S, when_there_is_room


async def waiting_is_told(waits: list[str]) -> None:
    await trio.sleep(RETRY_S / 2)
    [told] = waits
    assert told.startswith("waiting for ")
    assert told.endswith(": no room")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE])
async def test_it_waits_and_says_so_once(code: int, autojump_clock: trio.testing.MockClock) -> None:
    tries = iter(range(3))

    waits: list[str] = []

    async def work() -> str:
        if next(tries, None) is not None:
            raise OSError(code, "no room", "topics")
        return "done"

    began = trio.current_time()
    with structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(waiting_is_told, waits)
            assert await when_there_is_room(work, waits) == "done"
    assert waits == []
    assert trio.current_time() - began == pytest.approx(3 * RETRY_S)
    assert [each["path"] for each in logs] == ["topics"]


async def test_a_failed_disk_is_not_waited_for() -> None:
    async def work() -> None:
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        await when_there_is_room(work, [])
