"""Requests to tables that no table can answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio.testing

from paceline.wire.segment import pravega_messages as pravega
from tests.unit.listeners.world import world


async def test_a_name_that_names_no_table_is_answered_and_not_logged(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """The connection ended with a line in the log, of as many words as the client had said."""
    async with world(tmp_path) as node:
        client = await node.pravega()
        for number in range(30):
            name = f"\x1b]0;owned\x07{number}" + "x" * 30_000
            reply = await client.ask(pravega.ReadTable(number, name, "", ()))
            assert isinstance(reply, pravega.ErrorMessage)
            assert reply.request_id == number
            assert len(reply.message) < 200
    captured = capsys.readouterr()
    assert "owned" not in captured.out + captured.err
