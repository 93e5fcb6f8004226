"""What leaves the scopes of clients, producers and consumers."""

from __future__ import annotations

import pytest
import trio

from paceline.client.single_error_nursery import open_scope
from paceline.errors import RequestTimedOut


async def test_an_error_of_the_body_leaves_as_itself() -> None:
    with pytest.raises(RequestTimedOut):  # noqa: PT012
        async with open_scope() as nursery:
            nursery.start_soon(trio.sleep_forever)
            raise RequestTimedOut


async def test_an_error_leaves_as_itself_when_the_caller_is_cancelled_meanwhile() -> None:
    """The scope's tasks are cancelled from outside; whoever waits for the error must know it."""
    with trio.CancelScope() as outside, pytest.raises(RequestTimedOut):  # noqa: PT012
        async with open_scope() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.lowlevel.checkpoint()
            outside.cancel()
            raise RequestTimedOut
    assert outside.cancel_called


async def test_to_be_cancelled_is_no_error() -> None:
    with trio.CancelScope() as outside:
        async with open_scope() as nursery:
            nursery.start_soon(trio.sleep_forever)
            outside.cancel()
            await trio.sleep_forever()
    assert outside.cancelled_caught


async def test_two_errors_stay_a_group() -> None:
    async def fail() -> None:
        with trio.CancelScope(shield=True):
            await trio.lowlevel.checkpoint()
        raise ValueError

    with pytest.raises(BaseExceptionGroup) as caught:  # noqa: PT012
        async with open_scope() as nursery:
            nursery.start_soon(fail)
            nursery.start_soon(fail)
            await trio.sleep_forever()
    assert len(caught.value.exceptions) == 2
