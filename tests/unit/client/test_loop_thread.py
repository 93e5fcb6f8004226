"""The blocking facade's loop when what runs in it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from paceline.client.loop_thread import LoopThread
from paceline.errors import Closed


@asynccontextmanager
async def _fails_when(event: trio.Event) -> AsyncIterator[None]:
    async def fail() -> None:
        await event.wait()
        raise RuntimeError("out of tea")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail)
        yield


def _event(loop: LoopThread) -> trio.Event:
    return loop.call_sync(trio.Event)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_calls_after_a_failure_in_the_loop_say_what_it_was() -> None:
    loop = LoopThread()
    event = _event(loop)
    loop.enter(_fails_when(event))

    async def wait_for_ever() -> None:
        event.set()
        await trio.sleep_forever()

    with pytest.raises(Closed, match="the client was closed") as told:
        loop.call(wait_for_ever)
    cause = told.value.__cause__
    assert isinstance(cause, ExceptionGroup)
    assert cause.subgroup(RuntimeError) is not None
    loop.close()


def test_closing_raises_what_leaving_raises() -> None:
    loop = LoopThread()
    event = _event(loop)

    @asynccontextmanager
    async def fails_when_left() -> AsyncIterator[None]:
        async with _fails_when(event):
            try:
                yield
            finally:
                event.set()

    held = loop.enter(fails_when_left())
    with pytest.raises(ExceptionGroup) as told:
        held.close()
    assert told.group_contains(RuntimeError, match="out of tea")
    held.close()
    loop.close()
